//! A share partition of this node, with its lock and the requests that wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use klamm_base::{ErrorCode, Uuid};
use klamm_replica::FetchWaiter;
use klamm_share::{Limits, SharePartition, WriteId};
use klamm_wire::share_state::SharePartitionName;
use parking_lot::Mutex;

/// A partition in a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShareKey {
    pub group: Arc<str>,
    pub topic: Uuid,
    pub index: i32,
}

impl ShareKey {
    pub fn name(&self) -> SharePartitionName<'_> {
        SharePartitionName { group_id: &self.group, topic: self.topic, index: self.index }
    }
}

/// Called once with the result of a write, without a lock.
pub type OnWritten = Box<dyn FnOnce(ErrorCode) + Send>;

pub struct LivePartition {
    /// Unique among the share partitions of the node, also dropped ones.
    pub id: u64,
    pub key: ShareKey,
    pub leader_epoch: i32,
    pub created: Instant,
    /// A fetch reads the log for it.
    is_fetched: AtomicBool,
    /// Another fetch has checked it meanwhile.
    is_contended: AtomicBool,
    pub state: Mutex<LiveState>,
    waiters: Mutex<Vec<Arc<FetchWaiter>>>,
}

pub struct LiveState {
    pub phase: Phase,
    /// Acknowledgements that wait for a write.
    pub on_written: HashMap<WriteId, Vec<OnWritten>>,
    /// Its group has no session: it is dropped once everything is written.
    pub is_unused: bool,
}

pub enum Phase {
    /// Its state is being read.
    Loading,
    Active(Box<SharePartition>),
    /// Dropped, with the error for requests that still have it.
    Gone(ErrorCode),
}

/// What a fetch finds before it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It may read here, and must call [`LivePartition::end_fetch`]. Batches that begin above `last_offset` are of no use,
    /// except the first one.
    Reads {
        fetch_offset: i64,
        last_offset: i64,
    },
    /// Nothing can be acquired now.
    Waits,
    Gone(ErrorCode),
}

impl LivePartition {
    pub fn new(id: u64, key: ShareKey, leader_epoch: i32) -> Arc<Self> {
        let state = LiveState { phase: Phase::Loading, on_written: HashMap::new(), is_unused: false };
        Arc::new(Self {
            id,
            key,
            leader_epoch,
            created: Instant::now(),
            is_fetched: AtomicBool::new(false),
            is_contended: AtomicBool::new(false),
            state: Mutex::new(state),
            waiters: Mutex::default(),
        })
    }

    /// Begins a look of a fetch; one at a time reads a share partition. `is_last`: the fetch does not look again.
    pub fn begin_fetch(&self, limits: &Limits, records_max: i64, is_last: bool) -> Looked {
        if self.is_fetched.swap(true, Ordering::AcqRel) {
            self.is_contended.store(true, Ordering::Release);
            if self.is_fetched.swap(true, Ordering::AcqRel) {
                return Looked::Waits;
            }
        }
        let looked = match &mut self.state.lock().phase {
            Phase::Loading => Looked::Waits,
            Phase::Gone(code) => Looked::Gone(*code),
            Phase::Active(partition) => match partition.can_acquire(limits) {
                true => Looked::Reads {
                    fetch_offset: partition.next_fetch_offset(),
                    last_offset: partition.next_offset().saturating_add(records_max),
                },
                false => Looked::Waits,
            },
        };
        if !matches!(looked, Looked::Reads { .. }) {
            self.end_fetch(is_last);
        }
        looked
    }

    /// The check is over: another fetch may read. Fetches that checked meanwhile check again after the last check of this
    /// one (`DelayedShareFetch.onComplete`). After every check, waiting fetches would wake each other forever.
    pub fn end_fetch(&self, is_last: bool) {
        self.is_fetched.store(false, Ordering::Release);
        if is_last && self.is_contended.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Where the next fetch reads; -1 if it is not loaded.
    pub fn next_fetch_offset(&self) -> i64 {
        match &mut self.state.lock().phase {
            Phase::Active(partition) => partition.next_fetch_offset(),
            Phase::Loading | Phase::Gone(_) => -1,
        }
    }

    /// The error for requests that still have it, if it was dropped.
    pub fn gone(&self) -> Option<ErrorCode> {
        match self.state.lock().phase {
            Phase::Gone(code) => Some(code),
            Phase::Loading | Phase::Active(_) => None,
        }
    }

    /// The log begins at this offset; returns whether the start offset has moved.
    pub fn on_log_start(&self, offset: i64) -> bool {
        let Phase::Active(partition) = &mut self.state.lock().phase else { return false };
        let before = partition.start_offset();
        partition.on_log_start(offset);
        partition.start_offset() > before
    }

    /// Wakes `waiter` at the next change that may concern a fetch. The caller must look once more after this call.
    pub fn watch(&self, waiter: Arc<FetchWaiter>) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|waiter| !waiter.has_ended());
        waiters.push(waiter);
    }

    /// Wakes the fetches that wait; call it without the lock of the state.
    pub fn wake(&self) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.iter().for_each(|waiter| waiter.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn only_the_last_check_of_a_fetch_wakes_concurrent_fetches() {
        let key = ShareKey { group: "g".into(), topic: Uuid([1; 16]), index: 0 };
        let live = LivePartition::new(1, key, 5);
        let loaded = SharePartition::load(5, 1, 0, &[]).expect("a state");
        live.state.lock().phase = Phase::Active(Box::new(loaded));
        let limits =
            Limits { record_locks_max: 2000, delivery_count: 5, lock_duration_ms: 30_000, is_renew_enabled: true };
        let waiter = Arc::new(FetchWaiter::new(Waker::noop().clone()));
        live.watch(waiter.clone());
        let look = || live.begin_fetch(&limits, 500, false);
        let reads = Looked::Reads { fetch_offset: 0, last_offset: 500 };
        assert_eq!((look(), look()), (reads, Looked::Waits));
        live.end_fetch(false);
        assert!(!waiter.has_ended());
        assert_eq!(look(), reads);
        live.end_fetch(true);
        assert!(waiter.has_ended());
    }
}
