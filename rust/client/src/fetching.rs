//! Reads ranges of partitions.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use klamm_base::{ErrorCode, Uuid};

use super::attempts::Fault;
use super::client::{Client, check_topic};
use super::error::{ClientError, What};
use super::messages::fetch::{FetchRequest, FetchedPartition};
use super::messages::list_offsets::{EARLIEST, LATEST};
use super::slice::{Slice, Watermarks};

/// The offsets `[start, end)` of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRange {
    pub topic: String,
    pub partition: i32,
    pub start: i64,
    pub end: i64,
    /// The id of the expected topic, if known: another topic with the same name is not read.
    pub topic_id: Option<Uuid>,
}

/// Unread rests of responses, kept for calls that continue reading.
#[derive(Debug, Default)]
pub struct Kept {
    slices: HashMap<(String, i32), Slice>,
}

/// Limit on kept responses: more partitions are rarely read at the same time.
const KEPT_MAX: usize = 32;

impl Kept {
    fn take(&mut self, range: &FetchRange) -> Option<Slice> {
        let slice = self.slices.remove(&(range.topic.clone(), range.partition))?;
        (slice.next_offset() == range.start).then_some(slice)
    }

    fn give(&mut self, range: &FetchRange, slice: Slice) {
        if self.slices.len() >= KEPT_MAX
            && let Some(any) = self.slices.keys().next().cloned()
        {
            self.slices.remove(&any);
        }
        self.slices.insert((range.topic.clone(), range.partition), slice);
    }
}

impl Client {
    /// The next records of a range, not decoded. Empty if none arrived within `fetch.max.wait.ms`.
    ///
    /// An unread rest can be returned with [`Client::keep`].
    pub async fn fetch(&self, range: &FetchRange) -> Result<Slice, ClientError> {
        check_range(range)?;
        let what = What::partition("fetch", &range.topic, range.partition).at(range.start);
        let mut call = self.call(what)?;
        if let Some(mut kept) = self.kept.lock().take(range) {
            kept.set_end(range.end);
            return Ok(kept);
        }
        loop {
            match self.try_fetch(range, call.within()).await {
                Ok(fetched) if fetched.error == ErrorCode::OFFSET_OUT_OF_RANGE => {
                    return Err(self.out_of_range(range).await?);
                }
                Ok(fetched) if fetched.error.is_error() => call.wait_after(Fault::Code(fetched.error)).await?,
                Ok(fetched) => return Ok(self.slice_of(range, fetched)),
                Err(fault) => call.wait_after(fault).await?,
            }
        }
    }

    /// Keeps the rest of a slice for the next fetch of this partition.
    pub fn keep(&self, range: &FetchRange, slice: Slice) {
        if !slice.is_spent() {
            self.kept.lock().give(range, slice);
        }
    }

    async fn try_fetch(&self, range: &FetchRange, within: Duration) -> Result<FetchedPartition, Fault> {
        let leader = self.leader(&range.topic, range.partition, within).await?;
        if let Some(expected) = range.topic_id.filter(|id| ![*id, Uuid::ZERO].contains(&leader.topic_id)) {
            return Err(Fault::AnotherTopic { expected, found: leader.topic_id });
        }
        let config = &self.config;
        let request = FetchRequest {
            max_wait_ms: config.fetch_max_wait_ms,
            min_bytes: config.fetch_min_bytes,
            max_bytes: config.fetch_max_bytes,
            read_committed: config.read_committed,
            topic: &range.topic,
            topic_id: leader.topic_id,
            partition: range.partition,
            leader_epoch: leader.epoch,
            offset: range.start,
            partition_max_bytes: config.partition_fetch_bytes_max,
        };
        let answer = self.pool.call(&leader.address, &request, within).await?;
        if answer.error.is_error() {
            return Err(Fault::Code(answer.error));
        }
        answer.partitions.into_iter().find(|fetched| fetched.index == range.partition).ok_or(Fault::LeftOut)
    }

    fn slice_of(&self, range: &FetchRange, fetched: FetchedPartition) -> Slice {
        let watermarks = Watermarks {
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
            log_start_offset: fetched.log_start_offset,
        };
        let aborted = if self.config.read_committed { fetched.aborted } else { Vec::new() };
        let max = self.config.decompressed_bytes_max;
        Slice::new(fetched.records, range.start, range.end, aborted, max, watermarks)
    }

    /// The error for an offset that does not exist, with the existing range.
    async fn out_of_range(&self, range: &FetchRange) -> Result<ClientError, ClientError> {
        let mut ends = [0; 2];
        for (end, mark) in ends.iter_mut().zip([EARLIEST, LATEST]) {
            let found = self.offsets(&range.topic, &BTreeMap::from([(range.partition, mark)])).await?;
            *end = found[&range.partition].offset;
        }
        let (topic, [earliest, latest]) = (range.topic.clone(), ends);
        Ok(ClientError::OffsetOutOfRange { topic, partition: range.partition, offset: range.start, earliest, latest })
    }
}

fn check_range(range: &FetchRange) -> Result<(), ClientError> {
    check_topic(&range.topic)?;
    let (start, end) = (range.start, range.end);
    if start < 0 || end < start {
        return Err(ClientError::Invalid(format!("[{start}, {end}) is no range of offsets")));
    }
    Ok(())
}
