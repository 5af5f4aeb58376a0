//! Examines a log directory without changing anything: what is damaged or missing, and what the next start would do
//! about it.
//!
//! It follows the rules of recovery (`recovery::keeps`, [`ClosedLog::differences`]) and only reads files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};

use klamm_base::LogError;
use klamm_records::Header;

use super::checkpoint::{PARTITION_METADATA, read_partition_metadata};
use super::clean_stop::ClosedLog;
use super::damage::{Bounds, Damage, Piece, Pieces, first_epoch};
use super::epochs::EpochCache;
use super::files::{FileCache, OpenFile};
use super::finding::{Finding, FindingKind, LogCheck};
use super::found::{Inventory, LogOnDisk};
use super::listing::list_names;
use super::names::{FileName, Kind, Stage};
use super::producers::decode_snapshot;
use super::recovery::{OpenAt, keeps, lacks_records};
use super::scan::Headers;
use super::stray_segment::find_strays;

/// Files open at once: each thread opens a segment and the one after it.
const FILES_MAX: usize = 64;

/// A log directory: its checkpoint files and its logs.
pub struct DirCheck {
    inventory: Inventory,
    /// Files of the directory that cannot be used, and why.
    pub damaged: Vec<(PathBuf, String)>,
}

impl DirCheck {
    /// Reads the checkpoint files of a directory and lists its logs.
    pub fn read(path: &Path) -> Result<Self, LogError> {
        let mut inventory = Inventory::read(path, 0)?;
        let damaged = std::mem::take(&mut inventory.damaged);
        Ok(Self { inventory, damaged })
    }

    /// Whether the last node stopped cleanly.
    pub fn is_clean(&self) -> bool {
        self.inventory.clean
    }

    /// The logs, in order.
    pub fn logs(&self) -> impl Iterator<Item = &LogOnDisk> {
        self.inventory.live.values()
    }

    /// Logs that are in the clean-stop record and whose directories are missing.
    pub fn missing(&self) -> impl Iterator<Item = (&str, i32, &ClosedLog)> {
        let gone =
            self.inventory.closed.iter().filter(|(key, _)| {
                !self.inventory.live.contains_key(*key) && !self.inventory.futures.contains_key(*key)
            });
        gone.map(|((topic, partition), closed)| (topic.as_str(), *partition, &**closed))
    }

    /// What the checkpoints say about a log.
    pub fn open_at(&self, found: &LogOnDisk) -> OpenAt {
        self.inventory.open_at(&found.topic, found.partition)
    }
}

/// Size of a segment's log file, if it exists, and the kinds of files that exist.
#[derive(Default)]
struct Files {
    log_bytes: Option<u64>,
    kinds: Vec<Kind>,
}

/// The contents of a segment.
#[derive(Default)]
pub struct Walked {
    /// The offset after the last batch or damage.
    pub next_offset: i64,
    /// Intact batches, and the offsets in them.
    pub batches: u64,
    pub records: u64,
    /// Each leader epoch with the base offset of its first batch here.
    pub epochs: Vec<(i32, i64)>,
    pub damage: Vec<Damage>,
    /// For each entry of `damage`: whether a start leaves it in place.
    stays: Vec<bool>,
}

/// Receives the position and header of each intact batch; returns `false` to end the walk.
pub type OnBatch<'a> = &'a mut dyn FnMut(u64, &Header<'_>) -> bool;

/// Examines one log: call [`Examination::new`], then [`walk`](Examination::walk) for each segment in any order and on
/// any thread, then [`finish`](Examination::finish).
pub struct Examination {
    path: PathBuf,
    at: OpenAt,
    deep: bool,
    was_clean: bool,
    cache: Arc<FileCache>,
    epochs: EpochCache,
    segments: BTreeMap<i64, Files>,
    check: LogCheck,
}

impl Examination {
    /// Reads the files other than segments. `at`: what the checkpoints say about the log. `deep`: verify the checksum
    /// of every batch, not only of those that a start reads.
    pub fn new(path: &Path, at: &OpenAt, deep: bool) -> Result<Self, LogError> {
        let segments = list_segments(path)?;
        let mut at = at.clone();
        let was_clean = at.clean;
        at.kept_power |= at.clean;
        at.keeps_damage = true;
        at.proven_end = at.proven_end.max(at.recovery_point);
        if let Some(closed) = &at.closed {
            at.proven_end = closed.log_end_offset;
            at.log_start_offset = closed.log_start_offset;
        }
        let logs = || segments.values().filter_map(|files| files.log_bytes);
        let check = LogCheck {
            log_start_offset: at.log_start_offset,
            log_end_offset: at.log_start_offset,
            segments: logs().count(),
            bytes: logs().sum(),
            ..LogCheck::empty(path)
        };
        let (path, cache, epochs) = (path.to_owned(), FileCache::new(FILES_MAX), EpochCache::default());
        let mut found = Self { path, at, deep, was_clean, cache, epochs, segments, check };
        found.check_small_files()?;
        let strays = found.check_strays()?;
        found.check_names(&strays);
        Ok(found)
    }

    /// Base offset and bytes of each segment.
    pub fn segments(&self) -> impl Iterator<Item = (i64, u64)> {
        self.segments.iter().map(|(&base_offset, files)| (base_offset, files.log_bytes.unwrap_or(0)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the last stop was clean.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// All records below this offset were flushed, and their index entries and producer state are durable.
    pub fn recovery_point(&self) -> i64 {
        self.at.recovery_point
    }

    /// Checksum of a segment's index of aborted transactions at the clean stop; 0 if there was none, `None` if it is
    /// not known.
    pub fn txn_crc(&self, base_offset: i64) -> Option<u32> {
        self.at.closed.as_ref()?.segment(base_offset)?.txn_crc
    }

    pub fn file(&self, base_offset: i64, kind: Kind) -> PathBuf {
        self.path.join(FileName::live(base_offset, kind).to_string())
    }

    pub fn find(&mut self, finding: Finding) {
        self.check.findings.push(finding);
    }

    fn check_small_files(&mut self) -> Result<(), LogError> {
        let is_left_out = self.at.may_be_unflushed() && self.check.bytes > 0;
        let by_name = match is_left_out {
            true => "it may be of an earlier topic of that name: the directory is set aside",
            false => "the directory is taken for the topic of its name",
        };
        match read_partition_metadata(&self.path) {
            Ok(Some(id)) => self.check.topic_id = Some(id),
            Ok(None) => {
                // It is durable with the first flush.
                let may_be_unwritten = !self.was_clean && self.at.proven_end == 0;
                let kind = if may_be_unwritten { FindingKind::Note } else { FindingKind::Missing };
                self.find(Finding::new(kind, &self.path.join(PARTITION_METADATA), "it is gone", by_name));
            }
            Err(LogError::Corrupt { path, reason, .. }) => self.find(Finding::damaged(&path, reason, by_name)),
            Err(error) => return Err(error),
        }
        // Damage in the file is found when it is compared with the batches.
        self.epochs = match EpochCache::read(&self.path) {
            Err(LogError::Corrupt { .. }) => EpochCache::default(),
            read => read?,
        };
        let has_snapshot = |files: &&Files| files.kinds.contains(&Kind::Snapshot);
        let with_snapshot = self.segments.iter().filter(|(_, files)| has_snapshot(files));
        for base_offset in with_snapshot.map(|(&base_offset, _)| base_offset).collect::<Vec<_>>() {
            let file = self.file(base_offset, Kind::Snapshot);
            let bytes = fs::read(&file).map_err(LogError::io("cannot read", &file))?;
            if let Err(reason) = decode_snapshot(&bytes) {
                // Those from the recovery point on may be unsynced.
                let is_unsynced = !self.was_clean && base_offset >= self.at.recovery_point;
                let kind = if is_unsynced { FindingKind::Note } else { FindingKind::Damaged };
                self.find(Finding::new(kind, &file, reason, "the producers are read from the log instead"));
            }
        }
        Ok(())
    }

    /// Finds segment files of another log, which a start sets aside: they count as missing.
    fn check_strays(&mut self) -> Result<BTreeSet<i64>, LogError> {
        let Some(closed) = self.at.closed.clone() else { return Ok(BTreeSet::new()) };
        let strays = find_strays(&self.cache, &self.path, &closed)?;
        for stray in &strays {
            let action = format!("it is renamed to {}, and its records are lost", stray.new_name());
            let next_base = self.next_base(stray.base_offset).unwrap_or(closed.log_end_offset);
            let finding = Finding::damaged(&self.file(stray.base_offset, Kind::Log), &stray.reason, action).at(0);
            self.find(finding.of(stray.base_offset, next_base));
        }
        let strays: BTreeSet<i64> = strays.iter().map(|stray| stray.base_offset).collect();
        self.segments.retain(|base_offset, _| !strays.contains(base_offset));
        Ok(strays)
    }

    /// Compares the existing files with the recorded ones.
    fn check_names(&mut self, strays: &BTreeSet<i64>) {
        let found: Vec<(i64, u64)> =
            self.segments.iter().filter_map(|(&base_offset, files)| Some((base_offset, files.log_bytes?))).collect();
        let differences = self.at.closed.as_ref().map(|closed| closed.differences(&found)).unwrap_or_default();
        for (base_offset, why) in differences.iter().filter(|(base, _)| !strays.contains(base)) {
            let kind = if why.contains("missing") { FindingKind::Missing } else { FindingKind::Damaged };
            let reason = format!("it {why} when the node stopped cleanly");
            let file = self.file(*base_offset, Kind::Log);
            self.find(Finding::new(kind, &file, reason, "the log is recovered as after a crash"));
        }
        self.at.clean &= differences.is_empty();
        self.at.recovery_point =
            differences.first().map_or(self.at.recovery_point, |first| self.at.recovery_point.min(first.0));
        let orphans: Vec<i64> = self
            .segments
            .iter()
            .filter(|(_, files)| files.log_bytes.is_none() && files.kinds.iter().any(|&kind| kind != Kind::Snapshot))
            .map(|(&base_offset, _)| base_offset)
            .collect();
        for base_offset in orphans.into_iter().filter(|base| !differences.iter().any(|(known, _)| known == base)) {
            let file = self.file(base_offset, Kind::Log);
            self.find(Finding::missing(&file, "it is gone, and its indexes are there", "its records are lost"));
        }
        self.segments.retain(|_, files| files.log_bytes.is_some());
    }

    /// The number of the first segment that a start reads if it recovers the log.
    fn first_read(&self) -> usize {
        let upto = self.segments.range(..=self.at.recovery_point).count();
        upto.saturating_sub(1)
    }

    fn number(&self, base_offset: i64) -> usize {
        self.segments.range(..base_offset).count()
    }

    fn next_base(&self, base_offset: i64) -> Option<i64> {
        self.segments.range(base_offset + 1..).next().map(|(&next_base, _)| next_base)
    }

    /// Reads a segment.
    pub fn walk(&self, base_offset: i64, on_batch: OnBatch<'_>) -> Result<Walked, LogError> {
        let size = self.segments[&base_offset].log_bytes.unwrap_or(0);
        let next_base = self.next_base(base_offset);
        // After a clean stop, a start reads only the end of the log.
        let is_read_by_start = match self.at.clean {
            true => next_base.is_none(),
            false => self.number(base_offset) >= self.first_read(),
        };
        let file = self.cache.open_read_only(&self.file(base_offset, Kind::Log))?;
        let bounds = self.bounds(base_offset, next_base)?;
        let mut walked = Walked::default();
        let mut take = |header: &Header<'_>, position| {
            walked.take(header);
            on_batch(position, header)
        };
        let (next_offset, mut damage) = match self.deep || is_read_by_start && !self.at.clean {
            true => read_batches(&file, size, bounds, &mut take)?,
            false => read_headers(&file, size, bounds, &mut take)?,
        };
        walked.next_offset = next_offset;
        let stays = |damage: &Damage| !is_read_by_start || keeps(damage, &self.at, &bounds, size);
        // A start truncates the segment there, whatever follows.
        if let Some(cut) = damage.iter().position(|damage| !stays(damage)) {
            damage.truncate(cut + 1);
            if next_base.is_none() {
                walked.next_offset = damage[cut].first_offset;
            }
        }
        walked.stays = damage.iter().map(stays).collect();
        walked.damage = damage;
        Ok(walked)
    }

    fn bounds(&self, base_offset: i64, next_base: Option<i64>) -> Result<Bounds, LogError> {
        let closed_end = self.at.closed.as_ref().map(|closed| closed.log_end_offset);
        let next_epoch = match next_base {
            Some(next_base) => first_epoch(&self.cache.open_read_only(&self.file(next_base, Kind::Log))?)?,
            None => None,
        };
        let limit = next_base.or(closed_end.filter(|&end| end > base_offset));
        Ok(Bounds {
            next_offset: base_offset,
            limit: limit.unwrap_or(base_offset.saturating_add(1 << 31)),
            next_base,
            has_gaps: self.at.has_gaps,
            epoch_limit: self.at.closed.as_ref().map_or(i32::MAX, |closed| closed.last_epoch),
            next_epoch,
            cached_epoch: self.epochs.epoch_for(base_offset),
            cached_upto: self.epochs.latest().map(|newest| (self.at.proven_end, newest)),
            ..Bounds::default()
        })
    }

    /// Combines the results of the segments. Segments that are not in `walked` are skipped.
    pub fn finish(mut self, mut walked: BTreeMap<i64, Walked>) -> LogCheck {
        let bases: Vec<(i64, u64)> = self.segments().collect();
        let Some(&(first, _)) = bases.first() else {
            self.check_end(self.at.log_start_offset, &self.path.clone(), 0);
            return self.check;
        };
        self.check_start(first);
        let first_read = self.first_read();
        let (mut end, mut is_whole) = (first, true);
        for (number, &(base_offset, size)) in bases.iter().enumerate() {
            let next_base = bases.get(number + 1).map(|next| next.0);
            let Some(walked) = walked.remove(&base_offset) else {
                (end, is_whole) = (next_base.unwrap_or(base_offset), false);
                continue;
            };
            end = walked.next_offset.max(base_offset);
            let file = self.file(base_offset, Kind::Log);
            self.note_damage(&file, walked, next_base);
            if let Some(next_base) = next_base.filter(|&next| lacks_records(end, next, self.at.has_gaps, &self.at)) {
                let stays = self.at.kept_power || end < self.at.proven_end || number < first_read;
                let action = match stays {
                    true => "the existing records are served".to_owned(),
                    false => format!("the log ends at offset {end}"),
                };
                let reason = format!("it ends at offset {end}, and the next segment begins at {next_base}");
                let kind = if stays { FindingKind::Missing } else { FindingKind::Note };
                self.find(Finding::new(kind, &file, reason, action).at(size).of(end, next_base));
            }
        }
        let (last, size) = bases[bases.len() - 1];
        if is_whole {
            self.check_end(end, &self.file(last, Kind::Log), size);
        }
        self.check
    }

    /// After a kill, segments may have been removed since the checkpoint was written.
    fn check_start(&mut self, first: i64) {
        let known = self.at.log_start_offset;
        self.check.log_start_offset = known.max(first);
        if known < first && (self.at.closed.is_some() || self.was_clean && known > 0) {
            let reason = format!("the log starts at offset {known}, and its first segment at {first}");
            let finding = Finding::missing(&self.path, reason, "the log starts with its first segment");
            self.find(finding.of(known, first));
        }
    }

    fn check_end(&mut self, end: i64, file: &Path, size: u64) {
        let proven = self.at.proven_end;
        self.check.log_end_offset = end.max(proven);
        if end < proven {
            let reason = format!("the log ends at offset {end}, and once ended at {proven}");
            let action = format!("the log goes on at offset {proven}");
            self.find(Finding::missing(file, reason, action).at(size).of(end, proven));
        }
    }

    fn note_damage(&mut self, file: &Path, walked: Walked, next_base: Option<i64>) {
        self.check.batches += walked.batches;
        self.check.records += walked.records;
        for (damage, stays) in walked.damage.into_iter().zip(walked.stays) {
            if damage.is_zero_tail && next_base.is_none_or(|next| next == damage.first_offset) {
                // A prepared (zero-filled) tail.
                continue;
            }
            let action = match stays {
                true => {
                    "a fetch of these offsets returns CORRUPT_MESSAGE; the records around them are served".to_owned()
                }
                false => format!("the log is cut here and ends at offset {}", damage.first_offset),
            };
            let kind = if stays || self.was_clean { FindingKind::Damaged } else { FindingKind::Note };
            let finding = Finding::new(kind, file, damage.reason, action).at(damage.position);
            self.find(finding.of(damage.first_offset, damage.next_offset));
        }
    }
}

impl Walked {
    fn take(&mut self, header: &Header<'_>) {
        self.batches += 1;
        self.records += u64::try_from(header.record_count()).unwrap_or(0);
        let epoch = header.leader_epoch();
        if epoch >= 0 && self.epochs.last().is_none_or(|&(latest, _)| epoch > latest) {
            self.epochs.push((epoch, header.base_offset()));
        }
    }
}

fn list_segments(path: &Path) -> Result<BTreeMap<i64, Files>, LogError> {
    let mut segments = BTreeMap::<i64, Files>::new();
    let names = list_names(path)?;
    for name in names.iter().filter(|name| name.stage == Stage::Live) {
        let files = segments.entry(name.base_offset).or_default();
        files.kinds.push(name.kind);
        if name.kind == Kind::Log {
            let file = path.join(name.to_string());
            files.log_bytes = Some(fs::metadata(&file).map_err(LogError::io("cannot stat", &file))?.len());
        }
    }
    // Files that were about to be removed are not missing.
    segments.retain(|base_offset, files| {
        let was_dropped = |name: &FileName| name.base_offset == *base_offset && name.kind == Kind::Log;
        files.log_bytes.is_some() || !names.iter().any(was_dropped)
    });
    Ok(segments)
}

type Take<'a> = &'a mut dyn FnMut(&Header<'_>, u64) -> bool;

fn read_batches(file: &OpenFile, size: u64, bounds: Bounds, take: Take<'_>) -> Result<(i64, Vec<Damage>), LogError> {
    let ahead = ReadAhead::default();
    thread::scope(|scope| {
        let reader = (size > 2 * AHEAD_BYTES).then(|| scope.spawn(|| ahead.read(file, size)).thread().clone());
        let found = walk_batches(file, size, bounds, &mut |header, position| {
            ahead.reached(position, reader.as_ref());
            take(header, position)
        });
        ahead.reached(u64::MAX, reader.as_ref());
        found
    })
}

/// How far a file is read ahead of the verification.
const AHEAD_BYTES: u64 = 8 << 20;
/// Bytes that are read ahead at a time.
const AHEAD_STEP: usize = 1 << 20;

/// Loads a file into the page cache while another thread verifies it, so that the disk is never idle meanwhile.
#[derive(Default)]
struct ReadAhead {
    /// Where the verification is; the largest value at its end.
    position: AtomicU64,
}

impl ReadAhead {
    /// Reads the whole file, never more than [`AHEAD_BYTES`] ahead. Errors are left to the verification.
    fn read(&self, file: &OpenFile, size: u64) {
        let (mut bytes, mut at) = (vec![0; AHEAD_STEP], 0);
        while at < size {
            let position = self.position.load(Ordering::Relaxed);
            if position == u64::MAX || file.read_up_to(&mut bytes, at).is_err() {
                return;
            }
            at += AHEAD_STEP as u64;
            while at > self.position.load(Ordering::Relaxed).saturating_add(AHEAD_BYTES) {
                thread::park();
            }
        }
    }

    fn reached(&self, position: u64, reader: Option<&Thread>) {
        let Some(reader) = reader else { return };
        let before = self.position.swap(position, Ordering::Relaxed);
        if before / AHEAD_STEP as u64 != position / AHEAD_STEP as u64 {
            reader.unpark();
        }
    }
}

fn walk_batches(file: &OpenFile, size: u64, bounds: Bounds, take: Take<'_>) -> Result<(i64, Vec<Damage>), LogError> {
    let mut pieces = Pieces::new(file, 0, size, bounds);
    let mut found = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        match piece {
            Piece::Batch(position, bytes) => {
                if !take(&Header::at_start_of(bytes).expect("a whole batch"), position) {
                    break;
                }
            }
            Piece::Damage(damage) => found.push(damage),
        }
    }
    Ok((pieces.next_offset(), found))
}

fn read_headers(file: &OpenFile, size: u64, bounds: Bounds, take: Take<'_>) -> Result<(i64, Vec<Damage>), LogError> {
    let mut headers = Headers::new(file, 0, size, bounds.next_offset).skipping(bounds.limit);
    let mut end = bounds.next_offset;
    while let Some(batch) = headers.next()? {
        end = batch.header().next_offset();
        if !take(&batch.header(), batch.position) {
            break;
        }
    }
    let damage = headers.take_damage();
    // The next segment's base offset shows which offsets a damaged tail contained.
    let tail = damage.last().filter(|damage| damage.end >= size && damage.position < size);
    let end = tail.map_or(end, |damage| bounds.next_base.unwrap_or(damage.next_offset));
    Ok((end, damage))
}
