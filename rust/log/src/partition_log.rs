//! One partition's log: its segments, epochs and producers, and the offsets that bound them.
//!
//! Used under its partition's mutex; what is slow (syncing, serving bytes) is handed out and done outside of it.
//! Invariants: (1) at least one segment, by rising base offset, the last one takes appends; (2) `log_start <= log_end`,
//! and `log_start` is in or before the first segment's range; (3) `flushed <= log_end`: everything below it is durable;
//! (4) `generation` changes when bytes that a flush in flight may count on are dropped; (5) a planned log is empty, and
//! nothing of it is on disk: the first write makes its directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_base::Uuid;

use super::checkpoint::{PARTITION_METADATA, write_partition_metadata};
use super::clean_stop::{ClosedLog, ClosedSegment};
use super::config::LogConfig;
use super::counters::LogCounters;
use super::epochs::{EpochCache, EpochFile};
use super::files::{FileCache, PartitionDir};
use super::flush::{Extent, FlushEnd, FlushJob};
use super::names::Stage;
use super::producers::{Entry, Producers, snapshot_path};
use super::segment::Segment;
use super::trash::Trash;

/// What all logs of a node share.
#[derive(Clone)]
pub struct LogContext {
    pub cache: Arc<FileCache>,
    pub trash: Arc<Trash>,
    pub counters: Arc<LogCounters>,
}

impl LogContext {
    /// With at most `open_files_max` files open.
    pub fn new(open_files_max: usize) -> Self {
        Self::over(FileCache::new(open_files_max))
    }

    /// The same over files that nobody wants back after a power cut.
    pub fn volatile(open_files_max: usize) -> Self {
        Self::over(FileCache::volatile(open_files_max))
    }

    pub(super) fn over(cache: Arc<FileCache>) -> Self {
        Self { cache, trash: Arc::default(), counters: Arc::default() }
    }
}

/// Segments whose indexes and producer snapshots recovery made again.
#[derive(Debug)]
pub(super) struct Remade {
    /// Where the check began: until they are durable, the next start has to begin there too.
    pub(super) from: i64,
    /// Base offset of the first segment that is not among them.
    pub(super) to: i64,
    pub(super) snapshots: Vec<PathBuf>,
}

pub struct Log {
    /// The topic's id while the log is planned.
    pub(super) planned: Option<Uuid>,
    pub(super) dir: Arc<PartitionDir>,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) config: Arc<LogConfig>,
    pub(super) context: LogContext,
    pub(super) segments: Vec<Segment>,
    pub(super) epochs: EpochCache,
    pub(super) epoch_file: Arc<EpochFile>,
    pub(super) producers: Producers,
    pub(super) log_start_offset: i64,
    pub(super) log_end_offset: i64,
    pub(super) flushed_offset: i64,
    pub(super) generation: u64,
    /// Base offset of the oldest segment that was rolled and whose indexes no flush has taken yet.
    pub(super) rolled_offset: Option<i64>,
    /// The same of a flush that runs.
    pub(super) syncing_rolled: Option<i64>,
    /// Offsets in the active segment that a start can resume at, rising: their indexes and producer snapshots are durable.
    pub(super) marks: Vec<i64>,
    /// Rolled segments that recovery read: their indexes and producer snapshots are written, the next mark syncs them.
    pub(super) remade: Option<Remade>,
    /// A flush was begun and not completed. One that fails is never completed: then nothing is flushed any more.
    pub(super) is_flushing: bool,
    /// When everything was flushed, or asked to be, as far as [`Log::asks_for_flush`] knows.
    pub(super) flushed_ms: i64,
    /// The next flush takes everything.
    pub(super) flush_asked: bool,
    /// The log's end when it was last looked at whether it is idle.
    pub(super) idle_end_offset: i64,
    /// Small files that were written but not synced: the next flush does.
    pub(super) unsynced: Vec<PathBuf>,
    /// The directory that the log is in may not know the log's own.
    pub(super) is_new: bool,
    /// Whether names in the directory were not synced.
    pub(super) dir_dirty: bool,
}

impl Log {
    /// Makes an empty log that begins at `start_offset`, and its directory. Nothing is durable yet.
    pub fn create(
        path: &Path,
        topic: &str,
        partition: i32,
        config: Arc<LogConfig>,
        context: &LogContext,
        start_offset: i64,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        let mut log = Self::empty(path, topic, partition, config, context, start_offset);
        log.make(now_ms)?;
        Ok(log)
    }

    /// A log that begins at 0 and is not on disk before something is written to it.
    pub fn plan(
        path: &Path,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        config: Arc<LogConfig>,
        context: &LogContext,
    ) -> Self {
        let log = Self::empty(path, topic, partition, config, context, 0);
        Self { planned: Some(topic_id), ..log }
    }

    fn empty(
        path: &Path,
        topic: &str,
        partition: i32,
        config: Arc<LogConfig>,
        context: &LogContext,
        start_offset: i64,
    ) -> Self {
        let dir = PartitionDir::new(path);
        let segment = Segment::planned(&dir, start_offset, Stage::Live, &config);
        let mut producers = Producers::new(BTreeSet::new());
        producers.set_map_end_offset(start_offset);
        Self {
            planned: None,
            topic: topic.to_owned(),
            partition,
            config,
            context: context.clone(),
            segments: vec![segment],
            epochs: EpochCache::default(),
            epoch_file: EpochFile::new(&dir),
            dir,
            producers,
            log_start_offset: start_offset,
            log_end_offset: start_offset,
            flushed_offset: start_offset,
            generation: 0,
            rolled_offset: None,
            marks: Vec::new(),
            remade: None,
            syncing_rolled: None,
            is_flushing: false,
            flushed_ms: 0,
            flush_asked: false,
            idle_end_offset: -1,
            unsynced: Vec::new(),
            is_new: false,
            dir_dirty: false,
        }
    }

    /// Makes the directory and the first segment. Nothing is durable yet.
    fn make(&mut self, now_ms: i64) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        cache.create_dir(&self.dir.path())?;
        self.segments[0].make(&cache, now_ms)?;
        self.flushed_ms = now_ms;
        (self.is_new, self.dir_dirty) = (true, true);
        Ok(())
    }

    /// Makes a planned log; to be called before anything is written to it.
    pub(super) fn make_if_planned(&mut self, now_ms: i64) -> Result<(), LogError> {
        if let Some(topic_id) = self.planned {
            self.make(now_ms)?;
            self.write_topic_id(topic_id)?;
            self.planned = None;
        }
        Ok(())
    }

    /// Whether nothing of the log is on disk yet.
    pub fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// What the logs of the same context have done.
    pub fn counters(&self) -> &Arc<LogCounters> {
        &self.context.counters
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Where the log is now.
    pub fn dir(&self) -> PathBuf {
        self.dir.path()
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// New settings; sizes of indexes and their interval count from the next segment on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// First offset that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// Offset that the next record gets.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Everything below is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.flushed_offset
    }

    /// Where the next start has to begin its check: everything below is durable, and if there is a mark, it is one.
    pub fn recovery_point(&self) -> i64 {
        let durable = self.durable_offset();
        self.active_mark(durable).unwrap_or(durable)
    }

    /// The same for a log that nobody marked for this: never within the active segment without a mark, for its indexes may
    /// be lost.
    pub(super) fn rolled_recovery_point(&self) -> i64 {
        let durable = self.durable_offset();
        self.active_mark(durable).unwrap_or(durable.min(self.active_base_offset()))
    }

    /// Everything below is durable, with the indexes and producer snapshots of rolled segments.
    fn durable_offset(&self) -> i64 {
        let remade = self.remade.as_ref().map(|remade| remade.from);
        let unsynced = self.rolled_offset.into_iter().chain(self.syncing_rolled).chain(remade);
        unsynced.min().map_or(self.flushed_offset, |offset| offset.min(self.flushed_offset))
    }

    fn active_mark(&self, durable: i64) -> Option<i64> {
        let active = self.active_base_offset();
        self.marks.iter().copied().filter(|&mark| mark <= durable && mark > active).max()
    }

    /// Marks the directory as this topic's; durable with the next flush.
    pub fn write_topic_id(&mut self, topic_id: Uuid) -> Result<(), LogError> {
        let path = self.dir.path();
        write_partition_metadata(&self.context.cache, &path, topic_id)?;
        self.unsynced.push(path.join(PARTITION_METADATA));
        self.dir_dirty = true;
        Ok(())
    }

    /// Writes the producers' state to a snapshot if it moved; durable with the next flush.
    pub(super) fn take_snapshot(&mut self) -> Result<(), LogError> {
        if let Some(offset) = self.producers.take_snapshot(&self.context.cache, &self.dir, false)? {
            self.unsynced.push(snapshot_path(&self.dir, offset));
            self.dir_dirty = true;
        }
        Ok(())
    }

    /// Whether records below the log start are still in the first segment.
    pub fn starts_above_first_segment(&self) -> bool {
        self.log_start_offset > self.segments[0].base_offset()
    }

    /// Cuts the tail that was prepared, when nothing was appended since the last call.
    pub fn cut_idle_tail(&mut self) -> Result<(), LogError> {
        let is_idle = std::mem::replace(&mut self.idle_end_offset, self.log_end_offset) == self.log_end_offset;
        let active = self.segments.last_mut().expect("at least one segment");
        if is_idle && !active.is_preallocated() { active.cut_tail(&self.context.cache) } else { Ok(()) }
    }

    /// Bytes of batches in all segments.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(Segment::size).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Base offset of the segment that takes appends.
    pub fn active_base_offset(&self) -> i64 {
        self.segments.last().expect("at least one segment").base_offset()
    }

    /// The epoch of the newest entry.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// Epochs and their start offsets.
    pub fn epochs(&self) -> &[(i32, i64)] {
        self.epochs.entries()
    }

    /// The epoch in force for `epoch` and its end offset (facts 6.6).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.epochs.end_offset_for(epoch, self.log_end_offset)
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.epoch_for(offset)
    }

    /// Notes that a leader's epoch begins here; durable with the next flush.
    pub fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        self.epochs.assign(epoch, start_offset);
    }

    /// The producers that are known, by id.
    pub fn producers(&self) -> impl Iterator<Item = (i64, &Entry)> {
        self.producers.entries().iter().map(|(&id, entry)| (id, entry))
    }

    /// Forgets producers that were silent for `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms);
    }

    /// The offset that read_committed readers may read up to, given the high watermark.
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        match self.producers.first_unstable_offset(high_watermark) {
            Some(offset) => offset.max(self.log_start_offset).min(high_watermark),
            None => high_watermark,
        }
    }

    /// Takes the segments `range` out; their files are removed when `file.delete.delay.ms` has passed.
    pub(super) fn drop_segments(&mut self, range: std::ops::Range<usize>, now_ms: i64) -> Result<(), LogError> {
        self.drop_cleaned(range, None, now_ms)
    }

    /// The same from segment `keep` on, the newest first: a power cut in between leaves the beginning of the log.
    pub(super) fn drop_segments_from(&mut self, keep: usize, now_ms: i64) -> Result<(), LogError> {
        for at in (keep..self.segments.len()).rev() {
            self.drop_segments(at..at + 1, now_ms)?;
        }
        Ok(())
    }

    /// As [`Log::drop_segments`], but the producer snapshot `kept` stays.
    pub(super) fn drop_cleaned(
        &mut self,
        range: std::ops::Range<usize>,
        kept: Option<i64>,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let due_ms = now_ms.saturating_add(self.config.file_delete_delay_ms);
        let mut dropped: Vec<Segment> = self.segments.drain(range).collect();
        for segment in &mut dropped {
            segment.cut_tail(&self.context.cache)?;
            if kept != Some(segment.base_offset()) {
                self.producers.remove_snapshot(&self.context.cache, &self.dir, segment.base_offset())?;
            }
            segment.change_stage(&self.context.cache, Stage::Deleted)?;
            self.context.trash.push_files(due_ms, segment.files().map(Arc::clone).to_vec());
        }
        if let Some(last) = self.segments.last_mut() {
            last.set_limit(None);
        }
        self.dir_dirty = true;
        Ok(())
    }

    /// Moves the partition's directory, for the log is not wanted any more; open files stay open. `false` when there is
    /// none yet: then there never is one.
    pub fn put_away(&mut self, to: &Path) -> Result<bool, LogError> {
        if self.is_planned() {
            return Ok(false);
        }
        self.dir.put_away(&self.context.cache, to)?;
        Ok(true)
    }

    /// Whether the log was put away: its files may be gone at any time.
    pub fn is_away(&self) -> bool {
        self.dir.is_away()
    }

    /// Writes what a clean start needs and gives what has to be synced for it; [`Log::end_close`] follows.
    pub fn begin_close(&mut self) -> Result<Option<FlushJob>, LogError> {
        let cache = self.context.cache.clone();
        if self.is_flushing {
            let reason = "a flush of it did not end well".to_owned();
            return Err(LogError::Directory { path: self.dir.path(), reason });
        }
        if self.is_planned() {
            return Ok(None);
        }
        self.take_snapshot()?;
        let active = self.segments.last_mut().expect("at least one segment");
        active.cut_tail(&cache)?;
        active.write_indexes(&cache, true)?;
        for segment in &mut self.segments {
            segment.load_first_crc(&cache)?;
        }
        Ok(self.take_dirty(Extent::Closing))
    }

    /// The log is closed: everything is durable, and no file stays open here.
    pub fn end_close(&mut self, synced: Option<FlushEnd>) {
        if let Some(end) = synced {
            self.complete_flush(end);
        }
        for segment in &self.segments {
            segment.files().into_iter().for_each(|file| file.close());
        }
    }

    /// How the log is closed, for the clean-stop record; `None` when nothing of it is on disk.
    pub fn closed(&self) -> Option<ClosedLog> {
        (!self.is_planned()).then(|| ClosedLog {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            last_epoch: self.latest_epoch().unwrap_or(-1),
            segments: self.segments.iter().map(closed_segment).collect(),
        })
    }

    /// Closes cleanly: the next start needs no recovery.
    pub fn close(&mut self) -> Result<(), LogError> {
        let job = self.begin_close()?;
        if let Some(job) = &job {
            job.run()?;
        }
        self.end_close(job.map(|job| job.end()));
        Ok(())
    }
}

fn closed_segment(segment: &Segment) -> ClosedSegment {
    ClosedSegment {
        base_offset: segment.base_offset(),
        bytes: segment.size(),
        first_crc: segment.first_crc(),
        txn_crc: segment.txn_crc(),
    }
}

#[cfg(test)]
impl Log {
    pub(super) fn segments_mut(&mut self) -> &mut [Segment] {
        &mut self.segments
    }
}
