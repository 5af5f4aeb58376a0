//! All logs of a node: their directories, how they are opened and closed, and their periodic work.
//!
//! Within the log, only the manager's threads read the clock. Locks: a directory's lock and a partition's lock are
//! never held together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use arc_swap::ArcSwap;
use klamm_base::LogError;
use klamm_base::Uuid;
use klamm_base::counters::{Named, mbean_value};
use parking_lot::Mutex;

use super::checkpoint::{PARTITION_METADATA, read_partition_metadata, write_partition_metadata};
use super::compaction::{Cleaner, CleanerConfig};
use super::config::LogConfig;
use super::dirs::LockedDir;
use super::flusher::{Flusher, OnMoved};
use super::found::{Inventory, LogOnDisk};
use super::log_dir::{Key, LogDir};
use super::names::{DirStage, partition_dir};
use super::owner::{LogOwner, with_log};
use super::partition_log::{Log, LogContext};
use super::recovery::{OpenAt, Recovery};
use super::tasks::{Intervals, Tasks};

/// A notification to the node.
#[derive(Debug)]
pub enum Event {
    /// A log directory went offline; the others stay in use.
    DirFailed { dir: PathBuf, id: Uuid, cause: String },
    /// A warning for the operator, one line.
    Warning(String),
}

/// Receives events; called from any thread, without locks.
pub type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// Configuration of the logs of a node.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// Flush threads for each directory; 0: the caller flushes, see [`Flusher::begin_one`].
    pub flush_threads: usize,
    /// Threads that open and close logs, for each directory (`num.recovery.threads.per.data.dir`).
    pub recovery_threads: usize,
    /// `None`: no periodic tasks.
    pub intervals: Option<Intervals>,
    /// Delay in ms before the files of a deleted partition are removed (`log.segment.delete.delay.ms`).
    pub file_delete_delay_ms: i64,
    /// `None`: compacted logs are not cleaned (`log.cleaner.enable=false`).
    pub cleaner: Option<CleanerConfig>,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            flush_threads: 2,
            recovery_threads: 2,
            intervals: Some(Intervals::default()),
            file_delete_delay_ms: 60_000,
            cleaner: Some(CleanerConfig::default()),
        }
    }
}

/// The logs of a node.
pub struct LogManager {
    pub(super) dirs: Vec<Arc<LogDir>>,
    pub(super) context: LogContext,
    pub(super) on_event: OnEvent,
    pub(super) config: ArcSwap<ManagerConfig>,
    /// The directory of each open log.
    pub(super) places: Mutex<HashMap<Key, usize>>,
    /// The directory of each copy that is to replace a log.
    pub(super) future_places: Mutex<HashMap<Key, usize>>,
    cordoned: Mutex<HashSet<usize>>,
    broker_epoch: i64,
    /// Damage that was reported already: file and position.
    reported: Mutex<HashSet<(PathBuf, u64)>>,
    tasks: Mutex<Option<Tasks>>,
    cleaner: Mutex<Option<Cleaner>>,
}

impl LogManager {
    /// Reads the contents of the directories and starts their flushers. `failed` are directories that could not be
    /// locked.
    ///
    /// A directory that fails here goes offline; if all fail, so does the start.
    pub fn start(
        locked: Vec<LockedDir>,
        config: ManagerConfig,
        context: LogContext,
        now_ms: i64,
        on_event: OnEvent,
    ) -> Result<Arc<Self>, LogError> {
        let mut dirs = Vec::new();
        let mut epochs = Vec::new();
        let mut failed = Vec::new();
        for locked in locked {
            let at = dirs.len();
            let inventory = Inventory::take(&context.cache, locked.path(), at);
            let inventory = inventory.unwrap_or_else(|error| {
                failed.push((at, error));
                Inventory::default()
            });
            inventory.warnings.iter().for_each(|warning| on_event(Event::Warning(warning.clone())));
            inventory.deleted.iter().for_each(|path| context.trash.push_dir(now_ms, path.clone()));
            epochs.push(if inventory.clean { inventory.broker_epoch } else { -1 });
            dirs.push(Arc::new(LogDir::new(locked, inventory)));
        }
        let agreed = epochs.first().copied().filter(|first| epochs.iter().all(|epoch| epoch == first));
        let manager = Arc::new(Self {
            dirs,
            context,
            on_event,
            config: ArcSwap::from_pointee(config),
            places: Mutex::default(),
            future_places: Mutex::default(),
            cordoned: Mutex::default(),
            broker_epoch: agreed.unwrap_or(-1),
            reported: Mutex::default(),
            tasks: Mutex::default(),
            cleaner: Mutex::default(),
        });
        manager.start_flushers();
        let last = failed.len() == manager.dirs.len();
        for (at, error) in failed {
            manager.fail_dir(at, &error.to_string());
            if last {
                return Err(error);
            }
        }
        let config = manager.config.load_full();
        *manager.tasks.lock() = config.intervals.clone().map(|intervals| Tasks::start(&manager, intervals));
        manager.restart_cleaner(config.cleaner.as_ref());
        Ok(manager)
    }

    /// Applies configuration that can change at run time: the cleaner, the number of threads that close logs, and the
    /// delay for a deleted partition's files. Intervals and flushers stay unchanged.
    pub fn reconfigure(self: &Arc<Self>, config: ManagerConfig) {
        let config = Arc::new(config);
        self.config.store(config.clone());
        self.restart_cleaner(config.cleaner.as_ref());
    }

    /// Restarts the cleaner; a round in progress is abandoned without changes and started again.
    fn restart_cleaner(self: &Arc<Self>, config: Option<&CleanerConfig>) {
        let mut cleaner = self.cleaner.lock();
        if cleaner.as_ref().map(Cleaner::config) != config {
            if let Some(cleaner) = cleaner.take() {
                cleaner.stop();
            }
            *cleaner = config.map(|config| Cleaner::start(self, config.clone()));
        }
    }

    pub(super) fn has_cleaner(&self) -> bool {
        self.config.load().cleaner.is_some()
    }

    fn start_flushers(self: &Arc<Self>) {
        for (at, dir) in self.dirs.iter().enumerate() {
            let manager = Arc::downgrade(self);
            let on_error = move |error: &LogError| {
                if let Some(manager) = manager.upgrade() {
                    manager.fail_dir(at, &error.to_string());
                }
            };
            let manager = Arc::downgrade(self);
            let on_rolled = move || {
                if let Some(manager) = manager.upgrade() {
                    let written = manager.dirs[at].checkpoint_rolled(&manager.context.cache);
                    let _ = manager.fail_dir_on_error(at, written);
                }
            };
            let counters = self.context.counters.clone();
            let manager = Arc::downgrade(self);
            let on_moved: OnMoved = Box::new(move |owners| {
                let Some(manager) = manager.upgrade() else { return };
                for (at, dir) in manager.dirs.iter().enumerate() {
                    let there = owners.iter().filter(|owner| owner.place() == Some(at));
                    dir.flusher().take_over(there.cloned().collect());
                }
            });
            let threads = self.config.load().flush_threads;
            dir.set_flusher(Flusher::start(threads, counters, on_error, on_rolled, Some((at, on_moved))));
        }
    }

    pub fn context(&self) -> &LogContext {
        &self.context
    }

    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The broker epoch of the last shutdown if all directories were shut down cleanly with it, otherwise -1.
    pub fn previous_broker_epoch(&self) -> i64 {
        self.broker_epoch
    }

    /// Partitions on disk whose logs were not opened yet.
    pub fn found(&self) -> Vec<LogOnDisk> {
        self.dirs
            .iter()
            .flat_map(|dir| dir.with_inventory(|inventory| inventory.live.values().cloned().collect::<Vec<_>>()))
            .collect()
    }

    /// The topic id of a partition; `None` if `partition.metadata` is missing or cannot be read.
    pub fn topic_id(&self, found: &LogOnDisk) -> Result<Option<Uuid>, LogError> {
        self.dirs[found.dir].check_online()?;
        match read_partition_metadata(&found.path) {
            Err(error @ LogError::Corrupt { .. }) => {
                let warning = format!("{error}; the directory is taken for the topic of its name");
                (self.on_event)(Event::Warning(warning));
                Ok(None)
            }
            result => self.fail_dir_on_error(found.dir, result),
        }
    }

    /// The high watermark that the last checkpoint contains for a partition that is not open yet; 0 if there is none.
    pub fn checkpointed_high_watermark(&self, found: &LogOnDisk) -> i64 {
        let key = (found.topic.clone(), found.partition);
        self.dirs[found.dir].with_inventory(|inventory| inventory.high_watermarks.get(&key).copied().unwrap_or(0))
    }

    /// Opens the log of a partition that is on disk. Warnings are sent as events.
    pub fn open(&self, found: &LogOnDisk, config: Arc<LogConfig>, now_ms: i64) -> Result<(Log, Recovery), LogError> {
        let dir = &self.dirs[found.dir];
        dir.check_online()?;
        let at: OpenAt = dir.with_inventory(|inventory| inventory.open_at(&found.topic, found.partition));
        let opened = Log::open(&found.path, &found.topic, found.partition, config, &self.context, at, now_ms);
        let (log, mut recovery) = self.fail_dir_on_error(found.dir, opened)?;
        // Without a flush before the acknowledgement, a power cut may remove what was cleaned: what is appended next
        // is not clean.
        let key = (found.topic.clone(), found.partition);
        self.fail_dir_on_error(
            found.dir,
            dir.lower_cleaner_checkpoint(&self.context.cache, [(&key, log.log_end_offset())].into_iter()),
        )?;
        let found_damage = recovery.damage.iter().map(|(file, damage)| (file.clone(), damage.position));
        self.reported.lock().extend(found_damage);
        for warning in recovery.warnings.drain(..) {
            (self.on_event)(Event::Warning(warning));
        }
        Ok((log, recovery))
    }

    /// Explains why a partition's directory belongs to an earlier topic with the same name instead of `topic_id`;
    /// `None` if it belongs to `topic_id`. If the directory contains no topic id, it is written, unless the records there
    /// may be of another topic.
    ///
    /// `is_live`: whether another topic of the cluster has a given id.
    pub fn topic_mismatch(
        &self,
        found: &LogOnDisk,
        topic_id: Uuid,
        is_live: impl FnOnce(Uuid) -> bool,
    ) -> Result<Option<String>, LogError> {
        let Some(stored) = self.topic_id(found)? else {
            // The process that created the directory ended before the id was written, or durable.
            if self.may_be_of_earlier_topic(found)? {
                return Ok(Some(format!(
                    "a power cut took its {PARTITION_METADATA} before the first flush of the log, and its records may be \
                     of an earlier topic {0}. If they are of this one, stop the node, remove {0}-{1} if it exists, and \
                     give the folder that name again with a {PARTITION_METADATA} that contains topic id {topic_id}",
                    found.topic, found.partition
                )));
            }
            self.store_topic_id(found, topic_id)?;
            return Ok(None);
        };
        if stored == topic_id {
            return Ok(None);
        }
        let path = found.path.join(PARTITION_METADATA);
        let (file, name) = (path.display(), format!("{}-{}", found.topic, found.partition));
        if differing_bits(stored, topic_id) <= BITS_OF_A_BYTE {
            self.store_topic_id(found, topic_id)?;
            self.report_once(
                &path,
                format!(
                    "{file} contains topic id {stored}, a damaged form of {topic_id}, the id of {name}: it is rewritten"
                ),
            );
            return Ok(None);
        }
        if is_live(stored) {
            let reason = format!(
                "topic id {stored} belongs to another topic, and {name} has {topic_id}: the partition is not served. \
                 If only this file is wrong, remove it and start the node again; if the directory is, move it away"
            );
            self.report_once(&path, format!("{file}: {reason}"));
            return Err(LogError::Directory { path, reason });
        }
        Ok(Some(format!(
            "its {PARTITION_METADATA} contains topic id {stored}, but topic {} has {topic_id}. If the folder \
             belongs to this topic nevertheless, stop the node, correct that file, and give the folder its name again",
            found.topic
        )))
    }

    /// Whether a directory without a topic id contains records that were never flushed. The first flush makes the id
    /// durable, so that a power cut can leave the records without it, and the topic may have been created again since.
    fn may_be_of_earlier_topic(&self, found: &LogOnDisk) -> Result<bool, LogError> {
        let at = self.dirs[found.dir].with_inventory(|inventory| inventory.open_at(&found.topic, found.partition));
        Ok(at.may_be_unflushed() && self.fail_dir_on_error(found.dir, found.has_records())?)
    }

    fn store_topic_id(&self, found: &LogOnDisk, topic_id: Uuid) -> Result<(), LogError> {
        let written = write_partition_metadata(&self.context.cache, &found.path, topic_id, true);
        self.fail_dir_on_error(found.dir, written)
    }

    fn report_once(&self, path: &Path, message: String) {
        if self.reported.lock().insert((path.to_owned(), 0)) {
            (self.on_event)(Event::Warning(message));
        }
    }

    /// Reports damage that a fetch found, once for each place.
    pub fn report_damage(&self, error: &LogError) {
        if let LogError::Corrupt { path, position, .. } = error
            && self.reported.lock().insert((path.clone(), *position))
        {
            (self.on_event)(Event::Warning(error.to_string()));
        }
    }

    /// Opens many logs at once, with separate threads for each directory. `done` is called from those threads.
    pub fn open_all(
        &self,
        found: &[LogOnDisk],
        config: impl Fn(&LogOnDisk) -> Arc<LogConfig> + Sync,
        now_ms: i64,
        done: impl Fn(&LogOnDisk, Result<(Log, Recovery), LogError>) + Sync,
    ) {
        let by_dir = (0..self.dirs.len()).map(|dir| found.iter().filter(|found| found.dir == dir).collect());
        let by_dir: Vec<Vec<&LogOnDisk>> = by_dir.collect();
        self.in_parallel(&by_dir, |found| done(found, self.open(found, config(found), now_ms)));
    }

    /// Runs `work` on every item, each group on its own `recovery_threads` threads.
    pub(super) fn in_parallel<T: Sync>(&self, groups: &[Vec<T>], work: impl Fn(&T) + Sync) {
        let threads = self.config.load().recovery_threads;
        thread::scope(|scope| {
            for items in groups {
                let next = Arc::new(AtomicUsize::new(0));
                for _ in 0..threads.min(items.len()) {
                    let (next, work) = (next.clone(), &work);
                    scope.spawn(move || {
                        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                            work(item);
                        }
                    });
                }
            }
        });
    }

    /// Plans the log of a new partition: it is created on disk with its first write.
    pub fn plan(
        &self,
        dir: usize,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        config: Arc<LogConfig>,
    ) -> Result<Log, LogError> {
        self.dirs[dir].check_online()?;
        let key = (topic.to_owned(), partition);
        for (at, dir) in self.online() {
            self.fail_dir_on_error(at, dir.sync_moved(&self.context.cache))?;
        }
        self.fail_dir_on_error(dir, self.dirs[dir].forget_earlier(&self.context.cache, &key))?;
        let path = self.dirs[dir].partition_path(&partition_dir(topic, partition, DirStage::Live, ""));
        Ok(Log::plan(&path, topic, partition, topic_id, config, &self.context))
    }

    /// Selects the directory for a new partition: the one with the fewest logs, where `more` adds to the count of
    /// each directory; `None` if all are offline.
    pub fn dir_for_new(&self, more: impl Fn(usize) -> usize) -> Option<usize> {
        let open = self.online().filter(|(at, _)| !self.is_cordoned(*at));
        let fewest = open.min_by_key(|(at, dir)| dir.owner_count() + more(*at));
        // A replica may be assigned just before all directories are cordoned.
        fewest.or_else(|| self.online().next()).map(|(at, _)| at)
    }

    /// Sets the directories that receive no new logs (`cordoned.log.dirs`, KIP-1066).
    pub fn set_cordoned(&self, directories: &[Uuid]) {
        *self.cordoned.lock() =
            self.dirs.iter().enumerate().filter(|(_, dir)| directories.contains(&dir.id())).map(|(at, _)| at).collect();
    }

    /// Whether a directory receives no new logs.
    pub fn is_cordoned(&self, dir: usize) -> bool {
        self.cordoned.lock().contains(&dir)
    }

    /// The states of the `configured` directories, under the names of Apache Kafka's MBeans. One that is not open is offline.
    pub fn dir_gauges(&self, configured: &[(PathBuf, Uuid)]) -> Vec<Named> {
        let found = |id: Uuid| self.dirs.iter().enumerate().find(move |(_, dir)| dir.id() == id);
        let is_offline = |id| found(id).is_none_or(|(_, dir)| dir.check_online().is_err());
        let is_cordoned = |id| found(id).is_some_and(|(at, _)| self.is_cordoned(at));
        let state = |path: &PathBuf, name: &str, is_it: bool| {
            let path = mbean_value(&path.to_string_lossy());
            (format!("kafka.log:type=LogManager,name={name},logDirectory={path}"), u64::from(is_it))
        };
        let mut gauges = Vec::new();
        let (mut offline, mut cordoned) = (0, 0);
        for (path, id) in configured {
            let of_dir = [("LogDirectoryOffline", is_offline(*id)), ("LogDirectoryCordoned", is_cordoned(*id))];
            gauges.extend(of_dir.map(|(name, is_it)| state(path, name, is_it)));
            offline += u64::from(of_dir[0].1);
            cordoned += u64::from(of_dir[1].1);
        }
        for (name, count) in [("OfflineLogDirectoryCount", offline), ("CordonedLogDirectoryCount", cordoned)] {
            gauges.push((format!("kafka.log:type=LogManager,name={name}"), count));
        }
        gauges
    }

    /// The directory with this `directory.id`.
    pub fn dir_by_id(&self, id: Uuid) -> Option<usize> {
        self.dirs.iter().position(|dir| dir.id() == id)
    }

    /// Registers an open log for retention, checkpoints and closing.
    pub fn adopt(&self, dir: usize, topic: &str, partition: i32, owner: Arc<dyn LogOwner>) {
        let key = (topic.to_owned(), partition);
        self.places.lock().insert(key.clone(), dir);
        self.dirs[dir].adopt(key, owner);
        self.note_boot(dir);
    }

    /// Records the boot if the last log that waited was opened or moved away.
    pub(super) fn note_boot(&self, dir: usize) {
        let path = self.dirs[dir].path();
        let noted = self.dirs[dir].with_inventory(|inventory| inventory.note_boot(&self.context.cache, path));
        let _ = self.fail_dir_on_error(dir, noted);
    }

    /// The directory of a partition's log, if it is open.
    pub fn place_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.places.lock().get(&(topic.to_owned(), partition)).copied()
    }

    /// Deletes the log of a partition, open or not: its directory is renamed now and removed later.
    pub fn delete(&self, topic: &str, partition: i32, now_ms: i64) -> Result<(), LogError> {
        if let Some(path) = self.move_away(topic, partition, DirStage::Delete)? {
            // Files of the log that are due for removal move with the directory.
            self.context.trash.push_dir(now_ms.saturating_add(self.config.load().file_delete_delay_ms), path);
        }
        Ok(())
    }

    /// Renames the log of a partition that is not assigned to this broker to a stray, with a warning: nothing is
    /// removed.
    pub fn set_aside(&self, topic: &str, partition: i32, reason: &str) -> Result<Option<PathBuf>, LogError> {
        let stray = self.move_away(topic, partition, DirStage::Stray)?;
        if let Some(path) = &stray {
            let folder = path.with_file_name(partition_dir(topic, partition, DirStage::Live, ""));
            (self.on_event)(Event::Warning(format!(
                "{} is a stray: {reason}. It is renamed to {}, and nothing in it is removed",
                folder.display(),
                path.display()
            )));
        }
        Ok(stray)
    }

    fn move_away(&self, topic: &str, partition: i32, stage: DirStage) -> Result<Option<PathBuf>, LogError> {
        let key = (topic.to_owned(), partition);
        let is_on_disk = |dir: &Arc<LogDir>| dir.with_inventory(|inventory| inventory.live.contains_key(&key));
        let place = self.places.lock().remove(&key);
        let Some(dir) = place.or_else(|| self.dirs.iter().position(is_on_disk)) else { return Ok(None) };
        let log_dir = &self.dirs[dir];
        log_dir.check_online()?;
        let from = log_dir.partition_path(&partition_dir(topic, partition, DirStage::Live, ""));
        let to = log_dir.partition_path(&partition_dir(topic, partition, stage, &random_hex()));
        let renamed = match log_dir.forget(&key) {
            Some(owner) => with_log(&*owner, |log| log.move_away(&to)),
            None => self.context.cache.rename(&from, &to).map(|()| true),
        };
        // Not synced before the next log is created: if a crash undoes the rename, it is repeated when the image has no
        // such partition.
        let was_there = self.fail_dir_on_error(dir, renamed)?;
        self.note_boot(dir);
        // A new log of the same name must not inherit the cleaner's checkpoint.
        self.fail_dir_on_error(dir, log_dir.forget_cleaned(&self.context.cache, &key))?;
        Ok(was_there.then_some(to))
    }

    /// Passes a result through; an error that the directory must not survive takes it offline.
    pub(super) fn fail_dir_on_error<T>(&self, dir: usize, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result
            && error.stops_directory()
        {
            self.fail_dir(dir, &error.to_string());
        }
        result
    }

    /// The same for work on one log: errors of a log that was moved away meanwhile do not affect the directory.
    pub(super) fn fail_dir_unless_away<T>(
        &self,
        dir: usize,
        owner: &dyn LogOwner,
        result: Result<T, LogError>,
    ) -> Result<T, LogError> {
        match result {
            Err(error) if with_log(owner, |log| log.is_away()) => Err(error),
            result => self.fail_dir_on_error(dir, result),
        }
    }

    /// Takes a log directory offline: it is not read or written any more; the others stay in use.
    pub fn fail_dir(&self, dir: usize, cause: &str) {
        let failed = &self.dirs[dir];
        if failed.fail(cause) {
            self.places.lock().retain(|_, place| *place != dir);
            self.future_places.lock().retain(|_, place| *place != dir);
            let (dir, id, cause) = (failed.path().to_owned(), failed.id(), cause.to_owned());
            (self.on_event)(Event::DirFailed { dir, id, cause });
        }
    }

    /// The directory that contains a path.
    pub fn dir_of(&self, path: &Path) -> Option<usize> {
        self.dirs.iter().position(|dir| path.starts_with(dir.path()))
    }

    /// Lowers the checkpoints of logs of a directory before everything from the given offsets on is removed from them.
    /// Acquires locks: must not be called under a log's. [`LogManager::end_truncation`] follows.
    pub fn begin_truncation(&self, dir: usize, offsets: &[(Key, i64)]) -> Result<(), LogError> {
        self.fail_dir_on_error(dir, self.dirs[dir].begin_truncation(&self.context.cache, offsets))
    }

    /// Makes what was flushed of damaged logs survive a power cut that makes the damage look like a torn write. Acquires locks: must
    /// not be called under a log's.
    pub fn checkpoint_proven_ends(&self, dir: usize) -> Result<(), LogError> {
        self.fail_dir_on_error(dir, self.dirs[dir].checkpoint_proven_ends(&self.context.cache))
    }

    /// Ends truncations, whether the logs were truncated or not; a log may be in another directory by now.
    pub fn end_truncation(&self, offsets: &[(Key, i64)]) -> Result<(), LogError> {
        let mut by_dir: BTreeMap<usize, Vec<(Key, i64)>> = BTreeMap::new();
        for (key, offset) in offsets {
            if let Some(dir) = self.place_of(&key.0, key.1) {
                by_dir.entry(dir).or_default().push((key.clone(), *offset));
            }
        }
        let end = |(dir, offsets): (usize, Vec<(Key, i64)>)| {
            self.fail_dir_on_error(dir, self.dirs[dir].end_truncation(&self.context.cache, &offsets))
        };
        by_dir.into_iter().map(end).fold(Ok(()), Result::and)
    }

    /// The directories that are in use.
    pub(super) fn online(&self) -> impl Iterator<Item = (usize, &Arc<LogDir>)> {
        self.dirs.iter().enumerate().filter(|(_, dir)| dir.offline_cause().is_none())
    }

    /// Writes all checkpoints of all directories, as the periodic tasks do.
    pub fn checkpoint(&self) {
        for (at, dir) in self.online() {
            let marked = dir.mark();
            let _ = self.fail_dir_on_error(at, marked.and_then(|()| dir.checkpoint_all(&self.context.cache)));
        }
    }

    /// Ends all threads: nothing is flushed or maintained any more.
    pub(super) fn stop_threads(&self) {
        let tasks = self.tasks.lock().take();
        if let Some(tasks) = tasks {
            tasks.stop();
        }
        let cleaner = self.cleaner.lock().take();
        if let Some(cleaner) = cleaner {
            cleaner.stop();
        }
        self.dirs.iter().for_each(|dir| dir.flusher().stop());
    }
}

impl Drop for LogManager {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// Ids are random: two topics' ids differ in about 61 of 122 bits, a damaged id only in the bits of one or two bytes.
const BITS_OF_A_BYTE: u32 = 8;

fn differing_bits(one: Uuid, other: Uuid) -> u32 {
    one.0.iter().zip(other.0).map(|(one, other)| (one ^ other).count_ones()).sum()
}

/// 32 hex digits that are unique: the standard library's hash seeds are random.
pub(super) fn random_hex() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}
