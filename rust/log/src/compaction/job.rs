//! A round of cleaning, which runs without the partition's lock.

use std::collections::HashMap;
use std::fs::{File, FileTimes};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use klamm_base::LogError;
use klamm_records::{Batch, RecordsError, records};

use super::filter::{DECOMPRESSED_BYTES_MAX, LastBatch, Outcome, Rules};
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::config::LogConfig;
use crate::files::{FileCache, LogFile, PartitionDir};
use crate::flusher::TOGETHER_MIN;
use crate::index::AbortedTxn;
use crate::names::Stage;
use crate::scan::Batches;
use crate::segment::Segment;

/// At most this many new segments are synced together before they replace the old ones: one sync of the file system
/// is cheaper than a sync of each file.
const TOGETHER_MAX: usize = 64;
/// A group with at least this many bytes takes no more segments.
const TOGETHER_BYTES: u64 = 32 << 20;

/// Why a round ended without a result.
#[derive(Debug)]
pub enum CleanError {
    /// The log cannot be cleaned; it stays unchanged.
    Log(LogError),
    /// The cleaner was stopped.
    Stopped,
}

impl From<LogError> for CleanError {
    fn from(error: LogError) -> Self {
        CleanError::Log(error)
    }
}

/// A segment that the cleaner reads.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) base_offset: i64,
    pub(super) file: Arc<LogFile>,
    pub(super) size: u64,
    /// Size in bytes of the larger index.
    pub(super) index_bytes: u64,
    /// The base offset of the next segment.
    pub(super) end_offset: i64,
}

/// A cleaned segment that replaces others.
pub struct Cleaned {
    pub(super) segment: Segment,
    pub(super) sources: Vec<Source>,
}

impl Cleaned {
    fn sync(&self, cache: &Arc<FileCache>, content: bool) -> Result<(), LogError> {
        let newest = self.sources.last().expect("a group is not empty").file.path();
        let modified = std::fs::metadata(&newest).and_then(|metadata| metadata.modified());
        let times = FileTimes::new().set_modified(modified.unwrap_or(SystemTime::UNIX_EPOCH));
        for (at, file) in self.segment.files().into_iter().enumerate() {
            // The index of aborted transactions exists only if it has entries.
            if at == 3 && file.len_on_disk()? == 0 {
                continue;
            }
            let open = file.open(cache)?;
            if content {
                open.sync()?;
            }
            File::set_times(open.file(), times).map_err(LogError::io("cannot set the time of", open.path()))?;
        }
        Ok(())
    }
}

/// Counts of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub bytes_read: u64,
    pub bytes_kept: u64,
    pub keys: usize,
}

/// A log that is handed to the cleaner.
pub struct CleanJob {
    pub(super) cache: Arc<FileCache>,
    pub(super) dir: Arc<PartitionDir>,
    pub(super) config: Arc<LogConfig>,
    /// All segments below the first uncleanable offset.
    pub(super) sources: Vec<Source>,
    pub(super) aborted: Vec<AbortedTxn>,
    pub(super) last_batches: HashMap<i64, LastBatch>,
    pub(super) first_dirty_offset: i64,
    pub(super) end_offset: i64,
    pub(super) now_ms: i64,
    /// Bytes that are read, and buffered for writing, at a time; a batch is never split.
    pub(super) buffer_bytes: usize,
}

/// Called before each piece of work with the bytes moved since the last call; returns `false` to stop.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

fn paced(pace: &mut dyn FnMut(u64) -> bool, bytes: u64) -> Result<(), CleanError> {
    if pace(bytes) { Ok(()) } else { Err(CleanError::Stopped) }
}

impl CleanJob {
    /// Reads the keys of the dirty section into `map`; returns the offset that the round cleans up to.
    pub fn map_keys(&self, map: &mut OffsetMap, pace: Pace<'_>) -> Result<i64, CleanError> {
        let first = self.sources.partition_point(|source| source.end_offset <= self.first_dirty_offset);
        // This walk does not visit markers of earlier transactions.
        let from = self.sources.get(first).map_or(self.first_dirty_offset, |source| source.base_offset);
        let ahead: Vec<AbortedTxn> = self.aborted.iter().copied().filter(|txn| txn.last_offset >= from).collect();
        let mut transactions = Transactions::new(&ahead);
        for source in &self.sources[first..] {
            if !self.map_segment(source, map, &mut transactions, pace)? {
                break;
            }
            map.reached(source.end_offset - 1);
        }
        let end_offset = map.latest_offset() + 1;
        if end_offset <= self.first_dirty_offset && first < self.sources.len() {
            let (path, reason) = (self.dir.path(), "log.cleaner.dedupe.buffer.size has no room for one batch's keys");
            return Err(LogError::Directory { path, reason: reason.into() }.into());
        }
        Ok(end_offset)
    }

    /// Returns `false` if the map fills up before the segment's end.
    fn map_segment(
        &self,
        source: &Source,
        map: &mut OffsetMap,
        transactions: &mut Transactions,
        pace: Pace<'_>,
    ) -> Result<bool, CleanError> {
        let mut scratch = Vec::new();
        let file = source.file.open(&self.cache)?;
        let mut batches = Batches::new(&file, 0, source.size).reading(self.buffer_bytes);
        while let Some((position, bytes)) = batches.next_valid()? {
            paced(pace, bytes.len() as u64)?;
            let damage = |error| damage(source, position, &error);
            let batch = Batch::at_start_of(bytes).map_err(damage)?;
            let header = batch.header();
            if header.is_control() {
                transactions.on_control(bytes, &header);
            } else if !transactions.on_data(&header) && header.last_offset() >= self.first_dirty_offset {
                for record in records(batch, &mut scratch, DECOMPRESSED_BYTES_MAX).map_err(damage)? {
                    let record = record.map_err(damage)?;
                    let Some(key) = record.key.filter(|_| record.offset >= self.first_dirty_offset) else { continue };
                    if map.is_full() {
                        return Ok(false);
                    }
                    map.put(key, record.offset);
                }
            }
            if header.last_offset() >= self.first_dirty_offset {
                map.reached(header.last_offset());
            }
        }
        Ok(true)
    }

    /// Groups adjacent segments below `end_offset` that fit into one segment together.
    pub fn groups(&self, end_offset: i64) -> Vec<Range<usize>> {
        let count = self.sources.partition_point(|source| source.base_offset < end_offset);
        let mut groups: Vec<Range<usize>> = Vec::new();
        let (mut bytes, mut index_bytes) = (0, 0);
        for (at, source) in self.sources[..count].iter().enumerate() {
            let fits = groups.last().is_some_and(|group| {
                bytes + source.size <= u64::from(self.config.segment_bytes)
                    && index_bytes + source.index_bytes <= u64::from(self.config.segment_index_bytes)
                    && source.end_offset - 1 - self.sources[group.start].base_offset <= i64::from(i32::MAX)
            });
            match groups.last_mut().filter(|_| fits) {
                Some(group) => group.end = at + 1,
                None => {
                    groups.push(at..at + 1);
                    (bytes, index_bytes) = (0, 0);
                }
            }
            bytes += source.size;
            index_bytes += source.index_bytes;
        }
        groups
    }

    /// Makes the renames durable by which cleaned segments replaced others.
    pub(super) fn sync_names(&self) -> Result<(), LogError> {
        self.dir.ignore_if_away(self.dir.at("", |path| self.cache.sync_dir(path)))
    }

    /// Makes new segments durable, with the modification time of the newest segment that each replaces. Must be
    /// called before any of them replaces a segment.
    pub fn sync(&self, cleaned: &[Cleaned]) -> Result<(), LogError> {
        let together = match cleaned {
            [first, ..] if cleaned.len() >= TOGETHER_MIN => first.segment.open(&self.cache)?.sync_file_system()?,
            _ => false,
        };
        cleaned.iter().try_for_each(|one| one.sync(&self.cache, !together))
    }

    /// Removes new segments that will not be used.
    pub fn discard(&self, cleaned: impl IntoIterator<Item = Cleaned>) -> Result<(), LogError> {
        cleaned.into_iter().try_for_each(|one| one.segment.remove(&self.cache))
    }

    /// Starts writing the groups to new segments, in order.
    pub fn cleaning<'a>(&'a self, map: &'a OffsetMap) -> Cleaning<'a> {
        let rules = Rules {
            map,
            last_batches: &self.last_batches,
            end_offset: self.end_offset,
            now_ms: self.now_ms,
            delete_retention_ms: self.config.delete_retention_ms,
        };
        Cleaning { job: self, rules, transactions: Transactions::new(&self.aborted), stats: Stats::default() }
    }
}

/// The second half of a round.
pub struct Cleaning<'a> {
    job: &'a CleanJob,
    rules: Rules<'a>,
    transactions: Transactions,
    pub stats: Stats,
}

impl Cleaning<'_> {
    /// Writes the next groups durably until they reach the limit of bytes or segments; on an error it removes what it
    /// wrote.
    pub fn clean_some(
        &mut self,
        groups: &mut impl Iterator<Item = Range<usize>>,
        pace: Pace<'_>,
    ) -> Result<Vec<Cleaned>, CleanError> {
        let (mut cleaned, mut bytes) = (Vec::new(), 0);
        let mut done = Ok(());
        while cleaned.len() < TOGETHER_MAX
            && bytes < TOGETHER_BYTES
            && done.is_ok()
            && let Some(group) = groups.next()
        {
            match self.clean(group, pace) {
                Ok(one) => {
                    bytes += one.segment.size();
                    cleaned.push(one);
                }
                Err(error) => done = Err(error),
            }
        }
        match done.and_then(|()| self.job.sync(&cleaned).map_err(CleanError::from)) {
            Ok(()) => Ok(cleaned),
            Err(error) => {
                self.job.discard(cleaned)?;
                Err(error)
            }
        }
    }

    /// Writes a group of segments into one, which is not durable before [`CleanJob::sync`]; on an error it removes
    /// what it wrote.
    pub fn clean(&mut self, group: Range<usize>, pace: Pace<'_>) -> Result<Cleaned, CleanError> {
        let (job, sources) = (self.job, self.job.sources[group].to_vec());
        let base_offset = sources[0].base_offset;
        let (cache, now_ms) = (&job.cache, job.now_ms);
        let mut segment = Segment::create_at(cache, &job.dir, base_offset, Stage::Cleaned, &job.config, now_ms)?;
        let written = sources
            .iter()
            .try_for_each(|source| self.clean_segment(source, &mut segment, pace))
            .and_then(|()| segment.become_inactive(cache).map_err(CleanError::from));
        if let Err(error) = written {
            segment.remove(cache)?;
            return Err(error);
        }
        segment.dirty = false;
        Ok(Cleaned { segment, sources })
    }

    fn clean_segment(&mut self, source: &Source, target: &mut Segment, pace: Pace<'_>) -> Result<(), CleanError> {
        let cache = &self.job.cache;
        let file = source.file.open(cache)?;
        let mut batches = Batches::new(&file, 0, source.size).reading(self.job.buffer_bytes);
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        while let Some((position, bytes)) = batches.next_valid()? {
            self.stats.bytes_read += bytes.len() as u64;
            paced(pace, bytes.len() as u64)?;
            let damage = |error| damage(source, position, &error);
            let batch = Batch::at_start_of(bytes).map_err(damage)?;
            match self.rules.apply(batch, &mut self.transactions, &mut scratch).map_err(damage)? {
                Outcome::Drop => {}
                Outcome::Keep => out.extend_from_slice(bytes),
                Outcome::Replace(batch) => out.extend_from_slice(&batch),
            }
            for txn in self.transactions.take_kept() {
                target.txns().push(cache, txn)?;
            }
            if out.len() >= self.job.buffer_bytes {
                self.write(target, &mut out)?;
            }
        }
        self.write(target, &mut out)?;
        Ok(())
    }

    fn write(&mut self, target: &mut Segment, out: &mut Vec<u8>) -> Result<(), LogError> {
        if target.size() + out.len() as u64 > i32::MAX as u64 {
            let (path, position) = (target.log_file().path(), target.size());
            return Err(LogError::Corrupt { path, position, reason: "cleaning made it too long".into() });
        }
        if !out.is_empty() {
            target.append(&self.job.cache, out)?;
            self.stats.bytes_kept += out.len() as u64;
            out.clear();
        }
        Ok(())
    }
}

fn damage(source: &Source, position: u64, error: &RecordsError) -> CleanError {
    CleanError::Log(LogError::Corrupt { path: source.file.path(), position, reason: error.to_string() })
}
