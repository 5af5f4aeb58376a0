//! Where the fields of a record are, found without looking at each byte: the fast path for usual records.
//!
//! Nearly all records have varints of at most three bytes. For those, [`Layout::of_usual`] reads a few words and keeps
//! everything in registers. It declines all others, which `Fields::parse` then reads or refuses. So it never has to
//! report an error, and it accepts exactly what `Fields::parse` accepts of such records.

/// A record at known positions of a buffer. A length of -1 is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key_at: usize,
    pub key_len: i64,
    /// Where the length of the value is.
    pub value_field: usize,
    pub value_at: usize,
    pub value_len: i64,
    pub headers_at: usize,
    pub header_count: u32,
    /// Where the next record begins.
    pub end: usize,
}

impl Layout {
    /// The record whose length field is at `at`, if it is a usual one and the buffer contains all of it and a few bytes
    /// more.
    #[inline(always)]
    pub fn of_usual(bytes: &[u8], at: usize) -> Option<Self> {
        let (length, used) = short_varint(word(bytes, at)?)?;
        let body = at + used;
        let end = body.checked_add(usize::try_from(length).ok()?)?;
        // One byte of attributes, then two varints of at most three bytes each, all in one word.
        let deltas = word(bytes, body)? >> 8;
        let (timestamp_delta, timestamp_used) = short_varint(deltas)?;
        let (offset_delta, offset_used) = short_varint(deltas >> (8 * timestamp_used))?;
        let key_field = body + 1 + timestamp_used + offset_used;
        let (key_len, key_used) = short_varint(word(bytes, key_field)?)?;
        let key_at = key_field + key_used;
        let value_field = key_at + nullable_len(key_len)?;
        let (value_len, value_used) = short_varint(half_word(bytes, value_field)?)?;
        let value_at = value_field + value_used;
        let count_field = value_at + nullable_len(value_len)?;
        let header_count = small_count(*bytes.get(count_field)?)?;
        let headers_at = count_field + 1;
        let after = if header_count == 0 { headers_at } else { after_headers(bytes, headers_at, end, header_count)? };
        let offset_delta = offset_delta as i32;
        (after == end && end <= bytes.len()).then_some(Self {
            timestamp_delta,
            offset_delta,
            key_at,
            key_len,
            value_field,
            value_at,
            value_len,
            headers_at,
            header_count,
            end,
        })
    }
}

/// Where the headers end; they must not reach beyond `end`.
fn after_headers(bytes: &[u8], at: usize, end: usize, count: u32) -> Option<usize> {
    let mut at = at;
    for _ in 0..count {
        let (key_len, used) = short_varint(half_word(bytes, at)?)?;
        at += used + usize::try_from(key_len).ok()?;
        let (value_len, used) = short_varint(half_word(bytes, at)?)?;
        at += used + nullable_len(value_len)?;
        if at > end {
            return None;
        }
    }
    Some(at)
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

#[inline(always)]
fn half_word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from(u32::from_le_bytes(*chunk)))
}

/// A zig-zag varint of at most three bytes at the low end of `word`, and the bytes it takes.
#[inline(always)]
fn short_varint(word: u64) -> Option<(i64, usize)> {
    let (raw, used) = if word & 0x80 == 0 {
        (word & 0x7f, 1)
    } else if word & 0x8000 == 0 {
        (word & 0x7f | (word >> 1) & 0x3f80, 2)
    } else if word & 0x80_0000 == 0 {
        (word & 0x7f | (word >> 1) & 0x3f80 | (word >> 2) & 0x1f_c000, 3)
    } else {
        return None;
    };
    Some(((raw >> 1) as i64 ^ -((raw & 1) as i64), used))
}

/// A count that is not negative and takes one byte.
#[inline(always)]
fn small_count(byte: u8) -> Option<u32> {
    (byte & 0x81 == 0).then_some(u32::from(byte) >> 1)
}

#[inline(always)]
fn nullable_len(len: i64) -> Option<usize> {
    if len >= 0 { Some(len as usize) } else { (len == -1).then_some(0) }
}
