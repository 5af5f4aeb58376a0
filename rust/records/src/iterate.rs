//! The records of a batch, as consecutive views.

use crate::batch::Batch;
use crate::codec::{Codec, Decompressor};
use crate::error::{RecordFault, RecordsError};
use crate::record::{Fields, Record};
use crate::walk::Scratch;

/// The records of `batch`. A compressed batch is decompressed into `buffer`, whose content is replaced; it is refused
/// when it takes more than `decompressed_bytes_max`.
///
/// The iterator ends after the first error. It does not verify the CRC: see [`Batch::check`].
pub fn records<'a>(
    batch: Batch<'a>,
    buffer: &'a mut Vec<u8>,
    decompressed_bytes_max: usize,
) -> Result<Records<'a>, RecordsError> {
    let bytes = match batch.codec()? {
        Codec::None => batch.payload(),
        // Compaction may leave no record, and then not even a valid empty stream.
        _ if batch.header().record_count() == 0 => &[],
        codec => {
            buffer.clear();
            Scratch::with(|scratch| {
                let contexts = scratch.contexts();
                Decompressor::new(codec, batch.payload(), decompressed_bytes_max, contexts).read_to_end(buffer)
            })?;
            &buffer[..]
        }
    };
    Ok(Records::new(batch, bytes))
}

/// Iterator of [`records`].
#[derive(Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    count: i32,
    index: i32,
}

impl<'a> Records<'a> {
    fn new(batch: Batch<'a>, bytes: &'a [u8]) -> Self {
        let header = batch.header();
        Self {
            bytes,
            at: 0,
            base_offset: header.base_offset(),
            base_timestamp: header.base_timestamp(),
            append_time: header.is_log_append_time().then(|| header.max_timestamp()),
            count: header.record_count(),
            index: 0,
        }
    }

    /// Bytes of the records not yet read, decompressed.
    pub fn remaining_bytes(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline(always)]
    fn read(&mut self) -> Result<Record<'a>, RecordFault> {
        let (fields, end) = Fields::at(self.bytes, self.at)?;
        let Fields { key, value, headers, .. } = fields;
        let offset = self.base_offset.checked_add(i64::from(fields.offset_delta));
        let offset = offset.ok_or(RecordFault::OffsetOverflow)?;
        let created = self.base_timestamp.checked_add(fields.timestamp_delta);
        let timestamp = self.append_time.or(created).ok_or(RecordFault::TimestampOverflow)?;
        self.at = end;
        Ok(Record { offset, timestamp, key, value, headers })
    }

    #[cold]
    fn end(&mut self) -> Option<Result<Record<'a>, RecordsError>> {
        let (bytes, count) = (self.remaining_bytes(), self.count);
        if self.index > count || bytes == 0 {
            return None;
        }
        self.index = i32::MAX;
        self.count = 0;
        Some(Err(RecordsError::BytesAfterRecords { bytes, count }))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordsError>;

    // A record is ten words: returning it in memory from a call would cost as much as finding it.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return self.end();
        }
        let index = self.index;
        self.index += 1;
        match self.read() {
            Ok(record) => Some(Ok(record)),
            Err(fault) => {
                (self.index, self.count) = (i32::MAX, 0);
                Some(Err(RecordsError::BadRecord { index, fault }))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The count is not yet trusted: a record takes at least 7 bytes.
        let left = usize::try_from(self.count.saturating_sub(self.index)).unwrap_or(0);
        (0, Some(left.min(self.remaining_bytes() / 7) + 1))
    }
}
