//! Checks the folders of logs: segments in parallel, then what they are together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::indexes::{Index, Kind as IndexKind};
use super::segment::{How, Walked, walk};
use super::{Finding, Kind, Progress};
use crate::log::LogError;
use crate::log::checkpoint::{LEADER_EPOCH, PARTITION_METADATA, read_epochs, read_partition_metadata};
use crate::log::names::{FileName, Kind as FileKind, Stage};
use crate::log::producers::snapshot;
use crate::quorum::SnapshotId;
use crate::uuid::Uuid;

const KEPT: &str = "what is damaged cannot be read (CORRUPT_MESSAGE), what is intact on both sides is served";
const TORN: &str = "cut off where a crash tore it; kept and reported where a checkpoint proves that it was whole";
const METADATA: &str = "a sole voter refuses to start; with other voters the node fetches again what is lost";
const MADE_AGAIN: &str = "a start makes it again from the log";
const OF_SNAPSHOT: &str = "a start that needs it refuses; with other voters the node fetches another";
const OF_BOOTSTRAP: &str = "only the first start of a formatted node needs it";
const BOOTSTRAP: &str = "bootstrap.checkpoint";
const SNAPSHOT_SUFFIX: &str = ".checkpoint";

/// A folder with a log, and what is known of it from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct LogToCheck {
    pub path: PathBuf,
    /// Every checksum is verified; else those from the recovery point on.
    pub is_deep: bool,
    /// Compaction may have removed batches.
    pub has_gaps: bool,
    /// The last stop was clean: without `is_deep` no checksum is verified.
    pub is_clean: bool,
    /// The metadata log: always verified whole, as a start does.
    pub is_metadata: bool,
    pub recovery_point: Option<i64>,
    pub log_start_offset: Option<i64>,
    pub high_watermark: Option<i64>,
    /// Where it ended when the node stopped cleanly.
    pub closed_end: Option<i64>,
}

impl LogToCheck {
    /// What it means that a file is absent which is made some time after the log: after a crash, nothing.
    fn if_absent(&self) -> Kind {
        if self.is_clean { Kind::Missing } else { Kind::Note }
    }
}

/// What a folder holds.
#[derive(Clone, Debug, Default)]
pub struct CheckedLog {
    pub path: PathBuf,
    pub topic_id: Option<Uuid>,
    /// Base offset of the first segment, and the offset after the last intact batch.
    pub start_offset: i64,
    pub end_offset: i64,
    pub segments: usize,
    pub batches: u64,
    pub bytes: u64,
    pub findings: Vec<Finding>,
}

/// Checks folders, with so many threads. Changes nothing and locks nothing.
pub fn check_logs(logs: &[LogToCheck], threads: usize, progress: &Progress) -> Vec<CheckedLog> {
    let listed: Vec<Listed> = logs.iter().map(Listed::of).collect();
    let work: Vec<(usize, i64)> = listed
        .iter()
        .enumerate()
        .flat_map(|(log, listed)| listed.segments.keys().map(move |&base| (log, base)))
        .collect();
    progress.total.fetch_add(listed.iter().map(|one| one.bytes).sum(), Ordering::Relaxed);
    let next = AtomicUsize::new(0);
    let walked: Mutex<BTreeMap<(usize, i64), Checked>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, work.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(log, base)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check_segment(&logs[log], &listed[log], base, progress);
                    walked.lock().expect("no thread panics with it").insert((log, base), found);
                    if progress.is_cancelled() {
                        break;
                    }
                }
            });
        }
    });
    let mut walked = walked.into_inner().expect("no thread panics with it");
    let together = logs.iter().zip(listed).enumerate();
    together
        .map(|(number, (log, listed))| {
            let segments = listed.segments.keys().filter_map(|&base| Some((base, walked.remove(&(number, base))?)));
            put_together(log, &listed, segments.collect())
        })
        .collect()
}

/// The files of a folder.
#[derive(Default)]
struct Listed {
    /// Base offsets, and which kinds of files are there.
    segments: BTreeMap<i64, BTreeSet<FileKind>>,
    snapshots: Vec<PathBuf>,
    /// Where the newest snapshot of the metadata ends.
    snapshot_end: Option<i64>,
    bytes: u64,
    findings: Vec<Finding>,
}

impl Listed {
    fn of(log: &LogToCheck) -> Self {
        let mut listed = Self::default();
        let entries = match fs::read_dir(&log.path) {
            Ok(entries) => entries,
            Err(error) => {
                listed.findings.push(unreadable(&log.path, &error));
                return listed;
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match FileName::parse(name) {
                Some(FileName { base_offset, kind, stage: Stage::Live }) if kind != FileKind::Snapshot => {
                    listed.segments.entry(base_offset).or_default().insert(kind);
                    if kind == FileKind::Log {
                        listed.bytes += entry.metadata().map_or(0, |file| file.len());
                    }
                }
                Some(FileName { kind: FileKind::Snapshot, stage: Stage::Live, .. }) => {
                    listed.snapshots.push(entry.path())
                }
                Some(FileName { stage: Stage::Deleted, .. }) => {
                    listed.findings.push(note(&entry.path(), "is about to be removed", "a start removes it"));
                }
                Some(_) => {
                    let reason = "belongs to a compaction that did not end";
                    listed.findings.push(note(&entry.path(), reason, "a start ends or undoes the compaction"));
                }
                None if log.is_metadata && name.ends_with(SNAPSHOT_SUFFIX) => {
                    let end = SnapshotId::of_file(name).map(|id| id.end_offset);
                    listed.snapshot_end = listed.snapshot_end.max(end);
                    listed.findings.extend(check_snapshot(&entry.path()));
                }
                None => {}
            }
        }
        listed.snapshots.sort();
        listed
    }
}

/// Checks a file of framed batches: a snapshot of the metadata, or `bootstrap.checkpoint`, which has no footer.
pub fn check_snapshot(path: &Path) -> Option<Finding> {
    let is_bootstrap = path.file_name().is_some_and(|name| name == BOOTSTRAP);
    let action = if is_bootstrap { OF_BOOTSTRAP } else { OF_SNAPSHOT };
    let how = How { base_offset: 0, is_deep: true, deep_from: 0 };
    let walked = match walk(path, how, &Progress::default(), |_, _| {}) {
        Ok(walked) => walked,
        Err(error) => return Some(unreadable(path, &error)),
    };
    if let Some(damage) = walked.damage.first() {
        return Some(Finding::damaged(path, &damage.reason, action).at(damage.position));
    }
    let is_whole = walked.batches > 0 && walked.zeroes_from.is_none() && (is_bootstrap || walked.ends_with_control);
    let end = walked.zeroes_from.unwrap_or(walked.size);
    (!is_whole).then(|| Finding::damaged(path, "it ends before its last record", action).at(end))
}

/// A segment by itself.
struct Checked {
    walked: Walked,
    findings: Vec<Finding>,
}

fn check_segment(log: &LogToCheck, listed: &Listed, base_offset: i64, progress: &Progress) -> Checked {
    let file = |kind| log.path.join(FileName::live(base_offset, kind).to_string());
    let kinds = &listed.segments[&base_offset];
    let empty = Walked { next_offset: base_offset, ..Walked::default() };
    if !kinds.contains(&FileKind::Log) {
        let reason = "the segment's other files are there";
        let finding =
            Finding::missing(&file(FileKind::Log), reason, "its records cannot be read; the other files are removed");
        return Checked { walked: empty, findings: vec![finding] };
    }
    let mut findings = Vec::new();
    let paths = [
        (file(FileKind::OffsetIndex), IndexKind::Offset),
        (file(FileKind::TimeIndex), IndexKind::Time),
        (file(FileKind::TxnIndex), IndexKind::Txn),
    ];
    let mut indexes = Vec::new();
    for (path, kind) in &paths {
        match Index::read(path, *kind, base_offset) {
            Ok(Some(index)) => indexes.push(index),
            Ok(None) if *kind == IndexKind::Txn => {}
            Ok(None) => findings.push(Finding::new(log.if_absent(), path, "the segment has no index", MADE_AGAIN)),
            Err(error) => findings.push(unreadable(path, &error)),
        }
    }
    let path = file(FileKind::Log);
    let is_deep = log.is_deep || log.is_metadata;
    let deep_from = if log.is_clean { i64::MAX } else { log.recovery_point.unwrap_or(0) };
    let how = How { base_offset, is_deep, deep_from };
    let walked = walk(&path, how, progress, |position, header| {
        for index in &mut indexes {
            index.on_batch(position, header);
        }
    });
    let walked = walked.unwrap_or_else(|error| {
        findings.push(unreadable(&path, &error));
        empty
    });
    if !progress.is_cancelled() {
        for index in indexes {
            findings.extend(index.finish(walked.next_offset, &walked.damage));
        }
    }
    Checked { walked, findings }
}

fn put_together(log: &LogToCheck, listed: &Listed, segments: Vec<(i64, Checked)>) -> CheckedLog {
    let mut checked = CheckedLog { path: log.path.clone(), segments: segments.len(), ..CheckedLog::default() };
    checked.findings.clone_from(&listed.findings);
    checked.start_offset = segments.first().map_or(0, |&(base, _)| base);
    checked.end_offset = checked.start_offset;
    let bases: Vec<i64> = segments.iter().map(|&(base, _)| base).collect();
    let mut epochs: Vec<(i32, i64)> = Vec::new();
    for (number, (base, Checked { walked, findings })) in segments.into_iter().enumerate() {
        let path = log.path.join(FileName::live(base, FileKind::Log).to_string());
        let next_base = bases.get(number + 1).copied();
        checked.join(log, &path, base);
        checked.take_damage(log, &path, &walked, next_base);
        checked.findings.extend(findings);
        checked.batches += walked.batches;
        checked.bytes += walked.size;
        checked.end_offset = checked.end_offset.max(walked.next_offset);
        epochs.extend(walked.epochs);
    }
    checked.check_end(log, listed.snapshot_end);
    checked.check_epochs(log, &epochs);
    checked.check_partition_metadata(log);
    for path in &listed.snapshots {
        let action = "a start reads the producers from an older snapshot and the log";
        match fs::read(path).map(|bytes| snapshot::decode(&bytes)) {
            Err(error) => checked.findings.push(unreadable(path, &error)),
            Ok(Err(reason)) => checked.findings.push(Finding::damaged(path, reason, action)),
            Ok(Ok(_)) => {}
        }
    }
    checked
}

impl CheckedLog {
    /// A segment must go on where the one before ended.
    fn join(&mut self, log: &LogToCheck, path: &Path, base: i64) {
        let expected = self.end_offset;
        if base < expected {
            let reason = format!("the segment before holds offset {} already", expected - 1);
            self.findings.push(Finding::damaged(path, reason, KEPT).of(base, expected));
        } else if base > expected && !log.has_gaps {
            let action =
                if log.is_metadata { METADATA } else { "the offsets are not given again; reading goes on after them" };
            let reason = format!("no segment holds offsets {expected} to {}", base - 1);
            self.findings.push(Finding::missing(path, reason, action).of(expected, base));
        }
    }

    fn take_damage(&mut self, log: &LogToCheck, path: &Path, walked: &Walked, next_base: Option<i64>) {
        for damage in &walked.damage {
            let next = damage.next_offset.or(next_base).or(damage.claimed_next).unwrap_or(damage.first_offset);
            let is_last = damage.end == walked.size && next_base.is_none();
            let action = if log.is_metadata {
                METADATA
            } else if is_last {
                TORN
            } else {
                KEPT
            };
            let finding = Finding::damaged(path, &damage.reason, action).at(damage.position);
            self.findings.push(finding.of(damage.first_offset, next));
        }
        for &(position, first, next) in walked.gaps.iter().filter(|_| !log.has_gaps) {
            let action = if log.is_metadata { METADATA } else { "reading goes on after them" };
            let reason = format!("no batch holds offsets {first} to {}", next - 1);
            self.findings.push(Finding::missing(path, reason, action).at(position).of(first, next));
        }
        if let Some(position) = walked.zeroes_from {
            let bytes = walked.size - position;
            let reason = format!("{bytes} bytes of zeroes at the end, prepared for records and not used");
            self.findings.push(note(path, &reason, "a start after a crash cuts them").at(position));
        }
    }

    /// Checkpoints and the clean-stop record say how far the log went at least.
    fn check_end(&mut self, log: &LogToCheck, snapshot_end: Option<i64>) {
        let end = self.end_offset;
        if self.segments == 0 && !log.is_metadata {
            self.findings.push(Finding::missing(&log.path, "no segment is there", "a start makes an empty one"));
        }
        let known = [
            (log.closed_end, "when the node stopped"),
            (snapshot_end, "at the newest snapshot, at least"),
            (log.high_watermark, "by the checkpoint of high watermarks"),
            (log.recovery_point, "by the checkpoint of recovery points"),
            (log.log_start_offset, "by the checkpoint of log start offsets"),
        ];
        let known = known.into_iter().filter_map(|(offset, by)| offset.map(|offset| (offset, by)));
        if let Some((offset, by)) = known.max_by_key(|&(offset, _)| offset).filter(|&(offset, _)| offset > end) {
            let action =
                if log.is_metadata { METADATA } else { "the offsets are not given again; the records are lost here" };
            let path = log.path.join(FileName::live(self.last_base(), FileKind::Log).to_string());
            let reason = format!("the log ends at offset {end}, and ended at {offset} {by}");
            self.findings.push(Finding::missing(&path, reason, action).of(end, offset));
        }
        if let Some(start) = log.log_start_offset.filter(|&start| start < self.start_offset && !log.is_metadata) {
            let reason = format!("the log starts at offset {start}, and its first segment at {}", self.start_offset);
            let finding = Finding::missing(&log.path, reason, "the log starts with its first segment");
            self.findings.push(finding.of(start, self.start_offset));
        }
    }

    fn last_base(&self) -> i64 {
        let bases = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = bases.filter_map(|entry| FileName::parse(entry.file_name().to_str()?));
        names
            .filter(|name| name.kind == FileKind::Log && name.stage == Stage::Live)
            .map(|name| name.base_offset)
            .max()
            .unwrap_or(0)
    }

    /// The checkpoint of leader epochs must say what the batches do.
    fn check_epochs(&mut self, log: &LogToCheck, found: &[(i32, i64)]) {
        let path = log.path.join(LEADER_EPOCH);
        let stated = match read_epochs(&path) {
            Ok(stated) => stated,
            Err(error) => {
                self.findings.push(Finding::damaged(&path, reason_of(&error), MADE_AGAIN));
                return;
            }
        };
        if found.is_empty() {
            return;
        }
        if !path.exists() {
            self.findings.push(Finding::new(log.if_absent(), &path, "the log has batches", MADE_AGAIN));
            return;
        }
        let of = |offset: i64| stated.iter().rfind(|&&(_, start)| start <= offset).map(|&(epoch, _)| epoch);
        // After a crash the file may lack what came after the recovery point.
        let settled = if log.is_clean { i64::MAX } else { log.recovery_point.unwrap_or(0) };
        let wrong = found.iter().filter(|&&(_, offset)| offset < settled);
        let wrong = wrong.into_iter().find(|&&(epoch, offset)| of(offset).is_none_or(|stated| stated != epoch));
        let beyond = stated.iter().find(|&&(_, start)| start > self.end_offset);
        if let Some(&(epoch, offset)) = wrong {
            let said = of(offset).map_or("none".to_owned(), |epoch| epoch.to_string());
            let reason = format!("it has epoch {said} for offset {offset}, whose batch has {epoch}");
            self.findings.push(Finding::damaged(&path, reason, MADE_AGAIN).of(offset, offset + 1));
        } else if let Some(&(epoch, start)) = beyond {
            let reason = format!("epoch {epoch} begins at offset {start}, and the log ends at {}", self.end_offset);
            self.findings.push(Finding::damaged(&path, reason, MADE_AGAIN).of(start, start + 1));
        }
    }

    fn check_partition_metadata(&mut self, log: &LogToCheck) {
        let path = log.path.join(PARTITION_METADATA);
        match read_partition_metadata(&log.path) {
            Ok(Some(id)) => self.topic_id = Some(id),
            Ok(None) if log.is_metadata => {}
            Ok(None) => {
                let reason = "it says which topic's the folder is";
                self.findings.push(Finding::missing(&path, reason, "a start writes it again when the topic is there"));
            }
            Err(error) => self.findings.push(Finding::damaged(
                &path,
                reason_of(&error),
                "the partition is not opened until the file is right or removed",
            )),
        }
    }
}

pub(super) fn note(path: &Path, reason: &str, action: &str) -> Finding {
    Finding::new(Kind::Note, path, reason, action)
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Finding {
    Finding::damaged(path, format!("cannot be read: {error}"), "a start refuses the directory")
}

/// Without the file, which the finding names.
pub(super) fn reason_of(error: &LogError) -> String {
    match error {
        LogError::Corrupt { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}
