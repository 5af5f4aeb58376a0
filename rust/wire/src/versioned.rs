//! One interface for both encodings: fixed-width lengths in old versions, compact ones in flexible versions
//! (KIP-482).

use std::borrow::Cow;

use klamm_base::primitives::{Reader, STRING_LEN_MAX, WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

/// A reader for a flexible or non-flexible version.
#[derive(Clone)]
pub struct VersionedReader<'a> {
    pub reader: Reader<'a>,
    flexible: bool,
}

impl<'a> VersionedReader<'a> {
    pub fn new(bytes: &'a [u8], flexible: bool) -> Self {
        Self { reader: Reader::new(bytes), flexible }
    }

    #[inline]
    pub fn is_flexible(&self) -> bool {
        self.flexible
    }

    /// The number of bytes of `body` that were read; this reader is at the rest of `body`.
    #[inline]
    pub fn position_in(&self, body: &[u8]) -> usize {
        body.len() - self.reader.remaining().len()
    }

    #[inline]
    pub fn i8(&mut self) -> Result<i8, WireError> {
        self.reader.i8()
    }

    #[inline]
    pub fn bool(&mut self) -> Result<bool, WireError> {
        self.reader.bool()
    }

    #[inline]
    pub fn i16(&mut self) -> Result<i16, WireError> {
        self.reader.i16()
    }

    #[inline]
    pub fn i32(&mut self) -> Result<i32, WireError> {
        self.reader.i32()
    }

    #[inline]
    pub fn i64(&mut self) -> Result<i64, WireError> {
        self.reader.i64()
    }

    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid, WireError> {
        self.reader.uuid()
    }

    /// A string; invalid UTF-8 is replaced, as in Apache Kafka.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'a, str>, WireError> {
        self.nullable_string()?.ok_or(WireError::UnexpectedNull)
    }

    #[inline]
    pub fn nullable_string(&mut self) -> Result<Option<Cow<'a, str>>, WireError> {
        self.string_bytes()?.map(readable).transpose()
    }

    #[inline]
    fn string_bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        if self.flexible {
            let bytes = self.reader.compact_nullable_bytes()?;
            return match bytes.map_or(0, <[u8]>::len) {
                ..=STRING_LEN_MAX => Ok(bytes),
                len => Err(WireError::InvalidLength(len as i64)),
            };
        }
        let len = usize::try_from(self.reader.i16()?).ok();
        len.map(|len| self.reader.slice(len)).transpose()
    }

    #[inline]
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        if self.flexible { self.reader.compact_nullable_bytes() } else { self.reader.nullable_bytes() }
    }

    /// The element count of an array whose elements take at least `element_size_min` bytes each.
    #[inline]
    pub fn array_len(&mut self, element_size_min: usize) -> Result<usize, WireError> {
        self.nullable_array_len(element_size_min)?.ok_or(WireError::UnexpectedNull)
    }

    #[inline]
    pub fn nullable_array_len(&mut self, element_size_min: usize) -> Result<Option<usize>, WireError> {
        match self.flexible {
            true => self.reader.compact_nullable_array_len(element_size_min),
            false => self.reader.nullable_array_len(element_size_min),
        }
    }

    /// An array whose elements take at least `element_size_min` bytes each.
    pub fn array<T>(
        &mut self,
        element_size_min: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        // An element may be larger in memory than on the wire, so no capacity is reserved in advance.
        (0..self.array_len(element_size_min)?).map(|_| read(self)).collect()
    }

    /// The end of a structure: skips tagged fields if the version has them.
    #[inline]
    pub fn skip_tags(&mut self) -> Result<(), WireError> {
        if self.flexible { self.reader.skip_tagged_fields() } else { Ok(()) }
    }

    /// The end of a structure with known tagged fields.
    #[inline]
    pub fn tags(
        &mut self,
        on_field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        if self.flexible { self.reader.tagged_fields(on_field) } else { Ok(()) }
    }
}

/// Decodes a string. Replaced bytes become longer: a string that could not be sent back is rejected.
#[inline]
fn readable(bytes: &[u8]) -> Result<Cow<'_, str>, WireError> {
    let text = String::from_utf8_lossy(bytes);
    if text.len() > STRING_LEN_MAX { Err(WireError::InvalidUtf8) } else { Ok(text) }
}

/// A writer for a flexible or non-flexible version.
pub struct VersionedWriter<'a> {
    pub writer: &'a mut Writer,
    flexible: bool,
}

impl<'a> VersionedWriter<'a> {
    pub fn new(writer: &'a mut Writer, flexible: bool) -> Self {
        Self { writer, flexible }
    }

    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.writer.i8(value);
    }

    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.writer.i16(value);
    }

    #[inline]
    pub fn error_code(&mut self, code: ErrorCode) {
        self.writer.error_code(code);
    }

    #[inline]
    pub fn throttle_time(&mut self, ms: i32) {
        self.writer.throttle_time(ms);
    }

    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.writer.i32(value);
    }

    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.writer.i64(value);
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.writer.bool(value);
    }

    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.writer.uuid(value);
    }

    #[inline]
    pub fn string(&mut self, value: &str) {
        if self.flexible { self.writer.compact_string(value) } else { self.writer.string(value) }
    }

    #[inline]
    pub fn nullable_string(&mut self, value: Option<&str>) {
        match self.flexible {
            true => self.writer.compact_nullable_string(value),
            false => self.writer.nullable_string(value),
        }
    }

    #[inline]
    pub fn bytes(&mut self, value: &[u8]) {
        if self.flexible { self.writer.compact_bytes(value) } else { self.writer.bytes(value) }
    }

    #[inline]
    pub fn array_len(&mut self, count: usize) {
        if self.flexible { self.writer.compact_array_len(count) } else { self.writer.array_len(count) }
    }

    #[inline]
    pub fn nullable_array_len(&mut self, count: Option<usize>) {
        match self.flexible {
            true => self.writer.compact_nullable_array_len(count),
            false => self.writer.nullable_array_len(count),
        }
    }

    /// The length of `len` bytes of records that are added separately.
    #[inline]
    pub fn records_len(&mut self, len: usize) {
        self.array_len(len);
    }

    pub fn i32_array(&mut self, values: &[i32]) {
        self.array_len(values.len());
        for &value in values {
            self.i32(value);
        }
    }

    /// The end of a structure without tagged fields.
    #[inline]
    pub fn no_tags(&mut self) {
        if self.flexible {
            self.writer.no_tagged_fields();
        }
    }
}
