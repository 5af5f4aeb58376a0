//! Moves of logs to other directories (KIP-113): the copy, `<topic>-<partition>.<unique>-future`, replaces the log when both
//! are equal and the copy is durable.
//!
//! The copy gets the log's name, durably, before the log loses it. A crash in between leaves both, with the same
//! records: see `klamm_replica`, which keeps the one that is further.

use std::path::PathBuf;
use std::sync::Arc;

use klamm_base::{LogError, Uuid};

use super::config::LogConfig;
use super::found::LogOnDisk;
use super::future::FutureLog;
use super::log_dir::Key;
use super::manager::{LogManager, random_hex};
use super::names::{DirStage, partition_dir};
use super::owner::{LogOwner, with_log};
use super::partition_log::{Log, Moving};

/// What a promotion did on disk.
pub struct Promoted {
    /// The new name of the log that was replaced.
    replaced: PathBuf,
    /// The log that was replaced could not be renamed: its directory fails.
    error: Option<LogError>,
}

/// Why a copy did not replace its log.
#[derive(Debug)]
pub enum PromotionError {
    /// The copy cannot be made durable: its directory fails.
    Copy(LogError),
    /// A flush of the copy is in progress: try again.
    Busy,
}

impl Log {
    /// Its part in a move; `None` ends it.
    pub fn set_moving(&mut self, moving: Option<Moving>) {
        self.moving = moving;
    }

    /// Continues at a later offset, where the log that this one copies continues.
    pub fn continue_at(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.roll(offset, now_ms)?;
        self.log_end_offset = self.log_end_offset.max(offset);
        Ok(())
    }

    /// Whether a truncation was announced to the checkpoints and has not ended.
    pub fn is_truncating(&self) -> bool {
        self.checkpoint_limit != i64::MAX
    }

    /// Whether a flush was begun and has not ended.
    pub fn is_flushing(&self) -> bool {
        self.is_flushing
    }

    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The offset up to which a copy agrees with `original`, by leader epochs.
    pub fn common_end(&self, original: &Log) -> i64 {
        let mut end = self.log_end_offset;
        for &(epoch, start) in self.epochs.entries().iter().rev() {
            if let Some((found, original_end)) = original.end_offset_for_epoch(epoch)
                && found == epoch
            {
                return end.min(original_end);
            }
            end = start;
        }
        // Without epochs nothing shows what the copy is of.
        if self.epochs.entries().is_empty() { 0 } else { end }
    }

    /// Takes what batches do not contain from the original, which has the same batches: epochs without records, producers whose
    /// batches were deleted, the configuration.
    fn take_over(&mut self, original: &Log) -> Result<(), LogError> {
        assert_eq!(self.log_end_offset, original.log_end_offset, "a copy that is not complete");
        self.config = original.config.clone();
        self.epochs.replace(original.epochs.entries());
        self.advance_log_start(original.log_start_offset);
        self.producers.replace(&original.producers);
        self.take_snapshot()?;
        self.generation = self.generation.max(original.generation) + 1;
        Ok(())
    }

    /// Moves a log that is not on disk.
    fn plan_at(&mut self, path: &std::path::Path) {
        assert!(self.is_planned());
        self.dir.plan_at(path);
    }
}

impl LogManager {
    /// Copies of logs on disk that were not opened yet.
    pub fn futures(&self) -> Vec<LogOnDisk> {
        let of = |dir: &Arc<super::LogDir>| {
            dir.with_inventory(|inventory| inventory.futures.values().cloned().collect::<Vec<_>>())
        };
        self.online().flat_map(|(_, dir)| of(dir)).collect()
    }

    /// The owner of a partition's log, if it is open.
    pub fn owner_of(&self, topic: &str, partition: i32) -> Option<Arc<dyn LogOwner>> {
        let dir = self.place_of(topic, partition)?;
        self.dirs[dir].owner(&(topic.to_owned(), partition))
    }

    /// Removes what the checkpoints of a directory may still contain of an earlier log with this name. Acquires locks: must not be
    /// called under the log's.
    pub fn forget_earlier(&self, dir: usize, topic: &str, partition: i32) -> Result<(), LogError> {
        let key = (topic.to_owned(), partition);
        self.fail_dir_on_error(dir, self.dirs[dir].forget_earlier(&self.context.cache, &key))
    }

    /// Moves a log that is not on disk to another directory, which has forgotten earlier ones. [`LogManager::adopt`] follows.
    pub fn replan(&self, dir: usize, log: &mut Log) {
        let name = partition_dir(&log.topic, log.partition, DirStage::Live, "");
        log.plan_at(&self.dirs[dir].partition_path(&name));
    }

    /// Ends the registration of a log in a directory that it has left without files.
    pub fn leave(&self, dir: usize, topic: &str, partition: i32) {
        self.dirs[dir].forget(&(topic.to_owned(), partition));
    }

    /// Creates an empty copy in a directory, for a partition whose log is in another one.
    pub fn create_future(
        &self,
        dir: usize,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<Arc<FutureLog>, LogError> {
        let key = (topic.to_owned(), partition);
        self.dirs[dir].check_online()?;
        let cache = &self.context.cache;
        let created = self.dirs[dir].sync_moved(cache).and_then(|()| {
            self.dirs[dir].forget_earlier(cache, &key)?;
            self.dirs[dir].forget_cleaned(cache, &key)?;
            let path = self.dirs[dir].partition_path(&partition_dir(topic, partition, DirStage::Future, &random_hex()));
            let mut log = Log::create(&path, topic, partition, config, &self.context, 0, now_ms)?;
            log.write_topic_id(topic_id)?;
            Ok(log)
        });
        let log = self.fail_dir_on_error(dir, created)?;
        self.adopt_future(dir, key, log)
    }

    /// Opens a copy that is on disk.
    pub fn open_future(
        &self,
        found: &LogOnDisk,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<Arc<FutureLog>, LogError> {
        let (log, _) = self.open(found, config, now_ms)?;
        self.adopt_future(found.dir, (found.topic.clone(), found.partition), log)
    }

    fn adopt_future(&self, dir: usize, key: Key, mut log: Log) -> Result<Arc<FutureLog>, LogError> {
        log.set_moving(Some(Moving::To));
        // A compacted log has gaps, which a recovery of the copy must expect.
        let source = self.place_of(&key.0, key.1);
        if source.is_some_and(|source| self.dirs[source].cleaner_checkpoint(&key).is_some()) {
            self.fail_dir_on_error(dir, self.dirs[dir].expect_gaps(&self.context.cache, &key, 0))?;
        }
        let future = Arc::new(FutureLog::new(dir, log));
        self.future_places.lock().insert(key.clone(), dir);
        self.dirs[dir].adopt(key, future.clone());
        self.note_boot(dir);
        // It may have failed meanwhile.
        self.dirs[dir].check_online()?;
        Ok(future)
    }

    /// Removes a partition's copy, open or not: its directory is renamed now and removed later.
    pub fn delete_future(&self, topic: &str, partition: i32, now_ms: i64) -> Result<(), LogError> {
        let key = (topic.to_owned(), partition);
        let on_disk = |dir: &Arc<super::LogDir>| {
            dir.with_inventory(|inventory| inventory.futures.get(&key).map(|found| (found.dir, found.path.clone())))
        };
        let place = self.future_places.lock().remove(&key);
        let found = self.dirs.iter().find_map(on_disk);
        let Some(dir) = place.or(found.as_ref().map(|(dir, _)| *dir)) else { return Ok(()) };
        let log_dir = &self.dirs[dir];
        log_dir.check_online()?;
        let to = log_dir.partition_path(&partition_dir(topic, partition, DirStage::Delete, &random_hex()));
        let renamed = match (log_dir.forget(&key), found) {
            (Some(owner), _) => with_log(&*owner, |log| log.move_away(&to)).map(drop),
            (None, Some((_, path))) => self.context.cache.rename(&path, &to),
            (None, None) => return Ok(()),
        };
        self.fail_dir_on_error(dir, renamed)?;
        self.note_boot(dir);
        self.fail_dir_on_error(dir, log_dir.forget_cleaned(&self.context.cache, &key))?;
        self.trash_later(to, now_ms);
        Ok(())
    }

    fn trash_later(&self, path: PathBuf, now_ms: i64) {
        let delay_ms = self.config.load().file_delete_delay_ms;
        self.context.trash.push_dir(now_ms.saturating_add(delay_ms), path);
    }

    /// Lowers the checkpoints of a copy before everything from `offset` on is removed from it, then truncates it.
    pub fn truncate_future(&self, future: &FutureLog, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.change_future(future, offset, |log| log.truncate_to(offset, now_ms).map(drop))
    }

    /// The same for a copy that continues at `offset`, without what it has.
    pub fn restart_future(&self, future: &FutureLog, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.change_future(future, 0, |log| log.truncate_fully_and_start_at(offset, now_ms))
    }

    fn change_future(
        &self,
        future: &FutureLog,
        offset: i64,
        change: impl FnOnce(&mut Log) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let (dir, offsets) = {
            let log = future.lock();
            (&self.dirs[future.dir()], [((log.topic.clone(), log.partition), offset)])
        };
        dir.begin_truncation(&self.context.cache, &offsets)?;
        let changed = change(&mut future.lock());
        dir.end_truncation(&self.context.cache, &offsets)?;
        changed
    }

    /// Lets a complete copy take the place of its log, and exchanges both: afterwards `current` is the copy. Under the locks
    /// of both; [`LogManager::end_promotion`] follows without them.
    pub fn promote(
        &self,
        current: &mut Log,
        copy: &mut Log,
        from: usize,
        to: usize,
    ) -> Result<Promoted, PromotionError> {
        let cache = &self.context.cache;
        let key = (&current.topic, current.partition);
        let name = partition_dir(key.0, key.1, DirStage::Live, "");
        let promoted = copy.take_over(current).and_then(|()| copy.flush());
        promoted.map_err(PromotionError::Copy)?;
        if copy.is_flushing || copy.is_dirty() {
            return Err(PromotionError::Busy);
        }
        let named = copy.dir.rename(cache, &self.dirs[to].partition_path(&name));
        named.and_then(|()| cache.sync_dir(self.dirs[to].path())).map_err(PromotionError::Copy)?;
        let replaced = partition_dir(key.0, key.1, DirStage::Delete, &random_hex());
        let replaced = self.dirs[from].partition_path(&replaced);
        // Durable before anything is appended to the copy: a crash must not bring back a log that lacks it.
        let error = current.move_away(&replaced).and_then(|_| cache.sync_dir(self.dirs[from].path())).err();
        std::mem::swap(current, copy);
        (current.moving, copy.moving) = (None, None);
        Ok(Promoted { replaced, error })
    }

    /// Registers the log that was promoted, and removes the other one after the delay for deleted logs.
    pub fn end_promotion(
        &self,
        promoted: Promoted,
        key: &Key,
        owner: &Arc<dyn LogOwner>,
        (from, to): (usize, usize),
        now_ms: i64,
    ) {
        let cache = &self.context.cache;
        let cleaned = self.dirs[from].cleaner_checkpoint(key);
        self.places.lock().insert(key.clone(), to);
        self.future_places.lock().remove(key);
        self.dirs[to].adopt(key.clone(), owner.clone());
        if let Some(cleaned) = cleaned {
            let limit = with_log(&**owner, |log| log.active_base_offset());
            let _ = self.fail_dir_on_error(to, self.dirs[to].expect_gaps(cache, key, cleaned.min(limit)));
        }
        // A copy may continue after offsets that its log had lost.
        let _ = self.fail_dir_on_error(to, self.dirs[to].checkpoint_recovery_points(cache));
        if self.dirs[to].check_online().is_err() {
            // It failed while the owner was in no directory.
            owner.go_offline();
        }
        self.dirs[from].forget(key);
        match promoted.error {
            Some(error) => drop(self.fail_dir_on_error(from, Err::<(), _>(error))),
            None => {
                let _ = self.fail_dir_on_error(from, self.dirs[from].forget_cleaned(cache, key));
                self.trash_later(promoted.replaced, now_ms);
            }
        }
    }

    /// Lets a copy that is on disk take the place of a log that is not: its directory failed or is gone.
    pub fn promote_found(&self, found: &LogOnDisk) -> Result<LogOnDisk, LogError> {
        let dir = &self.dirs[found.dir];
        dir.check_online()?;
        let key = (found.topic.clone(), found.partition);
        let path = dir.partition_path(&partition_dir(&key.0, key.1, DirStage::Live, ""));
        let cache = &self.context.cache;
        let renamed = cache.rename(&found.path, &path).and_then(|()| cache.sync_dir(dir.path()));
        self.fail_dir_on_error(found.dir, renamed)?;
        let live = LogOnDisk { path, ..found.clone() };
        dir.with_inventory(|inventory| {
            inventory.futures.remove(&key);
            inventory.live.insert(key, live.clone());
        });
        Ok(live)
    }

    /// Sets aside a log on disk that another directory has, too.
    pub fn set_aside_second(&self, found: &LogOnDisk, reason: &str) -> Result<(), LogError> {
        let dir = &self.dirs[found.dir];
        dir.check_online()?;
        let key = (found.topic.clone(), found.partition);
        let to = dir.partition_path(&partition_dir(&key.0, key.1, DirStage::Stray, &random_hex()));
        self.fail_dir_on_error(found.dir, self.context.cache.rename(&found.path, &to))?;
        dir.forget(&key);
        self.note_boot(found.dir);
        self.fail_dir_on_error(found.dir, dir.forget_cleaned(&self.context.cache, &key))?;
        (self.on_event)(super::Event::Warning(format!(
            "{} is a stray: {reason}. It is renamed to {}, and nothing in it is removed",
            found.path.display(),
            to.display()
        )));
        Ok(())
    }
}
