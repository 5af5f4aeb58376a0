//! The protocol's primitive types, read from and written to plain bytes.
//!
//! What is read is hostile: a length or a count is compared with the bytes that are left before it is used, so that
//! nothing a peer claims makes the reader allocate. Strings and bytes come back as slices of the input; arrays as a count
//! whose elements the caller reads, knowing the smallest size of one.
//!
//! Two encodings of lengths: *plain* (fixed width, -1 is null, read as every negative one is) in old message versions, *compact* (unsigned varint of
//! length + 1, 0 is null) in flexible ones (KIP-482).
use crate::Uuid;

/// The longest string of the protocol, in bytes: also in the compact encoding, where the format could say more.
pub const STRING_LEN_MAX: usize = i16::MAX as usize;

/// Bytes that do not hold what they should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{needed} bytes expected where {left} are left")]
    Truncated { needed: usize, left: usize },
    #[error("an array of {count} elements does not fit into the {left} bytes that are left")]
    CountTooLarge { count: u64, left: usize },
    #[error("a length of {0} is not valid")]
    InvalidLength(i64),
    #[error("a varint is longer than its type")]
    VarintTooLong,
    #[error("null where the field is not nullable")]
    UnexpectedNull,
    #[error("a string is not UTF-8")]
    InvalidUtf8,
    #[error("{left} bytes are left behind the end")]
    TrailingBytes { left: usize },
}

/// Reads primitives one after the other. After an error the position is unspecified: drop the reader.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

macro_rules! read_fixed {
    ($($name:ident: $ty:ty),*) => {$(
        #[doc = concat!("A big-endian `", stringify!($ty), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$ty, WireError> {
            Ok(<$ty>::from_be_bytes(*self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> &'a [u8] {
        self.left
    }

    /// Checks that everything has been read.
    #[inline]
    pub fn finish(self) -> Result<(), WireError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(WireError::TrailingBytes { left }),
        }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn slice(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, left) = self.left.split_at_checked(len).ok_or_else(|| self.truncated(len))?;
        self.left = left;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or_else(|| self.truncated(N))?;
        self.left = left;
        Ok(taken)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> WireError {
        WireError::Truncated { needed, left: self.left.len() }
    }

    read_fixed!(i8: i8, u8: u8, i16: i16, u16: u16, i32: i32, u32: u32, i64: i64, f64: f64);

    /// One byte; every value but 0 is true, as in Apache Kafka.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, WireError> {
        Ok(self.u8()? != 0)
    }

    /// Sixteen bytes.
    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid, WireError> {
        Ok(Uuid(*self.array()?))
    }

    /// An unsigned varint of at most 32 bits.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        match self.left {
            [byte @ 0..0x80, left @ ..] => {
                self.left = left;
                Ok(u32::from(*byte))
            }
            _ => u32::try_from(self.long_varint(32)?).map_err(|_| WireError::VarintTooLong),
        }
    }

    /// An unsigned varint of at most 64 bits.
    #[inline]
    pub fn unsigned_varlong(&mut self) -> Result<u64, WireError> {
        self.long_varint(64)
    }

    /// A zigzag varint of at most 32 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<i32, WireError> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// A zigzag varint of at most 64 bits.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, WireError> {
        let value = self.unsigned_varlong()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn long_varint(&mut self, bits: u32) -> Result<u64, WireError> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            let sextets = u64::from(byte & 0x7f);
            // The bits that do not fit any more must be zero: a value is never cut silently.
            if shift >= bits || (shift + 7 > bits && sextets >> (bits - shift) != 0) {
                return Err(WireError::VarintTooLong);
            }
            value |= sextets << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// A plain string (int16 length).
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, WireError> {
        self.nullable_string()?.ok_or(WireError::UnexpectedNull)
    }

    /// A plain string, or null.
    #[inline]
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, WireError> {
        let len = self.i16()?;
        self.optional_slice(i64::from(len))?.map(utf8).transpose()
    }

    /// A compact string (varint of length + 1).
    #[inline]
    pub fn compact_string(&mut self) -> Result<&'a str, WireError> {
        self.compact_nullable_string()?.ok_or(WireError::UnexpectedNull)
    }

    /// A compact string, or null.
    #[inline]
    pub fn compact_nullable_string(&mut self) -> Result<Option<&'a str>, WireError> {
        let len = self.compact_len()?;
        if len > STRING_LEN_MAX as i64 {
            return Err(WireError::InvalidLength(len));
        }
        self.optional_slice(len)?.map(utf8).transpose()
    }

    /// Plain bytes (int32 length).
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        self.nullable_bytes()?.ok_or(WireError::UnexpectedNull)
    }

    /// Plain bytes, or null.
    #[inline]
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let len = self.i32()?;
        self.optional_slice(i64::from(len))
    }

    /// Compact bytes (varint of length + 1); records fields are encoded alike.
    #[inline]
    pub fn compact_bytes(&mut self) -> Result<&'a [u8], WireError> {
        self.compact_nullable_bytes()?.ok_or(WireError::UnexpectedNull)
    }

    /// Compact bytes, or null.
    #[inline]
    pub fn compact_nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let len = self.compact_len()?;
        self.optional_slice(len)
    }

    /// The element count of a plain array, each element taking at least `element_size_min` bytes (at least 1).
    #[inline]
    pub fn array_len(&mut self, element_size_min: usize) -> Result<usize, WireError> {
        self.nullable_array_len(element_size_min)?.ok_or(WireError::UnexpectedNull)
    }

    /// The element count of a plain array that may be null.
    #[inline]
    pub fn nullable_array_len(&mut self, element_size_min: usize) -> Result<Option<usize>, WireError> {
        let count = self.i32()?;
        self.checked_count(i64::from(count), element_size_min)
    }

    /// The element count of a compact array, each element taking at least `element_size_min` bytes (at least 1).
    #[inline]
    pub fn compact_array_len(&mut self, element_size_min: usize) -> Result<usize, WireError> {
        self.compact_nullable_array_len(element_size_min)?.ok_or(WireError::UnexpectedNull)
    }

    /// The element count of a compact array that may be null.
    #[inline]
    pub fn compact_nullable_array_len(&mut self, element_size_min: usize) -> Result<Option<usize>, WireError> {
        let count = self.compact_len()?;
        self.checked_count(count, element_size_min)
    }

    /// Hands every tagged field to `on_field`, which returns whether it knows the tag and then has read all of it.
    /// Unknown ones are skipped.
    pub fn tagged_fields(
        &mut self,
        mut on_field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        let count = self.unsigned_varint()?;
        self.check_count(u64::from(count), 2)?;
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()?;
            let mut field = Reader::new(self.slice(size as usize)?);
            if on_field(tag, &mut field)? {
                field.finish()?;
            }
        }
        Ok(())
    }

    /// Reads the tagged fields of a version that knows none.
    #[inline]
    pub fn skip_tagged_fields(&mut self) -> Result<(), WireError> {
        self.tagged_fields(|_, _| Ok(false))
    }

    #[inline]
    fn compact_len(&mut self) -> Result<i64, WireError> {
        Ok(i64::from(self.unsigned_varint()?) - 1)
    }

    #[inline]
    fn optional_slice(&mut self, len: i64) -> Result<Option<&'a [u8]>, WireError> {
        match len {
            ..0 => Ok(None),
            _ => self.slice(usize::try_from(len).unwrap_or(usize::MAX)).map(Some),
        }
    }

    #[inline]
    fn checked_count(&self, count: i64, element_size_min: usize) -> Result<Option<usize>, WireError> {
        match u64::try_from(count) {
            Err(_) => Ok(None),
            Ok(count) => self.check_count(count, element_size_min).map(Some),
        }
    }

    #[inline]
    fn check_count(&self, count: u64, element_size_min: usize) -> Result<usize, WireError> {
        let most = self.left.len() / element_size_min.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(WireError::CountTooLarge { count, left: self.left.len() }),
        }
    }
}

#[inline]
fn utf8(bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|_| WireError::InvalidUtf8)
}

/// Writes primitives one after the other into bytes it owns.
///
/// A string longer than [`STRING_LEN_MAX`] or an array that no length field can hold is a fault of the caller and panics:
/// what came over the wire never is, and what a person typed must have been checked.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

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
    /// A writer with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// A writer that goes on behind `bytes`.
    pub fn append_to(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Everything written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What is written so far.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// What is written so far, to patch a length or a count.
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

    /// Drops everything written, keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
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

    /// Lets `fill` write `len` bytes; drops them again and returns `false` when it says that it did not.
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

    /// The end of a flexible structure that has no tagged field to say.
    #[inline]
    pub fn no_tagged_fields(&mut self) {
        self.u8(0);
    }

    /// One tagged field: tag, size, and what `write_value` writes. The count stands in front of the first and the tags
    /// ascend; both are the caller's to keep.
    pub fn tagged_field(&mut self, tag: u32, write_value: impl FnOnce(&mut Writer)) {
        self.unsigned_varint(tag);
        let start = self.len();
        write_value(self);
        self.insert_size(start);
    }

    /// Moves what stands behind `start` on and puts its size, a varint, in front.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::new();
        write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn varints_of_known_values() {
        for (value, bytes) in [(0, &[0x00][..]), (127, &[0x7f]), (128, &[0x80, 0x01]), (300, &[0xac, 0x02])] {
            assert_eq!(written(|writer| writer.unsigned_varint(value)), bytes);
        }
        assert_eq!(written(|writer| writer.varint(-1)), [0x01]);
        assert_eq!(written(|writer| writer.varint(1)), [0x02]);
        assert_eq!(written(|writer| writer.varlong(i64::MIN)), [[0xff; 9].as_slice(), &[0x01]].concat());
    }

    #[test]
    fn varints_that_do_not_fit_or_do_not_end_are_refused() {
        let too_long = Err(WireError::VarintTooLong);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x10]).unsigned_varint(), too_long);
        assert_eq!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).unsigned_varint(), too_long);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unsigned_varint(), Ok(u32::MAX));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).unsigned_varlong(),
            Err(WireError::VarintTooLong)
        );
        assert_eq!(Reader::new(&[0x80, 0x80]).varint(), Err(WireError::Truncated { needed: 1, left: 0 }));
        // Padded with zeroes, but within five bytes: Apache Kafka takes it.
        assert_eq!(Reader::new(&[0x81, 0x80, 0x00]).unsigned_varint(), Ok(1));
    }

    #[test]
    fn lengths_are_compared_with_what_is_left() {
        assert_eq!(Reader::new(&[0, 5, b'a']).string(), Err(WireError::Truncated { needed: 5, left: 1 }));
        assert_eq!(Reader::new(&[0xff, 0xfe]).nullable_string(), Ok(None));
        assert_eq!(Reader::new(&[0xff, 0xff]).string(), Err(WireError::UnexpectedNull));
        assert_eq!(Reader::new(&[0]).compact_bytes(), Err(WireError::UnexpectedNull));
        assert_eq!(Reader::new(&[2, 0xff]).compact_string(), Err(WireError::InvalidUtf8));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).compact_bytes(),
            Err(WireError::Truncated { needed: u32::MAX as usize - 1, left: 1 })
        );
        let long = written(|writer| writer.compact_bytes(&[b'a'; STRING_LEN_MAX + 1]));
        assert_eq!(Reader::new(&long).compact_string(), Err(WireError::InvalidLength(STRING_LEN_MAX as i64 + 1)));
    }

    #[test]
    fn counts_are_compared_with_what_is_left() {
        let error = |count| WireError::CountTooLarge { count, left: 3 };
        let too_large = |count| Err(error(count));
        assert_eq!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).array_len(1), too_large(0x7fff_ffff));
        assert_eq!(Reader::new(&[3, 1, 2, 3]).compact_array_len(2), too_large(2));
        assert_eq!(Reader::new(&[2, 1, 2, 3]).compact_array_len(2), Ok(1));
        assert_eq!(Reader::new(&[0]).compact_nullable_array_len(1), Ok(None));
        assert_eq!(Reader::new(&[0xff; 4]).nullable_array_len(1), Ok(None));
        assert_eq!(Reader::new(&[9, 1, 2, 3]).skip_tagged_fields(), Err(error(9)));
    }

    #[test]
    fn tagged_fields_are_sized_and_unknown_ones_skipped() {
        let bytes = written(|writer| {
            writer.unsigned_varint(2);
            writer.tagged_field(0, |field| field.compact_bytes(&[7; 200]));
            writer.tagged_field(5, |field| field.i32(9));
        });
        let mut seen = Vec::new();
        let mut reader = Reader::new(&bytes);
        reader
            .tagged_fields(|tag, field| {
                if tag == 5 {
                    seen.push(field.i32()?);
                }
                Ok(tag == 5)
            })
            .expect("well formed");
        assert_eq!(seen, [9]);
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_known_tagged_field_must_be_read_whole() {
        let bytes = written(|writer| {
            writer.unsigned_varint(1);
            writer.tagged_field(0, |field| field.i64(9));
        });
        let read = Reader::new(&bytes).tagged_fields(|_, field| field.i32().map(|_| true));
        assert_eq!(read, Err(WireError::TrailingBytes { left: 4 }));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            int in any::<i32>(), long in any::<i64>(), text in proptest::option::of(".{0,40}"),
            raw in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        ) {
            let bytes = written(|writer| {
                writer.varint(int);
                writer.varlong(long);
                writer.unsigned_varint(int as u32);
                writer.unsigned_varlong(long as u64);
                writer.nullable_string(text.as_deref());
                writer.compact_nullable_string(text.as_deref());
                writer.nullable_bytes(raw.as_deref());
                writer.compact_nullable_bytes(raw.as_deref());
            });
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(int));
            prop_assert_eq!(reader.varlong(), Ok(long));
            prop_assert_eq!(reader.unsigned_varint(), Ok(int as u32));
            prop_assert_eq!(reader.unsigned_varlong(), Ok(long as u64));
            prop_assert_eq!(reader.nullable_string(), Ok(text.as_deref()));
            prop_assert_eq!(reader.compact_nullable_string(), Ok(text.as_deref()));
            prop_assert_eq!(reader.nullable_bytes(), Ok(raw.as_deref()));
            prop_assert_eq!(reader.compact_nullable_bytes(), Ok(raw.as_deref()));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Reader::new(&bytes).unsigned_varint();
            let _ = Reader::new(&bytes).varlong();
            let _ = Reader::new(&bytes).nullable_string();
            let _ = Reader::new(&bytes).compact_nullable_bytes();
            let _ = Reader::new(&bytes).compact_nullable_array_len(3);
            let _ = Reader::new(&bytes).tagged_fields(|_, field| field.compact_string().map(|_| true));
        }
    }
}
