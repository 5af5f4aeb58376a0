//! Recognizes records by the shape of the previous one: the fast path for records that are alike.
//!
//! In most batches the keys and values of consecutive records have the same lengths, and their deltas take the same
//! number of bytes. After two records of equal size, [`Repeat::run`] checks further records of that shape with a few
//! comparisons of whole words each. It stops before a record that differs, which is then read field by field. So it
//! never has to report a malformed record, and it accepts exactly what `Fields::parse` accepts of such records.

use crate::error::RecordsError;
use crate::layout::{Layout, half_word, word};
use crate::walk::Shape;

/// The shape of the last records.
pub(crate) struct Repeat {
    /// Bytes of the last record with its length field.
    size: usize,
    /// Bytes that must be available for the comparison; more than any buffer has while no shape is known.
    reach: usize,
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
            reach: usize::MAX,
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
        let record = bytes[place.at..].get(..self.reach)?;
        (place.index < count && self.is_like(record)?).then_some(self.timestamp.bits_of(word(record, 0)?))
    }

    /// Whether `record` begins with one of the known shape; `None` when there are fewer than [`Repeat::reach`] bytes.
    #[inline(always)]
    fn is_like(&self, record: &[u8]) -> Option<bool> {
        let head = self.head.differs(word(record, 0)?);
        let key = self.key.differs(half_word(record, self.key_at)?);
        let value = self.value.differs(half_word(record, self.value_at)?);
        let header_count = u64::from(*record.get(self.size - 1)?);
        Some(head | key | value | header_count == 0)
    }

    /// Skips all records of the known shape with this timestamp.
    // In a function of its own, so that the loop's values stay in registers.
    #[inline(never)]
    fn pass_likes(&self, bytes: &[u8], mut place: Place, end: i32, timestamp: u64) -> Place {
        let mut rest = &bytes[place.at..];
        while place.index < end
            && let Some(record) = rest.get(..self.reach)
            && self.is_like(record) == Some(true)
            && let Some(head) = word(record, 0)
            && self.timestamp.bits_of(head) == timestamp
        {
            place.offsets_consecutive &= self.offset.bits_of(head) == short_bits(place.index);
            place.index += 1;
            rest = &rest[self.size..];
        }
        place.at = bytes.len() - rest.len();
        place
    }

    /// Learns from a valid record that was read field by field: two of equal size suggest that more follow.
    #[inline(always)]
    pub fn note(&mut self, bytes: &[u8], at: usize, end: usize) {
        let size = end - at;
        if size == self.size {
            self.learn(bytes, at);
        } else {
            (self.size, self.reach) = (size, usize::MAX);
        }
    }

    #[inline(never)]
    fn learn(&mut self, bytes: &[u8], at: usize) {
        if let Some(repeat) = Layout::of_usual(bytes, at).and_then(|layout| Self::of(bytes, at, &layout)) {
            *self = repeat;
        }
    }

    /// The shape of a record; `None` when a few words cannot describe it.
    fn of(bytes: &[u8], at: usize, layout: &Layout) -> Option<Self> {
        let record = &bytes[at..layout.end];
        let length_len = varint_len(record, 0);
        let timestamp_at = length_len + 1;
        let offset_at = timestamp_at + varint_len(record, timestamp_at);
        let key_at = offset_at + varint_len(record, offset_at);
        let value_at = layout.key_at - at + bytes_of(layout.key_len);
        if key_at > size_of::<u64>() || layout.header_count > 0 {
            return None;
        }
        let head = word(bytes, at)?;
        let mask = low_bytes(length_len) | ends_between(timestamp_at, key_at);
        Some(Self {
            size: record.len(),
            reach: record.len().max(size_of::<u64>()).max(value_at + size_of::<u32>()),
            head: Known { mask, bits: head & mask },
            timestamp: Varint::new(timestamp_at, offset_at),
            offset: Varint::new(offset_at, key_at),
            key: Known::of(&record[key_at..layout.key_at - at]),
            key_at,
            value: Known::of(&record[value_at..layout.value_at - at]),
            value_at,
            has_key: layout.key_len >= 0,
        })
    }
}

impl Known {
    /// A varint of these at most three bytes.
    fn of(bytes: &[u8]) -> Self {
        let bits = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self { mask: low_bytes(bytes.len()), bits }
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

/// The lowest bytes of a word; at least one.
fn low_bytes(count: usize) -> u64 {
    u64::MAX >> (64 - 8 * count)
}

/// Within the bytes `[from, to)` of a word, the bits that show which byte ends a varint.
fn ends_between(from: usize, to: usize) -> u64 {
    (0x8080_8080_8080_8080 & low_bytes(to - from)) << (8 * from)
}

/// Bytes of the varint at `at`.
fn varint_len(bytes: &[u8], at: usize) -> usize {
    1 + bytes[at..].iter().take_while(|byte| **byte >= 0x80).count()
}

/// Bytes of a key or value; null has none.
fn bytes_of(len: i64) -> usize {
    usize::try_from(len).unwrap_or(0)
}
