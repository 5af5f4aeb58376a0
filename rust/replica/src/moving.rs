//! One partition's move to another log directory: copying its log, and replacing it by the copy.
//!
//! Source: `ReplicaAlterLogDirsThread` and `Partition.maybeReplaceCurrentWithFutureReplica` of Apache Kafka 4.3, KIP-113,
//! KIP-858. Lock order: the partition, then its copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use klamm_base::LogError;
use klamm_log::{AppendError, FutureLog, Log, LogConfig, LogOwner, Moving, PromotionError};

use super::following::append;
use super::partition::{Durability, Partition, State};

/// What is left to copy while requests wait for the end of a move, at most.
const REST_BYTES_MAX: usize = 256 << 10;
/// How much of a copy may be unflushed while there is more to copy.
const UNFLUSHED_BYTES_MAX: u64 = 32 << 20;

/// Whether the controller knows that the copy is to replace the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    No,
    /// The report is in flight.
    Asked,
    Yes,
}

/// A move in progress.
pub(super) struct Move {
    future: Arc<FutureLog>,
    /// The copy is part of the log: what it had at the start was compared.
    is_compared: bool,
    /// The log was truncated to this offset, and the copy was not yet.
    truncated_to: Option<i64>,
    pub(super) told: Told,
    unflushed_bytes: u64,
}

/// What a step of a move did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It copied these bytes, and there may be more.
    Copied(usize),
    /// Nothing is left to copy now.
    CaughtUp,
    /// The copy has replaced the log.
    Promoted,
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum MoveError {
    /// The log cannot be read.
    Log(LogError),
    /// The copy cannot be written.
    Copy(LogError),
    /// The move was ended, or the replica serves no longer.
    Ended,
}

/// A part of the log to copy.
struct Part {
    slice: klamm_log::Slice,
    log_start: i64,
    log_end: i64,
    high_watermark: i64,
}

impl Move {
    pub(super) fn set_config(&self, config: Arc<LogConfig>) {
        self.future.lock().set_config(config);
    }
}

impl Partition {
    /// The directory to which it moves.
    pub fn moves_to(&self) -> Option<usize> {
        self.state.lock().moving.as_ref().map(|moving| moving.future.dir())
    }

    pub(super) fn future(&self) -> Option<Arc<FutureLog>> {
        self.state.lock().moving.as_ref().map(|moving| moving.future.clone())
    }

    /// The directory to which it moves, if the controller may know already.
    pub(super) fn told_dir(&self) -> Option<usize> {
        let state = self.state.lock();
        state.moving.as_ref().filter(|moving| moving.told != Told::No).map(|moving| moving.future.dir())
    }

    /// Begins to move into `future`; false if it moves already, or serves no longer.
    pub(super) fn begin_move(&self, future: Arc<FutureLog>) -> bool {
        let mut state = self.state.lock();
        if state.moving.is_some() || state.core.check_online().is_err() {
            return false;
        }
        state.log.set_moving(Some(Moving::From));
        let moving = Move { future, is_compared: false, truncated_to: None, told: Told::No, unflushed_bytes: 0 };
        state.moving = Some(Box::new(moving));
        true
    }

    /// Ends a move without a result; whether the controller may know of it.
    pub(super) fn end_move(&self) -> Option<bool> {
        let ended = {
            let mut state = self.state.lock();
            state.holds_flushes = false;
            state.log.set_moving(None);
            state.moving.take()
        };
        self.mark_dirty();
        ended.map(|moving| moving.told != Told::No)
    }

    pub(super) fn told(&self) -> Option<Told> {
        self.state.lock().moving.as_ref().map(|moving| moving.told)
    }

    pub(super) fn set_told(&self, told: Told) {
        if let Some(moving) = &mut self.state.lock().moving {
            moving.told = told;
        }
    }

    /// Copies the next batches, after it has removed from the copy what the log has lost.
    pub(super) fn copy_some(&self, bytes_max: usize, now_ms: i64) -> Result<Step, MoveError> {
        let future = self.future().ok_or(MoveError::Ended)?;
        self.follow_log(&future, now_ms)?;
        let Some(part) = self.next_part(&future, bytes_max)? else { return Ok(Step::Copied(0)) };
        let bytes = part.slice.read().map_err(MoveError::Log)?;
        if part.slice.first_batch_offset < future.lock().log_end_offset() {
            // The log begins within this batch.
            let first = part.slice.first_batch_offset;
            self.logs.restart_future(&future, first, now_ms).map_err(MoveError::Copy)?;
        }
        let mut copy = future.lock();
        append_to(&mut copy, &bytes, now_ms)?;
        if bytes.is_empty() && copy.log_end_offset() < part.log_end {
            // The log has lost what was there.
            copy.continue_at(part.log_end, now_ms).map_err(MoveError::Copy)?;
        }
        let start = part.log_start.min(copy.log_end_offset());
        let is_new_start = copy.advance_log_start(start);
        if is_new_start {
            copy.delete_expired(part.log_start, now_ms).map_err(MoveError::Copy)?;
        }
        let is_behind = copy.log_end_offset() < part.log_end;
        drop(copy);
        let is_flush_due = self.count_unflushed(bytes.len());
        if is_flush_due || !is_behind {
            future.lock().flush().map_err(MoveError::Copy)?;
        }
        // After a power cut, the copy must not look as if it had lost what was not flushed.
        future.set_high_watermark(part.high_watermark.min(future.lock().flushed_offset()));
        Ok(if is_behind { Step::Copied(bytes.len()) } else { Step::CaughtUp })
    }

    fn count_unflushed(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let Some(moving) = &mut state.moving else { return false };
        moving.unflushed_bytes += bytes as u64;
        let is_due = moving.unflushed_bytes >= UNFLUSHED_BYTES_MAX;
        if is_due {
            moving.unflushed_bytes = 0;
        }
        is_due
    }

    /// Removes from the copy what the log does not have.
    fn follow_log(&self, future: &FutureLog, now_ms: i64) -> Result<(), MoveError> {
        let (keep, start) = {
            let mut state = self.state.lock();
            let State { log, core, moving, .. } = &mut *state;
            let moving = moving.as_mut().filter(|_| core.check_online().is_ok()).ok_or(MoveError::Ended)?;
            if future.is_offline() {
                return Err(MoveError::Ended);
            }
            let copy = future.lock();
            let mut keep = moving.truncated_to.take().unwrap_or(i64::MAX).min(log.log_end_offset());
            if !std::mem::replace(&mut moving.is_compared, true) {
                keep = keep.min(copy.common_end(log));
            }
            let is_above = copy.log_end_offset() > keep;
            (is_above.then_some(keep), log.log_start_offset())
        };
        let logs = &self.logs;
        if let Some(keep) = keep {
            logs.truncate_future(future, keep.max(0), now_ms).map_err(MoveError::Copy)?;
        }
        let end = future.lock().log_end_offset();
        if end < start {
            logs.restart_future(future, start, now_ms).map_err(MoveError::Copy)?;
        }
        Ok(())
    }

    /// The part of the log after the copy; `None` if what it says must be looked at again.
    fn next_part(&self, future: &FutureLog, bytes_max: usize) -> Result<Option<Part>, MoveError> {
        let (part, unverified) = {
            let mut state = self.state.lock();
            let high_watermark = state.core.high_watermark();
            let moving = state.moving.as_ref().ok_or(MoveError::Ended)?;
            let (is_truncated, from) = (moving.truncated_to.is_some(), future.lock().log_end_offset());
            let log = &mut state.log;
            // What a power cut may take from the log must not be left in the copy.
            let (log_start, log_end) = match self.durability {
                Durability::Flushed => (log.log_start_offset(), log.flushed_offset().max(log.log_start_offset())),
                Durability::PageCache => (log.log_start_offset(), log.log_end_offset()),
            };
            if is_truncated || !(log_start..=log_end).contains(&from) {
                return Ok(None);
            }
            let mut slice = log.read(from, bytes_max, log_end, true).map_err(MoveError::Log)?;
            let unverified = slice.unverified.take();
            (Part { slice, log_start, log_end, high_watermark }, unverified)
        };
        if self.verify(unverified).map_err(MoveError::Log)? {
            return Ok(None);
        }
        Ok(Some(part))
    }

    /// Replaces the log by its copy, which has caught up and of which the controller knows. Requests wait while the rest is
    /// copied and flushed. [`Step::CaughtUp`]: not yet.
    pub(super) fn promote(&self, now_ms: i64) -> Result<Step, MoveError> {
        let future = self.future().ok_or(MoveError::Ended)?;
        let (from, to) = (self.dir(), future.dir());
        let promoted = self.event(|state, effects| {
            let is_this = state.moving.as_ref().is_some_and(|moving| Arc::ptr_eq(&moving.future, &future));
            if !is_this || state.core.check_online().is_err() || future.is_offline() {
                return Err(MoveError::Ended);
            }
            // A flush that was begun is of the log that is replaced.
            state.holds_flushes = true;
            if state.log.is_flushing() || state.log.is_truncating() {
                return Ok(None);
            }
            let is_complete = copy_rest(state, &future, now_ms);
            let promoted = is_complete.and_then(|is_complete| {
                if !is_complete {
                    return Ok(None);
                }
                match self.logs.promote(&mut state.log, &mut future.lock(), from, to) {
                    Ok(promoted) => Ok(Some(promoted)),
                    Err(PromotionError::Busy) => Ok(None),
                    Err(PromotionError::Copy(error)) => Err(MoveError::Copy(error)),
                }
            });
            state.holds_flushes = false;
            if let Ok(Some(_)) = &promoted {
                self.set_dir(to);
                state.moving = None;
                let offsets = state.offsets(self.durability);
                state.core.on_flushed(&offsets, &*self.brokers, effects);
                effects.fetches.append(&mut state.flush_waiters);
            }
            promoted
        });
        let result = match promoted {
            Ok(None) => Ok(Step::CaughtUp),
            Err(error) => Err(error),
            Ok(Some(promoted)) => {
                let owner: Arc<dyn LogOwner> = self.arc();
                let key = (self.id.topic.to_string(), self.id.index);
                self.logs.end_promotion(promoted, &key, &owner, (from, to), now_ms);
                Ok(Step::Promoted)
            }
        };
        if !self.state.lock().holds_flushes {
            self.mark_dirty();
        }
        result
    }

    pub(super) fn set_dir(&self, dir: usize) {
        self.dir.store(dir, Ordering::Release);
    }
}

impl State {
    /// The log was truncated: its copy follows.
    pub(super) fn note_truncation(&mut self, offset: i64) {
        if let Some(moving) = &mut self.moving {
            moving.truncated_to = Some(moving.truncated_to.unwrap_or(i64::MAX).min(offset));
        }
    }
}

/// Copies the last batches; false if they are too many for a time in which requests wait.
fn copy_rest(state: &mut State, future: &FutureLog, now_ms: i64) -> Result<bool, MoveError> {
    let State { log, moving, .. } = state;
    let mut copy = future.lock();
    let end = log.log_end_offset();
    if moving.as_ref().is_none_or(|moving| moving.truncated_to.is_some()) || copy.log_end_offset() > end {
        return Ok(false);
    }
    let mut left = REST_BYTES_MAX;
    while copy.log_end_offset() < end {
        let slice = log.read(copy.log_end_offset(), left, end, false).map_err(MoveError::Log)?;
        // The log may begin within the first batch: then the copy begins again with it.
        let begins_inside = slice.first_batch_offset < copy.log_end_offset();
        if slice.unverified.is_some() || slice.first_batch_cut || slice.len == 0 || begins_inside {
            return Ok(false);
        }
        let bytes = slice.read().map_err(MoveError::Log)?;
        let before = copy.log_end_offset();
        append_to(&mut copy, &bytes, now_ms)?;
        if copy.log_end_offset() == before {
            return Ok(false);
        }
        left = left.saturating_sub(bytes.len());
    }
    // What retention removed is no part of the copy either.
    Ok(log.log_start_offset() <= copy.log_end_offset())
}

/// Appends batches of the log to its copy. An incomplete one at the end is left out.
fn append_to(copy: &mut Log, bytes: &[u8], now_ms: i64) -> Result<(), MoveError> {
    append(copy, bytes, i32::MAX, now_ms).map_err(|error| {
        MoveError::Copy(match error {
            AppendError::Log(error) => error,
            other => LogError::Directory { path: copy.dir(), reason: other.to_string() },
        })
    })
}
