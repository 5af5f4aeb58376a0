//! Runs: contiguous ranges of offsets with equal state, and the in-flight batches to which they belong.
//!
//! Invariants, checked where runs change: runs neither overlap nor leave a gap; a run does not extend beyond its in-flight
//! batch; neighbours in one batch differ.

use std::collections::BTreeMap;

use super::model::{Member, RecordState};

/// The acquisition lock of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub member: Member,
    pub deadline_ms: i64,
}

/// What is known of an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Absent from the loaded state: a consumer acquired it and never acknowledged it. It is acquired as a new record.
    Hole,
    Available,
    Acquired(Lock),
    /// The share coordinator has not yet confirmed that the offset leaves [`Slot::Acquired`].
    Pending {
        lock: Lock,
        write: u32,
        target: RecordState,
    },
    Acknowledged,
    Archived,
}

impl Slot {
    /// The slot of an offset in a settled state. `Acquired` without an owner is available.
    pub fn settled(state: RecordState) -> Self {
        match state {
            RecordState::Available | RecordState::Acquired => Self::Available,
            RecordState::Acknowledged => Self::Acknowledged,
            RecordState::Archived => Self::Archived,
        }
    }

    pub fn is_final(&self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }

    /// Whether a fetch may acquire the offset.
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Available | Self::Hole)
    }

    /// Whether the offset is final, or will be once the write in flight succeeds.
    pub fn counts_as_complete(&self) -> bool {
        match self {
            Self::Pending { target, .. } => target.is_final(),
            slot => slot.is_final(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub last: i64,
    pub slot: Slot,
    pub count: u16,
}

/// The runs by first offset.
#[derive(Debug, Default)]
pub struct Runs {
    runs: BTreeMap<i64, Run>,
    /// First and last offset of each in-flight batch. Its first offsets may be below the first run.
    batches: BTreeMap<i64, i64>,
}

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn batch_count(&self) -> usize {
        self.batches.len()
    }

    pub fn first(&self) -> Option<(i64, &Run)> {
        self.runs.first_key_value().map(|(first, run)| (*first, run))
    }

    /// All runs, with their first offsets.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Run)> {
        self.runs.iter().map(|(first, run)| (*first, run))
    }

    /// The run that contains `offset`, with its first offset.
    pub fn at(&self, offset: i64) -> Option<(i64, &Run)> {
        let (first, run) = self.runs.range(..=offset).next_back()?;
        (run.last >= offset).then_some((*first, run))
    }

    /// The runs that overlap `[first, last]`, cut to it.
    pub fn within(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, i64, &Run)> {
        let begin = self.at(first).map_or(first, |(begin, _)| begin);
        let overlapping = (first <= last).then(|| self.runs.range(begin..=last));
        overlapping.into_iter().flatten().map(move |(at, run)| ((*at).max(first), run.last.min(last), run))
    }

    /// The first and last offset of the in-flight batch that contains `offset`.
    pub fn batch_of(&self, offset: i64) -> Option<(i64, i64)> {
        let (first, last) = self.batches.range(..=offset).next_back()?;
        (*last >= offset).then_some((*first, *last))
    }

    /// Declares `[first, last]` to be an in-flight batch.
    pub fn add_batch(&mut self, first: i64, last: i64) {
        assert!(first <= last && self.batch_of(first).is_none(), "in-flight batches overlap at {first}");
        self.batches.insert(first, last);
    }

    /// Appends a run after the last one.
    pub fn push(&mut self, first: i64, last: i64, slot: Slot, count: u16) {
        assert!(first <= last, "no run from {first} to {last}");
        if let Some((_, end)) = self.runs.last_key_value() {
            assert_eq!(end.last + 1, first, "runs leave a gap or overlap");
        }
        self.runs.insert(first, Run { last, slot, count });
        self.join(first);
    }

    /// Gives the offsets in `[first, last]` for which `change` returns something that slot and count.
    pub fn update(&mut self, first: i64, last: i64, mut change: impl FnMut(i64, i64, &Run) -> Option<(Slot, u16)>) {
        if first > last {
            return;
        }
        let changes: Vec<_> = self
            .within(first, last)
            .filter_map(|(from, to, run)| change(from, to, run).map(|(slot, count)| (from, to, slot, count)))
            .collect();
        let touched: Vec<i64> = changes.iter().flat_map(|(from, to, ..)| [*from, to + 1]).collect();
        for (from, to, slot, count) in changes {
            self.split(from);
            self.split(to + 1);
            self.runs.insert(from, Run { last: to, slot, count });
        }
        for at in touched {
            self.join(at);
        }
    }

    /// Forgets the offsets below `start`.
    pub fn remove_below(&mut self, start: i64) {
        self.split(start);
        self.runs = self.runs.split_off(&start);
        while let Some(batch) = self.batches.first_entry()
            && *batch.get() < start
        {
            batch.remove();
        }
    }

    /// Lets a run begin at `at` if one contains it.
    fn split(&mut self, at: i64) {
        let Some((first, run)) = self.at(at) else { return };
        if first == at {
            return;
        }
        let tail = run.clone();
        if let Some(head) = self.runs.get_mut(&first) {
            head.last = at - 1;
        }
        self.runs.insert(at, tail);
    }

    /// Joins the run that begins at `at` to the one before it if they are equal and in the same in-flight batch.
    fn join(&mut self, at: i64) {
        let Some(run) = self.runs.get(&at) else { return };
        let Some((first, before)) = self.runs.range(..at).next_back() else { return };
        if before.slot != run.slot || before.count != run.count || self.batches.contains_key(&at) {
            return;
        }
        let (first, last) = (*first, run.last);
        if self.batch_of(first) != self.batch_of(at) {
            return;
        }
        self.runs.remove(&at);
        if let Some(joined) = self.runs.get_mut(&first) {
            joined.last = last;
        }
    }
}
