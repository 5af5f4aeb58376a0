//! One record as a view: length, attributes, timestamp and offset deltas, key, value, headers.

use crate::error::RecordFault;
use crate::layout::Layout;
use crate::varint::{Reader, VarintFault};

impl From<VarintFault> for RecordFault {
    #[inline]
    fn from(fault: VarintFault) -> Self {
        match fault {
            VarintFault::Cut => RecordFault::Cut,
            VarintFault::TooLong => RecordFault::OverlongVarint,
        }
    }
}

/// A record of a batch. Offset and timestamp are absolute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The fields of a record as stored, relative to its batch.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

impl<'a> Fields<'a> {
    /// The record with its length field at `at`, and where the next one begins.
    #[inline(always)]
    pub fn at(bytes: &'a [u8], at: usize) -> Result<(Self, usize), RecordFault> {
        match Layout::of_usual(bytes, at) {
            Some(layout) => Ok((Self::of_layout(bytes, &layout), layout.end)),
            None => Self::at_slowly(bytes, at),
        }
    }

    #[inline(always)]
    fn of_layout(bytes: &'a [u8], layout: &Layout) -> Self {
        let part = |at: usize, len: i64| usize::try_from(len).ok().map(|len| &bytes[at..at + len]);
        Self {
            timestamp_delta: layout.timestamp_delta,
            offset_delta: layout.offset_delta,
            key: part(layout.key_at, layout.key_len),
            value: part(layout.value_at, layout.value_len),
            headers: Headers::of_checked(&bytes[layout.headers_at..layout.end], layout.header_count),
        }
    }

    /// The same, for any record.
    #[inline(never)]
    pub fn at_slowly(bytes: &'a [u8], at: usize) -> Result<(Self, usize), RecordFault> {
        let mut reader = Reader::new(&bytes[at..]);
        let length = read_length(&mut reader)?.ok_or(RecordFault::Cut)?;
        let fields = Self::parse(reader.take(length).ok_or(RecordFault::Cut)?)?;
        Ok((fields, at + reader.position()))
    }

    /// Reads the record that is all of `body`: everything after its length.
    #[inline]
    fn parse(body: &'a [u8]) -> Result<Self, RecordFault> {
        let mut reader = Reader::new(body);
        // No bit of the attributes is assigned, and Apache Kafka ignores them.
        reader.byte().ok_or(RecordFault::Cut)?;
        let timestamp_delta = reader.varlong()?;
        let offset_delta = reader.varint()?;
        let key = nullable(&mut reader)?;
        let value = nullable(&mut reader)?;
        let count = u32::try_from(reader.varint()?).map_err(|_| RecordFault::NegativeSize)?;
        let headers = Headers::of_checked(reader.rest(), count);
        if count > 0 {
            reader = skip_headers(reader, count)?;
        }
        if reader.remaining() != 0 {
            return Err(RecordFault::SizeMismatch);
        }
        Ok(Self { timestamp_delta, offset_delta, key, value, headers })
    }
}

/// Reads the length of the record at the reader; `None` when the varint is cut.
#[inline]
pub(crate) fn read_length(reader: &mut Reader<'_>) -> Result<Option<usize>, RecordFault> {
    match reader.varint() {
        Ok(length) => usize::try_from(length).map(Some).map_err(|_| RecordFault::NegativeSize),
        Err(VarintFault::Cut) => Ok(None),
        Err(VarintFault::TooLong) => Err(RecordFault::OverlongLength),
    }
}

#[inline]
fn nullable<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, RecordFault> {
    match reader.varint()? {
        -1 => Ok(None),
        size => {
            let size = usize::try_from(size).map_err(|_| RecordFault::NegativeSize)?;
            reader.take(size).map(Some).ok_or(RecordFault::Cut)
        }
    }
}

#[inline]
fn header_at<'a>(reader: &mut Reader<'a>) -> Result<RecordHeader<'a>, RecordFault> {
    let key = nullable(reader)?.ok_or(RecordFault::NegativeSize)?;
    Ok(RecordHeader { key, value: nullable(reader)? })
}

// A header takes at least two bytes, so a wrong count ends with the bytes.
fn skip_headers(mut reader: Reader<'_>, count: u32) -> Result<Reader<'_>, RecordFault> {
    for _ in 0..count {
        header_at(&mut reader)?;
    }
    Ok(reader)
}

/// A header of a record. The key should be UTF-8, but producers need not comply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, which were checked when it was read.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.left == other.left && Iterator::eq(*self, *other)
    }
}

impl Headers<'_> {
    /// No headers.
    pub const NONE: Headers<'static> = Headers { reader: Reader::EMPTY, left: 0 };
}

impl<'a> Headers<'a> {
    /// The `count` headers at the start of `bytes`, which were checked.
    #[inline]
    pub(crate) fn of_checked(bytes: &'a [u8], count: u32) -> Self {
        Self { reader: Reader::new(bytes), left: count }
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = RecordHeader<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        header_at(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}
