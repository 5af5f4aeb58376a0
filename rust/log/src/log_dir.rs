//! A log directory in use: its logs, their checkpoints, its flusher, and its failure.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use klamm_base::LogError;
use klamm_base::Uuid;
use parking_lot::Mutex;

use super::checkpoint::{
    CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, Offsets, PROVEN_END, RECOVERY_POINT, format_offsets,
};
use super::clean_stop::{CleanStop, ClosedLog};
use super::dirs::LockedDir;
use super::files::FileCache;
use super::flusher::{Flusher, TOGETHER_MIN};
use super::found::{Inventory, LogOnDisk};
use super::owner::{LogOwner, with_log};
use super::partition_log::Log;

/// From this number of mark files on, one sync of the whole file system is cheaper than one for each.
const TOGETHER_FILES_MIN: usize = 8 * TOGETHER_MIN;

/// The checkpoints that limit a log's range.
const CHECKPOINTS: [&str; 4] = [RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK, PROVEN_END];

fn bit_of(checkpoint: &str) -> u8 {
    CHECKPOINTS.iter().position(|&name| name == checkpoint).map_or(0, |at| 1 << at)
}

/// A partition of any topic.
pub type Key = (String, i32);

/// A directory of `log.dirs`.
pub struct LogDir {
    locked: LockedDir,
    cause: OnceLock<String>,
    flusher: OnceLock<Flusher>,
    state: Mutex<State>,
    /// Serializes the writing of checkpoints.
    writing: Mutex<Written>,
}

struct State {
    inventory: Inventory,
    owners: BTreeMap<Key, Arc<dyn LogOwner>>,
    /// Logs that were removed, and which of the checkpoints may still contain them, one bit each.
    gone: HashMap<Key, u8>,
    /// Whether a log was moved away and its new name is not durable.
    has_moved: bool,
}

/// The contents of the checkpoint files, so that an idle node writes nothing.
#[derive(Default)]
struct Written {
    recovery_points: Option<Offsets>,
    log_starts: Option<Offsets>,
    high_watermarks: Option<Offsets>,
    proven_ends: Option<Offsets>,
    cleaner: Option<Offsets>,
}

impl LogDir {
    pub(super) fn new(locked: LockedDir, inventory: Inventory) -> Self {
        let (owners, gone, has_moved) = (BTreeMap::new(), HashMap::new(), false);
        let state = Mutex::new(State { inventory, owners, gone, has_moved });
        let (cause, flusher) = (OnceLock::new(), OnceLock::new());
        // Most directories never have this file.
        let proven_ends = (!locked.path().join(PROVEN_END).exists()).then(Offsets::new);
        let writing = Mutex::new(Written { proven_ends, ..Written::default() });
        Self { locked, cause, flusher, state, writing }
    }

    pub fn path(&self) -> &Path {
        self.locked.path()
    }

    /// Fails if the directory was removed or moved by another process.
    pub(super) fn check_there(&self) -> Result<(), LogError> {
        self.locked.check_there()
    }

    /// Ends the use of the directory: drops its owners, which refer to the manager, and releases its lock.
    pub(super) fn release(&self) {
        let owners = std::mem::take(&mut self.state.lock().owners);
        drop(owners);
        self.locked.release();
    }

    /// `directory.id`.
    pub fn id(&self) -> Uuid {
        self.locked.id()
    }

    /// Why the directory is offline, if it is.
    pub fn offline_cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }

    /// Fails if the directory is offline.
    pub fn check_online(&self) -> Result<(), LogError> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(LogError::Offline { cause: cause.clone() }),
        }
    }

    pub(super) fn set_flusher(&self, flusher: Flusher) {
        assert!(self.flusher.set(flusher).is_ok(), "the flusher is started once");
    }

    /// Group commit for the logs of this directory.
    pub fn flusher(&self) -> &Flusher {
        self.flusher.get().expect("started with the directory")
    }

    /// Takes the directory offline and notifies its partitions. `false` if it was offline already.
    pub(super) fn fail(&self, cause: &str) -> bool {
        if self.cause.set(cause.to_owned()).is_err() {
            return false;
        }
        let owners = std::mem::take(&mut self.state.lock().owners);
        for owner in owners.values() {
            owner.go_offline();
        }
        if let Some(flusher) = self.flusher.get() {
            flusher.stop();
        }
        true
    }

    /// Whether the last run closed its logs, so that they can be opened without recovery.
    pub fn was_shut_down_cleanly(&self) -> bool {
        self.state.lock().inventory.clean
    }

    pub(super) fn with_inventory<T>(&self, look: impl FnOnce(&mut Inventory) -> T) -> T {
        look(&mut self.state.lock().inventory)
    }

    /// Registers the owner of a partition's log, which is open.
    pub(super) fn adopt(&self, key: Key, owner: Arc<dyn LogOwner>) {
        let mut state = self.state.lock();
        let inventory = &mut state.inventory;
        inventory.live.remove(&key);
        inventory.futures.remove(&key);
        inventory.recovery_points.remove(&key);
        inventory.log_starts.remove(&key);
        inventory.high_watermarks.remove(&key);
        inventory.proven_ends.remove(&key);
        inventory.closed.remove(&key);
        state.owners.insert(key, owner);
    }

    /// Records that a log without an owner was recovered and closed.
    pub(super) fn note_closed(&self, found: &LogOnDisk, log: &Log) {
        let Some(closed) = log.closed() else { return };
        let key = (found.topic.clone(), found.partition);
        let mut state = self.state.lock();
        let inventory = &mut state.inventory;
        inventory.recovery_points.insert(key.clone(), closed.log_end_offset);
        match log.starts_above_first_segment() {
            true => inventory.log_starts.insert(key.clone(), closed.log_start_offset),
            false => inventory.log_starts.remove(&key),
        };
        inventory.closed.insert(key, Arc::new(closed));
    }

    /// Removes a partition's log from this directory.
    pub(super) fn forget(&self, key: &Key) -> Option<Arc<dyn LogOwner>> {
        let mut state = self.state.lock();
        let inventory = &mut state.inventory;
        inventory.live.remove(key);
        inventory.futures.remove(key);
        inventory.recovery_points.remove(key);
        inventory.log_starts.remove(key);
        inventory.high_watermarks.remove(key);
        inventory.proven_ends.remove(key);
        inventory.closed.remove(key);
        state.has_moved = true;
        state.gone.insert(key.clone(), CHECKPOINTS.iter().fold(0, |bits, name| bits | bit_of(name)));
        state.owners.remove(key)
    }

    /// Removes an earlier log's entries from the checkpoints before a log with the same name is created.
    pub(super) fn forget_earlier(&self, cache: &Arc<FileCache>, key: &Key) -> Result<(), LogError> {
        let was_known = {
            let mut state = self.state.lock();
            let inventory = &mut state.inventory;
            let offsets = [
                &mut inventory.recovery_points,
                &mut inventory.log_starts,
                &mut inventory.high_watermarks,
                &mut inventory.proven_ends,
            ];
            let named = offsets.into_iter().filter_map(|offsets| offsets.remove(key)).count();
            named > 0 || state.gone.contains_key(key)
        };
        if was_known { self.checkpoint_all(cache) } else { Ok(()) }
    }

    /// Makes the new names of logs that were moved away durable: a crash must not restore one next to a new log of
    /// the same name.
    pub(super) fn sync_moved(&self, cache: &FileCache) -> Result<(), LogError> {
        if !std::mem::take(&mut self.state.lock().has_moved) {
            return Ok(());
        }
        cache.sync_dir(self.path())
    }

    /// How many logs are open.
    pub fn owner_count(&self) -> usize {
        self.state.lock().owners.len()
    }

    pub(super) fn owner(&self, key: &Key) -> Option<Arc<dyn LogOwner>> {
        self.state.lock().owners.get(key).cloned()
    }

    /// The partitions whose logs are open.
    pub fn owners(&self) -> Vec<(Key, Arc<dyn LogOwner>)> {
        self.state.lock().owners.iter().map(|(key, owner)| (key.clone(), owner.clone())).collect()
    }

    /// Collects the values of a checkpoint: `of` each open log, `rest` for the logs that were not opened since the
    /// start.
    fn collect(&self, rest: impl FnOnce(&Inventory) -> Offsets, of: impl Fn(&dyn LogOwner) -> Option<i64>) -> Offsets {
        let (mut offsets, owners) = {
            let state = self.state.lock();
            let owners: Vec<_> = state.owners.iter().map(|(key, owner)| (key.clone(), owner.clone())).collect();
            (rest(&state.inventory), owners)
        };
        offsets.extend(owners.into_iter().filter_map(|(key, owner)| Some((key, of(&*owner)?))));
        offsets
    }

    /// Sets a mark in every log, so that recovery after a crash reads only what is appended from now on (of what was
    /// flushed).
    pub(super) fn mark(&self) -> Result<(), LogError> {
        self.mark_those(|_| true)
    }

    fn mark_those(&self, is_wanted: impl Fn(&Log) -> bool) -> Result<(), LogError> {
        let owners = self.owners();
        let mut jobs = Vec::new();
        for (_, owner) in &owners {
            let is_wanted = |log: &Log| !log.is_away() && is_wanted(log);
            let begun = with_log(&**owner, |log| if is_wanted(log) { log.begin_mark() } else { Ok(None) });
            jobs.extend(begun?.map(|job| (owner, job)));
        }
        let files: usize = jobs.iter().map(|(_, job)| job.file_count()).sum();
        let are_many = jobs.len() >= TOGETHER_MIN || files >= TOGETHER_FILES_MIN;
        let synced = are_many && jobs[0].1.sync_file_system()?;
        for (owner, job) in &jobs {
            if !synced {
                job.sync()?;
            }
            with_log(&***owner, |log| log.complete_mark(job.end()))?;
        }
        Ok(())
    }

    /// Checkpoints the recovery points after inactive segments were flushed: recovery after a crash does not read
    /// them again.
    pub(super) fn checkpoint_rolled(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.mark_those(Log::is_remade)?;
        self.write_recovery_points(cache, Log::rolled_recovery_point)
    }

    /// The closed state of all logs: those that are open, and those that were not opened since the last clean stop.
    pub(super) fn clean_stop(&self) -> CleanStop {
        let closed = |inventory: &Inventory| {
            let unopened = inventory.closed.iter().filter(|(key, _)| inventory.live.contains_key(key));
            unopened.map(|(key, log)| (key.clone(), (**log).clone())).collect()
        };
        let mut logs: BTreeMap<Key, ClosedLog> = self.with_inventory(|inventory| closed(inventory));
        logs.extend(
            self.owners().into_iter().filter_map(|(key, owner)| Some((key, with_log(&*owner, |log| log.closed())?))),
        );
        CleanStop { logs }
    }

    /// Writes the recovery point of each log.
    pub fn checkpoint_recovery_points(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.write_recovery_points(cache, Log::recovery_point)
    }

    /// Makes the checkpoint state that a log was flushed up to `offset`; `false` if it was not. Acquires locks: must not be
    /// called under the log's.
    pub(super) fn ensure_recovery_point(
        &self,
        cache: &Arc<FileCache>,
        key: &Key,
        offset: i64,
    ) -> Result<bool, LogError> {
        let is_written = || {
            let written = self.writing.lock();
            written.recovery_points.as_ref().and_then(|points| points.get(key)).is_some_and(|&point| point >= offset)
        };
        if !is_written() {
            self.checkpoint_recovery_points(cache)?;
        }
        Ok(is_written())
    }

    fn write_recovery_points(&self, cache: &Arc<FileCache>, of: impl Fn(&Log) -> i64) -> Result<(), LogError> {
        let offsets = || {
            self.collect(
                |inventory| inventory.recovery_points.clone(),
                |owner| with_log(owner, |log| (!log.is_planned()).then(|| of(log))),
            )
        };
        self.write(cache, RECOVERY_POINT, offsets, |written| &mut written.recovery_points)
    }

    /// Writes the log start offset of each log that starts above its first segment's base offset.
    pub fn checkpoint_log_starts(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let offsets = || {
            self.collect(
                |inventory| inventory.log_starts.clone(),
                |owner| {
                    let start = |log: &mut Log| log.log_start_offset().min(log.checkpoint_limit);
                    with_log(owner, |log| log.starts_above_first_segment().then(|| start(log)))
                },
            )
        };
        self.write(cache, LOG_START_OFFSET, offsets, |written| &mut written.log_starts)
    }

    /// Writes the high watermarks, each limited to what is durable here: a recovery considers a shorter log damaged and continues
    /// after the missing records, which a follower would not fetch again. Its high watermark may be above its flushed offset, and so
    /// may a leader's without a flush before the acknowledgement.
    pub fn checkpoint_high_watermarks(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let offsets = || {
            self.collect(
                |inventory| inventory.high_watermarks.clone(),
                |owner| {
                    let limit = with_log(owner, |log| {
                        (!log.is_planned()).then_some(log.checkpoint_limit.min(log.durable_end_offset()))
                    });
                    limit.map(|limit| owner.high_watermark().min(limit))
                },
            )
        };
        self.write(cache, HIGH_WATERMARK, offsets, |written| &mut written.high_watermarks)
    }

    /// Writes how far each log is flushed in which damage is known: a recovery must not take the damage for a torn write
    /// (docs/decisions/0003).
    pub fn checkpoint_proven_ends(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let offsets = || {
            self.collect(
                |inventory| inventory.proven_ends.clone(),
                |owner| {
                    let end = |log: &mut Log| log.checkpoint_limit.min(log.durable_end_offset());
                    with_log(owner, |log| log.is_damaged().then(|| end(log)))
                },
            )
        };
        self.write(cache, PROVEN_END, offsets, |written| &mut written.proven_ends)
    }

    /// The first dirty offset of a log according to the cleaner's checkpoint.
    pub fn cleaner_checkpoint(&self, key: &Key) -> Option<i64> {
        self.state.lock().inventory.cleaned.get(key).copied()
    }

    /// Stores the first dirty offset of a log, unless the log was removed meanwhile. Acquires locks: must not be
    /// called under the log's.
    pub(super) fn set_cleaner_checkpoint(
        &self,
        cache: &Arc<FileCache>,
        key: &Key,
        owner: &Arc<dyn LogOwner>,
        offset: i64,
    ) -> Result<(), LogError> {
        let offsets = || {
            let mut state = self.state.lock();
            if state.owners.get(key).is_some_and(|present| Arc::ptr_eq(present, owner)) {
                state.inventory.cleaned.insert(key.clone(), offset);
            }
            state.inventory.cleaned.clone()
        };
        self.write(cache, CLEANER_OFFSET, offsets, |written| &mut written.cleaner)
    }

    /// Records the first dirty offset of a log that is not open yet, or has been copied: its offsets may have gaps.
    pub(super) fn expect_gaps(&self, cache: &Arc<FileCache>, key: &Key, first_dirty: i64) -> Result<(), LogError> {
        let offsets = || {
            let mut state = self.state.lock();
            state.inventory.cleaned.insert(key.clone(), first_dirty);
            state.inventory.cleaned.clone()
        };
        self.write(cache, CLEANER_OFFSET, offsets, |written| &mut written.cleaner)
    }

    /// Removes a log from the cleaner's checkpoint.
    pub(super) fn forget_cleaned(&self, cache: &Arc<FileCache>, key: &Key) -> Result<(), LogError> {
        if self.state.lock().inventory.cleaned.remove(key).is_none() {
            return Ok(());
        }
        let offsets = || self.state.lock().inventory.cleaned.clone();
        self.write(cache, CLEANER_OFFSET, offsets, |written| &mut written.cleaner)
    }

    /// Lowers the checkpoints of logs before everything from the given offsets on is removed: after a crash they must not
    /// state what the truncations removed. Each file is written once for all of them.
    pub(super) fn begin_truncation(&self, cache: &Arc<FileCache>, offsets: &[(Key, i64)]) -> Result<(), LogError> {
        let open = self.open_of(offsets);
        let ends =
            open.iter().map(|(key, offset, owner)| (*key, with_log(&**owner, |log| log.begin_truncation(*offset))));
        let ends: Vec<_> = ends.collect();
        self.lower_cleaner_checkpoint(cache, ends.iter().copied())?;
        let is_above = |stored: &Option<Offsets>| {
            let Some(stored) = stored else { return !ends.is_empty() };
            ends.iter().any(|(key, end)| stored.get(*key).is_some_and(|stored| stored > end))
        };
        let above = {
            let written = self.writing.lock();
            [&written.recovery_points, &written.log_starts, &written.high_watermarks, &written.proven_ends]
                .map(is_above)
        };
        if above[0] {
            self.checkpoint_recovery_points(cache)?;
        }
        if above[1] {
            self.checkpoint_log_starts(cache)?;
        }
        if above[2] {
            self.checkpoint_high_watermarks(cache)?;
        }
        if above[3] {
            self.checkpoint_proven_ends(cache)?;
        }
        Ok(())
    }

    fn open_of<'o>(&self, offsets: &'o [(Key, i64)]) -> Vec<(&'o Key, i64, Arc<dyn LogOwner>)> {
        let state = self.state.lock();
        offsets.iter().filter_map(|(key, offset)| Some((key, *offset, state.owners.get(key)?.clone()))).collect()
    }

    /// The logs were truncated, or were not after all. Limits the cleaner's checkpoint to their active segments' base
    /// offsets: what follows is not clean, whatever was there before.
    pub(super) fn end_truncation(&self, cache: &Arc<FileCache>, offsets: &[(Key, i64)]) -> Result<(), LogError> {
        let mut limits = Vec::new();
        for (key, _, owner) in self.open_of(offsets) {
            with_log(&*owner, |log| {
                log.end_truncation();
                limits.push((key, log.active_base_offset()));
            });
        }
        self.lower_cleaner_checkpoint(cache, limits.into_iter())
    }

    /// Limits the first dirty offset of each of these logs.
    pub(super) fn lower_cleaner_checkpoint<'k>(
        &self,
        cache: &Arc<FileCache>,
        limits: impl Iterator<Item = (&'k Key, i64)>,
    ) -> Result<(), LogError> {
        let is_lowered = {
            let cleaned = &mut self.state.lock().inventory.cleaned;
            let lowered = limits.filter(|(key, limit)| match cleaned.get_mut(*key) {
                Some(offset) if *offset > *limit => {
                    *offset = *limit;
                    true
                }
                _ => false,
            });
            lowered.count() > 0
        };
        if !is_lowered {
            return Ok(());
        }
        let offsets = || self.state.lock().inventory.cleaned.clone();
        self.write(cache, CLEANER_OFFSET, offsets, |written| &mut written.cleaner)
    }

    /// Writes all four.
    pub fn checkpoint_all(&self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.checkpoint_recovery_points(cache)?;
        self.checkpoint_log_starts(cache)?;
        self.checkpoint_high_watermarks(cache)?;
        self.checkpoint_proven_ends(cache)
    }

    fn write(
        &self,
        cache: &Arc<FileCache>,
        name: &str,
        offsets: impl FnOnce() -> Offsets,
        slot: impl FnOnce(&mut Written) -> &mut Option<Offsets>,
    ) -> Result<(), LogError> {
        self.check_online()?;
        let mut written = self.writing.lock();
        let gone: Vec<Key> = self.state.lock().gone.keys().cloned().collect();
        // Collect the values under the lock: older values must not replace newer ones.
        let offsets = offsets();
        let before = slot(&mut written);
        if before.as_ref() != Some(&offsets) {
            cache.replace(&self.path().join(name), format_offsets(&offsets).as_bytes(), true)?;
            *before = Some(offsets);
        }
        if !gone.is_empty() {
            let mut state = self.state.lock();
            for key in gone {
                if let Some(bits) = state.gone.get_mut(&key) {
                    *bits &= !bit_of(name);
                }
            }
            state.gone.retain(|_, bits| *bits != 0);
        }
        Ok(())
    }

    /// The path of a partition's directory in this log directory.
    pub(super) fn partition_path(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}
