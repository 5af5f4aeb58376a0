//! Reads the partitions of one fetch in order, within its limits (KIP-74).

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_log::FileSlice;
use klamm_replica::{Awaits, CONSUMER, Fetched, PartitionFetch, Quiet, SessionEntry};
use klamm_wire::fetch::{FetchRequest, FetchResult};

use super::backend::Partition;
use super::core::Core;
use super::pipeline::{Topics, id_with_partition};
use super::session::{TopicKey, Wanted};

/// Who fetches, and what it may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBy {
    read_committed: bool,
    pub replica_id: i32,
    replica_epoch: i64,
    client_rack: Option<Box<str>>,
}

/// The limits and the minimum of a fetch.
#[derive(Clone, Debug)]
pub struct Limits {
    max_bytes: usize,
    min_bytes: usize,
    pub by: ReadBy,
}

/// From this version on a consumer names its rack, and may read from followers (KIP-392).
const CLIENT_RACK_VERSION: i16 = 11;

impl Limits {
    pub fn of(request: &FetchRequest<'_>, version: i16, max_bytes: i32) -> Self {
        let max_bytes = request.max_bytes.min(max_bytes);
        let at_least_0 = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        Self {
            max_bytes: at_least_0(max_bytes),
            min_bytes: at_least_0(request.min_bytes.min(max_bytes)),
            by: ReadBy::of(request, version),
        }
    }

    /// What a fetch that finds too little waits for.
    pub fn awaits(&self) -> Awaits {
        if self.by.replica_id == CONSUMER { Awaits::HighWatermark } else { Awaits::LogEnd }
    }
}

impl ReadBy {
    pub fn of(request: &FetchRequest<'_>, version: i16) -> Self {
        Self {
            read_committed: request.isolation_level == 1 && !request.is_from_follower(),
            replica_id: request.replica_id,
            replica_epoch: request.replica_epoch,
            client_rack: (version >= CLIENT_RACK_VERSION).then(|| request.rack_id.as_ref().into()),
        }
    }

    pub fn is_follower(&self) -> bool {
        self.replica_id >= 0
    }
}

/// What the last response of a session said about a partition; -1: there was none.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

impl Sent {
    pub const NOTHING: Self = Self { high_watermark: -1, log_start_offset: -1 };

    fn quiet(self, entry: &SessionEntry) -> Quiet<'_> {
        Quiet { entry, high_watermark: self.high_watermark, log_start_offset: self.log_start_offset }
    }
}

/// One partition's part of the response.
pub struct PartitionResult {
    /// The partition's number in its session.
    pub number: u64,
    pub topic: TopicKey,
    pub index: i32,
    pub result: FetchResult,
    pub records: Option<FileSlice>,
}

/// The results of all partitions.
pub struct Gathered {
    pub results: Vec<PartitionResult>,
    /// Partitions that may return more later.
    pub partitions: Vec<Arc<dyn Partition>>,
    /// The number of quiet partitions, which may return more after they have changed.
    pub quiet: usize,
    bytes: usize,
    bytes_left: usize,
    /// Whether the response must be sent without waiting.
    pub is_urgent: bool,
    is_first_look: bool,
}

impl Gathered {
    pub fn new(limits: &Limits, is_first_look: bool) -> Self {
        let bytes_left = limits.max_bytes;
        Self {
            results: Vec::new(),
            partitions: Vec::new(),
            quiet: 0,
            bytes: 0,
            bytes_left,
            is_urgent: false,
            is_first_look,
        }
    }

    /// The number of partitions that may return more later.
    pub fn readable(&self) -> usize {
        self.partitions.len() + self.quiet
    }

    /// Whether the fetch has enough data, or waiting would not help.
    pub fn is_enough(&self, limits: &Limits) -> bool {
        self.is_urgent || self.readable() == 0 || self.bytes >= limits.min_bytes
    }

    /// Reads one partition, of whose session the last response said `sent`. Returns also where it is quiet from now on, if it is
    /// and has an `entry`.
    pub fn read(
        &mut self,
        core: &Core,
        topics: Topics<'_>,
        wanted: &Wanted,
        limits: &Limits,
        sent: Sent,
        entry: Option<&SessionEntry>,
    ) -> (PartitionResult, Option<Arc<dyn Partition>>) {
        let (index, number) = (wanted.partition.index, entry.map_or(0, |entry| entry.change.0));
        let mut quiet_on = None;
        let (result, records) = match find(topics, wanted) {
            Err(code) => (FetchResult::refused(code), None),
            Ok(topic) => {
                let fetched = match core.backend.partition(topic, index) {
                    Ok(partition) => {
                        let quiet = entry.map(|entry| sent.quiet(entry));
                        let fetched = partition.fetch(&PartitionFetch { quiet, ..self.request(wanted, limits) });
                        // A follower receives a higher high watermark (KIP-1166) and a higher log start at once.
                        let known = wanted.partition.high_watermark.max(sent.high_watermark);
                        let known_start = wanted.partition.log_start_offset.max(sent.log_start_offset);
                        let is_news = fetched.high_watermark > known || fetched.log_start_offset > known_start;
                        self.is_urgent |= limits.by.is_follower() && is_news;
                        if fetched.is_quiet {
                            quiet_on = Some(partition);
                        } else {
                            self.partitions.push(partition);
                        }
                        fetched
                    }
                    Err(code) => Fetched::error(code),
                };
                self.take(fetched)
            }
        };
        (PartitionResult { number, topic: wanted.topic.clone(), index, result, records }, quiet_on)
    }

    fn request<'l>(&self, wanted: &Wanted, limits: &'l Limits) -> PartitionFetch<'l> {
        let max_bytes = usize::try_from(wanted.partition.max_bytes).unwrap_or(0);
        PartitionFetch {
            fetch_offset: wanted.partition.fetch_offset,
            max_bytes: max_bytes.min(self.bytes_left),
            current_leader_epoch: wanted.partition.current_leader_epoch,
            last_fetched_epoch: wanted.partition.last_fetched_epoch,
            read_committed: limits.by.read_committed,
            replica_id: limits.by.replica_id,
            client_rack: limits.by.client_rack.as_deref(),
            replica_epoch: limits.by.replica_epoch,
            log_start_offset: wanted.partition.log_start_offset,
            is_first_look: self.is_first_look,
            at_least_one: self.bytes == 0,
            quiet: None,
        }
    }

    fn take(&mut self, fetched: Fetched) -> (FetchResult, Option<FileSlice>) {
        let records = fetched.records.filter(|records| records.len > 0);
        let records_len = records.as_ref().map_or(0, |records| records.len);
        self.bytes += records_len;
        self.bytes_left = self.bytes_left.saturating_sub(records_len);
        self.is_urgent |= fetched.error.is_error() || fetched.diverging.is_some();
        self.is_urgent |= fetched.preferred_read_replica.is_some();
        let result = FetchResult {
            error: fetched.error,
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
            log_start_offset: fetched.log_start_offset,
            aborted: fetched.aborted,
            diverging: fetched.diverging,
            current_leader: None,
            preferred_read_replica: fetched.preferred_read_replica.unwrap_or(-1),
            records_len,
        };
        (result, records)
    }
}

/// The topic's id if the cluster has such a partition.
fn find(topics: Topics<'_>, wanted: &Wanted) -> Result<Uuid, ErrorCode> {
    let topic = match &wanted.topic {
        TopicKey::Name(name) => topics.named(name)?,
        TopicKey::Id(id) => topics.with_id(*id)?,
    };
    id_with_partition(topic, wanted.partition.index)
}
