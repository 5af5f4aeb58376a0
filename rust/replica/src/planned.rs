//! The log directory of a partition that is not open: it may never have been written, but its directory may have been
//! reported already.

use std::collections::HashMap;

use klamm_log::LogManager;

use super::replicas::Key;

/// The directories of partitions that are not open, so that they count when the directory with the fewest is
/// selected.
#[derive(Default)]
pub(super) struct Planned {
    dirs: HashMap<Key, usize>,
    /// The number of such partitions in each directory.
    counts: HashMap<usize, usize>,
    /// Directories in which partitions are to be created (AlterReplicaLogDirs).
    preferred: HashMap<Key, usize>,
}

impl Planned {
    /// Creates the partition in this directory, once it is a replica of this broker.
    pub(super) fn prefer(&mut self, key: Key, dir: usize) {
        self.preferred.insert(key, dir);
    }

    /// The directory that was asked for, if it is in use.
    pub(super) fn preferred(&self, key: Key, logs: &LogManager) -> Option<usize> {
        self.preferred.get(&key).copied().filter(|&dir| logs.dirs()[dir].offline_cause().is_none())
    }

    /// The index of the partition's directory, selected now if there is none or it is offline; `None` if all are
    /// offline.
    pub(super) fn dir_for(&mut self, key: Key, logs: &LogManager) -> Option<usize> {
        if let Some(&dir) = self.dirs.get(&key).filter(|&&dir| logs.dirs()[dir].offline_cause().is_none()) {
            return Some(dir);
        }
        self.forget(&key);
        let dir = logs.dir_for_new(|dir| self.counts.get(&dir).copied().unwrap_or(0))?;
        self.keep(key, dir);
        Some(dir)
    }

    /// Records that the partition is in this directory.
    pub(super) fn keep(&mut self, key: Key, dir: usize) {
        if self.dirs.get(&key) != Some(&dir) {
            self.forget(&key);
            self.dirs.insert(key, dir);
            *self.counts.entry(dir).or_default() += 1;
        }
    }

    /// Removes a partition that was opened or deleted.
    pub(super) fn remove(&mut self, key: &Key) {
        self.preferred.remove(key);
        self.forget(key);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(dir) = self.dirs.remove(key) {
            *self.counts.get_mut(&dir).expect("counted") -= 1;
        }
    }
}
