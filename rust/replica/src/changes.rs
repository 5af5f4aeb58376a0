//! Partitions that changed in a way that concerns the broker, until it handles them.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::metrics::ReplicaCounters;
use super::partition::Partition;

/// Partitions in the order in which they were added. Nothing is kept before [`ChangedPartitions::notify`] is called.
#[derive(Default)]
pub struct ChangedPartitions {
    partitions: Mutex<Vec<Arc<Partition>>>,
    on_first: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl ChangedPartitions {
    /// Calls `on_first` from now on when a partition is added and none was there. Only the first call has an effect.
    pub fn notify(&self, on_first: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_first.set(Box::new(on_first));
    }

    /// Adds a partition; call it without the partition's lock.
    pub(super) fn push(&self, partition: Arc<Partition>) {
        let Some(on_first) = self.on_first.get() else { return };
        let mut partitions = self.partitions.lock();
        partitions.push(partition);
        let is_first = partitions.len() == 1;
        drop(partitions);
        if is_first {
            on_first();
        }
    }

    pub fn take(&self) -> Vec<Arc<Partition>> {
        std::mem::take(&mut self.partitions.lock())
    }
}

/// What partitions ask of their broker, and report to it.
#[derive(Default)]
pub struct Changes {
    /// The role or the leader changed: see [`Partition::following`].
    pub roles: ChangedPartitions,
    /// The leader proposes an ISR: see [`Partition::pending_isr`].
    pub isr: ChangedPartitions,
    pub counters: ReplicaCounters,
}
