//! Examining a log directory without changing anything: what is damaged or missing, and what a start would do about it.
//!
//! It decides by the same rules as recovery (`recovery::keeps`, [`ClosedLog::differences`]), and reads files only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_records::Header;

use super::checkpoint::{LEADER_EPOCH, PARTITION_METADATA, read_partition_metadata};
use super::clean_stop::ClosedLog;
use super::damage::{Bounds, Damage, Piece, Pieces, first_epoch};
use super::epochs::EpochCache;
use super::error::LogError;
use super::files::{FileCache, OpenFile};
use super::found::{Found, Inventory};
use super::names::{FileName, Kind, Stage};
use super::producers::decode_snapshot;
use super::recovery::{OpenAt, keeps, list_names};
use super::scan::Headers;
use crate::Uuid;

/// What is wrong with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Bytes that were written otherwise.
    Damaged,
    /// A file or offsets that were there once.
    Missing,
    /// What a kill or a power cut left of the last write: nothing of it was acknowledged as durable.
    Unfinished,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub file: PathBuf,
    /// Bytes of the file, `[from, to)`.
    pub bytes: Option<(u64, u64)>,
    /// Offsets of records that cannot be read for it, `[from, to)`; both the same when their number is not known.
    pub offsets: Option<(i64, i64)>,
    pub reason: String,
    /// What a start would do.
    pub action: String,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCheck {
    pub path: PathBuf,
    pub topic_id: Option<Uuid>,
    pub log_start_offset: i64,
    /// The offset that the next record would get.
    pub log_end_offset: i64,
    pub segments: usize,
    /// Bytes of the log files.
    pub bytes: u64,
    /// Intact batches, and the offsets in them.
    pub batches: u64,
    pub records: u64,
    pub findings: Vec<Finding>,
}

/// A log directory: its small files, and the logs in it.
pub struct DirCheck {
    inventory: Inventory,
    /// Of the directory's own files.
    pub findings: Vec<Finding>,
}

impl DirCheck {
    /// Reads the small files of a directory and lists its logs.
    pub fn read(path: &Path) -> Result<Self, LogError> {
        let inventory = Inventory::read(path, 0)?;
        let finding = |(file, reason): &(PathBuf, String)| Finding {
            kind: FindingKind::Damaged,
            file: file.clone(),
            bytes: None,
            offsets: None,
            reason: reason.clone(),
            action: "it counts as empty: more is checked then, nothing is lost".to_owned(),
        };
        let findings = inventory.damaged.iter().map(finding).collect();
        Ok(Self { inventory, findings })
    }

    /// Whether the last node stopped cleanly.
    pub fn is_clean(&self) -> bool {
        self.inventory.clean
    }

    /// Whether klamm's record of that stop is there.
    pub fn has_clean_stop(&self) -> bool {
        !self.inventory.closed.is_empty()
    }

    /// The logs, in order.
    pub fn logs(&self) -> impl Iterator<Item = &Found> {
        self.inventory.live.values()
    }

    /// Logs that the clean-stop record knows and whose directories are gone.
    pub fn missing(&self) -> impl Iterator<Item = (&str, i32, &ClosedLog)> {
        let gone = self.inventory.closed.iter().filter(|(key, _)| !self.inventory.live.contains_key(*key));
        gone.map(|((topic, partition), closed)| (topic.as_str(), *partition, &**closed))
    }

    /// Examines a log. `deep`: every batch's checksum, else its headers and what a start would read. `on_bytes` is told of
    /// bytes that were gone through, as many as the log files have in all.
    pub fn check(&self, found: &Found, deep: bool, on_bytes: &mut dyn FnMut(u64)) -> Result<LogCheck, LogError> {
        let at = self.inventory.open_at(&found.topic, found.partition);
        check_log(&found.path, &at, deep, on_bytes)
    }
}

/// Examines the log in `path`; `at` is what is known of it. See [`DirCheck::check`].
pub fn check_log(path: &Path, at: &OpenAt, deep: bool, on_bytes: &mut dyn FnMut(u64)) -> Result<LogCheck, LogError> {
    Examination::new(path, at, deep)?.run(on_bytes)
}

/// One segment's files.
#[derive(Default)]
struct Files {
    log_bytes: Option<u64>,
    kinds: Vec<Kind>,
}

struct Examination<'a> {
    path: &'a Path,
    at: OpenAt,
    deep: bool,
    cache: Arc<FileCache>,
    epochs: EpochCache,
    segments: std::collections::BTreeMap<i64, Files>,
    check: LogCheck,
}

impl<'a> Examination<'a> {
    fn new(path: &'a Path, at: &OpenAt, deep: bool) -> Result<Self, LogError> {
        let mut segments = std::collections::BTreeMap::<i64, Files>::new();
        let names = list_names(path)?;
        for name in names.iter().filter(|name| name.stage == Stage::Live) {
            let files = segments.entry(name.base_offset).or_default();
            files.kinds.push(name.kind);
            if name.kind == Kind::Log {
                let file = path.join(name.to_string());
                files.log_bytes = Some(fs::metadata(&file).map_err(LogError::io("cannot stat", &file))?.len());
            }
        }
        // What was about to be removed is not missing.
        segments.retain(|base_offset, files| {
            let was_dropped = |name: &FileName| name.base_offset == *base_offset && name.kind == Kind::Log;
            files.log_bytes.is_some() || !names.iter().any(was_dropped)
        });
        let mut at = at.clone();
        at.kept_power |= at.clean;
        at.keeps_damage = true;
        at.proven_end = at.proven_end.max(at.recovery_point);
        if let Some(closed) = &at.closed {
            at.proven_end = closed.log_end_offset;
            at.log_start_offset = closed.log_start_offset;
        }
        let logs = || segments.values().filter_map(|files| files.log_bytes);
        let check = LogCheck {
            path: path.to_owned(),
            topic_id: None,
            log_start_offset: at.log_start_offset,
            log_end_offset: at.log_start_offset,
            segments: logs().count(),
            bytes: logs().sum(),
            batches: 0,
            records: 0,
            findings: Vec::new(),
        };
        Ok(Self { path, at, deep, cache: FileCache::new(8), epochs: EpochCache::default(), segments, check })
    }

    fn run(mut self, on_bytes: &mut dyn FnMut(u64)) -> Result<LogCheck, LogError> {
        self.check_small_files()?;
        self.check_names();
        self.check_logs(on_bytes)?;
        Ok(self.check)
    }

    fn file(&self, base_offset: i64, kind: Kind) -> PathBuf {
        self.path.join(FileName::live(base_offset, kind).to_string())
    }

    fn find(&mut self, kind: FindingKind, file: PathBuf, reason: impl Into<String>, action: &str) {
        let (reason, action) = (reason.into(), action.to_owned());
        self.check.findings.push(Finding { kind, file, bytes: None, offsets: None, reason, action });
    }

    fn check_small_files(&mut self) -> Result<(), LogError> {
        match read_partition_metadata(self.path) {
            Ok(id) => self.check.topic_id = id,
            Err(LogError::Corrupt { path, reason, .. }) => {
                self.find(FindingKind::Damaged, path, reason, "the directory is taken for the topic of its name");
            }
            Err(error) => return Err(error),
        }
        if self.check.topic_id.is_none() && !self.path.join(PARTITION_METADATA).exists() {
            let file = self.path.join(PARTITION_METADATA);
            self.find(FindingKind::Missing, file, "it is gone", "the directory is taken for the topic of its name");
        }
        let file = self.path.join(LEADER_EPOCH);
        let is_empty = fs::metadata(&file).is_ok_and(|metadata| metadata.len() == 0);
        match EpochCache::read(self.path) {
            Ok(epochs) => self.epochs = epochs,
            Err(LogError::Corrupt { .. }) if is_empty => {}
            Err(LogError::Corrupt { reason, .. }) => {
                self.find(FindingKind::Damaged, file, reason, "the epochs are read from the log instead");
            }
            Err(error) => return Err(error),
        }
        let bases: Vec<(i64, Vec<Kind>)> =
            self.segments.iter().map(|(&base_offset, files)| (base_offset, files.kinds.clone())).collect();
        for (base_offset, kinds) in bases {
            for kind in kinds {
                self.check_index(base_offset, kind)?;
            }
        }
        Ok(())
    }

    /// Indexes by their size, snapshots by their checksum.
    fn check_index(&mut self, base_offset: i64, kind: Kind) -> Result<(), LogError> {
        let file = self.file(base_offset, kind);
        let len = || fs::metadata(&file).map(|metadata| metadata.len()).map_err(LogError::io("cannot stat", &file));
        let entry = match kind {
            Kind::OffsetIndex => 8,
            Kind::TimeIndex => 12,
            Kind::Log | Kind::TxnIndex => return Ok(()),
            Kind::Snapshot => {
                let bytes = fs::read(&file).map_err(LogError::io("cannot read", &file))?;
                if let Err(reason) = decode_snapshot(&bytes) {
                    self.find(FindingKind::Damaged, file, reason, "it is made again from the log");
                }
                return Ok(());
            }
        };
        let len = len()?;
        if len % entry != 0 {
            let reason = format!("{len} bytes are no multiple of {entry}");
            self.find(FindingKind::Damaged, file, reason, "it is made again from the log");
        }
        Ok(())
    }

    /// What is there beside what was there once.
    fn check_names(&mut self) {
        let found: Vec<(i64, u64)> =
            self.segments.iter().filter_map(|(&base_offset, files)| Some((base_offset, files.log_bytes?))).collect();
        let differences = self.at.closed.as_ref().map(|closed| closed.differences(&found)).unwrap_or_default();
        for (base_offset, why) in &differences {
            let kind = if why.contains("missing") { FindingKind::Missing } else { FindingKind::Damaged };
            let reason = format!("it {why} when the node stopped cleanly");
            self.find(kind, self.file(*base_offset, Kind::Log), reason, "the log is recovered as after a crash");
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
            self.find(FindingKind::Missing, file, "it is gone, and its indexes are there", "its records are lost");
        }
        self.segments.retain(|_, files| files.log_bytes.is_some());
    }

    fn check_logs(&mut self, on_bytes: &mut dyn FnMut(u64)) -> Result<(), LogError> {
        let bases: Vec<i64> = self.segments.keys().copied().collect();
        let Some(&first) = bases.first() else {
            self.check_end(self.at.log_start_offset, self.path.to_owned(), 0);
            return Ok(());
        };
        self.check.log_start_offset = self.at.log_start_offset.max(first);
        let from = bases.partition_point(|&base| base <= self.at.recovery_point).saturating_sub(1);
        let mut end = first;
        for (number, &base_offset) in bases.iter().enumerate() {
            let next_base = bases.get(number + 1).copied();
            let is_read = self.deep || !self.at.clean && number >= from;
            end = self.check_segment(base_offset, next_base, is_read)?.max(base_offset);
            on_bytes(self.segments[&base_offset].log_bytes.unwrap_or(0));
            if let Some(next_base) = next_base.filter(|&next_base| next_base != end && !self.at.has_gaps) {
                let size = self.segments[&base_offset].log_bytes.unwrap_or(0);
                let stays = self.at.kept_power || end < self.at.proven_end || number < from;
                self.check.findings.push(Finding {
                    kind: FindingKind::Missing,
                    file: self.file(base_offset, Kind::Log),
                    bytes: Some((size, size)),
                    offsets: Some((end, next_base)),
                    reason: format!("it ends at offset {end}, and the next segment begins at {next_base}"),
                    action: if stays {
                        "what is there is served".into()
                    } else {
                        format!("the log ends at offset {end}")
                    },
                });
            }
        }
        let last = *bases.last().expect("there is a first one");
        let size = self.segments[&last].log_bytes.unwrap_or(0);
        self.check_end(end, self.file(last, Kind::Log), size);
        Ok(())
    }

    fn check_end(&mut self, end: i64, file: PathBuf, size: u64) {
        let proven = self.at.proven_end;
        self.check.log_end_offset = end.max(proven);
        if end < proven {
            self.check.findings.push(Finding {
                kind: FindingKind::Missing,
                file,
                bytes: Some((size, size)),
                offsets: Some((end, proven)),
                reason: format!("the log ends at offset {end}, and once ended at {proven}"),
                action: format!("the log goes on at offset {proven}"),
            });
        }
    }

    /// The offset after the last batch of a segment.
    fn check_segment(&mut self, base_offset: i64, next_base: Option<i64>, is_read: bool) -> Result<i64, LogError> {
        let size = self.segments[&base_offset].log_bytes.unwrap_or(0);
        let file = self.cache.open_read_only(&self.file(base_offset, Kind::Log))?;
        let closed_end = self.at.closed.as_ref().map(|closed| closed.log_end_offset);
        let bounds = Bounds {
            next_offset: base_offset,
            limit: next_base
                .or(closed_end.filter(|&end| end > base_offset))
                .unwrap_or(base_offset.saturating_add(1 << 31)),
            next_base,
            has_gaps: self.at.has_gaps,
            epoch_limit: self.at.closed.as_ref().map_or(i32::MAX, |closed| closed.last_epoch),
            next_epoch: match next_base {
                Some(next_base) => first_epoch(&self.cache.open_read_only(&self.file(next_base, Kind::Log))?)?,
                None => None,
            },
            cached_epoch: self.epochs.epoch_for(base_offset),
            cached_upto: self.epochs.latest().map(|newest| (self.at.proven_end, newest)),
            ..Bounds::default()
        };
        let mut places = Vec::new();
        let (end, damage) = match is_read {
            true => read_batches(&file, size, bounds, &mut |header, position| places.push(place(header, position)))?,
            false => read_headers(&file, size, bounds, &mut |header, position| places.push(place(header, position)))?,
        };
        self.check.batches += places.len() as u64;
        self.check.records += places.iter().map(|place| place.records).sum::<u64>();
        self.check_entries(base_offset, &places)?;
        for damage in damage {
            if damage.is_zero_tail && next_base.is_none_or(|next| next == damage.first_offset) {
                // A tail that was prepared.
                continue;
            }
            let stays = keeps(&damage, &self.at, &bounds, size) || !is_read || self.at.clean;
            self.note_damage(&file, &damage, stays);
        }
        Ok(end)
    }

    fn note_damage(&mut self, file: &OpenFile, damage: &Damage, stays: bool) {
        let action = match stays {
            true => "a fetch of these offsets is answered with CORRUPT_MESSAGE; what is around it is served".to_owned(),
            false => format!("the log is cut here and ends at offset {}", damage.first_offset),
        };
        self.check.findings.push(Finding {
            kind: if stays { FindingKind::Damaged } else { FindingKind::Unfinished },
            file: file.path().to_owned(),
            bytes: Some((damage.position, damage.end)),
            offsets: Some((damage.first_offset, damage.next_offset)),
            reason: damage.reason.clone(),
            action,
        });
    }

    /// Whether every entry of the offset index names a batch.
    fn check_entries(&mut self, base_offset: i64, places: &[Place]) -> Result<(), LogError> {
        let file = self.file(base_offset, Kind::OffsetIndex);
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            result => result.map_err(LogError::io("cannot read", &file))?,
        };
        for (number, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let (delta, position) = entry.split_first_chunk::<4>().expect("eight bytes");
            let last_offset = base_offset + i64::from(i32::from_be_bytes(*delta));
            let position = u64::from(u32::from_be_bytes(position.try_into().expect("four bytes")));
            let found = places.binary_search_by_key(&position, |place| place.position);
            // Apache Kafka makes its indexes larger at first, with zeroes.
            let is_unused = number > 0 && entry.iter().all(|&byte| byte == 0);
            if !is_unused && found.is_none_or_differs(places, last_offset) {
                let at = number as u64 * 8;
                let reason = format!(
                    "entry {number} names offset {last_offset} at byte {position}, where no batch ends with it"
                );
                self.check.findings.push(Finding {
                    kind: FindingKind::Damaged,
                    file,
                    bytes: Some((at, at + 8)),
                    offsets: None,
                    reason,
                    action: "it is made again from the log".to_owned(),
                });
                break;
            }
        }
        Ok(())
    }
}

/// Where a batch is.
struct Place {
    position: u64,
    last_offset: i64,
    records: u64,
}

fn place(header: &Header<'_>, position: u64) -> Place {
    let records = u64::try_from(header.record_count()).unwrap_or(0);
    Place { position, last_offset: header.last_offset(), records }
}

trait NamesBatch {
    fn is_none_or_differs(&self, places: &[Place], last_offset: i64) -> bool;
}

impl NamesBatch for Result<usize, usize> {
    fn is_none_or_differs(&self, places: &[Place], last_offset: i64) -> bool {
        self.map_or(true, |at| places[at].last_offset != last_offset)
    }
}

type OnBatch<'a> = &'a mut dyn FnMut(&Header<'_>, u64);

fn read_batches(
    file: &OpenFile,
    size: u64,
    bounds: Bounds,
    on_batch: OnBatch<'_>,
) -> Result<(i64, Vec<Damage>), LogError> {
    let mut pieces = Pieces::new(file, 0, size, bounds);
    let mut found = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        match piece {
            Piece::Batch(position, bytes) => on_batch(&Header::at_start_of(bytes).expect("a whole batch"), position),
            Piece::Damage(damage) => found.push(damage),
        }
    }
    Ok((pieces.next_offset(), found))
}

fn read_headers(
    file: &OpenFile,
    size: u64,
    bounds: Bounds,
    on_batch: OnBatch<'_>,
) -> Result<(i64, Vec<Damage>), LogError> {
    let mut headers = Headers::new(file, 0, size, bounds.next_offset).skipping(bounds.limit);
    let mut end = bounds.next_offset;
    while let Some(batch) = headers.next()? {
        end = batch.header().next_offset();
        on_batch(&batch.header(), batch.position);
    }
    let damage = headers.take_damage();
    // What a damaged tail held is known by where the next segment begins.
    let tail = damage.last().filter(|damage| damage.end >= size && damage.position < size);
    let end = tail.map_or(end, |damage| bounds.next_base.unwrap_or(damage.next_offset));
    Ok((end, damage))
}
