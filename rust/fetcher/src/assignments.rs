//! Which fetcher has which partition.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use klamm_replica::Partition;

use super::core::Key;
use super::followed::Change;

/// A leader, and which of its fetchers.
pub type FetcherId = (i32, u64);

/// The assigned fetcher of each partition.
#[derive(Default)]
pub struct Assignments {
    of_partition: HashMap<Key, FetcherId>,
    counts: HashMap<FetcherId, usize>,
}

impl Assignments {
    /// Moves partitions whose role may have changed to the fetchers of their leaders; returns each fetcher's changes.
    pub fn assign(
        &mut self,
        partitions: Vec<Arc<Partition>>,
        fetcher_of: impl Fn(Key) -> u64,
    ) -> BTreeMap<FetcherId, Vec<Change>> {
        let mut changes: BTreeMap<FetcherId, Vec<Change>> = BTreeMap::new();
        for partition in partitions {
            let key = partition.key();
            let wanted = partition.following().map(|following| (following.leader, fetcher_of(key)));
            let before = self.of_partition.get(&key).copied();
            if let Some(before) = before.filter(|before| Some(*before) != wanted) {
                self.of_partition.remove(&key);
                changes.entry(before).or_default().push(Change::Remove(key));
                self.count_down(before);
            }
            let Some(wanted) = wanted else { continue };
            if before != Some(wanted) {
                self.of_partition.insert(key, wanted);
                *self.counts.entry(wanted).or_default() += 1;
            }
            changes.entry(wanted).or_default().push(Change::Add(partition));
        }
        changes
    }

    fn count_down(&mut self, id: FetcherId) {
        if let Some(count) = self.counts.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&id);
            }
        }
    }

    /// Whether the fetcher has partitions; otherwise it ends.
    pub fn is_used(&self, id: FetcherId) -> bool {
        self.counts.contains_key(&id)
    }

    /// The fetcher failed: its partitions have none.
    pub fn forget(&mut self, id: FetcherId) {
        self.counts.remove(&id);
        self.of_partition.retain(|_, of| *of != id);
    }
}
