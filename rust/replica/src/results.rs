//! The requests and results of a partition: appends, fetches and offsets.

use klamm_base::ErrorCode;
use klamm_log::FileSlice;

use super::session_news::SessionEntry;

/// The role of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub is_leader: bool,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    /// The committed ISR; empty unless it leads.
    pub isr: Vec<i32>,
    pub high_watermark: i64,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    /// -1 unless the topic uses append time.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// Acknowledged by all once the high watermark reaches this offset.
    pub end_offset: i64,
    /// The high watermark is there already, with enough in-sync replicas: there is nothing to wait for.
    pub is_acked: bool,
}

/// The error of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: ErrorCode,
    pub message: Option<String>,
    /// Index in the batch and reason for each invalid record.
    pub record_errors: Vec<(i32, Option<String>)>,
    pub log_start_offset: i64,
}

/// The replica id of a consumer.
pub const CONSUMER: i32 = -1;
/// The replica id of a tool that compares replicas: every replica returns all that it has.
pub const DEBUGGING: i32 = -2;

/// One partition of a Fetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFetch<'a> {
    pub fetch_offset: i64,
    pub max_bytes: usize,
    /// -1: not checked.
    pub current_leader_epoch: i32,
    /// -1: the reader does not check for divergence.
    pub last_fetched_epoch: i32,
    pub read_committed: bool,
    /// A follower, [`CONSUMER`], or [`DEBUGGING`].
    pub replica_id: i32,
    /// The rack of a consumer that may read from followers, "" if it is in none; `None`: only leaders answer it.
    pub client_rack: Option<&'a str>,
    /// The broker epoch of a follower; -1: it sends none.
    pub replica_epoch: i64,
    /// Log start offset of a follower; -1 for others.
    pub log_start_offset: i64,
    /// False when a request that waits looks again: its arrival said already how much the follower has.
    pub is_first_look: bool,
    /// Return one complete batch even if it is larger than `max_bytes`.
    pub at_least_one: bool,
    /// The session that does without visits from now on if the partition is quiet.
    pub quiet: Option<Quiet<'a>>,
}

/// What makes a partition quiet in a session: nothing to return but what the last response said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet<'a> {
    pub entry: &'a SessionEntry,
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

/// One partition of a Fetch response; offsets are -1 for most errors.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Producer id and first offset of each aborted transaction in the records; `None` unless read_committed.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// The epoch and its end offset at which the reader's log diverges.
    pub diverging: Option<(i32, i64)>,
    pub records: Option<FileSlice>,
    /// The replica from which the consumer shall read instead.
    pub preferred_read_replica: Option<i32>,
    /// The partition is quiet in the session and notifies it of the next change.
    pub is_quiet: bool,
}

impl Fetched {
    /// Only an error.
    pub fn error(error: ErrorCode) -> Self {
        Self {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: None,
            diverging: None,
            records: None,
            preferred_read_replica: None,
            is_quiet: false,
        }
    }
}

/// One query of ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// A time in ms, or a special timestamp.
    pub timestamp: i64,
    /// -1: not checked.
    pub current_leader_epoch: i32,
    /// The isolation level of a consumer; `None` (not a consumer) reads up to the log's end.
    pub read_committed: Option<bool>,
    /// Tools may query followers too.
    pub only_from_leader: bool,
}

/// One result of ListOffsets; -1 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}
