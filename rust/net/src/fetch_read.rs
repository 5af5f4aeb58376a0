//! Reading the partitions of one fetch, one after the other, within its limits (KIP-74).

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_log::FileSlice;
use klamm_replica::{Fetched, PartitionFetch};
use klamm_wire::fetch::{FetchRequest, FetchResult};

use super::backend::Partition;
use super::core::Core;
use super::pipeline::{Topics, id_with_partition};
use super::session::{TopicKey, Wanted};

/// What a fetch may take and has to have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    max_bytes: usize,
    min_bytes: usize,
    read_committed: bool,
    replica_id: i32,
}

impl Limits {
    pub fn of(request: &FetchRequest<'_>, max_bytes: i32) -> Self {
        let max_bytes = request.max_bytes.min(max_bytes);
        let at_least_0 = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        Self {
            max_bytes: at_least_0(max_bytes),
            min_bytes: at_least_0(request.min_bytes.min(max_bytes)),
            read_committed: request.isolation_level == 1 && !request.is_from_follower(),
            replica_id: request.replica_id,
        }
    }
}

/// One partition's part of the answer.
pub struct Told {
    /// The partition's turn in its session.
    pub turn: u64,
    pub topic: TopicKey,
    pub index: i32,
    pub result: FetchResult,
    pub records: Option<FileSlice>,
}

/// What the partitions gave.
pub struct Gathered {
    pub told: Vec<Told>,
    /// Partitions that may give more later.
    pub partitions: Vec<Arc<dyn Partition>>,
    bytes: usize,
    bytes_left: usize,
    /// Whether something must be told without waiting.
    is_urgent: bool,
}

impl Gathered {
    pub fn new(limits: &Limits) -> Self {
        Self { told: Vec::new(), partitions: Vec::new(), bytes: 0, bytes_left: limits.max_bytes, is_urgent: false }
    }

    /// Whether the fetch has what it asked for, or waiting would not help.
    pub fn is_enough(&self, limits: &Limits) -> bool {
        self.is_urgent || self.partitions.is_empty() || self.bytes >= limits.min_bytes
    }

    /// Reads one partition. Its turn in the session is the caller's to set.
    pub fn read(&mut self, core: &Core, topics: Topics<'_>, wanted: &Wanted, limits: &Limits) -> Told {
        let index = wanted.partition.index;
        let (result, records) = match find(topics, wanted) {
            Err(code) => (FetchResult::refused(code), None),
            Ok(topic) => {
                let fetched = match core.backend.partition(topic, index) {
                    Ok(partition) => {
                        let fetched = partition.fetch(&self.request(wanted, limits));
                        self.partitions.push(partition);
                        fetched
                    }
                    Err(code) => Fetched::error(code),
                };
                self.take(fetched)
            }
        };
        Told { turn: 0, topic: wanted.topic.clone(), index, result, records }
    }

    fn request(&self, wanted: &Wanted, limits: &Limits) -> PartitionFetch {
        let max_bytes = usize::try_from(wanted.partition.max_bytes).unwrap_or(0);
        PartitionFetch {
            fetch_offset: wanted.partition.fetch_offset,
            max_bytes: max_bytes.min(self.bytes_left),
            current_leader_epoch: wanted.partition.current_leader_epoch,
            last_fetched_epoch: wanted.partition.last_fetched_epoch,
            read_committed: limits.read_committed,
            replica_id: limits.replica_id,
            log_start_offset: wanted.partition.log_start_offset,
            at_least_one: self.bytes == 0,
        }
    }

    fn take(&mut self, fetched: Fetched) -> (FetchResult, Option<FileSlice>) {
        let records = fetched.records.filter(|records| records.len > 0);
        let records_len = records.as_ref().map_or(0, |records| records.len);
        self.bytes += records_len;
        self.bytes_left = self.bytes_left.saturating_sub(records_len);
        self.is_urgent |= fetched.error.is_error() || fetched.diverging.is_some();
        let result = FetchResult {
            error: fetched.error,
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
            log_start_offset: fetched.log_start_offset,
            aborted: fetched.aborted,
            diverging: fetched.diverging,
            current_leader: None,
            preferred_read_replica: -1,
            records_len,
        };
        (result, records)
    }
}

/// The topic's id, when the cluster has such a partition.
fn find(topics: Topics<'_>, wanted: &Wanted) -> Result<Uuid, ErrorCode> {
    let topic = match &wanted.topic {
        TopicKey::Name(name) => topics.named(name)?,
        TopicKey::Id(id) => topics.with_id(*id)?,
    };
    id_with_partition(topic, wanted.partition.index)
}
