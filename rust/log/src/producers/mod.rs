//! The producers of a log, used to detect duplicate batches and open transactions (Apache Kafka's
//! `ProducerStateManager`).
//!
//! Invariants: (1) `entries` is the state after `map_end_offset - 1`; (2) `ongoing` holds exactly the producers whose entry
//! has an open transaction; (3) a snapshot named `n` is the state before offset `n`.

mod check;
mod entry;
pub mod snapshot;
mod verification;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use check::{CompletedTxn, Known, TxnChange};
pub use check::{Marker, Origin, Update};
pub use entry::{Batch, Entry};
use klamm_base::LogError;
use klamm_records::header::Header;
use verification::Verifications;
pub use verification::{Claim, Guard};

use super::error::AppendError;
use super::files::{FileCache, PartitionDir};
use super::index::AbortedTxn;
use super::names::{FileName, Kind};

/// All producers of one log.
pub struct Producers {
    entries: HashMap<i64, Entry>,
    /// Of batches that are not in the log yet: the only state that is not a fold of it.
    verifications: Verifications,
    /// First offset of each open transaction -> its producer id.
    ongoing: BTreeMap<i64, i64>,
    /// First offset of each completed transaction -> its marker's offset, until the high watermark passes the marker.
    unreplicated: BTreeMap<i64, i64>,
    /// End of each range of damage that was passed over while a transaction was open -> the first offset of the oldest one: the
    /// damage may contain its marker, so that no later marker decides it.
    doubtful: BTreeMap<i64, i64>,
    /// Producers whose earlier batches were already searched for in the log.
    recalled: HashSet<i64>,
    /// Offsets of the snapshot files.
    snapshots: BTreeSet<i64>,
    map_end_offset: i64,
    snapshot_end_offset: i64,
}

impl Producers {
    /// Starts without producers; `snapshots` are the offsets of the existing files.
    pub fn new(snapshots: BTreeSet<i64>) -> Self {
        Self {
            entries: HashMap::new(),
            verifications: Verifications::default(),
            ongoing: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            recalled: HashSet::new(),
            snapshots,
            map_end_offset: 0,
            snapshot_end_offset: 0,
        }
    }

    pub fn entries(&self) -> &HashMap<i64, Entry> {
        &self.entries
    }

    pub fn map_end_offset(&self) -> i64 {
        self.map_end_offset
    }

    pub fn set_map_end_offset(&mut self, offset: i64) {
        self.map_end_offset = offset;
    }

    /// The state of a producer.
    pub fn get(&self, producer_id: i64) -> Entry {
        self.entries.get(&producer_id).copied().unwrap_or(Entry::UNKNOWN)
    }

    /// Returns the producer if the log may contain batches of it that the snapshot lacks; once for each producer.
    pub fn begin_recall(&mut self, producer_id: i64) -> Option<Entry> {
        let entry = *self.entries.get(&producer_id)?;
        let may_be_older =
            entry.room() > 0 && entry.batches().first().is_some_and(|oldest| oldest.first_sequence() > 0);
        (may_be_older && self.recalled.insert(producer_id)).then_some(entry)
    }

    /// Adds batches that were found in the log, oldest first; `false` if there are none.
    pub fn recall(&mut self, producer_id: i64, older: &[Batch]) -> bool {
        match self.entries.get_mut(&producer_id) {
            Some(entry) if !older.is_empty() => {
                entry.push_older(older);
                true
            }
            _ => false,
        }
    }

    /// The batch that `header` duplicates.
    pub fn duplicate_of(&self, header: &Header<'_>) -> Option<Batch> {
        self.entries.get(&header.producer_id())?.duplicate_of(header)
    }

    /// Applies the changes of a written append. Returns the entries for the index of aborted transactions.
    #[inline]
    pub fn apply(&mut self, update: &Update) -> Vec<AbortedTxn> {
        if update.is_empty() { Vec::new() } else { self.apply_changes(update) }
    }

    fn apply_changes(&mut self, update: &Update) -> Vec<AbortedTxn> {
        for change in update.changes() {
            let entry = self.entries.entry(change.producer_id).or_insert(Entry::UNKNOWN);
            entry.merge(&change.updated);
            self.verifications.on_append(change);
        }
        let mut aborted = Vec::new();
        for change in &update.transactions {
            match change {
                TxnChange::Began { producer_id, first_offset } => {
                    self.ongoing.insert(*first_offset, *producer_id);
                }
                TxnChange::Completed(txn) => aborted.extend(self.complete(txn)),
            }
        }
        aborted
    }

    /// Completes a transaction; returns the entry for the index of aborted transactions.
    fn complete(&mut self, txn: &CompletedTxn) -> Option<AbortedTxn> {
        let mut others = self.ongoing.iter().filter(|&(_, &producer_id)| producer_id != txn.producer_id);
        let last_stable_offset = others.next().map_or(txn.last_offset + 1, |(&first_offset, _)| first_offset);
        self.ongoing.remove(&txn.first_offset);
        self.unreplicated.insert(txn.first_offset, txn.last_offset);
        txn.aborted.then_some(AbortedTxn {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
            last_offset: txn.last_offset,
            last_stable_offset,
        })
    }

    /// Replays one batch that is already in the log, whatever it contains; returns the aborted transaction that it
    /// completed.
    pub fn replay(&mut self, batch: &[u8], header: &Header<'_>) -> Option<AbortedTxn> {
        let mut aborted = None;
        if header.has_producer_id() {
            let mut update = Update::default();
            // Only invalid use of transactions makes a replicated batch fail; such a batch is ignored.
            if update.add(batch, header, Origin::Replication, || self.known(header.producer_id())).is_ok() {
                aborted = self.apply(&update).pop();
            }
        }
        self.map_end_offset = header.next_offset();
        aborted
    }

    /// The first unstable offset, which a read_committed consumer must not pass, given the high watermark.
    pub fn first_unstable_offset(&self, high_watermark: i64) -> Option<i64> {
        let open = self.ongoing.keys().next();
        let ended = self.unreplicated.iter().find(|&(_, &last_offset)| last_offset >= high_watermark);
        let ended = ended.map(|(first_offset, _)| first_offset);
        open.into_iter().chain(ended).chain(self.doubtful.values()).min().copied()
    }

    /// The last timestamp of the producer whose transaction has been open for the most offsets.
    pub fn oldest_txn_timestamp(&self) -> Option<i64> {
        let (_, producer_id) = self.ongoing.first_key_value()?;
        self.entries.get(producer_id).map(|entry| entry.last_timestamp)
    }

    /// Notes that the batches before `end` could not be replayed.
    pub fn pass_damage(&mut self, end: i64) {
        if let Some((&first_offset, _)) = self.ongoing.first_key_value() {
            self.doubtful.insert(end, first_offset);
        }
    }

    /// Removes completed transactions whose markers are below `offset`.
    pub fn forget_ended_below(&mut self, offset: i64) {
        self.unreplicated.retain(|_, last_offset| *last_offset >= offset);
    }

    /// Whether a producer has an open transaction in this epoch.
    pub fn has_ongoing(&self, producer_id: i64, producer_epoch: i16) -> bool {
        self.entries
            .get(&producer_id)
            .is_some_and(|entry| entry.txn_first_offset >= 0 && entry.producer_epoch == producer_epoch)
    }

    /// A transactional batch arrived that may begin a transaction: its guard, with which it may be appended after its
    /// transaction coordinator was asked. `None`: the transaction is open already.
    pub fn begin_verification(
        &mut self,
        claim: Claim,
        bumps_epoch: bool,
        now_ms: i64,
    ) -> Result<Option<Guard>, AppendError> {
        let Claim { producer_id, producer_epoch: found, .. } = claim;
        let current = self.get(producer_id).producer_epoch;
        if found < current {
            return Err(AppendError::InvalidProducerEpoch { producer_id, found, current });
        }
        let is_open = self.has_ongoing(producer_id, found);
        Ok((!is_open).then(|| self.verifications.begin(claim, bumps_epoch, now_ms)))
    }

    fn known(&self, producer_id: i64) -> Known {
        Known { entry: self.get(producer_id), verification: self.verifications.get(producer_id).copied() }
    }

    /// Removes producers that were inactive for `expiration_ms`.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.verifications.expire(now_ms, expiration_ms);
        self.entries.retain(|_, entry| !entry.is_expired(now_ms, expiration_ms));
        self.recalled.retain(|producer_id| self.entries.contains_key(producer_id));
    }

    /// Applies a new log start offset.
    pub fn on_log_start(&mut self, offset: i64) {
        self.forget_ended_below(offset);
        self.doubtful.retain(|&end, _| end > offset);
        self.map_end_offset = self.map_end_offset.max(offset);
        self.snapshot_end_offset = self.snapshots.last().copied().unwrap_or(offset);
    }

    /// Replaces the state by that of a log with the same records; the snapshot files stay.
    pub fn replace(&mut self, other: &Self) {
        self.map_end_offset = other.map_end_offset;
        self.entries.clone_from(&other.entries);
        self.verifications.clone_from(&other.verifications);
        self.ongoing.clone_from(&other.ongoing);
        self.unreplicated.clone_from(&other.unreplicated);
        self.doubtful.clone_from(&other.doubtful);
        self.recalled.clone_from(&other.recalled);
    }

    /// Replaces the state by one that was replayed from the log, and has newer snapshots.
    pub fn replay_as(&mut self, mut replayed: Self) {
        replayed.verifications = std::mem::take(&mut self.verifications);
        replayed.snapshots.append(&mut self.snapshots);
        *self = replayed;
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.doubtful.clear();
        self.recalled.clear();
    }

    // ---- snapshot files ----

    pub fn snapshots(&self) -> &BTreeSet<i64> {
        &self.snapshots
    }

    /// Writes a snapshot if the state changed since the last one; returns its offset. A snapshot cannot express that a
    /// transaction is in doubt: without one the next start replays the log from before the damage.
    pub fn take_snapshot(
        &mut self,
        cache: &Arc<FileCache>,
        dir: &PartitionDir,
        durable: bool,
    ) -> Result<Option<i64>, LogError> {
        let offset = self.map_end_offset;
        if offset <= self.snapshot_end_offset || !self.doubtful.is_empty() {
            return Ok(None);
        }
        let mut producers: Vec<_> = self.entries.iter().map(|(&id, &entry)| (id, entry)).collect();
        producers.sort_unstable_by_key(|&(id, _)| id);
        cache.write_whole(&snapshot_path(dir, offset), &snapshot::encode(&producers), durable)?;
        self.snapshots.insert(offset);
        self.snapshot_end_offset = offset;
        Ok(Some(offset))
    }

    /// Reloads the state from the newest intact snapshot, or starts empty at the start of `range`, which spans the
    /// existing records from first to last.
    ///
    /// Snapshots outside of `range` are removed; damaged ones are removed and reported. The first record may be below
    /// the log start offset: Apache Kafka starts at the log start offset, and so loses producers at a restart that it
    /// knew before.
    pub fn truncate_and_reload(
        &mut self,
        cache: &Arc<FileCache>,
        dir: &PartitionDir,
        range: RangeInclusive<i64>,
        now_ms: i64,
        expiration_ms: i64,
        warnings: &mut Vec<String>,
    ) -> Result<(), LogError> {
        let outside: Vec<i64> = self.snapshots.iter().copied().filter(|at| !range.contains(at)).collect();
        for offset in outside {
            self.remove_snapshot(cache, dir, offset)?;
        }
        if *range.end() == self.map_end_offset {
            self.snapshot_end_offset = self.snapshots.last().copied().unwrap_or(*range.start());
            return Ok(());
        }
        self.clear();
        while let Some(&offset) = self.snapshots.last() {
            match read_snapshot(&snapshot_path(dir, offset))? {
                Ok(producers) => {
                    for (producer_id, entry) in producers {
                        if !entry.is_expired(now_ms, expiration_ms) {
                            self.restore(producer_id, entry);
                        }
                    }
                    (self.map_end_offset, self.snapshot_end_offset) = (offset, offset);
                    return Ok(());
                }
                Err(warning) => {
                    warnings.extend(warning);
                    self.remove_snapshot(cache, dir, offset)?;
                }
            }
        }
        (self.map_end_offset, self.snapshot_end_offset) = (*range.start(), *range.start());
        Ok(())
    }

    /// The producers before `offset`, or before an earlier offset that has an intact snapshot; changes no file.
    pub fn before(dir: &PartitionDir, offset: i64, snapshots: &BTreeSet<i64>) -> Result<Self, LogError> {
        let mut producers = Self::new(BTreeSet::new());
        for &at in snapshots.range(..=offset).rev() {
            if let Ok(entries) = read_snapshot(&snapshot_path(dir, at))? {
                entries.into_iter().for_each(|(producer_id, entry)| producers.restore(producer_id, entry));
                producers.map_end_offset = at;
                break;
            }
        }
        Ok(producers)
    }

    fn restore(&mut self, producer_id: i64, entry: Entry) {
        if entry.txn_first_offset >= 0 {
            self.ongoing.insert(entry.txn_first_offset, producer_id);
        }
        self.entries.insert(producer_id, entry);
    }

    /// Removes everything; the log continues at `offset`.
    pub fn truncate_fully(&mut self, cache: &Arc<FileCache>, dir: &PartitionDir, offset: i64) -> Result<(), LogError> {
        self.clear();
        for snapshot in std::mem::take(&mut self.snapshots) {
            cache.remove(&snapshot_path(dir, snapshot))?;
        }
        (self.map_end_offset, self.snapshot_end_offset) = (offset, 0);
        Ok(())
    }

    /// Removes the snapshots above `offset`.
    pub fn remove_snapshots_above(
        &mut self,
        cache: &Arc<FileCache>,
        dir: &PartitionDir,
        offset: i64,
    ) -> Result<(), LogError> {
        for at in self.snapshots.split_off(&(offset + 1)) {
            cache.remove(&snapshot_path(dir, at))?;
        }
        self.snapshot_end_offset = self.snapshots.last().copied().unwrap_or(0);
        Ok(())
    }

    /// Removes the snapshot of a removed segment.
    pub fn remove_snapshot(&mut self, cache: &Arc<FileCache>, dir: &PartitionDir, offset: i64) -> Result<(), LogError> {
        if self.snapshots.remove(&offset) {
            cache.remove(&snapshot_path(dir, offset))?;
        }
        Ok(())
    }

    /// Removes snapshots that belong to no segment, except for the newest if it is above all segments.
    pub fn remove_stray_snapshots(
        &mut self,
        cache: &Arc<FileCache>,
        dir: &PartitionDir,
        base_offsets: &[i64],
    ) -> Result<(), LogError> {
        let last_base = base_offsets.last().copied().unwrap_or(-1);
        let newest = self.snapshots.last().copied().filter(|&offset| offset > last_base);
        let stray: Vec<i64> = self
            .snapshots
            .iter()
            .copied()
            .filter(|offset| base_offsets.binary_search(offset).is_err() && Some(*offset) != newest)
            .collect();
        for offset in stray {
            self.remove_snapshot(cache, dir, offset)?;
        }
        Ok(())
    }
}

/// The path of the snapshot at `offset`.
pub(super) fn snapshot_path(dir: &PartitionDir, offset: i64) -> std::path::PathBuf {
    dir.join(FileName::live(offset, Kind::Snapshot).to_string())
}

type SnapshotRead = Result<Vec<(i64, Entry)>, Option<String>>;

/// Reads the producers from a snapshot file; the inner error explains why they cannot be used. An empty file, which a
/// power cut leaves of one that was not synced, needs no explanation.
fn read_snapshot(path: &Path) -> Result<SnapshotRead, LogError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(Some(format!("{} is gone", path.display()))));
        }
        result => result.map_err(LogError::io("cannot read", path))?,
    };
    if bytes.is_empty() {
        return Ok(Err(None));
    }
    let explained = |reason| Some(format!("{} is damaged: {reason}; it is not used", path.display()));
    Ok(decode_snapshot(&bytes).map_err(explained))
}

/// Parses a snapshot; the error describes what is wrong.
pub(super) fn decode_snapshot(bytes: &[u8]) -> Result<Vec<(i64, Entry)>, String> {
    snapshot::decode(bytes)
}

impl Producers {
    /// Checks whether `batches` (complete, offsets assigned) may be appended, and returns the changes. If a client's
    /// batch is a duplicate, returns the earlier batch instead.
    pub(super) fn check(
        &self,
        batches: &[u8],
        origin: Origin,
        update: &mut Update,
    ) -> Result<Option<Batch>, AppendError> {
        let mut at = 0;
        while let Some(header) = Header::at_start_of(&batches[at..]) {
            let size = header.size().expect("whole batches");
            if header.has_producer_id() {
                if let Some(batch) = self.duplicate_of(&header).filter(|_| origin.is_client()) {
                    return Ok(Some(batch));
                }
                update.add(&batches[at..at + size], &header, origin, || self.known(header.producer_id()))?;
            }
            at += size;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod transaction_tests;

#[cfg(test)]
mod history_tests;
