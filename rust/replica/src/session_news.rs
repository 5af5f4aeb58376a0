//! A fetch session from the side of its partitions: which of them have changed since they had nothing new for it.
//!
//! A partition is quiet in a session when a fetch would return nothing that the last response did not say. It then has an entry
//! on the partition, which the first change takes off and puts into the session's list. So a fetch visits what changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::core::FollowerSession;
use super::fetch_waiter::FetchWaiter;

/// A partition that has changed: its number in the session, and which of its entries noticed it.
pub type Change = (u64, u64);

/// Shared between a fetch session and its quiet partitions.
#[derive(Debug)]
pub struct SessionNews {
    /// Acquired without another lock.
    inner: Mutex<Inner>,
    /// Of a follower.
    last_fetch_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct Inner {
    /// It has room for all of the session, so that a change allocates nothing.
    changed: Vec<Change>,
    waiter: Option<Arc<FetchWaiter>>,
}

impl SessionNews {
    /// Makes room for this many quiet partitions.
    pub fn reserve(&self, partitions: usize) {
        let changed = &mut self.inner.lock().changed;
        changed.reserve(partitions.saturating_sub(changed.len()));
    }

    /// Moves the changes to `changed`.
    pub fn take(&self, changed: &mut Vec<Change>) {
        changed.append(&mut self.inner.lock().changed);
    }

    /// Wakes `waiter` at the next change; at once if one was not taken yet. Another fetch that waited looks again.
    pub fn wake_at_change(&self, waiter: &Arc<FetchWaiter>) {
        let mut inner = self.inner.lock();
        let has_changed = !inner.changed.is_empty();
        let other = inner.waiter.replace(waiter.clone());
        drop(inner);
        other.inspect(|other| other.wake());
        if has_changed {
            waiter.wake();
        }
    }

    /// A follower fetches in this session: this says of each quiet partition that it has all of it.
    pub fn on_fetch(&self, now_ms: i64) {
        self.last_fetch_ms.store(now_ms, Ordering::Release);
    }
}

impl Default for SessionNews {
    fn default() -> Self {
        Self { inner: Mutex::default(), last_fetch_ms: AtomicI64::new(i64::MIN) }
    }
}

impl FollowerSession for Arc<SessionNews> {
    fn last_fetch_ms(&self) -> i64 {
        self.last_fetch_ms.load(Ordering::Acquire)
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

/// The entry of a session on a quiet partition.
#[derive(Clone, Debug)]
pub struct SessionEntry {
    pub news: Arc<SessionNews>,
    pub change: Change,
}

impl PartialEq for SessionEntry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.news, &other.news) && self.change == other.change
    }
}

impl Eq for SessionEntry {}

impl SessionEntry {
    /// The partition has changed, and has this entry no longer.
    pub fn notify(self) {
        let mut inner = self.news.inner.lock();
        inner.changed.push(self.change);
        let waiter = inner.waiter.take();
        drop(inner);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}
