//! Checks the folders of logs: segments in parallel, then their combination.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use klamm_base::LogError;
use klamm_log::OpenAt;
use klamm_log::check::{Examination, Walked};
use klamm_log::checkpoint::{LEADER_EPOCH, read_epochs};
use klamm_log::names::{FileName, Stage};

use super::indexes::{MADE_AGAIN, open_indexes};
use super::metadata::check_metadata;
use super::{Finding, Kind, LogCheck, Progress, note, reason_of, unreadable};

/// Bytes between two progress reports.
const REPORT_BYTES: u64 = 1 << 20;

/// A folder with a log, and what its checkpoints say.
#[derive(Clone, Debug, Default)]
pub struct LogToCheck {
    pub path: PathBuf,
    /// Whether every checksum is verified, or only those that a start verifies.
    pub is_deep: bool,
    /// The metadata log: always verified completely, as by a start.
    pub is_metadata: bool,
    pub at: OpenAt,
}

type Segment = (Result<Walked, LogError>, Vec<Finding>);

/// Checks folders with `threads` threads. Changes nothing and locks nothing.
pub fn check_logs(logs: &[LogToCheck], threads: usize, progress: &Progress) -> Vec<LogCheck> {
    let examine = |log: &LogToCheck| Examination::new(&log.path, &log.at, log.is_deep);
    let begun: Vec<Option<Result<Examination, LogError>>> =
        logs.iter().map(|log| (!log.is_metadata).then(|| examine(log))).collect();
    let mut work: Vec<(usize, i64)> = Vec::new();
    for (number, examination) in begun.iter().enumerate() {
        let Some(Ok(examination)) = examination else { continue };
        work.extend(examination.segments().map(|(base_offset, _)| (number, base_offset)));
        progress.add_total(examination.segments().map(|(_, bytes)| bytes).sum());
    }
    let next = AtomicUsize::new(0);
    let walked: Mutex<BTreeMap<(usize, i64), Segment>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, work.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(log, base_offset)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(Some(Ok(examination))) = begun.get(log) else { continue };
                    let found = check_segment(examination, base_offset, progress);
                    if progress.is_cancelled() {
                        break;
                    }
                    walked.lock().expect("no thread panics with it").insert((log, base_offset), found);
                }
            });
        }
    });
    let mut walked = walked.into_inner().expect("no thread panics with it");
    let mut checked = Vec::new();
    for (number, (log, examination)) in logs.iter().zip(begun).enumerate() {
        let of_log: Vec<(i64, Segment)> = walked
            .extract_if((number, i64::MIN)..=(number, i64::MAX), |_, _| true)
            .map(|((_, base), s)| (base, s))
            .collect();
        checked.push(match examination {
            None => check_metadata(&log.path, log.at.clean, progress),
            Some(Ok(examination)) => put_together(examination, of_log),
            Some(Err(error)) => {
                let findings = vec![unreadable(&log.path, &error)];
                LogCheck { findings, ..LogCheck::empty(&log.path) }
            }
        });
    }
    checked
}

/// The severity of a missing file that is created some time after the log: after a crash, a note.
fn if_absent(examination: &Examination) -> Kind {
    if examination.was_clean() { Kind::Missing } else { Kind::Note }
}

fn check_segment(examination: &Examination, base_offset: i64, progress: &Progress) -> Segment {
    let (mut indexes, mut findings) =
        open_indexes(examination.path(), base_offset, Some(if_absent(examination)), examination.txn_crc(base_offset));
    let size = examination.segments().find(|&(base, _)| base == base_offset).map_or(0, |(_, bytes)| bytes);
    let mut reported = 0;
    let walked = examination.walk(base_offset, &mut |position, header| {
        for index in &mut indexes {
            index.on_batch(position, header);
        }
        if position - reported >= REPORT_BYTES {
            progress.add_done(position - reported);
            reported = position;
        }
        !progress.is_cancelled()
    });
    progress.add_done(size.saturating_sub(reported));
    if let Ok(walked) = &walked {
        for index in indexes {
            findings.extend(index.finish(walked.next_offset, &walked.damage));
        }
    }
    (walked, findings)
}

fn put_together(mut examination: Examination, segments: Vec<(i64, Segment)>) -> LogCheck {
    let mut walked = BTreeMap::new();
    let mut epochs = Vec::new();
    note_stages(&mut examination);
    for (base_offset, (found, findings)) in segments {
        findings.into_iter().for_each(|finding| examination.find(finding));
        match found {
            Ok(found) => {
                epochs.extend_from_slice(&found.epochs);
                walked.insert(base_offset, found);
            }
            Err(error) => {
                let finding = unreadable(examination.path(), &error);
                examination.find(finding);
            }
        }
    }
    let settled = if examination.was_clean() { i64::MAX } else { examination.recovery_point() };
    let absent = if_absent(&examination);
    let mut checked = examination.finish(walked);
    checked.findings.extend(check_epochs(&checked.path, checked.log_end_offset, &epochs, settled, absent));
    checked
}

/// Finds files that a start removes or renames.
fn note_stages(examination: &mut Examination) {
    for entry in fs::read_dir(examination.path()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_str().and_then(FileName::parse);
        match name.map(|name| name.stage) {
            None | Some(Stage::Live) => {}
            Some(Stage::Deleted) => {
                examination.find(note(&entry.path(), "is about to be removed", "a start removes it"))
            }
            Some(_) => {
                let reason = "belongs to a compaction that did not end";
                examination.find(note(&entry.path(), reason, "a start ends or undoes the compaction"));
            }
        }
    }
}

/// The leader epoch checkpoint must agree with the batches. After a crash it may lack entries after `settled`.
fn check_epochs(folder: &Path, end: i64, found: &[(i32, i64)], settled: i64, absent: Kind) -> Option<Finding> {
    let path = folder.join(LEADER_EPOCH);
    let stated = match read_epochs(&path) {
        Ok(stated) => stated,
        Err(error) => return Some(Finding::damaged(&path, reason_of(&error), MADE_AGAIN)),
    };
    if found.is_empty() {
        return None;
    }
    if !path.exists() {
        return Some(Finding::new(absent, &path, "the log has batches", MADE_AGAIN));
    }
    let of = |offset: i64| stated.iter().rfind(|&&(_, start)| start <= offset).map(|&(epoch, _)| epoch);
    // The file is truncated at the log start offset immediately; the segments before it and the start's checkpoint
    // follow later.
    let may_be_cut = |epoch: i32| stated.first().is_some_and(|&(first, _)| epoch <= first);
    let is_wrong = |epoch: i32, offset: i64| of(offset).map_or(!may_be_cut(epoch), |stated| stated != epoch);
    let mut settled = found.iter().filter(|&&(_, offset)| offset < settled);
    if let Some(&(epoch, offset)) = settled.find(|&&(epoch, offset)| is_wrong(epoch, offset)) {
        let said = of(offset).map_or("none".to_owned(), |epoch| epoch.to_string());
        let reason = format!("it has epoch {said} for offset {offset}, whose batch has {epoch}");
        return Some(Finding::damaged(&path, reason, "fetches by epoch are answered by it").of(offset, offset + 1));
    }
    let &(epoch, start) = stated.iter().find(|&&(_, start)| start > end)?;
    let reason = format!("epoch {epoch} begins at offset {start}, and the log ends at {end}");
    Some(Finding::damaged(&path, reason, "the entry is removed").of(start, start + 1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn epochs_may_be_truncated_to_a_start_that_the_segments_do_not_have_yet() {
        let dir = tempdir().expect("temporary directory");
        let is_damaged = |file: &str, found: &[(i32, i64)]| {
            fs::write(dir.path().join(LEADER_EPOCH), file).expect("write");
            check_epochs(dir.path(), 60, found, i64::MAX, Kind::Missing).is_some()
        };
        let cut_at_40 = "0\n1\n5 40\n";
        assert!(!is_damaged(cut_at_40, &[(3, 0), (5, 30), (5, 40)]));
        assert!(is_damaged(cut_at_40, &[(6, 0), (5, 40)]), "an epoch that is above the first entry's");
        assert!(is_damaged(cut_at_40, &[(3, 0), (4, 40)]), "another epoch than the entry's");
        assert!(is_damaged("0\n0\n", &[(3, 0)]), "no entry");
    }
}
