//! Builds batches.

use crate::codec::{Codec, Compression};
use crate::error::{RecordFault, RecordsError};
use crate::header::{self, HEADER_LEN, Header, LENGTH_PREFIX};
use crate::record::RecordHeader;
use crate::validate::{NO_TIMESTAMP, TimestampType};
use crate::varint::{put_varint, put_varlong, varint_len, varlong_len};

/// The header fields of a batch that do not follow from its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFields {
    pub base_offset: i64,
    pub leader_epoch: i32,
    /// For LogAppendTime, pass the append time to [`BatchBuilder::log_append_time`] too.
    pub timestamp_type: TimestampType,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub transactional: bool,
    pub control: bool,
}

impl Default for BatchFields {
    /// A batch of a producer that is neither idempotent nor transactional.
    fn default() -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            timestamp_type: TimestampType::CreateTime,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
        }
    }
}

impl BatchFields {
    /// The fields of an existing batch.
    pub fn of(header: &Header<'_>) -> Self {
        let append_time = header.is_log_append_time();
        Self {
            base_offset: header.base_offset(),
            leader_epoch: header.leader_epoch(),
            timestamp_type: if append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
            producer_id: header.producer_id(),
            producer_epoch: header.producer_epoch(),
            base_sequence: header.base_sequence(),
            transactional: header.is_transactional(),
            control: header.is_control(),
        }
    }
}

/// Collects records into one batch.
pub struct BatchBuilder {
    fields: BatchFields,
    compression: Compression,
    /// Space for the header, then the records, not yet compressed.
    bytes: Vec<u8>,
    record_count: i32,
    last_offset_delta: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    append_time: Option<i64>,
    delete_horizon: bool,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new(fields: BatchFields, compression: Compression) -> Self {
        Self::with_buffer(fields, compression, Vec::new())
    }

    /// An empty batch that is built in an existing buffer, whose content is replaced.
    pub fn with_buffer(fields: BatchFields, compression: Compression, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEADER_LEN, 0);
        Self {
            fields,
            compression,
            bytes: buffer,
            record_count: 0,
            last_offset_delta: -1,
            base_timestamp: None,
            max_timestamp: NO_TIMESTAMP,
            append_time: None,
            delete_horizon: false,
        }
    }

    /// Gives all records the append time, in ms.
    pub fn log_append_time(mut self, append_time: i64) -> Self {
        self.fields.timestamp_type = TimestampType::LogAppendTime;
        self.append_time = Some(append_time);
        self
    }

    /// Sets the time in ms after which the cleaner may drop the batch's tombstones (KIP-534). Must come before
    /// the first record, whose timestamps are then relative to it.
    pub fn delete_horizon(mut self, horizon_ms: i64) -> Self {
        assert_eq!(self.record_count, 0, "the delete horizon is the base of the timestamps");
        self.base_timestamp = Some(horizon_ms);
        self.delete_horizon = true;
        self
    }

    /// Number of records so far.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Size in bytes of the batch so far, not compressed.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record at the next offset. Timestamps are in ms, [`NO_TIMESTAMP`] for none.
    #[inline]
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) -> Result<(), RecordsError> {
        let delta = self.last_offset_delta.checked_add(1);
        let delta = delta.ok_or(RecordsError::TooLargeToBuild { what: "the batch", size: i32::MAX as usize })?;
        self.append_at_delta(delta, timestamp, key, value, headers)
    }

    /// Adds a record at `offset`, which must be after the previous record. Compaction leaves gaps.
    pub fn append_at(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) -> Result<(), RecordsError> {
        let delta = self.delta_of(offset)?;
        if delta <= self.last_offset_delta {
            return Err(RecordsError::BadOffsetRange {
                base_offset: self.fields.base_offset,
                last_offset_delta: delta,
            });
        }
        self.append_at_delta(delta, timestamp, key, value, headers)
    }

    fn delta_of(&self, offset: i64) -> Result<i32, RecordsError> {
        let base_offset = self.fields.base_offset;
        let delta = offset.checked_sub(base_offset).and_then(|delta| i32::try_from(delta).ok());
        delta.filter(|delta| *delta >= 0).ok_or(RecordsError::BadOffsetRange { base_offset, last_offset_delta: -1 })
    }

    #[inline]
    fn append_at_delta(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) -> Result<(), RecordsError> {
        let base_timestamp = self.base_timestamp.unwrap_or(timestamp);
        let Some(timestamp_delta) = timestamp.checked_sub(base_timestamp) else {
            return Err(RecordsError::BadRecord { index: self.record_count, fault: RecordFault::TimestampOverflow });
        };
        let length = body_len(offset_delta, timestamp_delta, key, value, headers);
        let size = self.bytes.len() + length;
        // The length field and the batch's own count from byte 12 must fit too.
        let Some(length) = i32::try_from(length).ok().filter(|_| size < i32::MAX as usize) else {
            return Err(RecordsError::TooLargeToBuild { what: "the batch", size });
        };
        let out = &mut self.bytes;
        put_varint(out, length);
        out.push(0);
        put_varlong(out, timestamp_delta);
        put_varint(out, offset_delta);
        put_nullable(out, key);
        put_nullable(out, value);
        put_varint(out, headers.len() as i32);
        for header in headers {
            put_nullable(out, Some(header.key));
            put_nullable(out, header.value);
        }
        self.base_timestamp = Some(base_timestamp);
        self.record_count += 1;
        self.last_offset_delta = offset_delta;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    /// Extends the batch to `last_offset` although its last records were removed, so that compaction keeps the offset
    /// range of the batch.
    pub fn reach(&mut self, last_offset: i64) -> Result<(), RecordsError> {
        self.last_offset_delta = self.last_offset_delta.max(self.delta_of(last_offset)?);
        Ok(())
    }

    /// The finished batch. Without records it is only a header and not compressed.
    pub fn finish(mut self) -> Result<Vec<u8>, RecordsError> {
        let mut batch = std::mem::take(&mut self.bytes);
        let compressed = self.compression.codec() != Codec::None && self.record_count > 0;
        if compressed {
            let mut out = Vec::with_capacity(HEADER_LEN + batch.len() / 2);
            out.resize(HEADER_LEN, 0);
            self.compression.compress(&batch[HEADER_LEN..], &mut out)?;
            batch = out;
        }
        let codec = if compressed { self.compression.codec() } else { Codec::None };
        self.write_header(&mut batch, codec)?;
        Ok(batch)
    }

    fn write_header(&self, batch: &mut [u8], codec: Codec) -> Result<(), RecordsError> {
        let size = batch.len();
        let length = i32::try_from(size - LENGTH_PREFIX);
        let length = length.map_err(|_| RecordsError::TooLargeToBuild { what: "the batch", size })?;
        let fields = &self.fields;
        header::set_position(batch, fields.base_offset, fields.leader_epoch);
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        batch[21..23].copy_from_slice(&self.attributes(codec).to_be_bytes());
        batch[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        batch[27..35].copy_from_slice(&self.base_timestamp.unwrap_or(NO_TIMESTAMP).to_be_bytes());
        batch[35..43].copy_from_slice(&self.append_time.unwrap_or(self.max_timestamp).to_be_bytes());
        batch[43..51].copy_from_slice(&fields.producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&fields.producer_epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&fields.base_sequence.to_be_bytes());
        batch[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        header::set_crc(batch);
        Ok(())
    }

    fn attributes(&self, codec: Codec) -> i16 {
        let mut attributes = codec.id();
        let bits = [
            (self.fields.timestamp_type == TimestampType::LogAppendTime, header::TIMESTAMP_TYPE_BIT),
            (self.fields.transactional, header::TRANSACTIONAL_BIT),
            (self.fields.control, header::CONTROL_BIT),
            (self.delete_horizon, header::DELETE_HORIZON_BIT),
        ];
        for (set, bit) in bits {
            attributes |= if set { bit } else { 0 };
        }
        attributes
    }
}

#[inline]
fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        // The length of the record was checked, so this length fits too.
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

#[inline]
fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varlong_len(bytes.len() as i64) + bytes.len())
}

/// Length of a record without its length field. A record that is too long gives a length that is too long: it never
/// wraps around.
#[inline]
fn body_len(
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader<'_>],
) -> usize {
    let fixed = 1 + varlong_len(timestamp_delta) + varint_len(offset_delta);
    let mut len = fixed + nullable_len(key) + nullable_len(value) + varlong_len(headers.len() as i64);
    for header in headers {
        len += nullable_len(Some(header.key)) + nullable_len(header.value);
    }
    len
}
