//! Recognizes records by the shape of the previous one: the fast path for records that are alike.
//!
//! In most batches the keys and values of consecutive records have the same lengths, and their deltas take the same
//! number of bytes. After two records of equal size, [`Repeat::run`] checks further records of that shape with a few
//! comparisons of whole words each. It stops before a record that differs, which is then read field by field. So it
//! never has to report a malformed record, and it accepts exactly what `Fields::parse` accepts of such records.

use crate::error::RecordsError;
use crate::layout::{Layout, word};
use crate::walk::Shape;

/// The shape of the last records. Its words are all within a record.
pub(crate) struct Repeat {
    /// Bytes of the last record with its length field.
    size: usize,
    /// Whether the fields below describe that record.
    is_known: bool,
    /// The first word: the whole length, and where the varints of the deltas end.
    head: Known,
    timestamp: Varint,
    offset: Varint,
    key: Known,
    key_at: usize,
    value: Known,
    value_at: usize,
    has_key: bool,
}

/// The required values of some bits of a word.
#[derive(Clone, Copy, Default)]
struct Known {
    mask: u64,
    bits: u64,
}

/// A varint of at most three bytes in the first word.
#[derive(Clone, Copy, Default)]
struct Varint {
    shift: usize,
    /// The bits of its value, before they are shifted.
    mask: u64,
}

/// The state of a walk.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Where the next record begins.
    pub at: usize,
    /// Its index.
    pub index: i32,
    /// Whether the offset delta of every record so far is its index.
    pub offsets_consecutive: bool,
}

impl Place {
    /// Before the first record.
    pub const START: Self = Self { at: 0, index: 0, offsets_consecutive: true };
}

impl Repeat {
    /// No shape is known.
    pub fn new() -> Self {
        Self {
            size: 0,
            is_known: false,
            head: Known::default(),
            timestamp: Varint::default(),
            offset: Varint::default(),
            key: Known::default(),
            key_at: 0,
            value: Known::default(),
            value_at: 0,
            has_key: false,
        }
    }

    /// Continues from `place` through all records before index `count` that have the known shape.
    ///
    /// `visit` receives the records whose timestamp differs from the previous record's, and all records as long as it
    /// returns false.
    #[inline(always)]
    pub fn run(
        &self,
        bytes: &[u8],
        place: &mut Place,
        count: i32,
        visit: &mut impl FnMut(i32, Shape) -> Result<bool, RecordsError>,
    ) -> Result<(), RecordsError> {
        while let Some(timestamp) = self.timestamp_of_like(bytes, place, count) {
            let shape = Shape { timestamp_delta: short_value(timestamp), has_key: self.has_key };
            let end = if visit(place.index, shape)? { count } else { place.index + 1 };
            *place = self.pass_likes(bytes, *place, end, timestamp);
        }
        Ok(())
    }

    /// The bits of the timestamp at `place`, if there is another record of the known shape.
    #[inline(always)]
    fn timestamp_of_like(&self, bytes: &[u8], place: &Place, count: i32) -> Option<u64> {
        if !self.is_known || place.index >= count {
            return None;
        }
        let record = bytes[place.at..].get(..self.size)?;
        let head = word(record, 0)?;
        self.is_like(self.head, head, record)?.then_some(self.timestamp.bits_of(head))
    }

    /// Whether a record of the known size that begins with `word` has the known shape, with this head.
    #[inline(always)]
    fn is_like(&self, head: Known, first: u64, record: &[u8]) -> Option<bool> {
        let key = self.key.differs(word(record, self.key_at)?);
        let value = self.value.differs(word(record, self.value_at)?);
        let header_count = u64::from(*record.last()?);
        Some(head.differs(first) | key | value | header_count == 0)
    }

    /// Skips all records of the known shape with this timestamp.
    // In a function of its own, so that the loop's values stay in registers.
    #[inline(never)]
    fn pass_likes(&self, bytes: &[u8], mut place: Place, end: i32, timestamp: u64) -> Place {
        let head = self.head.and(self.timestamp.known(timestamp));
        let (most, mut passed) = ((end - place.index) as usize, 0);
        let (mut consecutive, mut gaps) = (short_bits(place.index), 0);
        let mut rest = &bytes[place.at..];
        while passed < most
            && let Some((record, after)) = rest.split_at_checked(self.size)
            && let Some(first) = word(record, 0)
            && self.is_like(head, first, record) == Some(true)
        {
            gaps |= self.offset.bits_of(first) ^ consecutive;
            consecutive = next_bits(consecutive);
            passed += 1;
            rest = after;
        }
        place.offsets_consecutive &= gaps == 0;
        place.index += passed as i32;
        place.at = bytes.len() - rest.len();
        place
    }

    /// Learns from a valid record that was read field by field: two of equal size suggest that more follow.
    #[inline(always)]
    pub fn note(&mut self, bytes: &[u8], at: usize, layout: &Layout) {
        let size = layout.end - at;
        if size != self.size {
            (self.size, self.is_known) = (size, false);
        } else if layout.header_count == 0 {
            self.learn(&bytes[at..layout.end], layout.value_field - at, layout.key_len >= 0);
        }
    }

    /// Learns the shape of a record without headers, unless a few words cannot describe it.
    #[inline(never)]
    fn learn(&mut self, record: &[u8], value_field: usize, has_key: bool) {
        let Some(head) = word(record, 0) else { return };
        let length_len = varint_len(head);
        let timestamp_at = length_len + 1;
        let offset_at = timestamp_at + varint_len(head >> (8 * timestamp_at));
        let key_field = offset_at + varint_len(head >> (8 * offset_at));
        if key_field > size_of::<u64>() {
            return;
        }
        self.head = Known::of(head, low_bytes(length_len) | ends_between(timestamp_at, key_field));
        self.timestamp = Varint::new(timestamp_at, offset_at);
        self.offset = Varint::new(offset_at, key_field);
        (self.key_at, self.key) = varint_at(record, key_field);
        (self.value_at, self.value) = varint_at(record, value_field);
        (self.has_key, self.is_known) = (has_key, true);
    }
}

impl Known {
    #[inline]
    fn of(word: u64, mask: u64) -> Self {
        Self { mask, bits: word & mask }
    }

    /// Both of two that have no bits in common.
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self { mask: self.mask | other.mask, bits: self.bits | other.bits }
    }

    /// Nonzero if the word differs.
    #[inline(always)]
    fn differs(self, word: u64) -> u64 {
        word & self.mask ^ self.bits
    }
}

impl Varint {
    /// The varint in the bytes `[at, end)` of the word.
    fn new(at: usize, end: usize) -> Self {
        Self { shift: 8 * at, mask: 0x7f_7f7f & low_bytes(end - at) }
    }

    /// The low seven bits of each of its bytes, in place.
    #[inline(always)]
    fn bits_of(self, word: u64) -> u64 {
        word >> self.shift & self.mask
    }

    /// That it has these bits.
    #[inline(always)]
    fn known(self, bits: u64) -> Known {
        Known { mask: self.mask << self.shift, bits: bits << self.shift }
    }
}

/// The varint at `at` in a record of at least one word: a word of the record that contains it, and its bits there.
#[inline(always)]
fn varint_at(record: &[u8], at: usize) -> (usize, Known) {
    let word_at = at.min(record.len() - size_of::<u64>());
    let (word, shift) = (word(record, word_at).expect("a word before the end"), 8 * (at - word_at));
    (word_at, Known::of(word, low_bytes(varint_len(word >> shift)) << shift))
}

/// The value whose bytes hold these bits.
fn short_value(bits: u64) -> i64 {
    let raw = bits & 0x7f | (bits & 0x7f00) >> 1 | (bits & 0x7f_0000) >> 2;
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// The bits of a non-negative number as its bytes hold them; matches no varint when three bytes cannot hold it.
#[inline(always)]
fn short_bits(number: i32) -> u64 {
    let raw = u64::from(number as u32) << 1;
    raw & 0x7f | (raw & 0x3f80) << 1 | (raw & !0x3fff) << 2
}

/// The bits of the next number.
#[inline(always)]
fn next_bits(bits: u64) -> u64 {
    const GAPS: u64 = 0x80_8080;
    // Set bits between the groups pass the carry on.
    ((bits | GAPS) + 2) & !GAPS
}

/// The lowest bytes of a word; at least one.
#[inline]
fn low_bytes(count: usize) -> u64 {
    u64::MAX >> (64 - 8 * count)
}

/// The bits that show which byte ends a varint.
const ENDS: u64 = 0x8080_8080_8080_8080;

/// Those within the bytes `[from, to)` of a word.
#[inline]
fn ends_between(from: usize, to: usize) -> u64 {
    (ENDS & low_bytes(to - from)) << (8 * from)
}

/// Bytes of the varint at the low end of `word`, at most three if it is a usual one.
#[inline]
fn varint_len(word: u64) -> usize {
    1 + (!word & ENDS).trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_have_consecutive_bits() {
        let mut bits = short_bits(0);
        for number in 0..(1 << 20) + 1000 {
            // Three bytes hold less than 2^20; no varint has the bits of a larger number.
            assert_eq!(bits & 0x7f_7f7f == bits, number < 1 << 20);
            if number < 1 << 20 {
                assert_eq!(bits, short_bits(number));
            }
            bits = next_bits(bits);
        }
    }
}
