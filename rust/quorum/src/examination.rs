//! Examines a metadata log without changing it: where it ends, what is damaged, and whether records are lost.
//!
//! Invariant: in a metadata log each batch begins where the one before ends, also across segments. Anything that
//! violates this, or has a wrong checksum, is damage. Damage at the end is a torn write unless something proves that
//! it was durable: intact batches after it, a snapshot, or the recovery point (see [`super::recovery_point`]).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_log::checkpoint::{LEADER_EPOCH, read_epochs};
use klamm_log::names::{FileName, Kind, Stage};
use klamm_metadata::checkpoint;
use klamm_records::{Batch, HEADER_LEN, Header};

use super::control::{self, ControlEntry};
use super::recovery_point::{self, LogEnd, Record};
use super::snapshots::SnapshotId;

const WINDOW_BYTES: usize = 1 << 20;
/// Position of the magic byte in a batch.
const MAGIC_AT: usize = 16;
const MAGIC: u8 = 2;

/// The first position at which the log does not continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    pub position: u64,
    /// The offset of the record that is expected there.
    pub offset: i64,
    pub reason: String,
    /// The intact batches after it: the base offset of the first and the end of the last.
    pub intact_after: Option<(i64, LogEnd)>,
    /// Bytes from there on in this segment and the following ones.
    pub bytes: u64,
}

/// The evidence that the log contained more than it does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Intact batches after the damage.
    Batches,
    /// A snapshot with a later end.
    Snapshot(SnapshotId),
    /// `klamm-recovery-point`.
    RecoveryPoint,
}

impl fmt::Display for Proof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proof::Batches => write!(out, "intact batches follow"),
            Proof::Snapshot(id) => write!(out, "snapshot {} ends there", id.file_name()),
            Proof::RecoveryPoint => write!(out, "{} says so", recovery_point::FILE_NAME),
        }
    }
}

/// Records that the log contained and that cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The end of the intact part.
    pub end: LogEnd,
    /// The log contained at least the records up to here.
    pub proven: LogEnd,
    pub proof: Proof,
    /// The affected file, and the position in it.
    pub path: PathBuf,
    pub position: u64,
    pub reason: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, proven, proof, path, position, reason } = self;
        let (from, to) = (end.end_offset, proven.end_offset);
        write!(
            out,
            "{} is damaged at byte {position} ({reason}): the metadata log ends at offset {from} in epoch {}, and it held \
             the records up to offset {to} in epoch {} ({proof})",
            path.display(),
            end.epoch,
            proven.epoch
        )
    }
}

/// A damaged file, and how opening the log handles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    pub path: PathBuf,
    /// The position where the damage begins, if it is known.
    pub position: Option<u64>,
    pub reason: String,
    pub action: &'static str,
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; {}", self.path.display(), self.reason, self.action)
    }
}

/// Called for each intact batch: base offset of its segment, position, header.
type OnBatch<'a> = &'a mut dyn FnMut(i64, u64, &Header<'_>);

/// The result of examining a metadata log.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    dir: PathBuf,
    /// Base offset of the first segment; `None` if there is none.
    pub start_offset: Option<i64>,
    /// The end of the intact part; for an empty log its start, with the newest snapshot's epoch if the snapshot ends
    /// there.
    pub end: LogEnd,
    /// Each epoch of the intact part with its first offset.
    pub epochs: Vec<(i32, i64)>,
    /// The snapshots according to their file names, oldest first.
    pub snapshots: Vec<SnapshotId>,
    pub damage: Option<Damage>,
    pub recovery_point: Option<Record>,
    /// Damaged files other than segments that are not needed.
    pub unneeded: Vec<DamagedFile>,
    /// The leader-epoch checkpoint contradicts the batches.
    pub epochs_are_wrong: bool,
    /// The control records of the intact part.
    pub control: Vec<ControlEntry>,
    /// The last intact segment, and its size.
    last_segment: Option<(PathBuf, u64)>,
}

impl Examination {
    /// Reads the folder of a metadata log, all segments completely. Changes nothing; a missing folder is an empty
    /// log.
    pub fn of(dir: &Path) -> Result<Self, LogError> {
        Self::with_batches(dir, &mut |_, _, _| {})
    }

    /// The same, and calls `on_batch` for each intact batch before the damage.
    pub fn with_batches(dir: &Path, on_batch: OnBatch<'_>) -> Result<Self, LogError> {
        let mut found = Self { dir: dir.to_owned(), ..Self::default() };
        let names = match file_names(dir) {
            Err(LogError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(found),
            names => names?,
        };
        found.snapshots = names.iter().filter_map(|name| SnapshotId::of_file(name)).collect();
        found.snapshots.sort_unstable();
        found.check_older_snapshots();
        match Record::read(dir) {
            Ok(record) => found.recovery_point = record,
            Err(LogError::Corrupt { path, reason, .. }) => {
                let action = "it is rewritten, nothing is lost";
                found.unneeded.push(DamagedFile { path, position: None, reason, action });
            }
            Err(error) => return Err(error),
        }
        let is_log = |name: &FileName| name.kind == Kind::Log && name.stage == Stage::Live;
        let mut segments: Vec<_> = names.iter().filter_map(|name| FileName::parse(name)).filter(is_log).collect();
        segments.sort_unstable();
        found.start_offset = segments.first().map(|name| name.base_offset);
        let start = found.start_offset.unwrap_or(0);
        let at_start = found.snapshots.iter().rfind(|id| id.end_offset == start).map_or(0, |id| id.epoch);
        found.end = LogEnd { end_offset: start, epoch: at_start };
        for name in segments {
            found.take_segment(&Segment::open(dir, name)?, on_batch)?;
        }
        found.check_epochs(dir)?;
        Ok(found)
    }

    /// Checks the snapshots that a newer one supersedes. One whose first batch is damaged is rejected when the log is
    /// opened.
    fn check_older_snapshots(&mut self) {
        let older = self.snapshots.split_last().map_or(&[][..], |(_, older)| older);
        for id in older {
            let path = self.dir.join(id.file_name());
            if checkpoint::first_words(&path).is_ok()
                && let Err(LogError::Corrupt { path, position, reason }) = checkpoint::check(&path)
            {
                let action = "nothing reads it: a newer one is there";
                self.unneeded.push(DamagedFile { path, position: Some(position), reason, action });
            }
        }
    }

    /// The end of the log after truncation at the damage; a newer snapshot replaces the log.
    pub fn end_with_snapshots(&self) -> LogEnd {
        self.snapshots.last().map_or(self.end, |id| self.end.max(end_of(*id)))
    }

    /// The lost records; `None` if nothing proves a loss. `is_sole_voter`: no other voter sends snapshots, so a log
    /// that ends before its newest snapshot cannot have just received it.
    pub fn loss(&self, is_sole_voter: bool) -> Option<Loss> {
        let newest = self.snapshots.last().copied().filter(|id| id.end_offset > 0);
        let begins_there = newest.is_some_and(|id| self.start_offset == Some(id.end_offset));
        let end = if is_sole_voter && !begins_there { self.end } else { self.end_with_snapshots() };
        let by_batches =
            self.damage.as_ref().and_then(|damage| self.proven_by(damage)).map(|end| (end, Proof::Batches));
        let by_snapshot = newest.map(|id| (end_of(id), Proof::Snapshot(id)));
        let by_point = self.recovery_point.map(|record| (record.end, Proof::RecoveryPoint));
        let proofs = [by_point, by_snapshot, by_batches].into_iter().flatten();
        let (proven, proof) = proofs.reduce(|a, b| if b.0.is_up_to_date_with(a.0) && b.0 != a.0 { b } else { a })?;
        if end.is_up_to_date_with(proven) {
            return None;
        }
        let (path, position, reason) = match &self.damage {
            Some(damage) => (damage.path.clone(), damage.position, damage.reason.clone()),
            None => self.where_it_ends(),
        };
        Some(Loss { end, proven, proof, path, position, reason })
    }

    /// What the batches after the damage prove. If klamm wrote the recovery point last, batches above it come from
    /// writes that reached the disk out of order and were never acknowledged.
    fn proven_by(&self, damage: &Damage) -> Option<LogEnd> {
        let (_, end) = damage.intact_after?;
        let is_torn = self
            .recovery_point
            .is_some_and(|record| damage.offset >= record.end.end_offset && end.epoch <= record.begun_epoch);
        (!is_torn).then_some(end)
    }

    fn where_it_ends(&self) -> (PathBuf, u64, String) {
        match &self.last_segment {
            Some((path, position)) => (path.clone(), *position, "nothing follows".to_owned()),
            None => (self.dir.clone(), 0, "no segment is there".to_owned()),
        }
    }

    fn take_segment(&mut self, segment: &Segment, on_batch: OnBatch<'_>) -> Result<(), LogError> {
        if let Some(damage) = &mut self.damage {
            damage.bytes += segment.size;
            return look_for_intact(segment, 0, damage).map(drop);
        }
        if segment.base_offset != self.end.end_offset && self.start_offset != Some(segment.base_offset) {
            return self.note_gap(segment);
        }
        let mut walk = Walk::new(segment, 0);
        loop {
            let (position, taken) = match walk.next()? {
                Next::End => break,
                Next::Damage(reason) => return self.note_damage(segment, walk.position, reason),
                Next::Batch(position, batch) => {
                    let taken = self.take_batch(batch);
                    if taken.is_ok() {
                        on_batch(segment.base_offset, position, &batch.header());
                    }
                    (position, taken)
                }
            };
            if let Err(reason) = taken {
                return self.note_damage(segment, position, reason);
            }
        }
        self.last_segment = Some((segment.path.clone(), segment.size));
        Ok(())
    }

    fn take_batch(&mut self, batch: Batch<'_>) -> Result<(), String> {
        let header = batch.header();
        if header.base_offset() != self.end.end_offset {
            return Err(format!("a batch of offset {} stands there", header.base_offset()));
        }
        let latest = self.epochs.last().map_or(0, |entry| entry.0);
        if header.leader_epoch() < latest {
            return Err(format!("a batch of epoch {} follows epoch {latest}", header.leader_epoch()));
        }
        if self.epochs.is_empty() || header.leader_epoch() > latest {
            self.epochs.push((header.leader_epoch(), header.base_offset()));
        }
        self.end = LogEnd { end_offset: header.next_offset(), epoch: header.leader_epoch() };
        if header.is_control() {
            control::collect(batch.bytes(), &mut self.control);
        }
        Ok(())
    }

    /// Records that a segment is missing, or that the previous one lost its end.
    fn note_gap(&mut self, segment: &Segment) -> Result<(), LogError> {
        let reason = format!("the next segment begins at offset {}", segment.base_offset);
        self.note_damage(segment, 0, reason)?;
        if let (Some(damage), Some((path, position))) = (&mut self.damage, &self.last_segment) {
            (damage.path, damage.position) = (path.clone(), *position);
        }
        Ok(())
    }

    fn note_damage(&mut self, segment: &Segment, position: u64, reason: String) -> Result<(), LogError> {
        let mut damage = Damage {
            path: segment.path.clone(),
            position,
            offset: self.end.end_offset,
            reason: format!("{reason}, where offset {} is expected", self.end.end_offset),
            intact_after: None,
            bytes: segment.size - position,
        };
        match look_for_intact(segment, position, &mut damage)? {
            // Prepared and not used, even if the next segment was begun before they were truncated.
            Found::OnlyZeroes => self.last_segment = Some((segment.path.clone(), position)),
            Found::Other => self.damage = Some(damage),
        }
        Ok(())
    }

    /// The file may lack entries that were not flushed, and contain epochs of records that were removed by cleaning.
    fn check_epochs(&mut self, dir: &Path) -> Result<(), LogError> {
        let path = dir.join(LEADER_EPOCH);
        let file = match read_epochs(&path) {
            Ok(file) => file,
            Err(LogError::Corrupt { .. }) if fs::metadata(&path).is_ok_and(|file| file.len() == 0) => return Ok(()),
            Err(LogError::Corrupt { path, reason, .. }) => {
                self.note_wrong_epochs(path, reason);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (Some(&(_, first)), Some(&(last_epoch, _))) = (file.first(), file.last()) else { return Ok(()) };
        let within = |&&(_, start): &&(i32, i64)| start > first && start < self.end.end_offset;
        let is_known = |entry: &(i32, i64)| entry.0 <= last_epoch;
        let mut expected = self.epochs.iter().filter(within).filter(|entry| is_known(entry));
        let mut stated = file.iter().filter(within);
        let at_first = self.epochs.iter().rfind(|entry| entry.1 <= first).map(|entry| entry.0);
        let is_first_right = first >= self.end.end_offset || at_first.is_none() || at_first == Some(file[0].0);
        let are_equal = loop {
            match (expected.next(), stated.next()) {
                (None, None) => break true,
                (left, right) if left != right => break false,
                _ => {}
            }
        };
        if !(is_first_right && are_equal) {
            self.note_wrong_epochs(path, "it contradicts the epochs of the log's batches".to_owned());
        }
        Ok(())
    }

    fn note_wrong_epochs(&mut self, path: PathBuf, reason: String) {
        self.epochs_are_wrong = true;
        self.unneeded.push(DamagedFile { path, position: None, reason, action: "it is rebuilt from the log" });
    }
}

fn end_of(id: SnapshotId) -> LogEnd {
    LogEnd { end_offset: id.end_offset, epoch: id.epoch }
}

enum Found {
    OnlyZeroes,
    Other,
}

/// Searches for intact batches from a position on.
fn look_for_intact(segment: &Segment, from: u64, damage: &mut Damage) -> Result<Found, LogError> {
    let mut found = Found::OnlyZeroes;
    let mut bytes = Vec::new();
    let mut position = from;
    while position < segment.size {
        segment.read(&mut bytes, position, WINDOW_BYTES)?;
        if bytes.is_empty() {
            break;
        }
        if bytes.iter().any(|&byte| byte != 0) {
            found = Found::Other;
        }
        // This many bytes are searched again with the next window, because a header may begin there.
        let usable = bytes.len() - if (bytes.len() as u64) < segment.size - position { HEADER_LEN } else { 0 };
        let mut at = 0;
        while at < usable {
            match candidate(&bytes[at..], damage.offset) {
                Some(size) => match segment.batch(position + at as u64, size)? {
                    Some(end) => {
                        let base_offset = Header::at_start_of(&bytes[at..]).map_or(0, |header| header.base_offset());
                        let first = damage.intact_after.map_or(base_offset, |(first, _)| first);
                        let last = damage.intact_after.map_or(end, |(_, last)| last.max(end));
                        damage.intact_after = Some((first, last));
                        at += size;
                    }
                    None => at += 1,
                },
                None => at += 1,
            }
        }
        position += at as u64;
    }
    Ok(found)
}

/// The size of the batch if a plausible header that may follow `offset` begins here.
fn candidate(bytes: &[u8], offset: i64) -> Option<usize> {
    if bytes.get(MAGIC_AT) != Some(&MAGIC) {
        return None;
    }
    let header = Header::at_start_of(bytes)?;
    let follows = header.base_offset() >= offset && header.base_offset() - offset < i64::from(i32::MAX);
    header.size().filter(|_| follows && header.last_offset_delta() >= 0)
}

/// A segment's file.
struct Segment {
    path: PathBuf,
    file: File,
    base_offset: i64,
    size: u64,
}

impl Segment {
    fn open(dir: &Path, name: FileName) -> Result<Self, LogError> {
        let path = dir.join(name.to_string());
        let file = File::open(&path).map_err(LogError::io("cannot open", &path))?;
        let size = file.metadata().map_err(LogError::io("cannot stat", &path))?.len();
        Ok(Self { path, file, base_offset: name.base_offset, size })
    }

    /// Reads up to `most` bytes.
    fn read(&self, bytes: &mut Vec<u8>, position: u64, most: usize) -> Result<(), LogError> {
        let want = self.size.saturating_sub(position).min(most as u64) as usize;
        bytes.resize(want, 0);
        let mut done = 0;
        while done < want {
            match self.file.read_at(&mut bytes[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LogError::io("cannot read", &self.path)(error)),
            }
        }
        bytes.truncate(done);
        Ok(())
    }

    /// The end of the batch at `position`, if there is a batch.
    fn batch(&self, position: u64, size: usize) -> Result<Option<LogEnd>, LogError> {
        if position + size as u64 > self.size {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.read(&mut bytes, position, size)?;
        let Ok(batch) = Batch::at_start_of(&bytes) else { return Ok(None) };
        let header = batch.header();
        let end = LogEnd { end_offset: header.next_offset(), epoch: header.leader_epoch() };
        Ok(batch.check().is_ok().then_some(end))
    }
}

enum Next<'w> {
    Batch(u64, Batch<'w>),
    Damage(String),
    End,
}

/// Reads the complete batches of a segment.
struct Walk<'s> {
    segment: &'s Segment,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'s> Walk<'s> {
    fn new(segment: &'s Segment, position: u64) -> Self {
        Self { segment, position, window: Vec::new(), window_at: position }
    }

    /// The next batch; for damage, the position is that of the damage.
    fn next(&mut self) -> Result<Next<'_>, LogError> {
        let left = self.segment.size - self.position;
        if left == 0 {
            return Ok(Next::End);
        }
        if left < HEADER_LEN as u64 {
            return Ok(Next::Damage(format!("{left} bytes are not a batch")));
        }
        self.fill(HEADER_LEN)?;
        let header = Header::at_start_of(self.here()).filter(|header| header.magic() as u8 == MAGIC);
        let Some(size) = header.and_then(|header| header.size()) else {
            return Ok(Next::Damage("no batch begins".to_owned()));
        };
        if size as u64 > left {
            return Ok(Next::Damage(format!("a batch of {size} bytes begins, and {left} are left")));
        }
        self.fill(size)?;
        let position = self.position;
        let from = (position - self.window_at) as usize;
        let checked = Batch::at_start_of(&self.window[from..]).and_then(|batch| batch.check());
        if let Err(error) = checked {
            return Ok(Next::Damage(error.to_string()));
        }
        self.position += size as u64;
        match Batch::at_start_of(&self.window[from..]) {
            Ok(batch) => Ok(Next::Batch(position, batch)),
            Err(error) => Ok(Next::Damage(error.to_string())),
        }
    }

    fn here(&self) -> &[u8] {
        &self.window[(self.position - self.window_at) as usize..]
    }

    /// Loads `need` bytes from the position on into the window.
    fn fill(&mut self, need: usize) -> Result<(), LogError> {
        if self.position + need as u64 > self.window_at + self.window.len() as u64 {
            self.window_at = self.position;
            self.segment.read(&mut self.window, self.position, need.max(WINDOW_BYTES))?;
        }
        Ok(())
    }
}

fn file_names(dir: &Path) -> Result<Vec<String>, LogError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(LogError::io("cannot list", dir))? {
        let name = entry.map_err(LogError::io("cannot list", dir))?.file_name();
        names.extend(name.into_string());
    }
    Ok(names)
}
