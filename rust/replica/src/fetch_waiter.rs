//! A waiting fetch: it has an entry on every partition that it reads, and is woken once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::core::Waiter;

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

    /// The fetch was answered in another way: the remaining entries of this waiter are obsolete.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the fetch was woken or has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Waiter for Arc<FetchWaiter> {
    fn has_ended(&self) -> bool {
        FetchWaiter::has_ended(self)
    }
}
