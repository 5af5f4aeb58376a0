//! Batches that are being filled.

use std::collections::HashMap;
use std::sync::Arc;

use klamm_records::{BatchBuilder, BatchFields, RecordHeader, RecordsError};

use super::super::config::ProducerConfig;
use super::super::messages::transactions::Identity;
use super::accumulator::{ClosedBatch, Place};
use super::partitioner::Spread;

/// Records to produce, in the caller's representation.
pub trait Rows {
    fn count(&self) -> usize;

    fn row(&self, at: usize) -> Row<'_>;

    /// Appends the headers of a row to `out`.
    fn headers<'a>(&'a self, at: usize, out: &mut Vec<RecordHeader<'a>>);
}

/// One record without its headers.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The partition, if the caller chose one.
    pub partition: Option<i32>,
    pub timestamp_ms: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

/// Why a row was not accepted.
#[derive(Debug)]
pub enum RowRefused {
    TooLarge { at: usize, size: usize },
    NoSuchPartition { partition: i32 },
    Unbuildable(RecordsError),
}

/// The open batches, and where the next ones start.
#[derive(Debug, Default)]
pub struct Open {
    pub identity: Option<Identity>,
    topics: HashMap<Arc<str>, OpenTopic>,
}

#[derive(Debug, Default)]
struct OpenTopic {
    partitions: HashMap<i32, OpenPartition>,
    spread: Spread,
}

#[derive(Default)]
struct OpenPartition {
    next_sequence: i32,
    batch: Option<(BatchBuilder, u64)>,
}

impl std::fmt::Debug for OpenPartition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "OpenPartition(next_sequence {})", self.next_sequence)
    }
}

/// The minimum size of a record in addition to key, value and headers.
const RECORD_OVERHEAD: usize = 16;
const HEADER_OVERHEAD: usize = 10;

impl Open {
    /// Accepts rows from `at` on until the closed batches have `room` bytes; returns the next row.
    ///
    /// `partitions` are those of the topic, and not empty.
    #[expect(clippy::too_many_arguments, reason = "a row's way needs all of it")]
    pub fn append(
        &mut self,
        config: &ProducerConfig,
        topic: &Arc<str>,
        partitions: &[i32],
        rows: &dyn Rows,
        at: usize,
        room: usize,
        now_ms: u64,
        wall_ms: i64,
        closed: &mut Vec<(Place, ClosedBatch)>,
    ) -> Result<usize, RowRefused> {
        let identity = self.identity.expect("there is an identity before anything is produced");
        let open = self.topics.entry(topic.clone()).or_default();
        let mut headers = Vec::new();
        let mut closed_bytes = 0;
        for at in at..rows.count() {
            if closed_bytes >= room {
                return Ok(at);
            }
            let row = rows.row(at);
            headers.clear();
            rows.headers(at, &mut headers);
            let size = size_of_record(&row, &headers);
            if size > config.request_bytes_max {
                return Err(RowRefused::TooLarge { at, size });
            }
            let partition = match row.partition {
                Some(partition) if partitions.contains(&partition) => partition,
                Some(partition) => return Err(RowRefused::NoSuchPartition { partition }),
                None => open.spread.next(config.partitioner, partitions, row.key, size, config.batch_bytes),
            };
            let entry = open.partitions.entry(partition).or_default();
            let mut close = |entry: &mut OpenPartition| -> Result<(), RowRefused> {
                if let Some(batch) =
                    entry.close(now_ms + config.delivery_timeout_ms).map_err(RowRefused::Unbuildable)?
                {
                    closed_bytes += batch.bytes.len();
                    closed.push(((topic.clone(), partition), batch));
                }
                Ok(())
            };
            if entry.size() + size > config.batch_bytes {
                close(entry)?;
            }
            let builder = entry.builder(config, identity, now_ms);
            let timestamp = row.timestamp_ms.unwrap_or(wall_ms);
            builder.append(timestamp, row.key, row.value, &headers).map_err(RowRefused::Unbuildable)?;
            if entry.size() >= config.batch_bytes {
                close(entry)?;
            }
        }
        Ok(rows.count())
    }

    /// Closes batches that were opened at or before a time; `u64::MAX` closes all.
    pub fn close_until(&mut self, opened_ms: u64, deadline_ms: u64) -> Result<Vec<(Place, ClosedBatch)>, RecordsError> {
        let mut closed = Vec::new();
        for (topic, open) in &mut self.topics {
            for (partition, entry) in &mut open.partitions {
                if entry.batch.as_ref().is_some_and(|(_, opened)| *opened <= opened_ms)
                    && let Some(batch) = entry.close(deadline_ms)?
                {
                    closed.push(((topic.clone(), *partition), batch));
                }
            }
        }
        Ok(closed)
    }

    /// When the oldest open batch was opened.
    pub fn oldest_ms(&self) -> Option<u64> {
        let partitions = self.topics.values().flat_map(|open| open.partitions.values());
        partitions.filter_map(|entry| entry.batch.as_ref().map(|(_, opened_ms)| *opened_ms)).min()
    }

    /// Restarts with another identity.
    pub fn reset(&mut self, identity: Option<Identity>) {
        self.identity = identity;
        for open in self.topics.values_mut() {
            open.partitions.clear();
        }
    }

    /// Drops open batches. Their sequence numbers were not used: the next batches receive them.
    pub fn discard(&mut self) {
        for open in self.topics.values_mut() {
            open.partitions.values_mut().for_each(|entry| entry.batch = None);
        }
    }
}

impl OpenPartition {
    fn size(&self) -> usize {
        self.batch.as_ref().map_or(0, |(builder, _)| builder.size())
    }

    fn builder(&mut self, config: &ProducerConfig, identity: Identity, now_ms: u64) -> &mut BatchBuilder {
        let fields = BatchFields {
            producer_id: identity.id,
            producer_epoch: identity.epoch,
            base_sequence: self.next_sequence,
            transactional: config.transactional_id.is_some(),
            ..BatchFields::default()
        };
        &mut self.batch.get_or_insert_with(|| (BatchBuilder::new(fields, config.compression), now_ms)).0
    }

    fn close(&mut self, deadline_ms: u64) -> Result<Option<ClosedBatch>, RecordsError> {
        let Some((builder, _)) = self.batch.take() else { return Ok(None) };
        let (records, base_sequence) = (builder.record_count(), self.next_sequence);
        let bytes = builder.finish()?.into();
        // After the largest comes 0 (Apache Kafka's `DefaultRecordBatch.incrementSequence`).
        self.next_sequence = base_sequence.wrapping_add(records) & i32::MAX;
        Ok(Some(ClosedBatch { bytes, records, deadline_ms }))
    }
}

/// An upper bound on the size of a record in a batch.
fn size_of_record(row: &Row<'_>, headers: &[RecordHeader<'_>]) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let of_headers: usize = headers.iter().map(|one| one.key.len() + len(one.value) + HEADER_OVERHEAD).sum();
    RECORD_OVERHEAD + len(row.key) + len(row.value) + of_headers
}
