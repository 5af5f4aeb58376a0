//! Writing primitives.

use crate::{ErrorCode, Uuid};

/// Writes consecutive primitives into its own buffer.
///
/// A string longer than [`super::STRING_LEN_MAX`] or an array whose length does not fit its field is a bug of the
/// caller and panics: data from the wire never is that long, and user input must be checked first.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// How often each error code was written, while they are counted.
    errors: Option<Box<ErrorCounts>>,
    throttle_time_at: Option<usize>,
}

/// Error codes and how often each was written, also that there was no error.
pub type ErrorCounts = Vec<(ErrorCode, u64)>;

macro_rules! write_fixed {
    ($($name:ident: $ty:ty),*) => {$(
        #[doc = concat!("A big-endian `", stringify!($ty), "`.")]
        #[inline]
        pub fn $name(&mut self, value: $ty) {
            self.bytes.extend_from_slice(&value.to_be_bytes());
        }
    )*};
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// A writer that appends to `bytes`.
    pub fn append_to(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Everything that was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Everything written so far.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Everything written so far, to patch a length or a count.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Number of bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Drops everything that was written and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.throttle_time_at = None;
    }

    /// Makes room for this many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Counts the error codes that are written from now on.
    pub fn count_errors(&mut self) {
        self.errors = Some(Box::default());
    }

    /// The error codes that were counted; none where they are not.
    pub fn take_errors(&mut self) -> ErrorCounts {
        self.errors.take().map(|errors| *errors).unwrap_or_default()
    }

    /// An error code.
    #[inline]
    pub fn error_code(&mut self, code: ErrorCode) {
        self.i16(code.0);
        if let Some(errors) = &mut self.errors {
            match errors.iter_mut().find(|(counted, _)| *counted == code) {
                Some((_, count)) => *count += 1,
                None => errors.push((code, 1)),
            }
        }
    }

    /// The throttle time of a response, which may be raised later.
    #[inline]
    pub fn throttle_time(&mut self, ms: i32) {
        self.throttle_time_at = Some(self.len());
        self.i32(ms);
    }

    /// Replaces the throttle time, if one was written.
    pub fn set_throttle_time(&mut self, ms: i32) {
        if let Some(at) = self.throttle_time_at {
            self.bytes[at..at + 4].copy_from_slice(&ms.to_be_bytes());
        }
    }

    write_fixed!(i8: i8, u8: u8, i16: i16, u16: u16, i32: i32, u32: u32, i64: i64, f64: f64);

    /// One byte, 0 or 1.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Sixteen bytes.
    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.bytes.extend_from_slice(&value.0);
    }

    /// Bytes as they are, without a length.
    #[inline]
    pub fn slice(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// Writes a copy of a range of what was written.
    pub fn repeat(&mut self, range: std::ops::Range<usize>) {
        self.bytes.extend_from_within(range);
    }

    /// Lets `fill` write `len` bytes; when it returns `false`, drops them and returns `false`.
    pub fn try_fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        let filled = fill(&mut self.bytes[start..]);
        if !filled {
            self.bytes.truncate(start);
        }
        filled
    }

    /// An unsigned varint.
    #[inline]
    pub fn unsigned_varint(&mut self, value: u32) {
        self.unsigned_varlong(u64::from(value));
    }

    /// An unsigned varint of 64 bits.
    #[inline]
    pub fn unsigned_varlong(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A zigzag varint.
    #[inline]
    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint((value << 1 ^ value >> 31) as u32);
    }

    /// A zigzag varint of 64 bits.
    #[inline]
    pub fn varlong(&mut self, value: i64) {
        self.unsigned_varlong((value << 1 ^ value >> 63) as u64);
    }

    /// A plain string (int16 length).
    #[inline]
    pub fn string(&mut self, value: &str) {
        self.i16(string_len(value));
        self.slice(value.as_bytes());
    }

    /// A plain string, or null.
    #[inline]
    pub fn nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.string(value),
            None => self.i16(-1),
        }
    }

    /// A compact string (varint of length + 1).
    #[inline]
    pub fn compact_string(&mut self, value: &str) {
        self.unsigned_varint(string_len(value) as u32 + 1);
        self.slice(value.as_bytes());
    }

    /// A compact string, or null.
    #[inline]
    pub fn compact_nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.compact_string(value),
            None => self.unsigned_varint(0),
        }
    }

    /// Plain bytes (int32 length).
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) {
        self.array_len(value.len());
        self.slice(value);
    }

    /// Plain bytes, or null.
    #[inline]
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bytes(value),
            None => self.i32(-1),
        }
    }

    /// Compact bytes (varint of length + 1).
    #[inline]
    pub fn compact_bytes(&mut self, value: &[u8]) {
        self.compact_array_len(value.len());
        self.slice(value);
    }

    /// Compact bytes, or null.
    #[inline]
    pub fn compact_nullable_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.compact_bytes(value),
            None => self.unsigned_varint(0),
        }
    }

    /// The element count of a plain array; the elements follow.
    #[inline]
    pub fn array_len(&mut self, count: usize) {
        self.i32(i32::try_from(count).expect("a length fits into an int32"));
    }

    /// The element count of a plain array, or null.
    #[inline]
    pub fn nullable_array_len(&mut self, count: Option<usize>) {
        match count {
            Some(count) => self.array_len(count),
            None => self.i32(-1),
        }
    }

    /// The element count of a compact array; the elements follow.
    #[inline]
    pub fn compact_array_len(&mut self, count: usize) {
        let count = i32::try_from(count).expect("a length fits into an int32");
        self.unsigned_varint(count as u32 + 1);
    }

    /// The element count of a compact array, or null.
    #[inline]
    pub fn compact_nullable_array_len(&mut self, count: Option<usize>) {
        match count {
            Some(count) => self.compact_array_len(count),
            None => self.unsigned_varint(0),
        }
    }

    /// The end of a flexible structure without tagged fields.
    #[inline]
    pub fn no_tagged_fields(&mut self) {
        self.u8(0);
    }

    /// One tagged field: tag, size, and what `write_value` writes. The caller writes the count before the first field
    /// and keeps the tags ascending.
    pub fn tagged_field(&mut self, tag: u32, write_value: impl FnOnce(&mut Writer)) {
        self.unsigned_varint(tag);
        let start = self.len();
        write_value(self);
        self.insert_size(start);
    }

    /// Moves what was written from `start` on and inserts its size, a varint, before it.
    fn insert_size(&mut self, start: usize) {
        let size = u32::try_from(self.len() - start).expect("a tagged field's size fits into an int32");
        let end = self.len();
        self.unsigned_varint(size);
        let size_len = self.len() - end;
        self.bytes[start..].rotate_right(size_len);
    }
}

#[inline]
fn string_len(value: &str) -> i16 {
    i16::try_from(value.len()).expect("a string of the protocol has at most 32767 bytes")
}
