//! One partition's log: its segments, epochs, producers and offsets.
//!
//! Used under its partition's mutex; slow work (syncing, serving bytes) is handed out and done without it.
//! Invariants: (1) there is at least one segment, segments are in order of base offset, and the last one takes
//! appends; (2) `log_start <= log_end`, and `log_start` is in or before the first segment's range; (3) `flushed <=
//! log_end`: everything below it is durable; (4) `generation` changes when bytes that a flush in progress relies on
//! are dropped; (5) a planned log is empty and not on disk: the first write creates its directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_base::Uuid;
use klamm_base::conditions::Conditions;

use super::checkpoint::{PARTITION_METADATA, write_partition_metadata};
use super::clean_stop::{ClosedLog, ClosedSegment};
use super::config::LogConfig;
use super::counters::LogCounters;
use super::epochs::{EpochCache, EpochFile};
use super::error::AppendError;
use super::files::{FileCache, PartitionDir};
use super::flush::{Extent, FlushEnd, FlushJob};
use super::names::Stage;
use super::producers::{Claim, Entry, Guard, Producers, snapshot_path};
use super::segment::Segment;
use super::trash::Trash;

/// State that all logs of a node share.
#[derive(Clone)]
pub struct LogContext {
    pub cache: Arc<FileCache>,
    pub trash: Arc<Trash>,
    pub counters: Arc<LogCounters>,
}

impl LogContext {
    /// Keeps at most `open_files_max` files open.
    pub fn new(open_files_max: usize) -> Self {
        Self::over(FileCache::new(open_files_max))
    }

    /// For files that need not survive a power cut.
    pub fn volatile(open_files_max: usize) -> Self {
        Self::over(FileCache::volatile(open_files_max))
    }

    /// For a node of an embedded cluster.
    pub fn under(open_files_max: usize, is_volatile: bool, conditions: Arc<Conditions>) -> Self {
        Self::over(FileCache::under(open_files_max, is_volatile, conditions))
    }

    pub fn over(cache: Arc<FileCache>) -> Self {
        Self { cache, trash: Arc::default(), counters: Arc::default() }
    }
}

/// Segments whose indexes and producer snapshots recovery rebuilt.
#[derive(Debug)]
pub(super) struct Remade {
    /// Where recovery began: until the rebuilt files are durable, the next recovery must begin there too.
    pub(super) from: i64,
    /// Base offset of the first segment that was not rebuilt.
    pub(super) to: i64,
    pub(super) snapshots: Vec<PathBuf>,
}

pub struct Log {
    /// The topic's id, for a planned log.
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
    /// Where the log ends on disk: below the log end offset after a truncation to an offset between two batches.
    pub(super) stored_end_offset: i64,
    pub(super) flushed_offset: i64,
    pub(super) generation: u64,
    /// The active segment was truncated, and neither a flush nor an append has made that durable.
    pub(super) has_unsynced_cut: bool,
    /// The flush in progress includes that.
    pub(super) is_syncing_cut: bool,
    /// No checkpoint contains a larger offset: the log is being truncated to it.
    pub(super) checkpoint_limit: i64,
    /// Base offset of the oldest inactive segment whose indexes no flush has included yet.
    pub(super) rolled_offset: Option<i64>,
    /// The same for the indexes in the flush in progress.
    pub(super) syncing_rolled: Option<i64>,
    /// Offsets in the active segment where recovery can resume, in order: their indexes and producer snapshots are
    /// durable.
    pub(super) marks: Vec<i64>,
    /// Inactive segments that recovery read: their rebuilt files are written, and the next mark syncs them.
    pub(super) remade: Option<Remade>,
    /// A flush was begun and not completed. A failed flush is never completed, and then nothing is flushed any more.
    pub(super) is_flushing: bool,
    /// When everything was last flushed or requested to be flushed, according to [`Log::request_overdue_flush`].
    pub(super) flushed_ms: i64,
    /// The next flush includes everything.
    pub(super) flush_asked: bool,
    /// The log end offset at the last check for an idle log.
    pub(super) idle_end_offset: i64,
    /// Small files that were written but not synced; the next flush syncs them.
    pub(super) unsynced: Vec<PathBuf>,
    /// The log's directory may not be durable in its parent.
    pub(super) is_new: bool,
    /// Whether the directory has names that were not synced.
    pub(super) dir_dirty: bool,
    /// Its part in a move to another directory.
    pub(super) moving: Option<Moving>,
}

/// A log's part in a move to another directory. Neither is cleaned meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// It is copied.
    From,
    /// It is the copy: it loses only what the log that it copies has lost.
    To,
}

impl Log {
    /// Creates an empty log that starts at `start_offset`, and its directory. Nothing is durable yet.
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

    /// A log that starts at 0 and is created on disk by its first write.
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
            stored_end_offset: start_offset,
            flushed_offset: start_offset,
            generation: 0,
            has_unsynced_cut: false,
            is_syncing_cut: false,
            checkpoint_limit: i64::MAX,
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
            moving: None,
        }
    }

    /// Creates the directory and the first segment. Nothing is durable yet.
    fn make(&mut self, now_ms: i64) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        cache.create_dir(&self.dir.path())?;
        self.segments[0].make(&cache, now_ms)?;
        self.flushed_ms = now_ms;
        (self.is_new, self.dir_dirty) = (true, true);
        Ok(())
    }

    /// Creates a planned log on disk; must be called before anything is written to it.
    pub(super) fn make_if_planned(&mut self, now_ms: i64) -> Result<(), LogError> {
        if let Some(topic_id) = self.planned {
            self.make(now_ms)?;
            self.write_topic_id(topic_id)?;
            self.planned = None;
        }
        Ok(())
    }

    /// Whether the log is not on disk yet.
    pub fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// Counters of the logs that share the context.
    pub fn counters(&self) -> &Arc<LogCounters> {
        &self.context.counters
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// The current directory of the log.
    pub fn dir(&self) -> PathBuf {
        self.dir.path()
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Applies new configuration; index sizes and the index interval apply from the next segment on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// The offset that the next record receives.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// A recovery finds a log that ends here at least: no checkpoint may state more.
    pub(super) fn durable_end_offset(&self) -> i64 {
        self.flushed_offset.min(self.stored_end_offset)
    }

    /// Everything below is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.flushed_offset
    }

    /// Where the next recovery begins: everything below it is durable, and it is a mark if the active segment has
    /// one.
    pub fn recovery_point(&self) -> i64 {
        let durable = self.durable_offset();
        let active = self.segments.last().expect("at least one segment");
        // Only a mark makes the index of aborted transactions durable, and recovery does not miss its entries.
        let unmarked = if active.has_no_aborted() { durable } else { durable.min(active.base_offset()) };
        self.active_mark(durable).unwrap_or(unmarked).min(self.checkpoint_limit)
    }

    /// The same without a new mark: never within the active segment unless at a mark, because its indexes may be
    /// lost.
    pub(super) fn rolled_recovery_point(&self) -> i64 {
        let durable = self.durable_offset();
        let point = self.active_mark(durable).unwrap_or(durable.min(self.active_base_offset()));
        point.min(self.checkpoint_limit)
    }

    /// Everything below is durable, with the indexes and producer snapshots of rolled segments.
    fn durable_offset(&self) -> i64 {
        let remade = self.remade.as_ref().map(|remade| remade.from);
        let unsynced = self.rolled_offset.into_iter().chain(self.syncing_rolled).chain(remade);
        let end = self.durable_end_offset();
        unsynced.min().map_or(end, |offset| offset.min(end))
    }

    fn active_mark(&self, durable: i64) -> Option<i64> {
        let active = self.active_base_offset();
        self.marks.iter().copied().filter(|&mark| mark <= durable && mark > active).max()
    }

    /// Writes the topic id into the directory, durable with the next flush; or at once, if no flush follows soon: a log that a
    /// power cut left without an id would be taken for that of a later topic with its name.
    pub fn write_topic_id(&mut self, topic_id: Uuid) -> Result<(), LogError> {
        let (path, is_durable) = (self.dir.path(), !self.config.flush_before_ack);
        write_partition_metadata(&self.context.cache, &path, topic_id, is_durable)?;
        if !is_durable {
            self.unsynced.push(path.join(PARTITION_METADATA));
        }
        self.dir_dirty = true;
        Ok(())
    }

    /// Writes a snapshot of the producers if their state changed; durable with the next flush.
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

    /// Truncates the prepared tail if nothing was appended since the last call.
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

    /// The newest leader epoch.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// Leader epochs and their start offsets.
    pub fn epochs(&self) -> &[(i32, i64)] {
        self.epochs.entries()
    }

    /// The largest epoch up to `epoch` and its end offset (OffsetForLeaderEpoch, KIP-101, KIP-279).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.epochs.end_offset_for(epoch, self.log_end_offset)
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.epoch_for(offset)
    }

    /// Records that a leader's epoch starts here; durable with the next flush.
    pub fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        self.epochs.assign(epoch, start_offset);
    }

    /// The known producers, by id.
    pub fn producers(&self) -> impl Iterator<Item = (i64, &Entry)> {
        self.producers.entries().iter().map(|(&id, entry)| (id, entry))
    }

    /// The number of known producers.
    pub fn producer_count(&self) -> usize {
        self.producers.entries().len()
    }

    /// See [`Producers::oldest_txn_timestamp`].
    pub fn oldest_txn_timestamp(&self) -> Option<i64> {
        self.producers.oldest_txn_timestamp()
    }

    /// See [`Producers::begin_verification`].
    pub fn begin_verification(
        &mut self,
        claim: Claim,
        bumps_epoch: bool,
        now_ms: i64,
    ) -> Result<Option<Guard>, AppendError> {
        self.producers.begin_verification(claim, bumps_epoch, now_ms)
    }

    /// Removes producers that were inactive for `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms);
    }

    /// The last stable offset, given the high watermark.
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        match self.producers.first_unstable_offset(high_watermark) {
            Some(offset) => offset.max(self.log_start_offset).min(high_watermark),
            None => high_watermark,
        }
    }

    /// Removes the segments in `range`; their files are deleted after `file.delete.delay.ms`.
    pub(super) fn drop_segments(&mut self, range: std::ops::Range<usize>, now_ms: i64) -> Result<(), LogError> {
        self.drop_cleaned(range, None, now_ms)
    }

    /// Removes the segments from index `keep` on, the newest first: a power cut in between leaves the beginning of
    /// the log.
    pub(super) fn drop_segments_from(&mut self, keep: usize, now_ms: i64) -> Result<(), LogError> {
        for at in (keep..self.segments.len()).rev() {
            self.drop_segments(at..at + 1, now_ms)?;
        }
        Ok(())
    }

    /// As [`Log::drop_segments`], but retains the producer snapshot `kept`.
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

    /// Renames the partition's directory when the log is deleted or moved away; open files stay usable. `false` if
    /// the log is not on disk; then it never will be.
    pub fn move_away(&mut self, to: &Path) -> Result<bool, LogError> {
        if self.is_planned() {
            return Ok(false);
        }
        self.dir.move_away(&self.context.cache, to)?;
        Ok(true)
    }

    /// Whether the log was moved away: its files may be removed at any time.
    pub fn is_away(&self) -> bool {
        self.dir.is_away()
    }

    /// Writes what a clean start needs and returns the flush to run; [`Log::end_close`] follows.
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

    /// Completes the close: everything is durable, and the log keeps no file open.
    pub fn end_close(&mut self, synced: Option<FlushEnd>) {
        if let Some(end) = synced {
            self.complete_flush(end);
        }
        for segment in &self.segments {
            segment.files().into_iter().for_each(|file| file.close());
        }
    }

    /// The closed state for the clean-stop record; `None` if the log is not on disk.
    pub fn closed(&self) -> Option<ClosedLog> {
        (!self.is_planned()).then(|| ClosedLog {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.stored_end_offset,
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
