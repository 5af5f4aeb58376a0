//! Reading primitives.

use super::{STRING_LEN_MAX, WireError};
use crate::Uuid;

/// Reads consecutive primitives. After an error the position is unspecified: drop the reader.
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

    /// The unread bytes.
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
            [low, high @ 0..0x80, left @ ..] => {
                self.left = left;
                Ok(u32::from(*low & 0x7f) | u32::from(*high) << 7)
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
            // Bits beyond the type's width must be zero: a value is never truncated silently.
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

    /// Compact bytes (varint of length + 1); records fields have the same encoding.
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

    /// Calls `on_field` for every tagged field. It returns whether it knows the tag, and must then have read all of the
    /// field. Unknown fields are skipped.
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

    /// Skips the tagged fields of a version that defines none.
    #[inline]
    pub fn skip_tagged_fields(&mut self) -> Result<(), WireError> {
        match self.left {
            // As in nearly all structures.
            [0, left @ ..] => {
                self.left = left;
                Ok(())
            }
            _ => self.tagged_fields(|_, _| Ok(false)),
        }
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
