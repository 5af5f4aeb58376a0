//! One segment: a file of batches and its indexes.
//!
//! Invariants: (1) `[0, size)` of the log file consists of complete batches in order of offset, all at or above the
//! base offset and within 2^31 of it; (2) every entry of the offset index is the last offset and the first byte of a
//! batch; (3) no batch below a time index entry's offset has a larger timestamp. Damage on the disk breaks (1): known
//! damage is in `damage` and is skipped. Only the active segment's file may contain bytes beyond `size`: prepared
//! zeroes.

mod indexes;
mod place;

use std::collections::VecDeque;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header};

use super::config::LogConfig;
use super::damage::Damage;
use super::files::{FileCache, LogFile, OpenFile, PartitionDir};
use super::index::{OffsetIndex, TimeIndex, TimestampOffset, TxnIndex};
use super::names::{FileName, Kind, Stage};
use super::prepare::Prepared;
use super::scan::Headers;
use super::write_back::WriteBack;
pub use place::Place;

/// The properties of an append that decide whether the segment rolls first.
#[derive(Clone, Copy, Debug)]
pub struct RollCheck {
    pub bytes: usize,
    pub max_timestamp: i64,
    pub last_offset: i64,
    pub now_ms: i64,
}

pub struct Segment {
    base_offset: i64,
    log: Arc<LogFile>,
    size: u64,
    offsets: OffsetIndex,
    times: TimeIndex,
    txns: TxnIndex,
    /// Largest timestamp and its offset; `None` until the time index is read.
    max_timestamp: Option<TimestampOffset>,
    /// Whether it was read from the index and not verified.
    max_unchecked: bool,
    /// The first batch's largest timestamp; `None` until it is read.
    first_timestamp: Option<i64>,
    created_ms: i64,
    bytes_since_index: u64,
    recent: VecDeque<Place>,
    prepared: Option<Arc<Prepared>>,
    /// Bytes that are allocated when the log file is created (`preallocate`).
    preallocate_bytes: Option<u64>,
    /// Whether they were allocated: the file is longer than its batches.
    preallocated: bool,
    /// Bytes appended since the segment was opened, and the count when the last flush began.
    written: u64,
    written_at_flush: u64,
    write_back: WriteBack,
    /// Whether the log file has content or a name that was not synced.
    pub(super) dirty: bool,
    /// An index file is missing although the log contains batches.
    indexes_lost: bool,
    index_interval_bytes: u32,
    /// No batch contains this offset or a later one: the next segment's base offset if that existed at the start.
    limit: i64,
    /// Known damage, in order of position.
    damage: Vec<Damage>,
    /// Checksum of the first batch; `None` until it is read or written.
    first_crc: Option<u32>,
    /// Bytes below this existed at the start and were not read since, except for the ranges of `verified`, which are
    /// in order.
    unverified_end: u64,
    verified: Vec<(u64, u64)>,
}

impl Segment {
    /// Creates a segment and its log file on disk.
    pub fn create(
        cache: &Arc<FileCache>,
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        Self::create_at(cache, dir, base_offset, Stage::Live, config, now_ms)
    }

    /// The same for a segment that the cleaner writes.
    pub fn create_at(
        cache: &Arc<FileCache>,
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        stage: Stage,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        let mut segment = Self::planned(dir, base_offset, stage, config);
        segment.make(cache, now_ms)?;
        Ok(segment)
    }

    /// An empty segment that is not on disk before [`Segment::make`].
    pub fn planned(dir: &Arc<PartitionDir>, base_offset: i64, stage: Stage, config: &LogConfig) -> Self {
        let mut segment = Self::with_files(dir, base_offset, stage, config, Some(0));
        segment.max_timestamp = Some(segment.times.last());
        segment
    }

    /// Creates the log file of a planned segment.
    pub fn make(&mut self, cache: &Arc<FileCache>, now_ms: i64) -> Result<(), LogError> {
        for file in self.files() {
            cache.remove(&file.path())?;
        }
        let file = self.log.create(cache)?;
        if let Some(bytes) = self.preallocate_bytes {
            file.set_len(bytes)?;
            self.preallocated = true;
        }
        self.created_ms = now_ms;
        self.dirty = true;
        Ok(())
    }

    /// An existing segment with a log file of `size` bytes; its indexes are loaded on demand.
    pub fn existing(
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        size: u64,
        kinds: &[Kind],
        config: &LogConfig,
        created_ms: i64,
    ) -> Self {
        let mut segment = Self::with_files(dir, base_offset, Stage::Live, config, None);
        (segment.size, segment.write_back, segment.unverified_end) = (size, WriteBack::new(size), size);
        segment.created_ms = created_ms;
        let has_indexes = kinds.contains(&Kind::OffsetIndex) && kinds.contains(&Kind::TimeIndex);
        segment.indexes_lost = size > 0 && !has_indexes;
        if !has_indexes {
            let (offsets, times) = (segment.offsets.file().clone(), segment.times.file().clone());
            segment.offsets = OffsetIndex::new(offsets, base_offset, config.segment_index_bytes, Some(0));
            segment.times = TimeIndex::new(times, base_offset, config.segment_index_bytes, Some(0));
        }
        if !kinds.contains(&Kind::TxnIndex) {
            segment.txns = TxnIndex::new(segment.txns.file().clone(), base_offset, true);
        }
        segment
    }

    fn with_files(
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        stage: Stage,
        config: &LogConfig,
        entries: Option<u32>,
    ) -> Self {
        let file = |kind| LogFile::new(dir, FileName::live(base_offset, kind).at(stage));
        let index_bytes = config.segment_index_bytes;
        Self {
            base_offset,
            log: file(Kind::Log),
            size: 0,
            offsets: OffsetIndex::new(file(Kind::OffsetIndex), base_offset, index_bytes, entries),
            times: TimeIndex::new(file(Kind::TimeIndex), base_offset, index_bytes, entries),
            txns: TxnIndex::new(file(Kind::TxnIndex), base_offset, entries.is_some()),
            max_timestamp: None,
            max_unchecked: false,
            first_timestamp: None,
            created_ms: 0,
            bytes_since_index: 0,
            recent: VecDeque::new(),
            prepared: None,
            preallocate_bytes: (config.preallocate && stage == Stage::Live).then(|| u64::from(config.segment_bytes)),
            preallocated: false,
            written: 0,
            written_at_flush: 0,
            write_back: WriteBack::new(0),
            dirty: false,
            indexes_lost: false,
            index_interval_bytes: config.index_interval_bytes,
            limit: unlimited(base_offset),
            damage: Vec::new(),
            first_crc: None,
            unverified_end: 0,
            verified: Vec::new(),
        }
    }

    /// The end of the bytes that were not verified since the start.
    pub(super) fn unverified_end(&self) -> u64 {
        self.unverified_end
    }

    pub(super) fn is_verified(&self, from: u64, to: u64) -> bool {
        let at = self.verified.partition_point(|&(_, end)| end < to);
        self.verified.get(at).is_some_and(|&(begin, end)| begin <= from && to <= end)
    }

    /// Records that the batches of `[from, to)` were verified.
    pub(super) fn note_verified(&mut self, from: u64, to: u64, damage: Vec<Damage>) {
        self.note_damage(damage);
        let first = self.verified.partition_point(|&(_, end)| end < from);
        let after = self.verified.partition_point(|&(begin, _)| begin <= to);
        let joined = self.verified[first..after]
            .iter()
            .fold((from, to), |joined, range| (joined.0.min(range.0), joined.1.max(range.1)));
        self.verified.splice(first..after, [joined]);
    }

    /// Records that all bytes from `from` on were read and verified.
    pub(super) fn note_checked_from(&mut self, from: u64) {
        self.unverified_end = self.unverified_end.min(from);
    }

    /// The next segment begins at `limit`; `None` if there is no next one.
    pub(super) fn set_limit(&mut self, limit: Option<i64>) {
        self.limit = limit.unwrap_or(unlimited(self.base_offset));
    }

    /// The known damage.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Records that `[from, to)` was damaged and holds its batches again.
    pub(super) fn note_repaired(&mut self, from: u64, to: u64) {
        self.damage.retain(|damage| damage.position < from || damage.position >= to);
        if from == 0 {
            self.first_crc = None;
        }
        // These lack the batches that could not be read.
        self.recent.clear();
        self.note_verified(from, to, Vec::new());
    }

    /// Adds damage that was found.
    pub(super) fn note_damage(&mut self, found: Vec<Damage>) {
        found.into_iter().for_each(|damage| damage.note(&mut self.damage));
    }

    /// The damage at the place of `offset`.
    pub(super) fn damage_of(&self, offset: i64) -> Option<&Damage> {
        self.damage.iter().find(|damage| (damage.first_offset..damage.next_offset).contains(&offset))
    }

    /// The end of the servable bytes that start at `position`.
    pub(super) fn intact_end(&self, position: u64) -> u64 {
        self.damage.iter().map(|damage| damage.position).find(|&at| at >= position).unwrap_or(self.size)
    }

    /// Checksum of the first batch according to its header; `None` if there is none.
    pub(super) fn first_crc(&self) -> Option<u32> {
        self.first_crc
    }

    /// Reads the checksum of the first batch unless it is known.
    pub(super) fn load_first_crc(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        if self.first_crc.is_none() && self.size >= HEADER_LEN as u64 {
            let mut header = [0; HEADER_LEN];
            self.log.open(cache)?.read_at(&mut header, 0)?;
            self.first_crc = Header::at_start_of(&header).map(|header| header.crc());
        }
        Ok(())
    }

    /// The headers from `position` on; damage is skipped.
    pub(super) fn headers<'a>(&self, file: &'a OpenFile, position: u64) -> Headers<'a> {
        Headers::new(file, position, self.size, self.base_offset).skipping(self.limit)
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes of batches.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn log_file(&self) -> &Arc<LogFile> {
        &self.log
    }

    pub fn txns(&mut self) -> &mut TxnIndex {
        &mut self.txns
    }

    /// Whether it is known to contain no aborted transaction.
    pub(super) fn has_no_aborted(&self) -> bool {
        self.txns.is_known_empty()
    }

    pub(super) fn txn_file(&self) -> &Arc<LogFile> {
        self.txns.file()
    }

    /// Checksum of the index of aborted transactions, 0 if it is empty; `None` if it was not read.
    pub(super) fn txn_crc(&self) -> Option<u32> {
        self.txns.checksum()
    }

    /// All files, the log first; some may not exist.
    pub fn files(&self) -> [&Arc<LogFile>; 4] {
        [&self.log, self.offsets.file(), self.times.file(), self.txns.file()]
    }

    /// Whether an append needs a new segment first (Apache Kafka's `LogSegment.shouldRoll`).
    pub fn should_roll(
        &mut self,
        cache: &Arc<FileCache>,
        config: &LogConfig,
        check: &RollCheck,
        jitter_ms: i64,
    ) -> Result<bool, LogError> {
        if self.size + check.bytes as u64 > u64::from(config.segment_bytes) || !self.offsets.holds(check.last_offset) {
            return Ok(true);
        }
        if self.size == 0 {
            return Ok(false);
        }
        self.load(cache)?;
        let waited_ms = self.waited_ms(cache, check.now_ms, check.max_timestamp)?;
        Ok(waited_ms > config.segment_ms_max() - jitter_ms || self.offsets.is_full() || self.times.is_full())
    }

    /// The age of the active segment in ms, by its records' timestamps if they have any.
    fn waited_ms(&mut self, cache: &Arc<FileCache>, now_ms: i64, timestamp: i64) -> Result<i64, LogError> {
        let first = self.first_timestamp(cache)?;
        Ok(if first >= 0 { timestamp.saturating_sub(first) } else { now_ms - self.created_ms })
    }

    /// The first batch's largest timestamp, -1 if there is none.
    pub fn first_timestamp(&mut self, cache: &Arc<FileCache>) -> Result<i64, LogError> {
        if let Some(timestamp) = self.first_timestamp {
            return Ok(timestamp);
        }
        if self.size == 0 {
            return Ok(-1);
        }
        let file = self.log.open(cache)?;
        let mut headers = self.headers(&file, 0);
        let first = headers.next()?;
        self.note_damage(headers.take_damage());
        let timestamp = first.map_or(-1, |batch| batch.header().max_timestamp());
        self.first_timestamp = Some(timestamp);
        Ok(timestamp)
    }

    /// Appends complete batches with one write, then indexes them.
    pub fn append(&mut self, cache: &Arc<FileCache>, batches: &[u8]) -> Result<(), LogError> {
        self.load(cache)?;
        let start = self.size;
        let end = start + batches.len() as u64;
        let (prepared, dirty) = (&self.prepared, &mut self.dirty);
        self.log.with_open(cache, |file| {
            if let Some(prepared) = prepared {
                prepared.claim(end);
            }
            *dirty = true;
            file.write_at(batches, start)
        })?;
        self.written += batches.len() as u64;
        let mut at = 0;
        while at < batches.len() {
            let header = Header::at_start_of(&batches[at..]).expect("whole batches");
            let size = header.size().expect("whole batches");
            self.note_batch(cache, &header, start + at as u64, size)?;
            at += size;
        }
        self.size = end;
        Ok(())
    }

    /// Ends appends to the segment: its tail is truncated, its indexes are written completely.
    pub fn become_inactive(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.cut_tail(cache)?;
        self.write_indexes(cache, true)?;
        self.recent = VecDeque::new();
        Ok(())
    }

    /// Truncates the prepared tail after the last batch.
    pub fn cut_tail(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let prepared = self.prepared.take().is_some_and(|prepared| prepared.close(self.size));
        if prepared | std::mem::take(&mut self.preallocated) {
            self.log.open(cache)?.set_len(self.size)?;
            self.dirty = true;
        }
        Ok(())
    }

    /// Whether the log file was allocated with its full size and still has it.
    pub fn is_preallocated(&self) -> bool {
        self.preallocated
    }

    /// How far a flush that begins now should prepare the tail, if at all.
    pub fn prepare_target(&mut self, config: &LogConfig) -> Option<(Arc<Prepared>, u64)> {
        let since_flush = self.written - std::mem::replace(&mut self.written_at_flush, self.written);
        // Flushes of many bytes gain nothing: they would only write zeroes in addition.
        if config.prepare_bytes == 0 || since_flush > u64::from(config.prepare_bytes) / 2 {
            return None;
        }
        let prepared = self.prepared.get_or_insert_with(|| Arc::new(Prepared::new(self.size)));
        let target = prepared.target(self.size, self.written, config.prepare_bytes, config.segment_bytes)?;
        Some((prepared.clone(), target))
    }

    /// The state of the early write-back.
    pub fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    pub fn write_back_mut(&mut self) -> &mut WriteBack {
        &mut self.write_back
    }

    /// Removes every batch that contains `offset` or a later one; returns the offset after the remaining batches.
    pub fn truncate_to(&mut self, cache: &Arc<FileCache>, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.load(cache)?;
        self.set_limit(None);
        let intact = self.locate(cache, offset)?.map(|place| (place.position, place.base_offset));
        // Damage is removed with the offsets that it contained: others will have them.
        let damaged = self.damage.iter().find(|damage| damage.first_offset >= offset);
        let damaged = damaged.map(|damage| (damage.position, damage.first_offset));
        for damage in &mut self.damage {
            damage.next_offset = damage.next_offset.min(offset.max(damage.first_offset));
        }
        let Some((position, base_offset)) = intact.into_iter().chain(damaged).min() else { return Ok(()) };
        self.offsets.truncate_to(cache, base_offset)?;
        self.times.truncate_to(cache, base_offset)?;
        self.txns.truncate_to(cache, offset)?;
        self.cut_to(cache, position)?;
        self.recent.clear();
        if self.size == 0 {
            self.created_ms = now_ms;
            self.first_timestamp = None;
        }
        self.bytes_since_index = 0;
        self.read_max_timestamp(cache)
    }

    /// Truncates the log file to `size` bytes.
    pub(super) fn cut_to(&mut self, cache: &Arc<FileCache>, size: u64) -> Result<(), LogError> {
        if let Some(prepared) = self.prepared.take() {
            prepared.close(size);
        }
        self.preallocated = false;
        self.write_back.cut_to(size);
        self.size = size;
        if size == 0 {
            self.first_crc = None;
        }
        self.damage.retain(|damage| damage.position < size);
        self.unverified_end = self.unverified_end.min(size);
        self.verified.retain(|&(_, end)| end <= size);
        self.dirty = true;
        self.log.open(cache)?.set_len(size)
    }

    /// The log file, opened.
    pub fn open(&self, cache: &Arc<FileCache>) -> Result<Arc<OpenFile>, LogError> {
        self.log.open(cache)
    }

    /// Removes all files.
    pub fn remove(&self, cache: &FileCache) -> Result<(), LogError> {
        self.files().into_iter().try_for_each(|file| file.remove(cache))
    }

    /// Moves all files to another stage.
    pub fn change_stage(&self, cache: &FileCache, stage: Stage) -> Result<(), LogError> {
        for file in self.files() {
            file.change_stage(cache, stage)?;
        }
        Ok(())
    }
}

/// Larger than every offset that an index of the segment can contain.
fn unlimited(base_offset: i64) -> i64 {
    base_offset.saturating_add(1 << 31)
}
