//! A leader's read operations: fetches, offsets by time, end offsets of epochs, and DeleteRecords.

use klamm_base::ErrorCode;
use klamm_base::LogError;
use klamm_log::{FileSlice, Log, Slice, Unverified};

use super::core::{Awaits, FollowerFetch, Rule};
use super::fetch_waiter::Watcher;
use super::partition::{Partition, State};
use super::results::{CONSUMER, DEBUGGING, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Quiet};

/// Special timestamps of ListOffsets (`ListOffsetsRequest`).
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;
pub const MAX_TIMESTAMP: i64 = -3;
pub const EARLIEST_LOCAL: i64 = -4;
pub const LATEST_TIERED: i64 = -5;
pub const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// The offset in DeleteRecords that means the high watermark.
pub const UP_TO_HIGH_WATERMARK: i64 = -1;

impl Partition {
    /// Reads committed records for a consumer, or all records for a follower, whose progress is recorded; or returns the
    /// error.
    pub fn fetch(&self, fetch: &PartitionFetch<'_>) -> Fetched {
        let mut counts = fetch.is_first_look;
        loop {
            let read = if fetch.replica_id < 0 {
                self.read_for_client(&mut self.state.lock(), fetch)
            } else {
                self.read_for_follower(fetch, std::mem::take(&mut counts))
            };
            match read.and_then(|(fetched, unverified)| Ok((fetched, self.verify(unverified)?))) {
                Ok((fetched, false)) => return fetched,
                Ok((_, true)) => {}
                Err(ReadError::Refused(code)) => return Fetched::error(code),
                Err(ReadError::Log(error)) => {
                    self.report(&error);
                    return Fetched::error(error.code());
                }
            }
        }
    }

    /// Complete batches of this leader's log from `offset` on, up to the log's end, committed or not, and the offset from which
    /// on they count; empty at the end. A coordinator reads so, and continues with the intact batches after damage.
    pub fn read_led(&self, offset: i64, max_bytes: usize) -> Result<(i64, Vec<u8>), ErrorCode> {
        self.check_leader()?;
        let mut from = offset;
        loop {
            let read = self.with(|log| {
                from = from.max(log.log_start_offset());
                log.read(from, max_bytes, log.log_end_offset(), true)
            });
            let bytes = read.and_then(|mut slice| match self.verify(slice.unverified.take())? {
                true => Ok(None),
                false => slice.read().map(Some),
            });
            match bytes {
                Ok(Some(bytes)) => return Ok((from, bytes)),
                Ok(None) => {}
                Err(error) => {
                    self.report(&error);
                    from = self.with(|log| log.after_damage(from)).ok_or(error.code())?;
                }
            }
        }
    }

    /// The progress is recorded first, so that the follower receives the high watermark that results from it.
    fn read_for_follower(&self, fetch: &PartitionFetch<'_>, counts: bool) -> Result<Read, ReadError> {
        let now_ms = self.brokers.now_ms();
        let throttles = self.config().leader_throttled.contains(self.id.index, self.brokers.node_id);
        self.event(|state, effects| {
            let (log, core) = state.leading()?;
            core.check_epoch(fetch.current_leader_epoch)?;
            core.check_follower(fetch.replica_id, fetch.current_leader_epoch >= 0)?;
            if let Some(diverging) = divergence(log, fetch)? {
                return Ok((Fetched { diverging: Some(diverging), ..empty(log, core.high_watermark()) }, None));
            }
            if !(log.log_start_offset()..=log.log_end_offset()).contains(&fetch.fetch_offset) {
                return Err(ReadError::Refused(ErrorCode::OFFSET_OUT_OF_RANGE));
            }
            if counts {
                let offsets = state.offsets(self.durability);
                let progress = FollowerFetch {
                    replica_id: fetch.replica_id,
                    broker_epoch: fetch.replica_epoch,
                    fetch_offset: fetch.fetch_offset,
                    log_start_offset: fetch.log_start_offset,
                    leader_end_offset: offsets.end,
                };
                state.core.on_follower_fetch(&progress, &offsets, now_ms, &*self.brokers, effects)?;
            }
            let high_watermark = state.core.high_watermark();
            // A replica in sync is never held back, so that a throttle cannot shrink the ISR.
            let is_throttled = throttles && !state.core.isr().contains(&fetch.replica_id);
            if is_throttled && self.throttles().leader.is_exceeded(now_ms) {
                return Ok((empty(&state.log, high_watermark), None));
            }
            let upto = state.log.log_end_offset();
            let (mut fetched, unverified) = read(&mut state.log, high_watermark, upto, fetch)?;
            if let Some(quiet) = fetch.quiet.filter(|quiet| is_quiet(quiet, &fetched, fetch.fetch_offset, upto)) {
                let watcher = (Awaits::LogEnd, Watcher::Session(quiet.entry.clone()));
                let follower = (fetch.replica_id, &quiet.entry.news);
                let offsets = state.offsets(self.durability);
                fetched.is_quiet = state.core.become_quiet(watcher, Some(follower), &offsets);
            }
            if throttles && unverified.is_none() {
                self.throttles().leader.count(now_ms, fetched.records.as_ref().map_or(0, |records| records.len));
            }
            Ok((fetched, unverified))
        })
    }

    /// Records below the high watermark, or the replica in the consumer's rack.
    fn read_for_client(&self, state: &mut State, fetch: &PartitionFetch<'_>) -> Result<Read, ReadError> {
        let (log, core) = match fetch.client_rack {
            None if fetch.replica_id == CONSUMER => state.leading()?,
            _ => state.serving()?,
        };
        core.check_epoch(fetch.current_leader_epoch)?;
        let high_watermark = core.high_watermark();
        if let Some(rack) = fetch.client_rack.filter(|_| self.brokers.consumers_read_in_their_rack)
            && let Some(preferred) = core.replica_in_rack(rack, fetch.fetch_offset, &*self.brokers)
        {
            return Ok((Fetched { preferred_read_replica: Some(preferred), ..empty(log, high_watermark) }, None));
        }
        if let Some(diverging) = divergence(log, fetch)? {
            return Ok((Fetched { diverging: Some(diverging), ..empty(log, high_watermark) }, None));
        }
        let upto = match fetch.replica_id {
            DEBUGGING => log.log_end_offset(),
            _ if fetch.read_committed => log.last_stable_offset(high_watermark),
            _ => high_watermark,
        };
        let (mut fetched, unverified) = read(log, high_watermark, upto, fetch)?;
        // Beyond the high watermark, the replica in a consumer's rack may get what the leader has without another change.
        let may_change = fetch.fetch_offset > high_watermark && fetch.client_rack.is_some_and(|rack| !rack.is_empty());
        let quiet = fetch.quiet.filter(|quiet| !may_change && is_quiet(quiet, &fetched, fetch.fetch_offset, upto));
        if let Some(quiet) = quiet {
            let awaits = if fetch.replica_id == DEBUGGING { Awaits::LogEnd } else { Awaits::HighWatermark };
            let watcher = (awaits, Watcher::Session(quiet.entry.clone()));
            let offsets = state.offsets(self.durability);
            fetched.is_quiet = state.core.become_quiet(watcher, None, &offsets);
        }
        Ok((fetched, unverified))
    }

    /// Finds an offset by its timestamp, or by a special timestamp (ListOffsets).
    pub fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        let mut state = self.state.lock();
        let (log, core) = if query.only_from_leader { state.leading()? } else { state.serving()? };
        core.check_epoch(query.current_leader_epoch)?;
        if query.read_committed.is_some()
            && core.epoch_start_offset().is_some_and(|start| core.high_watermark() < start)
            && self.brokers.keeps(Rule::OffsetNotAvailable)
        {
            // A consumer must not receive an end offset below what it may have read already (KIP-207).
            return Err(ErrorCode::OFFSET_NOT_AVAILABLE);
        }
        let (high_watermark, leader_epoch) = (core.high_watermark(), core.leader_epoch());
        let result = find(log, high_watermark, leader_epoch, query);
        drop(state);
        result.map_err(|error| {
            self.report(&error);
            error.code()
        })
    }

    /// The largest known epoch up to `epoch` and its end offset; both -1 if there is none.
    pub fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        let mut state = self.state.lock();
        let (log, core) = state.leading()?;
        core.check_epoch(current_leader_epoch)?;
        Ok(log.end_offset_for_epoch(epoch).unwrap_or((-1, -1)))
    }

    /// Verifies data that was not read since the start, and reports damage; `true` if some data was verified: then
    /// the read must be repeated.
    pub fn verify(&self, unverified: Option<Box<Unverified>>) -> Result<bool, LogError> {
        let Some(unverified) = unverified else { return Ok(false) };
        let verified = may_wait(|| unverified.check())?;
        self.with(|log| log.note_verified(verified));
        Ok(true)
    }

    /// Moves the log start offset up to `offset` (-1: the high watermark), and returns what [`Self::low_watermark`] reaches
    /// when all live replicas have done the same.
    pub fn delete_records(&self, offset: i64) -> Result<i64, ErrorCode> {
        self.event(|state, effects| {
            let (log, core) = state.leading()?;
            if !log.config().delete {
                return Err(ErrorCode::POLICY_VIOLATION);
            }
            let high_watermark = core.high_watermark();
            let offset = if offset == UP_TO_HIGH_WATERMARK { high_watermark } else { offset };
            let end = if self.brokers.keeps(Rule::DeleteCommitted) { high_watermark } else { log.log_end_offset() };
            if offset < 0 || offset > end {
                return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
            }
            if log.advance_log_start(offset) {
                state.core.on_log_start(effects);
            }
            Ok(offset)
        })
    }

    /// The smallest log start offset of all live replicas.
    pub fn low_watermark(&self) -> Result<i64, ErrorCode> {
        let state = self.state.lock();
        state.core.low_watermark(&state.offsets(self.durability), &*self.brokers)
    }
}

/// Runs `work`, which may block on the disk: the runtime moves the worker's other tasks elsewhere.
fn may_wait<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

type Read = (Fetched, Option<Box<Unverified>>);

/// Why a fetch cannot be read.
enum ReadError {
    Refused(ErrorCode),
    Log(LogError),
}

impl From<ErrorCode> for ReadError {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code)
    }
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// The epoch and its end offset at which the reader's log diverges (KIP-595, Fetch v12).
fn divergence(log: &Log, fetch: &PartitionFetch<'_>) -> Result<Option<(i32, i64)>, ErrorCode> {
    if fetch.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let known = log.end_offset_for_epoch(fetch.last_fetched_epoch);
    let Some((epoch, end_offset)) = known.filter(|_| fetch.fetch_offset >= log.log_start_offset()) else {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    };
    Ok((epoch < fetch.last_fetched_epoch || end_offset < fetch.fetch_offset).then_some((epoch, end_offset)))
}

/// A result without records.
fn empty(log: &Log, high_watermark: i64) -> Fetched {
    Fetched {
        error: ErrorCode::NONE,
        high_watermark,
        last_stable_offset: log.last_stable_offset(high_watermark),
        log_start_offset: log.log_start_offset(),
        aborted: None,
        diverging: None,
        records: None,
        preferred_read_replica: None,
        is_quiet: false,
    }
}

/// Whether a fetch at this offset has read everything up to `upto`, and found nothing that its session's last response did not
/// say.
fn is_quiet(quiet: &Quiet<'_>, fetched: &Fetched, fetch_offset: i64, upto: i64) -> bool {
    fetch_offset >= upto
        && fetched.records.is_none()
        && (fetched.high_watermark, fetched.log_start_offset) == (quiet.high_watermark, quiet.log_start_offset)
}

fn read(log: &mut Log, high_watermark: i64, upto: i64, fetch: &PartitionFetch<'_>) -> Result<Read, LogError> {
    let mut answer = empty(log, high_watermark);
    let mut slice = log.read(fetch.fetch_offset, fetch.max_bytes, upto, fetch.at_least_one)?;
    let unverified = slice.unverified.take();
    if fetch.read_committed {
        answer.aborted = Some(aborted(log, fetch.fetch_offset, &slice)?);
    }
    // An incomplete first batch is useless to every client, and current clients do not ask for it.
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

fn find(log: &mut Log, high_watermark: i64, leader_epoch: i32, query: &OffsetQuery) -> Result<FoundOffset, LogError> {
    const NONE: FoundOffset = FoundOffset { timestamp: -1, offset: -1, leader_epoch: -1 };
    let end = match query.read_committed {
        Some(true) => log.last_stable_offset(high_watermark),
        Some(false) => high_watermark,
        None => log.log_end_offset(),
    };
    let found = match query.timestamp {
        LATEST => {
            return Ok(FoundOffset { timestamp: -1, offset: end, leader_epoch });
        }
        EARLIEST | EARLIEST_LOCAL => {
            let offset = log.log_start_offset();
            let leader_epoch = log.epoch_for_offset(offset).unwrap_or(-1);
            return Ok(FoundOffset { timestamp: -1, offset, leader_epoch });
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        MAX_TIMESTAMP => log.offset_of_max_timestamp()?.filter(|found| found.offset < end),
        timestamp => log.offset_for_timestamp(timestamp)?.filter(|found| found.offset < end),
    };
    Ok(found.map_or(NONE, |found| FoundOffset {
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: log.epoch_for_offset(found.offset).unwrap_or(-1),
    }))
}
