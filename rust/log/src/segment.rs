//! One segment: a file of batches and its indexes.
//!
//! Invariants: (1) `[0, size)` of the log file is whole batches by rising offset, all at or above the base offset and
//! within 2^31 of it; (2) every entry of the offset index is the last offset and the first byte of a batch; (3) no batch
//! below a time index entry's offset has a larger timestamp. Damage on the disk breaks (1): what is known of it is in `damage`,
//! and is passed over. Beyond `size` only the active segment's file may hold bytes:
//! zeroes that were prepared.

use std::collections::VecDeque;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header};

use super::config::LogConfig;
use super::damage::Damage;
use super::files::{FileCache, LogFile, OpenFile, PartitionDir};
use super::index::{NO_TIMESTAMP, OffsetIndex, TimeIndex, TimestampOffset, TxnIndex};
use super::names::{FileName, Kind, Stage};
use super::prepare::Prepared;
use super::scan::{BatchAt, HEADER_CHUNK, Headers};
use super::write_back::WriteBack;

/// Appended batches whose places are remembered, so that a read near the end asks no file.
const RECENT_MAX: usize = 64;

/// A place that a read can begin at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub base_offset: i64,
    pub last_offset: i64,
    pub position: u64,
    pub size: usize,
}

impl Place {
    fn of(batch: &BatchAt) -> Self {
        let header = batch.header();
        Self {
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            position: batch.position,
            size: batch.size,
        }
    }
}

/// What is asked of a segment before an append.
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
    /// Largest timestamp and where; `None` until the time index was read.
    max_timestamp: Option<TimestampOffset>,
    /// Whether that was only read from the index.
    max_unchecked: bool,
    /// The first batch's largest timestamp; `None` until it was read.
    first_timestamp: Option<i64>,
    created_ms: i64,
    bytes_since_index: u64,
    recent: VecDeque<Place>,
    prepared: Option<Arc<Prepared>>,
    /// Bytes that the log file gets at once when it is made (`preallocate`).
    preallocate_bytes: Option<u64>,
    /// It has them: the file is longer than its batches.
    preallocated: bool,
    /// Bytes appended since the segment was opened, and how many those were when the last flush began.
    written: u64,
    written_at_flush: u64,
    write_back: WriteBack,
    /// Whether the log file has bytes or names that were not synced.
    pub(super) dirty: bool,
    /// An index file is not there although the log holds batches.
    indexes_lost: bool,
    index_interval_bytes: u32,
    /// No batch holds this offset or a later one: the next segment's base offset, when that was there at the start.
    limit: i64,
    /// What is known to be damaged, by rising position.
    damage: Vec<Damage>,
    /// Checksum of the first batch; `None` until it was read or written.
    first_crc: Option<u32>,
    /// Bytes below were there at the start and were not read since, but for the ranges of `verified`, which rise.
    unverified_end: u64,
    verified: Vec<(u64, u64)>,
}

impl Segment {
    /// A segment that is not on disk yet; its log file is created.
    pub fn create(
        cache: &Arc<FileCache>,
        dir: &Arc<PartitionDir>,
        base_offset: i64,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        Self::create_at(cache, dir, base_offset, Stage::Live, config, now_ms)
    }

    /// The same for a segment that the cleaner makes.
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

    /// An empty segment of which nothing is on disk before [`Segment::make`].
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

    /// A segment whose log file has `size` bytes; its indexes are read when they are needed.
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

    /// The end of the bytes that were not checked since the start.
    pub(super) fn unverified_end(&self) -> u64 {
        self.unverified_end
    }

    pub(super) fn is_verified(&self, from: u64, to: u64) -> bool {
        let at = self.verified.partition_point(|&(_, end)| end < to);
        self.verified.get(at).is_some_and(|&(begin, end)| begin <= from && to <= end)
    }

    /// The batches of `[from, to)` were checked.
    pub(super) fn note_verified(&mut self, from: u64, to: u64, damage: Vec<Damage>) {
        self.note_damage(damage);
        let first = self.verified.partition_point(|&(_, end)| end < from);
        let after = self.verified.partition_point(|&(begin, _)| begin <= to);
        let joined = self.verified[first..after]
            .iter()
            .fold((from, to), |joined, range| (joined.0.min(range.0), joined.1.max(range.1)));
        self.verified.splice(first..after, [joined]);
    }

    /// Bytes from `from` on were read and checked.
    pub(super) fn note_checked_from(&mut self, from: u64) {
        self.unverified_end = self.unverified_end.min(from);
    }

    /// The next segment begins at `limit`; `None` while there is no next one.
    pub(super) fn set_limit(&mut self, limit: Option<i64>) {
        self.limit = limit.unwrap_or(unlimited(self.base_offset));
    }

    /// What is known to be damaged.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Remembers what was found to be damaged.
    pub(super) fn note_damage(&mut self, found: Vec<Damage>) {
        found.into_iter().for_each(|damage| damage.note(&mut self.damage));
    }

    /// What is damaged where `offset` was.
    pub(super) fn damage_of(&self, offset: i64) -> Option<&Damage> {
        self.damage.iter().find(|damage| (damage.first_offset..damage.next_offset).contains(&offset))
    }

    /// Where bytes that may be served from `position` on end.
    pub(super) fn intact_end(&self, position: u64) -> u64 {
        self.damage.iter().map(|damage| damage.position).find(|&at| at >= position).unwrap_or(self.size)
    }

    /// Checksum of the first batch, as its header has it; `None` when there is none.
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

    /// The headers from `position` on, what is damaged passed over.
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

    pub(super) fn txn_file(&self) -> &Arc<LogFile> {
        self.txns.file()
    }

    /// Checksum of the index of aborted transactions, 0 when there is none; `None` when it was not read.
    pub(super) fn txn_crc(&self) -> Option<u32> {
        self.txns.checksum()
    }

    /// All files, the log first; some may not exist.
    pub fn files(&self) -> [&Arc<LogFile>; 4] {
        [&self.log, self.offsets.file(), self.times.file(), self.txns.file()]
    }

    /// Brings both indexes into use; damaged ones are made again from the log.
    pub fn load(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        if self.indexes_lost {
            return self.rebuild_indexes(cache);
        }
        let loaded = self.offsets.load(cache, self.size).and_then(|()| self.times.load(cache));
        match loaded {
            Err(LogError::Corrupt { .. }) => self.rebuild_indexes(cache)?,
            result => result?,
        }
        if self.max_timestamp.is_none() {
            self.max_timestamp = Some(self.times.last());
            self.max_unchecked = true;
        }
        Ok(())
    }

    /// Bytes of the larger of the two indexes.
    pub fn index_bytes(&mut self, cache: &Arc<FileCache>) -> Result<u64, LogError> {
        self.load(cache)?;
        Ok((u64::from(self.offsets.len()) * 8).max(u64::from(self.times.len()) * 12))
    }

    /// Whether an append needs a new segment first (facts 3.2).
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

    /// How long the segment has been the active one, by its records' time if they have one.
    fn waited_ms(&mut self, cache: &Arc<FileCache>, now_ms: i64, timestamp: i64) -> Result<i64, LogError> {
        let first = self.first_timestamp(cache)?;
        Ok(if first >= 0 { timestamp.saturating_sub(first) } else { now_ms - self.created_ms })
    }

    /// The first batch's largest timestamp, -1 when there is none.
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

    /// Largest timestamp and the last offset of the batch that has it; -1 when there is none.
    pub fn max_timestamp(&mut self, cache: &Arc<FileCache>) -> Result<TimestampOffset, LogError> {
        self.load(cache)?;
        let largest = self.max_timestamp.expect("set by load");
        // Segments are dropped by this: a damaged entry must not decide.
        if std::mem::take(&mut self.max_unchecked)
            && largest.timestamp != NO_TIMESTAMP
            && !self.has_batch_of(cache, largest)?
        {
            self.rebuild_indexes(cache)?;
        }
        Ok(self.max_timestamp.expect("set by load"))
    }

    /// Appends whole batches with one write, then indexes them.
    pub fn append(&mut self, cache: &Arc<FileCache>, batches: &[u8]) -> Result<(), LogError> {
        self.load(cache)?;
        let start = self.size;
        let end = start + batches.len() as u64;
        let file = self.log.open(cache)?;
        if let Some(prepared) = &self.prepared {
            prepared.claim(end);
        }
        self.dirty = true;
        file.write_at(batches, start)?;
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

    /// Brings the indexes up to a batch that is in the log file.
    pub(super) fn note_batch(
        &mut self,
        cache: &Arc<FileCache>,
        header: &Header<'_>,
        position: u64,
        size: usize,
    ) -> Result<(), LogError> {
        let last_offset = header.last_offset();
        if !self.offsets.holds(last_offset) {
            let reason = format!("offset {last_offset} in the segment of offset {}", self.base_offset);
            return Err(LogError::Corrupt { path: self.log.path(), position, reason });
        }
        let largest = self.max_timestamp.unwrap_or(self.times.last());
        if header.max_timestamp() > largest.timestamp {
            self.max_timestamp = Some(TimestampOffset { timestamp: header.max_timestamp(), offset: last_offset });
        }
        if position == 0 {
            self.first_crc = Some(header.crc());
        }
        if self.first_timestamp.is_none() && position == 0 {
            self.first_timestamp = Some(header.max_timestamp());
        }
        if self.bytes_since_index > u64::from(self.index_interval_bytes) {
            self.offsets.push(cache, last_offset, position as u32)?;
            if let Some(largest) = self.max_timestamp.filter(|largest| largest.timestamp >= 0) {
                self.times.maybe_push(cache, largest)?;
            }
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += size as u64;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Place { base_offset: header.base_offset(), last_offset, position, size });
        Ok(())
    }

    /// The first batch whose last offset is at least `offset`; `None` when all end below it.
    pub fn locate(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        let mut found = self.locate_by_headers(cache, offset)?;
        // Whatever a header says that is known to be damaged.
        while let Some(end) = found.and_then(|place| self.end_of_damage_at(place.position)) {
            let file = self.log.open(cache)?;
            let mut headers = self.headers(&file, end);
            let next = headers.find(|header| header.last_offset() >= offset)?;
            self.note_damage(headers.take_damage());
            found = next.as_ref().map(Place::of);
        }
        Ok(found)
    }

    fn end_of_damage_at(&self, position: u64) -> Option<u64> {
        let damage = self.damage.iter().find(|damage| (damage.position..damage.end).contains(&position));
        damage.map(|damage| damage.end)
    }

    fn locate_by_headers(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        if let Some(found) = self.locate_recent(offset) {
            return Ok(found);
        }
        if let Some(found) = self.locate_indexed(cache, offset)? {
            return Ok(Some(found));
        }
        let before = self.batch_before(cache, offset)?;
        let file = self.log.open(cache)?;
        let mut headers = match &before {
            Some(batch) if batch.header().last_offset() >= offset => return Ok(Some(Place::of(batch))),
            Some(batch) => Headers::behind(&file, batch, self.size).skipping(self.limit),
            None => self.headers(&file, 0),
        };
        let found = headers.find(|header| header.last_offset() >= offset)?;
        self.note_damage(headers.take_damage());
        Ok(found.as_ref().map(Place::of))
    }

    /// The batch that holds `offset`, when it is the one of the next index entry: each that stands behind a large one has
    /// an entry, so that its own header tells.
    fn locate_indexed(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        self.load(cache)?;
        let (before, Some(next)) = self.offsets.around(cache, offset)? else { return Ok(None) };
        if next.position - before.map_or(0, |entry| entry.position.min(next.position)) < HEADER_CHUNK as u32 {
            return Ok(None);
        }
        // What does not fit is for the search from the entry before, which checks it.
        let found = self.batch_at(cache, next.position).ok().flatten();
        let is_it = |batch: &Header<'_>| batch.base_offset() <= offset && batch.last_offset() == next.offset;
        Ok(found.filter(|batch| is_it(&batch.header())).as_ref().map(Place::of))
    }

    fn locate_recent(&self, offset: i64) -> Option<Option<Place>> {
        let first = self.recent.front()?;
        if offset < first.base_offset {
            return None;
        }
        let at = self.recent.partition_point(|place| place.last_offset < offset);
        Some(self.recent.get(at).copied())
    }

    /// Where a walk to `offset` may begin: a batch whose last offset is at most that.
    pub(super) fn position_before(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<u64, LogError> {
        Ok(self.batch_before(cache, offset)?.map_or(0, |batch| batch.position))
    }

    /// The batch of the last index entry for offsets up to `offset`, if there is one. A wrong entry shows here, since the
    /// batch that it names carries its offset.
    fn batch_before(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<BatchAt>, LogError> {
        self.load(cache)?;
        let Some(entry) = self.offsets.lookup(cache, offset)? else { return Ok(None) };
        match self.batch_at(cache, entry.position) {
            Ok(Some(batch)) if batch.header().last_offset() == entry.offset => return Ok(Some(batch)),
            Err(error @ (LogError::Io { .. } | LogError::TooManyOpenFiles { .. })) => return Err(error),
            _ => {}
        }
        self.rebuild_indexes(cache)?;
        match self.offsets.lookup(cache, offset)? {
            Some(entry) => self.batch_at(cache, entry.position),
            None => Ok(None),
        }
    }

    fn batch_at(&self, cache: &Arc<FileCache>, position: u32) -> Result<Option<BatchAt>, LogError> {
        let file = self.log.open(cache)?;
        Headers::new(&file, u64::from(position), self.size, self.base_offset).next()
    }

    /// An offset that nothing below `position` reaches: the next index entry's, if there is one.
    pub fn offset_after(&mut self, cache: &Arc<FileCache>, position: u64) -> Result<Option<i64>, LogError> {
        self.load(cache)?;
        Ok(self.offsets.lookup_position(cache, position)?.map(|entry| entry.offset))
    }

    /// The offset after the last batch; the base offset when there is none.
    pub fn next_offset(&mut self, cache: &Arc<FileCache>) -> Result<i64, LogError> {
        let from = self.position_before(cache, i64::MAX)?;
        let file = self.log.open(cache)?;
        let mut headers = Headers::new(&file, from, self.size, self.base_offset);
        let mut next_offset = self.base_offset;
        while let Some(batch) = headers.next()? {
            next_offset = batch.header().next_offset();
        }
        Ok(next_offset)
    }

    /// Makes the indexes again from the headers in the log.
    pub fn rebuild_indexes(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let rebuilt = self.try_rebuild(cache);
        // Half an index is none.
        self.indexes_lost = rebuilt.is_err();
        rebuilt
    }

    fn try_rebuild(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.reset_indexes(cache)?;
        let file = self.log.open(cache)?;
        let mut headers = self.headers(&file, 0);
        while let Some(batch) = headers.next()? {
            self.note_batch(cache, &batch.header(), batch.position, batch.size)?;
        }
        self.note_damage(headers.take_damage());
        self.write_indexes(cache, true)
    }

    /// Empties the indexes and what is known from them; the aborted transactions stay.
    pub(super) fn reset_indexes(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.offsets.reset(cache)?;
        self.times.reset(cache)?;
        self.max_timestamp = Some(self.times.last());
        self.indexes_lost = false;
        self.first_timestamp = None;
        self.bytes_since_index = 0;
        self.recent.clear();
        Ok(())
    }

    /// Brings the segment to where it was when everything below `offset` was flushed, without reading all of it: the
    /// indexes up to there are taken over, and the headers from the last index entry on are walked. Gives the position of
    /// `offset`; `None` when the files do not allow that, and then everything has to be read.
    pub(super) fn resume_at(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<u64>, LogError> {
        if self.indexes_lost || offset <= self.base_offset {
            return Ok(None);
        }
        let last = self.offsets.restore(cache, offset, self.size)?;
        self.times.restore(cache, offset, self.size)?;
        self.max_timestamp = Some(self.times.last());
        (self.first_timestamp, self.bytes_since_index) = (None, 0);
        let file = self.log.open(cache)?;
        let mut headers =
            Headers::new(&file, last.map_or(0, |entry| u64::from(entry.position)), self.size, self.base_offset);
        let mut expected = last.map(|entry| entry.offset);
        // Where the batch before ended: its next offset and its end.
        let mut reached = (self.base_offset, 0);
        while reached.0 != offset {
            let batch = match headers.next() {
                Err(LogError::Corrupt { .. }) | Ok(None) => return Ok(None),
                result => result?.expect("matched above"),
            };
            let header = batch.header();
            if expected.take().is_some_and(|expected| header.last_offset() != expected) {
                return Ok(None);
            }
            if header.base_offset() >= offset {
                // Compaction left a gap there.
                return Ok(Some(batch.position));
            }
            if header.last_offset() >= offset {
                return Ok(None);
            }
            let largest = self.max_timestamp.expect("set above");
            if header.max_timestamp() > largest.timestamp {
                let (timestamp, offset) = (header.max_timestamp(), header.last_offset());
                self.max_timestamp = Some(TimestampOffset { timestamp, offset });
            }
            self.bytes_since_index += batch.size as u64;
            reached = (header.next_offset(), batch.position + batch.size as u64);
        }
        Ok(Some(reached.1))
    }

    /// Writes the index entries that are only in memory; `last`: with the final entry of the time index.
    pub fn write_indexes(&mut self, cache: &Arc<FileCache>, last: bool) -> Result<(), LogError> {
        self.load(cache)?;
        if let Some(largest) = self.max_timestamp.filter(|largest| last && largest.timestamp >= 0) {
            self.times.maybe_push(cache, largest)?;
        }
        self.dirty |= self.offsets.write(cache)?;
        self.dirty |= self.times.write(cache)?;
        self.txns.write(cache)
    }

    /// The segment takes no more appends: its tail is cut, its indexes are whole on disk.
    pub fn become_inactive(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.cut_tail(cache)?;
        self.write_indexes(cache, true)?;
        self.recent = VecDeque::new();
        Ok(())
    }

    /// Cuts what was prepared beyond the last batch.
    pub fn cut_tail(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let prepared = self.prepared.take().is_some_and(|prepared| prepared.close(self.size));
        if prepared | std::mem::take(&mut self.preallocated) {
            self.log.open(cache)?.set_len(self.size)?;
            self.dirty = true;
        }
        Ok(())
    }

    /// Whether the log file was made with its full size and still has it.
    pub fn is_preallocated(&self) -> bool {
        self.preallocated
    }

    /// How far a flush that begins now should prepare the tail, if it should.
    pub fn prepare_target(&mut self, config: &LogConfig) -> Option<(Arc<Prepared>, u64)> {
        let since_flush = self.written - std::mem::replace(&mut self.written_at_flush, self.written);
        // Flushes of many bytes gain nothing: the zeroes would only be written too.
        if config.prepare_bytes == 0 || since_flush > u64::from(config.prepare_bytes) / 2 {
            return None;
        }
        let prepared = self.prepared.get_or_insert_with(|| Arc::new(Prepared::new(self.size)));
        let target = prepared.target(self.size, self.written, config.prepare_bytes, config.segment_bytes)?;
        Some((prepared.clone(), target))
    }

    /// Which bytes the system should begin to write back.
    pub fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    pub fn write_back_mut(&mut self) -> &mut WriteBack {
        &mut self.write_back
    }

    /// Drops every batch that holds `offset` or a later one; returns the offset after what is left.
    pub fn truncate_to(&mut self, cache: &Arc<FileCache>, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.load(cache)?;
        self.set_limit(None);
        let Some(place) = self.locate(cache, offset)? else { return Ok(()) };
        self.offsets.truncate_to(cache, place.base_offset)?;
        self.times.truncate_to(cache, place.base_offset)?;
        self.txns.truncate_to(cache, offset)?;
        self.cut_to(cache, place.position)?;
        self.recent.clear();
        if self.size == 0 {
            self.created_ms = now_ms;
            self.first_timestamp = None;
        }
        self.bytes_since_index = 0;
        self.read_max_timestamp(cache)
    }

    /// Cuts the log file to `size` bytes.
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

    /// Finds the largest timestamp again: the last entry's, or one of the batches after it.
    fn read_max_timestamp(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let mut largest = self.times.last();
        let from = self.position_before(cache, largest.offset)?;
        let file = self.log.open(cache)?;
        let mut headers = self.headers(&file, from);
        while let Some(batch) = headers.next()? {
            let header = batch.header();
            if header.max_timestamp() > largest.timestamp {
                largest = TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
            }
        }
        self.max_timestamp = Some(largest);
        Ok(())
    }

    /// The log file, opened.
    pub fn open(&self, cache: &Arc<FileCache>) -> Result<Arc<OpenFile>, LogError> {
        self.log.open(cache)
    }

    /// Where a search for `timestamp` among offsets from `from_offset` on begins.
    pub fn position_for_timestamp(
        &mut self,
        cache: &Arc<FileCache>,
        timestamp: i64,
        from_offset: i64,
    ) -> Result<u64, LogError> {
        self.load(cache)?;
        let mut entry = self.times.lookup(cache, timestamp)?;
        if entry.timestamp != NO_TIMESTAMP && !self.has_batch_of(cache, entry)? {
            self.rebuild_indexes(cache)?;
            entry = self.times.lookup(cache, timestamp)?;
        }
        self.position_before(cache, entry.offset.max(from_offset))
    }

    /// Whether a time index entry names a batch: a wrong entry shows in that.
    fn has_batch_of(&mut self, cache: &Arc<FileCache>, entry: TimestampOffset) -> Result<bool, LogError> {
        let Some(place) = self.locate(cache, entry.offset)? else { return Ok(false) };
        let file = self.log.open(cache)?;
        let batch = self.headers(&file, place.position).next()?;
        Ok(batch.is_some_and(|batch| {
            let header = batch.header();
            // Before 4.0 Apache Kafka noted the record's offset, not its batch's last one.
            header.base_offset() <= entry.offset && header.max_timestamp() == entry.timestamp
        }))
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

/// Beyond every offset that an index of a segment can hold.
fn unlimited(base_offset: i64) -> i64 {
    base_offset.saturating_add(1 << 31)
}
