//! What a leader answers to those who read: fetches, offsets by time, ends of epochs, and the removal of records.

use klamm_base::ErrorCode;
use klamm_base::LogError;
use klamm_log::{FileSlice, Log, Slice, Unverified};

use super::partition::{Leader, Partition};
use super::results::{Fetched, FoundOffset, OffsetQuery, PartitionFetch};

/// ListOffsets' special timestamps (facts 6.9).
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;
pub const MAX_TIMESTAMP: i64 = -3;
pub const EARLIEST_LOCAL: i64 = -4;
pub const LATEST_TIERED: i64 = -5;
pub const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// DeleteRecords' offset for "up to the high watermark".
pub const UP_TO_HIGH_WATERMARK: i64 = -1;

fn check_epoch(leader: &Leader, asked: i32) -> Result<(), ErrorCode> {
    match asked {
        -1 => Ok(()),
        epoch if epoch < leader.leadership.leader_epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
        epoch if epoch > leader.leadership.leader_epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}

impl Partition {
    /// Reads committed records for a consumer, or says why there are none for it.
    pub fn fetch(&self, fetch: &PartitionFetch) -> Fetched {
        if fetch.replica_id >= 0 {
            // No other node has a replica of this partition, so whoever says so is not assigned to it.
            return Fetched::error(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        loop {
            let mut state = self.state.lock();
            let (log, leader) = match state.leading() {
                Ok(parts) => parts,
                Err(code) => return Fetched::error(code),
            };
            if let Err(code) = check_epoch(leader, fetch.current_leader_epoch) {
                return Fetched::error(code);
            }
            let result = read(log, leader.watermark.get(), fetch);
            drop(state);
            match result.and_then(|(fetched, unverified)| self.verify(unverified).map(|again| (fetched, again))) {
                Ok((fetched, false)) => return fetched,
                Ok((_, true)) => {}
                Err(error) => {
                    self.report(&error);
                    return Fetched::error(error.code());
                }
            }
        }
    }

    /// Finds an offset by its time or by its place in the log (facts 6.9).
    pub fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        let mut state = self.state.lock();
        let (log, leader) = state.leading()?;
        check_epoch(leader, query.current_leader_epoch)?;
        if query.read_committed.is_some() && leader.watermark.get() < leader.epoch_start_offset {
            // A consumer must not be told an end that lies behind what it may have read before (facts 6.5).
            return Err(ErrorCode::OFFSET_NOT_AVAILABLE);
        }
        let result = find(log, leader, query);
        drop(state);
        result.map_err(|error| {
            self.report(&error);
            error.code()
        })
    }

    /// The largest known epoch up to `epoch` and its end offset; -1 both when there is none.
    pub fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        let mut state = self.state.lock();
        let (log, leader) = state.leading()?;
        check_epoch(leader, current_leader_epoch)?;
        Ok(log.end_offset_for_epoch(epoch).unwrap_or((-1, -1)))
    }

    /// Checks bytes that nobody read since the start, and reports damage; `true` when there were any: then the read is to be
    /// repeated.
    pub fn verify(&self, unverified: Option<Box<Unverified>>) -> Result<bool, LogError> {
        let Some(unverified) = unverified else { return Ok(false) };
        let verified = may_wait(|| unverified.check())?;
        self.with(|log| log.note_verified(verified));
        Ok(true)
    }

    /// Moves the log start up to `offset` (-1: the high watermark) and gives the new log start.
    pub fn delete_records(&self, offset: i64) -> Result<i64, ErrorCode> {
        let mut state = self.state.lock();
        let (log, leader) = state.leading()?;
        if !log.config().delete {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let high_watermark = leader.watermark.get();
        let offset = if offset == UP_TO_HIGH_WATERMARK { high_watermark } else { offset };
        if offset < 0 || offset > high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        log.advance_log_start(offset);
        Ok(log.log_start_offset())
    }
}

/// Runs `work`, which may wait for the disk: a task's worker goes to the other tasks meanwhile.
fn may_wait<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

type Read = (Fetched, Option<Box<Unverified>>);

fn read(log: &mut Log, high_watermark: i64, fetch: &PartitionFetch) -> Result<Read, LogError> {
    let last_stable_offset = log.last_stable_offset(high_watermark);
    let mut answer = Fetched {
        error: ErrorCode::NONE,
        high_watermark,
        last_stable_offset,
        log_start_offset: log.log_start_offset(),
        aborted: None,
        diverging: None,
        records: None,
    };
    if fetch.last_fetched_epoch >= 0 {
        let known = log.end_offset_for_epoch(fetch.last_fetched_epoch);
        let Some((epoch, end_offset)) = known.filter(|_| fetch.fetch_offset >= log.log_start_offset()) else {
            return Ok((Fetched::error(ErrorCode::OFFSET_OUT_OF_RANGE), None));
        };
        // The reader's log leaves this one at the end of that epoch (KIP-595 for partitions, Fetch v12).
        if epoch < fetch.last_fetched_epoch || end_offset < fetch.fetch_offset {
            answer.diverging = Some((epoch, end_offset));
            return Ok((answer, None));
        }
    }
    let upto = if fetch.read_committed { last_stable_offset } else { high_watermark };
    let mut slice = log.read(fetch.fetch_offset, fetch.max_bytes, upto, fetch.at_least_one)?;
    let unverified = slice.unverified.take();
    if fetch.read_committed {
        answer.aborted = Some(aborted(log, fetch.fetch_offset, &slice)?);
    }
    // A first batch that is cut is of no use to anybody, and clients of today do not ask for it.
    answer.records = if slice.first_batch_cut { None } else { file_slice(slice) };
    Ok((answer, unverified))
}

fn file_slice(slice: Slice) -> Option<FileSlice> {
    let Slice { file, position, len, .. } = slice;
    file.map(|file| FileSlice { file, position, len })
}

fn aborted(log: &mut Log, offset: i64, slice: &Slice) -> Result<Vec<(i64, i64)>, LogError> {
    let found = log.aborted_transactions(offset, slice)?;
    Ok(found.iter().map(|txn| (txn.producer_id, txn.first_offset)).collect())
}

fn find(log: &mut Log, leader: &Leader, query: &OffsetQuery) -> Result<FoundOffset, LogError> {
    const NONE: FoundOffset = FoundOffset { timestamp: -1, offset: -1, leader_epoch: -1 };
    let high_watermark = leader.watermark.get();
    let end = match query.read_committed {
        Some(true) => log.last_stable_offset(high_watermark),
        Some(false) => high_watermark,
        None => log.log_end_offset(),
    };
    let found = match query.timestamp {
        LATEST => {
            let leader_epoch = leader.leadership.leader_epoch;
            return Ok(FoundOffset { timestamp: -1, offset: end, leader_epoch });
        }
        EARLIEST | EARLIEST_LOCAL => {
            let offset = log.log_start_offset();
            let leader_epoch = log.epoch_for_offset(offset).unwrap_or(-1);
            return Ok(FoundOffset { timestamp: -1, offset, leader_epoch });
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        MAX_TIMESTAMP => log.offset_of_max_timestamp()?,
        timestamp => log.offset_for_timestamp(timestamp)?.filter(|found| found.offset < end),
    };
    Ok(found.map_or(NONE, |found| FoundOffset {
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: log.epoch_for_offset(found.offset).unwrap_or(-1),
    }))
}
