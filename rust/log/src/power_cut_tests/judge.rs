//! Checks what a node finds after an end against what was promised by then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use klamm_base::Uuid;
use klamm_records::batches;

use super::End;
use super::expected::{Batch, Expected, Promise, count_of, epoch_of, offsets_of};
use super::history::COMPACTED;
use super::node::DIRS;
use crate::check::{DirCheck, Examination};
use crate::finding::FindingKind;
use crate::log_dir::Key;
use crate::testing::read_all;
use crate::{Log, LogManager, LogOnDisk, Recovery};

/// What may be found after an end.
pub struct Allowed<'a> {
    /// The last promise before the end.
    pub before: &'a Promise,
    /// The next promise, if the end came while it was being made.
    pub after: Option<&'a Promise>,
    pub end: End,
}

impl Allowed<'_> {
    fn promises(&self) -> impl Iterator<Item = &Promise> {
        std::iter::once(self.before).chain(self.after)
    }

    pub fn deleted(&self) -> BTreeSet<Uuid> {
        self.promises().flat_map(|promise| promise.deleted.iter().copied()).collect()
    }

    fn logs(&self, key: &Key) -> Vec<&Expected> {
        self.promises().filter_map(|promise| promise.logs.get(key)).collect()
    }

    /// Whether a directory belongs to a topic that exists.
    pub fn is_wanted(&self, manager: &LogManager, found: &LogOnDisk) -> bool {
        let key = (found.topic.clone(), found.partition);
        let logs = self.logs(&key);
        let stored = manager.topic_id(found).expect("readable");
        if let Some(id) = logs.last().map(|log| log.topic_id).filter(|&id| stored.is_none_or(|stored| stored == id)) {
            let mismatch = manager.topic_mismatch(found, id, |_| false).expect("readable");
            if mismatch.is_some() && stored.is_none() {
                // Records that were never flushed: they may be of an earlier topic.
                assert!(self.end == End::PowerCut, "{key:?} has no topic id");
                assert!(!self.before.logs.get(&key).is_some_and(|log| log.is_durable), "{key:?} is lost");
                return false;
            }
            assert_eq!((mismatch, manager.topic_id(found).expect("readable")), (None, Some(id)));
        }
        match stored {
            Some(id) if logs.iter().any(|log| log.topic_id == id) => true,
            Some(id) => {
                assert!(self.deleted().contains(&id), "{key:?} has topic id {id}, which no topic has");
                false
            }
            None => {
                let is_durable = self.before.logs.get(&key).is_some_and(|log| log.is_durable);
                assert!(!is_durable, "{key:?} has no topic id");
                !logs.is_empty()
            }
        }
    }

    /// Every log that was flushed once exists.
    pub fn check_found(&self, found: &[LogOnDisk]) {
        for (key, log) in &self.before.logs {
            let is_kept = self.after.is_none_or(|after| after.logs.contains_key(key));
            let is_there =
                found.iter().any(|found| (&found.topic, found.partition, found.dir) == (&key.0, key.1, log.dir));
            assert!(is_there || !is_kept || !log.is_durable, "{key:?} is lost");
        }
    }

    pub fn check_recovery(&self, key: &Key, recovery: &Recovery, warnings: &[String]) {
        assert!(
            recovery.damage.is_empty() && recovery.lost.is_empty() && recovery.strays.is_empty(),
            "{key:?}: {recovery:?} {warnings:?}"
        );
        let is_consequence =
            |warning: &str| warning.contains(" is cut from ") || warning.contains(" segments from offset ");
        let others: Vec<_> =
            warnings.iter().filter(|warning| self.end == End::Kill || !is_consequence(warning)).collect();
        assert!(others.is_empty(), "{key:?}: {others:?}");
    }

    /// Checks the content of a log that was opened; returns it.
    pub fn check_log(&self, key: &Key, log: &mut Log, dir: usize) -> Expected {
        let logs = self.logs(key);
        let expected = logs.last().expect("wanted");
        assert_eq!(dir, expected.dir, "{key:?} is in another directory");
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let all = read_all(log, start);
        let found: Vec<Batch> = batches(&all).map(|batch| batch.expect("whole").bytes().into()).collect();
        let has_gaps = key.0 == COMPACTED;
        let found_end = found.last().map_or(start, |last| offsets_of(last).1);
        // The last batch of a round keeps its place without its records.
        let found: Vec<Batch> = found.into_iter().filter(|batch| !has_gaps || count_of(batch) > 0).collect();
        let removable: BTreeSet<&Batch> = logs.iter().flat_map(|log| &log.removable).collect();
        let before = self.before.logs.get(key);
        let most = logs.iter().map(|log| log.start).max().unwrap_or(0);
        assert!(start <= most, "{key:?} begins at {start}, and was to begin at {most} at most");
        let mut contents = logs.iter().flat_map(|log| log.contents());
        let known = match has_gaps {
            false => {
                check_contiguous(key, &found, start, end);
                contents.find(|content| is_part(&found, content))
            }
            true => {
                assert!(found_end <= end, "{key:?} ends at {end}, and has a batch to {found_end}");
                contents.find(|content| is_cleaned_part(&found, content, &removable, start..end))
            }
        };
        let Some(known) = known else {
            let known: Vec<Vec<_>> =
                logs.iter().flat_map(|log| log.contents().map(|content| summary(content))).collect();
            panic!("{key:?} holds {:?}, which it never held, of {known:?}", summary(&found));
        };
        for promised in before.iter().flat_map(|before| before.promised()) {
            let (base_offset, next_offset) = offsets_of(promised);
            assert!(found.contains(promised), "{key:?} lost {base_offset} to {next_offset} of {:?}", summary(&found));
        }
        if self.end == End::Kill && self.after.is_none() {
            // Where a log was truncated between two batches, it ends with the one before.
            let is_end = if has_gaps { end <= expected.end } else { end == expected.end };
            assert!(is_end, "{key:?} ends at {end} after a kill, and not at {}", expected.end);
            let lost = expected.batches.iter().find(|batch| offsets_of(batch).0 >= end);
            assert_eq!(lost.map(|batch| offsets_of(batch)), None, "{key:?} has lost records by a kill");
        }
        let start_max = logs.iter().map(|log| log.start_max).max().unwrap_or(0).max(start);
        check_epochs(key, log, &found, start_max);
        let earlier = logs.iter().flat_map(|log| log.contents()).cloned().collect();
        let flushed = logs.iter().map(|log| log.flushed).min().unwrap_or(0).min(end);
        let is_durable = before.is_some_and(|before| before.is_durable);
        let epoch = found.last().map_or(0, |last| epoch_of(last)).max(expected.epoch);
        // The start may move back to these.
        let first = found.first().map_or(start, |first| offsets_of(first).0);
        let below = known.iter().filter(|batch| offsets_of(batch).1 <= first).cloned();
        let batches = below.chain(found).collect();
        let expected = (*expected).clone();
        let is_created = true;
        Expected { batches, earlier, start, end, flushed, is_created, is_durable, epoch, ..expected }
    }
}

/// Epoch, first and next offset of each batch.
fn summary(content: &[Batch]) -> Vec<(i32, i64, i64)> {
    content.iter().map(|batch| (epoch_of(batch), offsets_of(batch).0, offsets_of(batch).1)).collect()
}

/// Whether `found` is a run of the batches of `content`.
fn is_part(found: &[Batch], content: &[Batch]) -> bool {
    let Some(first) = found.first() else { return true };
    let from = content.iter().position(|batch| offsets_of(batch).0 == offsets_of(first).0);
    from.is_some_and(|from| content[from..].starts_with(found))
}

/// Whether `found` is what cleaning leaves of those batches of `content` that have offsets in the range.
fn is_cleaned_part(
    found: &[Batch],
    content: &[Batch],
    removable: &BTreeSet<&Batch>,
    range: std::ops::Range<i64>,
) -> bool {
    let is_within = |batch: &&Batch| offsets_of(batch).1 > range.start && offsets_of(batch).0 < range.end;
    let mut content = content.iter().filter(is_within);
    let may_lack = |batch: &&Batch| removable.contains(batch);
    let all_found = found.iter().all(|batch| {
        let stands_next = content.by_ref().find(|next| *next == batch || !may_lack(next));
        stands_next == Some(batch)
    });
    all_found && content.all(|batch| may_lack(&batch))
}

fn check_contiguous(key: &Key, found: &[Batch], start: i64, end: i64) {
    let mut next = start;
    for batch in found {
        let (base_offset, next_offset) = offsets_of(batch);
        assert!(base_offset <= next && next < next_offset, "{key:?} has a gap from {next} to {base_offset}");
        next = next_offset;
    }
    assert_eq!(next, end, "{key:?} ends at {next}, and not where it says");
}

/// The epochs are those of the batches, and no others. Those below the log start may be gone, even if the log starts
/// below it again because its start was not checkpointed.
fn check_epochs(key: &Key, log: &Log, found: &[Batch], start: i64) {
    for batch in found.iter().filter(|batch| offsets_of(batch).1 > start) {
        let (base_offset, next_offset) = offsets_of(batch);
        for offset in [base_offset.max(start), next_offset - 1] {
            assert_eq!(log.epoch_for_offset(offset), Some(epoch_of(batch)), "{key:?} at {offset}: {:?}", log.epochs());
        }
    }
    let outlived = log.epochs().iter().skip(1).any(|&(_, start)| start <= log.log_start_offset());
    assert!(!outlived, "{key:?} begins at {}: {:?}", log.log_start_offset(), log.epochs());
    // If everything was deleted, the newest epoch stays, and begins at the end.
    let end = log.log_end_offset().max(log.log_start_offset() + 1);
    assert!(log.epochs().iter().all(|&(_, start)| start < end), "{key:?} ends at {end}: {:?}", log.epochs());
}

/// `klamm storage check` finds no damage.
pub fn examine(root: &Path, allowed: &Allowed<'_>) {
    let wanted: BTreeSet<&Key> = allowed.before.logs.keys().collect();
    for name in DIRS {
        let check = DirCheck::read(&root.join(name)).expect("readable");
        assert!(check.damaged.is_empty(), "{:?}", check.damaged);
        for found in check.logs().filter(|found| wanted.contains(&(found.topic.clone(), found.partition))) {
            let mut at = check.open_at(found);
            at.has_gaps |= found.topic == COMPACTED;
            let examination = Examination::new(&found.path, &at, true).expect("readable");
            let bases: Vec<i64> = examination.segments().map(|(base_offset, _)| base_offset).collect();
            let walked: BTreeMap<_, _> = bases
                .into_iter()
                .map(|base| (base, examination.walk(base, &mut |_, _| true).expect("readable")))
                .collect();
            let findings = examination.finish(walked).findings;
            let is_damage = |kind| matches!(kind, FindingKind::Damaged | FindingKind::Missing);
            assert!(!findings.iter().any(|finding| is_damage(finding.kind)), "{findings:#?}");
        }
    }
}
