//! The start offset of each leader epoch (KIP-101, KIP-279), and the file that stores them.
//!
//! Invariant: entries strictly increase in epoch and in start offset.

use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use parking_lot::Mutex;

use super::checkpoint::{Epochs, LEADER_EPOCH, format_epochs, read_epochs};
use super::files::{FileCache, PartitionDir};

/// The entries, and whether the file is up to date.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct EpochCache {
    entries: Epochs,
    dirty: bool,
}

impl EpochCache {
    /// Reads the entries from a partition's directory. A later entry removes earlier ones that contradict it.
    pub fn read(dir: &Path) -> Result<Self, LogError> {
        let mut cache = Self::default();
        for (epoch, offset) in read_epochs(&dir.join(LEADER_EPOCH))? {
            if epoch >= 0 && offset >= 0 {
                cache.assign(epoch, offset);
            }
        }
        cache.dirty = false;
        Ok(cache)
    }

    /// Whether the file is out of date.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Returns the entries if the file is out of date, and marks it as written.
    pub fn take_dirty(&mut self) -> Option<Epochs> {
        std::mem::take(&mut self.dirty).then(|| self.entries.clone())
    }

    pub fn entries(&self) -> &[(i32, i64)] {
        &self.entries
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<i32> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// Records that `epoch` starts at `start_offset` and removes entries that contradict it. `true` if something
    /// changed.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if self.entries.last().is_some_and(|&(latest, start)| latest == epoch && start <= start_offset) {
            return false;
        }
        while self.entries.last().is_some_and(|&(latest, start)| latest >= epoch || start >= start_offset) {
            self.entries.pop();
        }
        self.entries.push((epoch, start_offset));
        self.dirty = true;
        true
    }

    /// Applies the epoch of a batch that is in the log. Entries that contradict it are of records that were truncated
    /// before the file was written again.
    pub fn confirm(&mut self, epoch: i32, base_offset: i64, last_offset: i64) {
        if self.entries.last().is_some_and(|&(latest, start)| latest == epoch && start <= base_offset) {
            return;
        }
        let known = self.entries.len();
        self.entries.retain(|&(other, start)| match other > epoch {
            true => start > last_offset,
            false => start < base_offset || (other, start) == (epoch, base_offset),
        });
        self.dirty |= self.entries.len() < known;
        if self.epoch_for(base_offset) != Some(epoch) {
            let at = self.entries.partition_point(|&(_, start)| start <= base_offset);
            self.entries.insert(at, (epoch, base_offset));
            self.dirty = true;
        }
    }

    /// The largest epoch up to `epoch` and the offset after its last record; `None` if it is not known
    /// (OffsetForLeaderEpoch, KIP-101, KIP-279).
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> Option<(i32, i64)> {
        if epoch < 0 {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end_offset));
        }
        let higher = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(_, end_offset) = self.entries.get(higher)?;
        let floor = higher.checked_sub(1).map_or(epoch, |at| self.entries[at].0);
        Some((floor, end_offset))
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_for(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|&(_, start)| start <= offset);
        after.checked_sub(1).map(|at| self.entries[at].0)
    }

    /// Removes epochs that start at or after `end_offset`.
    pub fn truncate_from_end(&mut self, end_offset: i64) {
        let keep = self.entries.partition_point(|&(_, start)| start < end_offset);
        self.dirty |= keep < self.entries.len();
        self.entries.truncate(keep);
    }

    /// Removes epochs that end at or before `start_offset`; the epoch that contains it then starts there.
    pub fn truncate_from_start(&mut self, start_offset: i64) {
        let passed = self.entries.partition_point(|&(_, start)| start <= start_offset);
        if passed == 0 || (passed == 1 && self.entries[0].1 == start_offset) {
            return;
        }
        self.entries.drain(..passed - 1);
        self.entries[0].1 = start_offset;
        self.dirty = true;
    }

    /// Replaces the entries by those of a log with the same records.
    pub fn replace(&mut self, entries: &[(i32, i64)]) {
        if self.entries != entries {
            self.entries = entries.to_vec();
            self.dirty = true;
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.dirty |= !self.entries.is_empty();
        self.entries.clear();
    }
}

/// The epoch file of a partition. It is written without the partition's lock; older content never replaces newer
/// content.
pub struct EpochFile {
    dir: Arc<PartitionDir>,
    /// The version of the newest content handed out, and of the newest content written.
    versions: Mutex<(u64, u64)>,
}

/// Content that is to be written.
pub struct EpochWrite {
    file: Arc<EpochFile>,
    version: u64,
    entries: Epochs,
}

impl EpochFile {
    pub fn new(dir: &Arc<PartitionDir>) -> Arc<Self> {
        Arc::new(Self { dir: dir.clone(), versions: Mutex::default() })
    }

    /// Prepares the next write.
    pub fn next_write(self: &Arc<Self>, entries: Epochs) -> EpochWrite {
        let mut versions = self.versions.lock();
        versions.0 += 1;
        EpochWrite { file: self.clone(), version: versions.0, entries }
    }
}

impl EpochWrite {
    /// Replaces the file unless newer content was written already.
    pub fn write(&self, cache: &Arc<FileCache>, durable: bool) -> Result<(), LogError> {
        let mut versions = self.file.versions.lock();
        if versions.1 < self.version {
            let content = format_epochs(&self.entries);
            self.file.dir.at(LEADER_EPOCH, |path| cache.replace(path, content.as_bytes(), durable))?;
            versions.1 = self.version;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        EpochCache { entries: entries.to_vec(), dirty: false }
    }

    #[test]
    fn an_epoch_is_stored_once_with_its_smallest_offset() {
        let mut epochs = cache(&[]);
        assert!(epochs.assign(2, 10));
        assert!(!epochs.assign(2, 20));
        assert!(epochs.assign(2, 5));
        assert!(epochs.assign(4, 30));
        assert_eq!(epochs.entries(), [(2, 5), (4, 30)]);
    }

    #[test]
    fn contradicting_entries_are_dropped() {
        let mut epochs = cache(&[(1, 0), (2, 10), (3, 20)]);
        epochs.assign(4, 10);
        assert_eq!(epochs.entries(), [(1, 0), (4, 10)]);
        epochs.assign(2, 30);
        assert_eq!(epochs.entries(), [(1, 0), (2, 30)]);
    }

    #[test]
    fn a_batch_removes_the_epochs_of_another_history() {
        let confirmed = |entries: &[(i32, i64)], (epoch, base_offset, last_offset)| {
            let mut epochs = cache(entries);
            epochs.confirm(epoch, base_offset, last_offset);
            assert_eq!(epochs.is_dirty(), epochs.entries() != entries);
            epochs.entries().to_vec()
        };
        let known = [(1, 0), (3, 40), (5, 60)];
        for batch in [(1, 0, 39), (3, 40, 40), (3, 50, 59), (5, 60, 80), (5, 70, 80)] {
            assert_eq!(confirmed(&known, batch), known, "{batch:?}");
        }
        assert_eq!(confirmed(&known, (4, 50, 55)), [(1, 0), (3, 40), (4, 50), (5, 60)]);
        assert_eq!(confirmed(&known, (3, 50, 60)), [(1, 0), (3, 40)]);
        assert_eq!(confirmed(&known, (4, 40, 45)), [(1, 0), (4, 40), (5, 60)]);
        assert_eq!(confirmed(&known, (2, 30, 39)), [(1, 0), (2, 30), (3, 40), (5, 60)]);
        assert_eq!(confirmed(&known, (1, 39, 45)), [(1, 0), (5, 60)]);
        assert_eq!(confirmed(&known, (7, 30, 39)), [(1, 0), (7, 30)]);
        assert_eq!(confirmed(&[], (0, 3, 3)), [(0, 3)]);
    }

    #[test]
    fn end_offsets_are_kafkas() {
        let epochs = cache(&[(2, 10), (4, 20), (7, 30)]);
        assert_eq!(epochs.end_offset_for(7, 99), Some((7, 99)));
        assert_eq!(epochs.end_offset_for(8, 99), None);
        assert_eq!(epochs.end_offset_for(-1, 99), None);
        assert_eq!(epochs.end_offset_for(1, 99), Some((1, 10)));
        assert_eq!(epochs.end_offset_for(2, 99), Some((2, 20)));
        assert_eq!(epochs.end_offset_for(3, 99), Some((2, 20)));
        assert_eq!(epochs.end_offset_for(6, 99), Some((4, 30)));
        assert_eq!(cache(&[]).end_offset_for(0, 99), None);
    }

    #[test]
    fn truncation_keeps_the_current_epoch() {
        let mut epochs = cache(&[(2, 10), (4, 20), (7, 30)]);
        epochs.truncate_from_start(25);
        assert_eq!(epochs.entries(), [(4, 25), (7, 30)]);
        epochs.truncate_from_start(5);
        assert_eq!(epochs.entries(), [(4, 25), (7, 30)]);
        epochs.truncate_from_end(30);
        assert_eq!(epochs.entries(), [(4, 25)]);
        epochs.truncate_from_end(25);
        assert_eq!(epochs.entries(), []);
        assert_eq!(cache(&[(2, 10), (4, 20)]).epoch_for(19), Some(2));
        assert_eq!(cache(&[(2, 10)]).epoch_for(9), None);
    }
}
