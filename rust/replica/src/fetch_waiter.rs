//! A fetch that waits: an entry on every partition it reads, woken once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// Shared between one waiting fetch and the partitions that may satisfy it.
#[derive(Debug)]
pub struct FetchWaiter {
    waker: Waker,
    ended: AtomicBool,
}

impl FetchWaiter {
    pub fn new(waker: Waker) -> Self {
        Self { waker, ended: AtomicBool::new(false) }
    }

    /// Wakes the fetch; further calls have no effect.
    pub fn wake(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.waker.wake_by_ref();
        }
    }

    /// The fetch was answered otherwise: entries of this waiter are only garbage now.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the fetch was woken or has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
