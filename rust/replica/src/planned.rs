//! Which directory a partition is in that is not open: it may never have been written, and still somebody was told.

use std::collections::HashMap;

use klamm_log::LogManager;

use super::replicas::Key;

/// The directories of partitions that are not open, so that each counts for its own when the emptiest is looked for.
#[derive(Default)]
pub(super) struct Planned {
    dirs: HashMap<Key, usize>,
    /// How many of them are in each directory.
    counts: HashMap<usize, usize>,
}

impl Planned {
    /// The number of the partition's directory, chosen when it was not or is out of use; `None` when all are.
    pub(super) fn dir_for(&mut self, key: Key, logs: &LogManager) -> Option<usize> {
        if let Some(&dir) = self.dirs.get(&key).filter(|&&dir| logs.dirs()[dir].offline_cause().is_none()) {
            return Some(dir);
        }
        self.remove(&key);
        let dir = logs.dir_for_new(|dir| self.counts.get(&dir).copied().unwrap_or(0))?;
        self.keep(key, dir);
        Some(dir)
    }

    /// The partition is in this one.
    pub(super) fn keep(&mut self, key: Key, dir: usize) {
        if self.dirs.get(&key) != Some(&dir) {
            self.remove(&key);
            self.dirs.insert(key, dir);
            *self.counts.entry(dir).or_default() += 1;
        }
    }

    /// The partition is open, or gone.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(dir) = self.dirs.remove(key) {
            *self.counts.get_mut(&dir).expect("counted") -= 1;
        }
    }
}
