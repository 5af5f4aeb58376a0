//! The copy of a log that is to replace it in another directory (KIP-113).
//!
//! Its lock is taken alone, or under the lock of the partition whose log it copies; no lock is acquired under it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::flush::{FlushEnd, FlushJob};
use super::owner::{FlushState, LogOwner};
use super::partition_log::Log;

/// A copy in progress.
pub struct FutureLog {
    dir: usize,
    flush_state: FlushState,
    log: Mutex<Log>,
    high_watermark: AtomicI64,
    is_offline: AtomicBool,
}

impl FutureLog {
    pub(super) fn new(dir: usize, log: Log) -> Self {
        Self {
            dir,
            flush_state: FlushState::default(),
            log: Mutex::new(log),
            high_watermark: AtomicI64::new(0),
            is_offline: AtomicBool::new(false),
        }
    }

    /// The index of its directory.
    pub fn dir(&self) -> usize {
        self.dir
    }

    pub fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Whether its directory has failed.
    pub fn is_offline(&self) -> bool {
        self.is_offline.load(Ordering::Acquire)
    }

    /// Records up to where the copied records are committed.
    pub fn set_high_watermark(&self, offset: i64) {
        self.high_watermark.store(offset, Ordering::Release);
    }
}

impl LogOwner for FutureLog {
    fn flush_state(&self) -> &FlushState {
        &self.flush_state
    }

    fn begin_flush(&self) -> Option<FlushJob> {
        self.log.lock().begin_flush()
    }

    fn complete_flush(&self, end: FlushEnd) {
        self.log.lock().complete_flush(end);
    }

    fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
        work(&mut self.log.lock());
    }

    fn go_offline(&self) {
        self.is_offline.store(true, Ordering::Release);
    }

    fn is_future(&self) -> bool {
        true
    }
}
