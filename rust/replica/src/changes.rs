//! Partitions that changed in a way that concerns the broker, until it handles them.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::assignments::Unassigned;
use super::metrics::ReplicaCounters;
use super::partition::Partition;
use super::throttles::Throttles;

/// Changes in the order in which they were added. Nothing is kept before [`Changed::notify`] is called.
pub struct Changed<T> {
    items: Mutex<Vec<T>>,
    on_first: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

pub type ChangedPartitions = Changed<Arc<Partition>>;

impl<T> Default for Changed<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), on_first: OnceLock::new() }
    }
}

impl<T> Changed<T> {
    /// Calls `on_first` from now on when one is added and none was there. Only the first call has an effect.
    pub fn notify(&self, on_first: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_first.set(Box::new(on_first));
    }

    /// Adds one; call it without a partition's lock.
    pub(super) fn push(&self, item: T) {
        let Some(on_first) = self.on_first.get() else { return };
        let mut items = self.items.lock();
        items.push(item);
        let is_first = items.len() == 1;
        drop(items);
        if is_first {
            on_first();
        }
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.items.lock())
    }
}

/// What partitions ask of their broker, and report to it.
#[derive(Default)]
pub struct Changes {
    /// The role or the leader changed: see [`Partition::following`].
    pub roles: ChangedPartitions,
    /// The leader proposes an ISR: see [`Partition::pending_isr`].
    pub isr: ChangedPartitions,
    /// A move to another log directory began: see [`Replicas::step_move`](super::Replicas::step_move).
    pub moves: ChangedPartitions,
    /// Directories of replicas to tell the controller.
    pub directories: Changed<Unassigned>,
    /// Damage was found: see [`Partition::damaged`].
    pub damaged: ChangedPartitions,
    pub counters: ReplicaCounters,
    pub throttles: Throttles,
}

impl Changes {
    /// Forgets the partitions that were not handled: each refers to these changes, and would never be freed.
    pub(super) fn clear(&self) {
        for partitions in [&self.roles, &self.isr, &self.moves, &self.damaged] {
            partitions.take();
        }
    }
}
