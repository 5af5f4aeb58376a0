//! The interface between a log directory and the owner of a log, `replica::Partition`.

use std::sync::atomic::{AtomicU8, Ordering};

use super::flush::{FlushEnd, FlushJob};
use super::partition_log::Log;

/// A partition from its log directory's point of view. No method is called with a lock of the log directory held.
pub trait LogOwner: Send + Sync {
    /// The flusher's record of whether the owner is queued.
    fn flush_state(&self) -> &FlushState;
    /// [`Log::begin_flush`] under the owner's lock.
    fn begin_flush(&self) -> Option<FlushJob>;
    /// [`Log::complete_flush`] under the owner's lock, and the owner's reaction to it.
    fn complete_flush(&self, end: FlushEnd);
    fn high_watermark(&self) -> i64;
    /// Runs `work` under the owner's lock.
    fn with_log(&self, work: &mut dyn FnMut(&mut Log));
    /// The directory failed: the log must not be used any more.
    fn go_offline(&self);
    /// The index of the directory that the log is in now; `None`: it never moves.
    fn place(&self) -> Option<usize> {
        None
    }
    /// Whether the log is a copy that is to replace the partition's log.
    fn is_future(&self) -> bool {
        false
    }
}

/// Runs `work` under the owner's lock and returns its result.
pub fn with_log<T>(owner: &dyn LogOwner, work: impl FnOnce(&mut Log) -> T) -> T {
    let mut work = Some(work);
    let mut result = None;
    owner.with_log(&mut |log| result = work.take().map(|work| work(log)));
    result.expect("the owner calls what it is given")
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const RUNNING_DIRTY: u8 = 3;

/// Whether an owner is queued for a flush.
///
/// | from | appended | taken by a worker | done |
/// |---|---|---|---|
/// | idle | queued | | |
/// | queued | queued | running | |
/// | running | running, dirty | | idle |
/// | running, dirty | running, dirty | | queued |
#[derive(Debug, Default)]
pub struct FlushState(AtomicU8);

impl FlushState {
    /// Called after an append; `true` if the owner must be put into the queue.
    pub(super) fn mark(&self) -> bool {
        let marked = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(RUNNING_DIRTY),
            _ => None,
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, marked) == Ok(IDLE)
    }

    /// A worker starts the flush.
    pub(super) fn take(&self) {
        self.0.store(RUNNING, Ordering::Release);
    }

    /// The flush is done; `true` if the owner must be put into the queue again.
    pub(super) fn done(&self) -> bool {
        let next = |state| Some(if state == RUNNING_DIRTY { QUEUED } else { IDLE });
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(RUNNING_DIRTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_queued_once_and_never_lost() {
        let state = FlushState::default();
        assert!(state.mark());
        assert!(!state.mark());
        state.take();
        assert!(!state.mark());
        assert!(!state.mark());
        assert!(state.done());
        state.take();
        assert!(!state.done());
        assert!(state.mark());
    }
}
