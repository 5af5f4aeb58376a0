//! Decides which records of a batch cleaning retains.

use std::collections::HashMap;

use klamm_records::convert::without_records;
use klamm_records::{
    Batch, BatchBuilder, BatchFields, Compression, Header, Record, RecordHeader, RecordsError, records,
};

use super::offset_map::OffsetMap;
use super::transactions::Transactions;

/// Limit on a decompressed batch, larger than any valid one; Apache Kafka has no such limit.
pub(super) const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Identifies a producer's last batch, which must be retained so that its sequence number stays known.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastBatch {
    /// -1 if the producer has no data batch left; then its marker is its last batch.
    pub(super) last_offset: i64,
    pub(super) producer_epoch: i16,
}

/// Inputs that are constant for a round.
pub(super) struct Rules<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) last_batches: &'a HashMap<i64, LastBatch>,
    /// The batch that ends at this offset keeps its position, so that the log's end stays known.
    pub(super) end_offset: i64,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
}

/// What happens to a batch.
pub(super) enum Outcome {
    Drop,
    Keep,
    Replace(Vec<u8>),
}

impl Rules<'_> {
    /// Decides about a batch. `scratch` is a buffer for decompressed records.
    pub(super) fn apply(
        &self,
        batch: Batch<'_>,
        transactions: &mut Transactions,
        scratch: &mut Vec<u8>,
    ) -> Result<Outcome, RecordsError> {
        let header = batch.header();
        let discardable = if header.is_control() {
            transactions.on_control(batch.bytes(), &header)
        } else {
            transactions.on_data(&header)
        };
        let horizon_ms = header.has_delete_horizon().then(|| header.base_timestamp());
        // A marker is retained for a while after its transaction's records were removed, for consumers that have read
        // some of them.
        let discard =
            discardable && (!header.is_control() || horizon_ms.is_some_and(|horizon_ms| horizon_ms <= self.now_ms));
        let keep_empty = self.is_last_of_producer(&header) || header.next_offset() == self.end_offset;
        if discard {
            return if keep_empty { empty(&header) } else { Ok(Outcome::Drop) };
        }
        self.filter(batch, horizon_ms, discardable && header.is_control(), keep_empty, scratch)
    }

    fn is_last_of_producer(&self, header: &Header<'_>) -> bool {
        if !header.has_producer_id() {
            return false;
        }
        self.last_batches.get(&header.producer_id()).is_some_and(|last| match last.last_offset {
            -1 => header.is_control() && header.producer_epoch() == last.producer_epoch,
            last_offset => header.last_offset() == last_offset,
        })
    }

    fn filter(
        &self,
        batch: Batch<'_>,
        horizon_ms: Option<i64>,
        is_marker_of_nothing: bool,
        keep_empty: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<Outcome, RecordsError> {
        let header = batch.header();
        let all = records(batch, scratch, DECOMPRESSED_BYTES_MAX)?;
        let (mut kept, mut read, mut has_tombstones) = (0, 0, false);
        for record in all.clone() {
            let record = record?;
            read += 1;
            if header.is_control() || self.keeps(&record, horizon_ms) {
                kept += 1;
                has_tombstones |= record.value.is_none();
            }
        }
        if kept == 0 {
            return if keep_empty { empty(&header) } else { Ok(Outcome::Drop) };
        }
        let begins_horizon = (has_tombstones || is_marker_of_nothing) && horizon_ms.is_none();
        if kept == read && !begins_horizon {
            return Ok(Outcome::Keep);
        }
        let new_horizon = begins_horizon.then(|| self.now_ms.saturating_add(self.delete_retention_ms));
        let mut builder = BatchBuilder::new(BatchFields::of(&header), Compression::of(batch.codec()?));
        if header.is_log_append_time() {
            builder = builder.log_append_time(header.max_timestamp());
        }
        if let Some(horizon_ms) = new_horizon.or(horizon_ms) {
            builder = builder.delete_horizon(horizon_ms);
        }
        let mut headers: Vec<RecordHeader<'_>> = Vec::new();
        for record in all {
            let record = record?;
            if header.is_control() || self.keeps(&record, horizon_ms) {
                headers.clear();
                headers.extend(record.headers);
                builder.append_at(record.offset, record.timestamp, record.key, record.value, &headers)?;
            }
        }
        builder.reach(header.last_offset())?;
        builder.finish().map(Outcome::Replace)
    }

    fn keeps(&self, record: &Record<'_>, horizon_ms: Option<i64>) -> bool {
        if record.offset > self.map.latest_offset() {
            return true;
        }
        // A record without a key is never retained, as in Apache Kafka.
        let Some(key) = record.key else { return false };
        let may_be_tombstone = horizon_ms.is_none_or(|horizon_ms| self.now_ms < horizon_ms);
        record.offset >= self.map.get(key) && (record.value.is_some() || may_be_tombstone)
    }
}

fn empty(header: &Header<'_>) -> Result<Outcome, RecordsError> {
    without_records(header).map(Outcome::Replace)
}
