//! A waiting fetch: it has an entry on every partition that it reads, and is woken once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::core::Waiter;
use super::session_news::{SessionEntry, SessionNews};

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

/// What a partition notifies of a change.
#[derive(Debug)]
pub(super) enum Watcher {
    /// A fetch that waits.
    Fetch(Arc<FetchWaiter>),
    /// The session of which the partition is a quiet one.
    Session(SessionEntry),
}

impl Watcher {
    pub(super) fn notify(self) {
        match self {
            Self::Fetch(waiter) => waiter.wake(),
            Self::Session(entry) => entry.notify(),
        }
    }

    pub(super) fn is_of(&self, entry: &SessionEntry) -> bool {
        matches!(self, Self::Session(own) if own == entry)
    }
}

impl Waiter for Watcher {
    type Session = Arc<SessionNews>;

    fn has_ended(&self) -> bool {
        match self {
            Self::Fetch(waiter) => waiter.has_ended(),
            Self::Session(_) => false,
        }
    }
}
