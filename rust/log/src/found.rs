//! The contents of a log directory when the node starts: its checkpoints and its partitions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;

use super::boot;
use super::checkpoint::{
    CLEAN_SHUTDOWN, CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, Offsets, PROVEN_END, RECOVERY_POINT,
    read_clean_shutdown, read_offsets,
};
use super::clean_stop::{CLEAN_STOP, CleanStop, ClosedLog};
use super::files::FileCache;
use super::names::{DirStage, parse_partition_dir};
use super::recovery::OpenAt;
use super::sole_writer;

/// The topic of the metadata log, which the log manager does not manage.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// A partition's directory. [`LogManager::topic_id`](super::LogManager::topic_id) returns its topic when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOnDisk {
    pub topic: String,
    pub partition: i32,
    pub path: PathBuf,
    /// Index of the log directory.
    pub dir: usize,
}

impl LogOnDisk {
    /// Whether a segment contains anything.
    pub(super) fn has_records(&self) -> Result<bool, LogError> {
        let failed = || LogError::io("cannot list", &self.path);
        for entry in fs::read_dir(&self.path).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let is_segment = entry.path().extension().is_some_and(|extension| extension == "log");
            if is_segment && entry.metadata().map_err(failed())?.len() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The contents of a log directory.
#[derive(Default)]
pub(super) struct Inventory {
    pub(super) live: BTreeMap<(String, i32), LogOnDisk>,
    /// Copies of logs of other directories, which a move had begun.
    pub(super) futures: BTreeMap<(String, i32), LogOnDisk>,
    /// Directories that are to be removed.
    pub(super) deleted: Vec<PathBuf>,
    pub(super) clean: bool,
    /// The machine did not reboot since klamm last used the directory: no write is torn.
    pub(super) kept_power: bool,
    is_boot_noted: bool,
    /// Nothing but klamm has written to the logs since everything in them was flushed.
    is_sole_writer: bool,
    /// The closed state of the logs that were not opened since; known after a clean stop of klamm.
    pub(super) closed: BTreeMap<(String, i32), Arc<ClosedLog>>,
    /// The broker epoch of the clean shutdown, -1 if there was none or it is not known.
    pub(super) broker_epoch: i64,
    pub(super) recovery_points: Offsets,
    pub(super) log_starts: Offsets,
    pub(super) high_watermarks: Offsets,
    /// How far each log was flushed in which damage is known.
    pub(super) proven_ends: Offsets,
    /// The offset up to which each compacted log is clean; updated by the cleaner.
    pub(super) cleaned: Offsets,
    /// It is not known which logs were compacted.
    pub(super) cleaned_unknown: bool,
    /// Files of the directory that could not be used, and why.
    pub(super) damaged: Vec<(PathBuf, String)>,
    pub(super) warnings: Vec<String>,
}

impl Inventory {
    /// Reads a log directory and removes the mark of the clean shutdown.
    pub(super) fn take(cache: &Arc<FileCache>, path: &Path, dir: usize) -> Result<Self, LogError> {
        let mut inventory = Self::read(path, dir)?;
        if inventory.clean {
            cache.remove(&path.join(CLEAN_SHUTDOWN))?;
            CleanStop::remove(cache, path)?;
            cache.sync_dir(path)?;
        }
        if !inventory.is_sole_writer && (inventory.clean || inventory.is_empty()) {
            sole_writer::note(cache, path)?;
        }
        inventory.note_boot(cache, path)?;
        Ok(inventory)
    }

    /// Records the boot once no log waits for its recovery: after a power cut, a log that was not opened may be torn
    /// still when the next process starts in the same boot.
    pub(super) fn note_boot(&mut self, cache: &Arc<FileCache>, path: &Path) -> Result<(), LogError> {
        if !self.is_boot_noted && (self.kept_power || self.is_settled()) {
            boot::note(cache, path)?;
            self.is_boot_noted = true;
        }
        Ok(())
    }

    /// Reads a log directory.
    pub(super) fn read(path: &Path, dir: usize) -> Result<Self, LogError> {
        let mut inventory = Self { broker_epoch: -1, ..Self::default() };
        if let Some(mark) = read_clean_shutdown(path)? {
            (inventory.clean, inventory.broker_epoch) = (true, mark.broker_epoch);
            inventory.take_clean_stop(path, mark.clean_stop)?;
        }
        inventory.kept_power = boot::is_kept(path);
        inventory.is_sole_writer = sole_writer::is_noted(path, inventory.clean);
        inventory.recovery_points = inventory.offsets(path, RECOVERY_POINT)?;
        // Without them nothing shows what may have been cleaned.
        inventory.is_sole_writer &= inventory.warnings.is_empty();
        inventory.log_starts = inventory.offsets(path, LOG_START_OFFSET)?;
        inventory.high_watermarks = inventory.offsets(path, HIGH_WATERMARK)?;
        let proven_ends = inventory.offsets(path, PROVEN_END)?;
        if inventory.is_sole_writer {
            // Apache Kafka truncates logs without lowering these.
            inventory.proven_ends = proven_ends;
        }
        let warnings = inventory.warnings.len();
        inventory.cleaned = inventory.offsets(path, CLEANER_OFFSET)?;
        inventory.cleaned_unknown = inventory.warnings.len() > warnings;
        for entry in fs::read_dir(path).map_err(LogError::io("cannot list", path))? {
            let entry = entry.map_err(LogError::io("cannot list", path))?;
            if entry.file_type().map_err(LogError::io("cannot stat", path))?.is_dir() {
                inventory.sort_in(&entry.path(), dir)?;
            }
        }
        let futures = std::mem::take(&mut inventory.futures).into_iter();
        let (useless, futures) = futures.partition(|(key, _)| inventory.live.contains_key(key));
        inventory.futures = futures;
        useless.into_values().for_each(|found: LogOnDisk| inventory.drop_future(found.path));
        Ok(inventory)
    }

    fn is_empty(&self) -> bool {
        self.live.is_empty() && self.futures.is_empty()
    }

    /// Whether no log here without an owner needs recovery.
    pub(super) fn is_settled(&self) -> bool {
        self.clean || self.live.keys().chain(self.futures.keys()).all(|key| self.closed.contains_key(key))
    }

    /// Reads the clean-stop record if it belongs to the mark of the clean shutdown.
    fn take_clean_stop(&mut self, path: &Path, expected: Option<u32>) -> Result<(), LogError> {
        let Some(expected) = expected else { return Ok(()) };
        let why = match CleanStop::read(path) {
            Ok(Some((record, checksum))) if checksum == expected => {
                self.closed = record.logs.into_iter().map(|(key, log)| (key, Arc::new(log))).collect();
                return Ok(());
            }
            Ok(Some(_)) => format!("{} is not of the last clean stop", path.join(CLEAN_STOP).display()),
            Ok(None) => format!("{} is missing", path.join(CLEAN_STOP).display()),
            Err(error @ LogError::Corrupt { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.damaged.push((path.join(CLEAN_STOP), why.clone()));
        self.warnings.push(format!("{why}; the logs are compared with the checkpoints only"));
        Ok(())
    }

    /// A damaged checkpoint counts as empty: recovery then checks more, and nothing is lost.
    fn offsets(&mut self, path: &Path, name: &str) -> Result<Offsets, LogError> {
        match read_offsets(&path.join(name)) {
            Err(error @ LogError::Corrupt { .. }) => {
                self.damaged.push((path.join(name), error.to_string()));
                self.warnings.push(format!("{error}; it counts as empty"));
                Ok(Offsets::new())
            }
            result => result,
        }
    }

    fn sort_in(&mut self, path: &Path, dir: usize) -> Result<(), LogError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match parse_partition_dir(name) {
            Some((METADATA_TOPIC, _, _)) => {}
            Some((topic, partition, DirStage::Live)) => {
                let (topic, path) = (topic.to_owned(), path.to_owned());
                let key = (topic.clone(), partition);
                self.live.insert(key, LogOnDisk { topic, partition, path, dir });
            }
            Some((_, _, DirStage::Delete)) => self.deleted.push(path.to_owned()),
            Some((_, _, DirStage::Stray)) => {}
            Some((topic, partition, DirStage::Future)) => {
                let (topic, path) = (topic.to_owned(), path.to_owned());
                let key = (topic.clone(), partition);
                if let Some(second) = self.futures.insert(key, LogOnDisk { topic, partition, path, dir }) {
                    self.drop_future(second.path);
                }
            }
            None => self.warnings.push(format!("{} is no partition's directory; it is left alone", path.display())),
        }
        Ok(())
    }

    /// A copy is useless if the log itself or another copy exists.
    fn drop_future(&mut self, path: PathBuf) {
        self.warnings
            .push(format!("{} is a copy of a log for which this directory has another; it is removed", path.display()));
        self.deleted.push(path);
    }

    /// The checkpointed state with which a partition's log is opened.
    pub(super) fn open_at(&self, topic: &str, partition: i32) -> OpenAt {
        let key = (topic.to_owned(), partition);
        let recovery_point = self.recovery_points.get(&key).copied().unwrap_or(0);
        let proven_ends = [&self.high_watermarks, &self.proven_ends].map(|ends| ends.get(&key).copied().unwrap_or(0));
        // klamm cleans nothing above the recovery point.
        let is_cleaned_below = self.cleaned.get(&key).is_none_or(|&cleaned| cleaned <= recovery_point);
        OpenAt {
            recovery_point,
            gaps_below: if self.is_sole_writer && is_cleaned_below { recovery_point } else { i64::MAX },
            log_start_offset: self.log_starts.get(&key).copied().unwrap_or(0),
            clean: self.clean,
            has_gaps: self.cleaned_unknown || self.cleaned.contains_key(&key),
            keeps_damage: true,
            proven_end: proven_ends[0].max(proven_ends[1]),
            kept_power: self.kept_power,
            has_sole_writer: self.is_sole_writer,
            closed: self.closed.get(&key).cloned(),
        }
    }
}
