//! One batch as a view, and the batches of a buffer.

use crate::codec::Codec;
use crate::error::RecordsError;
use crate::header::{HEADER_LEN, Header, LENGTH_PREFIX, compute_crc};

const MAGIC_AT: usize = 16;

/// A complete batch over borrowed bytes.
///
/// Invariants, established by [`Batch::at_start_of`] and assumed everywhere else:
/// 1. `bytes` is exactly as long as the length field says, and at least [`HEADER_LEN`];
/// 2. the magic is 2.
///
/// Nothing else of the header is trusted before [`Batch::check`].
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The batch at the start of `bytes`; more may follow it.
    ///
    /// Fails with `Incomplete` when `bytes` ends before the batch does.
    #[inline]
    pub fn at_start_of(bytes: &'a [u8]) -> Result<Self, RecordsError> {
        let have = bytes.len();
        let Some(&magic) = bytes.get(MAGIC_AT) else {
            return Err(RecordsError::Incomplete { have, need: HEADER_LEN });
        };
        match magic as i8 {
            2 => {}
            magic @ 0..=1 => return Err(RecordsError::OldMagic { magic }),
            magic => return Err(RecordsError::UnknownMagic { magic }),
        }
        let length = i32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let need = match usize::try_from(length) {
            Ok(length) if length >= HEADER_LEN - LENGTH_PREFIX => length + LENGTH_PREFIX,
            _ => return Err(RecordsError::BadLength { length }),
        };
        let bytes = bytes.get(..need).ok_or(RecordsError::Incomplete { have, need })?;
        Ok(Self { bytes })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> Header<'a> {
        Header::at_start_of(self.bytes).expect("a batch holds a header")
    }

    /// All bytes of the batch.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of the records, compressed if the batch is.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// How the records are compressed.
    #[inline]
    pub fn codec(&self) -> Result<Codec, RecordsError> {
        let id = self.header().compression_id();
        Codec::from_id(id).ok_or(RecordsError::UnknownCompression { id })
    }

    /// Compares the stored CRC-32C with that of the bytes.
    #[inline]
    pub fn check_crc(&self) -> Result<(), RecordsError> {
        let stored = self.header().crc();
        let computed = compute_crc(self.bytes);
        if stored == computed { Ok(()) } else { Err(RecordsError::BadCrc { stored, computed }) }
    }

    /// Checks what a batch from a leader or from the disk must keep: the CRC, a known codec, an offset range,
    /// and no more records than offsets. Compaction leaves gaps and empty batches, so the count may be smaller.
    pub fn check(&self) -> Result<(), RecordsError> {
        self.check_crc()?;
        self.codec()?;
        let header = self.header();
        let (base_offset, last_offset_delta) = (header.base_offset(), header.last_offset_delta());
        let range_ok = base_offset >= 0
            && last_offset_delta >= 0
            && base_offset.checked_add(i64::from(last_offset_delta) + 1).is_some();
        if !range_ok {
            return Err(RecordsError::BadOffsetRange { base_offset, last_offset_delta });
        }
        let count = header.record_count();
        if count < 0 || i64::from(count) > i64::from(last_offset_delta) + 1 {
            return Err(RecordsError::BadCount { count, last_offset_delta });
        }
        Ok(())
    }
}

/// The consecutive batches in `bytes`.
///
/// Ends after the first error. A fetched set may end inside a batch: the error is then `Incomplete`, and
/// [`Batches::position`] is the number of bytes in complete batches.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, at: 0, failed: false }
}

/// Iterator of [`batches`].
#[derive(Clone)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
    failed: bool,
}

impl Batches<'_> {
    /// Bytes of the batches given out so far.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, RecordsError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.at == self.bytes.len() {
            return None;
        }
        let batch = Batch::at_start_of(&self.bytes[self.at..]);
        match &batch {
            Ok(batch) => self.at += batch.bytes.len(),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}
