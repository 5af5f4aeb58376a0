//! The metadata log: the findings of its examination, and what opening it does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_log::names::{FileName, Kind as FileKind, Stage};
use klamm_quorum::{Damage, Examination, Loss};
use klamm_records::header::Header;

use super::indexes::{Index, MADE_AGAIN, open_indexes};
use super::snapshot::check_snapshot;
use super::{Finding, Kind, LogCheck, Progress, reason_of, unreadable};

const REFUSED: &str = "a start refuses";
const FETCHED: &str =
    "a sole voter refuses to start; another one does not vote until it has fetched again what is lost";
const IN_SNAPSHOT: &str = "a sole voter refuses to start; another one goes on from its newest snapshot";

/// Examines the folder of a metadata log. `is_clean`: the node's last stop was clean.
pub(super) fn check_metadata(path: &Path, is_clean: bool, progress: &Progress) -> LogCheck {
    let mut batches = Batches { path, open: BTreeMap::new(), count: 0, records: 0, bytes: 0 };
    let listed = Listed::of(path).unwrap_or_default();
    progress.add_total(listed.bytes);
    let mut checked = LogCheck::empty(path);
    let found = Examination::with_batches(path, &mut |base_offset, position, header| {
        batches.take(base_offset, position, header);
        progress.add_done(header.size().unwrap_or(0) as u64);
    });
    progress.add_done(listed.bytes.saturating_sub(batches.bytes));
    (checked.segments, checked.bytes) = (listed.segments, listed.bytes);
    (checked.batches, checked.records) = (batches.count, batches.records);
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            checked.findings.push(unreadable(path, &error));
            return checked;
        }
    };
    checked.log_start_offset = found.start_offset.unwrap_or(0);
    checked.log_end_offset = found.end.end_offset;
    checked.findings.extend(of_log(path, &found, is_clean));
    checked.findings.extend(of_snapshots(path, &found));
    let beside = found.unneeded.iter().map(|file| {
        let finding = Finding::damaged(&file.path, &file.reason, file.action);
        Finding { position: file.position, ..finding }
    });
    checked.findings.extend(beside);
    let is_named = |file: &Path| checked.findings.iter().any(|finding| finding.file == file);
    let orphans: Vec<Finding> =
        listed.without_log(path).filter(|file| !is_named(file)).map(|file| orphan(&file, &found)).collect();
    checked.findings.extend(orphans);
    if let Some(error) = klamm_quorum::refusal(path, &found) {
        let file = match &error {
            LogError::Corrupt { path, .. } => path.clone(),
            _ => path.to_owned(),
        };
        if checked.findings.iter().all(|finding| finding.file != file) {
            checked.findings.push(Finding::damaged(&file, reason_of(&error), REFUSED));
        }
    }
    checked.findings.extend(batches.finish(&found));
    checked
}

fn of_log(path: &Path, found: &Examination, is_clean: bool) -> Option<Finding> {
    match (found.loss(true), &found.damage) {
        (Some(loss), _) => Some(of_loss(path, found, &loss)),
        (None, Some(damage)) => Some(of_cut(damage, is_clean)),
        (None, None) => None,
    }
}

/// The finding for lost records.
fn of_loss(path: &Path, found: &Examination, loss: &Loss) -> Finding {
    let segment = || path.join(FileName::live(found.start_offset.unwrap_or(0), FileKind::Log).to_string());
    let file = if loss.path == path { segment() } else { loss.path.clone() };
    let kind = if found.damage.is_some() { Kind::Damaged } else { Kind::Missing };
    let reason = format!("{}; the log held more: {}", loss.reason, loss.proof);
    let action = if found.loss(false).is_some() { FETCHED } else { IN_SNAPSHOT };
    Finding::new(kind, &file, reason, action).at(loss.position).of(loss.end.end_offset, loss.proven.end_offset)
}

/// The finding for data that nothing proves to have been durable: after a kill it was not acknowledged.
fn of_cut(damage: &Damage, is_clean: bool) -> Finding {
    let kind = if is_clean { Kind::Damaged } else { Kind::Note };
    let action = format!("the log is cut here and ends at offset {}", damage.offset);
    let next = damage.intact_after.map_or(damage.offset, |(_, last)| last.end_offset);
    Finding::new(kind, &damage.path, &damage.reason, action).at(damage.position).of(damage.offset, next)
}

fn of_snapshots(path: &Path, found: &Examination) -> Vec<Finding> {
    let refused = match klamm_quorum::refusal(path, found) {
        Some(LogError::Corrupt { path, .. }) => Some(path),
        _ => None,
    };
    let newest = found.snapshots.last();
    let mut findings = Vec::new();
    for id in &found.snapshots {
        let file = path.join(id.file_name());
        // The others are among the files that are not needed.
        if newest == Some(id) || refused.as_ref() == Some(&file) {
            findings.extend(check_snapshot(&file).map(|finding| Finding { action: REFUSED.to_owned(), ..finding }));
        }
    }
    findings
}

/// The finding for indexes without their log.
fn orphan(file: &Path, found: &Examination) -> Finding {
    let action = if found.loss(true).is_some() { FETCHED } else { "its indexes are removed" };
    Finding::missing(file, "it is gone, and its indexes are there", action)
}

/// The files of the segments.
#[derive(Default)]
struct Listed {
    kinds: BTreeMap<i64, Vec<FileKind>>,
    segments: usize,
    bytes: u64,
}

impl Listed {
    fn of(path: &Path) -> std::io::Result<Self> {
        let mut listed = Self::default();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(FileName::parse);
            let Some(name) = name.filter(|name| name.stage == Stage::Live) else { continue };
            listed.kinds.entry(name.base_offset).or_default().push(name.kind);
            if name.kind == FileKind::Log {
                listed.segments += 1;
                listed.bytes += entry.metadata()?.len();
            }
        }
        Ok(listed)
    }

    fn without_log(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let orphans = self.kinds.iter().filter(|(_, kinds)| {
            !kinds.contains(&FileKind::Log) && kinds.iter().any(|&kind| kind != FileKind::Snapshot)
        });
        orphans.map(|(&base, _)| path.join(FileName::live(base, FileKind::Log).to_string()))
    }
}

/// Compares the indexes with the batches.
struct Batches<'p> {
    path: &'p Path,
    /// The indexes of each segment, the findings on each by itself, and the segment's end.
    open: BTreeMap<i64, (Vec<Index>, Vec<Finding>, i64)>,
    count: u64,
    records: u64,
    bytes: u64,
}

impl Batches<'_> {
    fn take(&mut self, base_offset: i64, position: u64, header: &Header<'_>) {
        self.count += 1;
        self.records += u64::try_from(header.record_count()).unwrap_or(0);
        self.bytes += header.size().unwrap_or(0) as u64;
        let (indexes, _, end) = self.open.entry(base_offset).or_insert_with(|| {
            let (indexes, findings) = open_indexes(self.path, base_offset, None, None);
            (indexes, findings, base_offset)
        });
        indexes.iter_mut().for_each(|index| index.on_batch(position, header));
        *end = header.next_offset();
    }

    /// Batches after damage belong to no segment here.
    fn finish(mut self, found: &Examination) -> Vec<Finding> {
        if found.damage.is_some() {
            self.open.pop_last();
        }
        let mut findings = Vec::new();
        for (indexes, wrong, end) in self.open.into_values() {
            findings.extend(wrong);
            findings.extend(indexes.into_iter().flat_map(|index| index.finish(end, &[])));
        }
        findings.into_iter().map(|finding| Finding { action: MADE_AGAIN.to_owned(), ..finding }).collect()
    }
}
