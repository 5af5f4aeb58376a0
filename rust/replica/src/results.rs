//! What a partition is asked, and what it answers: appends, fetches and offsets.

use klamm_base::ErrorCode;
use klamm_log::FileSlice;

/// Where an append went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    /// -1 unless the topic has append time.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// Acknowledged by all once the high watermark is here.
    pub end_offset: i64,
    /// It is there already, with as many in-sync replicas as there must be: nothing is left to wait for.
    pub is_acked: bool,
}

/// Why nothing was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: ErrorCode,
    pub message: Option<String>,
    /// Index in the batch and reason of the records to blame.
    pub record_errors: Vec<(i32, Option<String>)>,
    pub log_start_offset: i64,
}

/// One partition of a Fetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFetch {
    pub fetch_offset: i64,
    pub max_bytes: usize,
    /// -1: not checked.
    pub current_leader_epoch: i32,
    /// -1: the reader does not look for divergence.
    pub last_fetched_epoch: i32,
    pub read_committed: bool,
    /// -1: a consumer.
    pub replica_id: i32,
    /// Log start offset of a follower; -1 from others.
    pub log_start_offset: i64,
    /// One whole batch is given even if it is larger than `max_bytes`.
    pub at_least_one: bool,
}

/// One partition of a Fetch answer; offsets are -1 beside most errors.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Producer id and first offset of each aborted transaction in the records; `None` unless read_committed.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// Epoch and its end offset: the reader's log leaves this one there.
    pub diverging: Option<(i32, i64)>,
    pub records: Option<FileSlice>,
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
        }
    }
}

/// A question of ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// A time in ms, or one of the special ones.
    pub timestamp: i64,
    /// -1: not checked.
    pub current_leader_epoch: i32,
    /// Isolation matters to consumers only: `None` sees up to the log's end.
    pub read_committed: Option<bool>,
    /// Tools may ask followers too.
    pub only_from_leader: bool,
}

/// An answer of ListOffsets; -1 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}
