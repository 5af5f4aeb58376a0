//! One share partition: its offsets, how it is loaded, and how they move.

use std::fmt;

use super::model::{Limits, Member, RecordState, StateBatch};
use super::runs::{Runs, Slot};
use super::writes::{Write, WriteId, Writes};

/// The records of one partition that are in flight in one share group.
///
/// `start_offset <= next_offset`; the runs cover `[start_offset, next_offset)` exactly; the first run is not final.
/// The start offset never moves back.
#[derive(Debug)]
pub struct SharePartition {
    pub(crate) leader_epoch: i32,
    pub(crate) state_epoch: i32,
    /// SPSO: all offsets below are finished.
    pub(crate) start_offset: i64,
    /// SPEO + 1: the first offset that was never acquired.
    pub(crate) next_offset: i64,
    pub(crate) runs: Runs,
    /// No offset below can be acquired.
    pub(crate) free_from: i64,
    /// No lock ends earlier.
    pub(crate) locked_until_ms: i64,
    pub(crate) writes: Writes,
}

/// Why a state of the share coordinator is not loaded: it breaks the rules under which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// No log has such an offset.
    Start { offset: i64 },
    /// A batch begins below the start offset, or before the end of the one before it.
    Overlap { batch_first: i64, next: i64 },
    /// A batch ends before it begins.
    Reversed { batch_first: i64, batch_last: i64 },
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { offset } => write!(formatter, "the start offset is {offset}"),
            Self::Overlap { batch_first, next } => {
                write!(formatter, "a state batch begins at {batch_first}, but offsets below {next} are settled")
            }
            Self::Reversed { batch_first, batch_last } => {
                write!(formatter, "a state batch begins at {batch_first} and ends at {batch_last}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl SharePartition {
    /// The share partition as the share coordinator has it. `start_offset` is known: the caller has resolved -1 by
    /// `share.auto.offset.reset`. Offsets between the batches become holes.
    pub fn load(
        leader_epoch: i32,
        state_epoch: i32,
        start_offset: i64,
        batches: &[StateBatch],
    ) -> Result<Self, LoadError> {
        if !(0..i64::MAX).contains(&start_offset) {
            return Err(LoadError::Start { offset: start_offset });
        }
        let mut runs = Runs::default();
        let mut next = start_offset;
        for batch in batches {
            if batch.first < next {
                return Err(LoadError::Overlap { batch_first: batch.first, next });
            }
            if batch.last < batch.first || batch.last == i64::MAX {
                return Err(LoadError::Reversed { batch_first: batch.first, batch_last: batch.last });
            }
            if batch.first > next {
                runs.push(next, batch.first - 1, Slot::Hole, 0);
            }
            runs.add_batch(batch.first, batch.last);
            runs.push(batch.first, batch.last, Slot::settled(batch.state), batch.delivery_count);
            next = batch.last + 1;
        }
        let mut partition = Self {
            leader_epoch,
            state_epoch,
            start_offset,
            next_offset: next,
            runs,
            free_from: start_offset,
            locked_until_ms: i64::MAX,
            writes: Writes::default(),
        };
        partition.advance_start();
        Ok(partition)
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// SPSO.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// SPEO + 1.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Offsets from the start to the end offset, finished ones included.
    pub fn in_flight_count(&self) -> i64 {
        self.next_offset - self.start_offset
    }

    /// In-flight batches.
    pub fn batch_count(&self) -> usize {
        self.runs.batch_count()
    }

    /// Runs of offsets with equal state: what memory grows with.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// State and delivery count of an offset in flight. A hole is available and was never delivered.
    pub fn state_of(&self, offset: i64) -> Option<(RecordState, u16)> {
        let (_, run) = self.runs.at(offset)?;
        let state = match &run.slot {
            Slot::Hole | Slot::Available => RecordState::Available,
            Slot::Acquired(_) | Slot::Pending { .. } => RecordState::Acquired,
            Slot::Acknowledged => RecordState::Acknowledged,
            Slot::Archived => RecordState::Archived,
        };
        Some((state, run.count))
    }

    /// The member that has acquired the offset, also while its acknowledgement is being written.
    pub fn owner_of(&self, offset: i64) -> Option<&Member> {
        match &self.runs.at(offset)?.1.slot {
            Slot::Acquired(lock) | Slot::Pending { lock, .. } => Some(&lock.member),
            _ => None,
        }
    }

    /// Where the next fetch reads: the first offset that can be acquired.
    pub fn next_fetch_offset(&mut self) -> i64 {
        let from = self.free_from.max(self.start_offset);
        let free = self.runs.within(from, self.next_offset - 1).find(|(_, _, run)| run.slot.is_free());
        self.free_from = free.map_or(self.next_offset, |(first, ..)| first);
        self.free_from
    }

    /// Whether a fetch could acquire something, if the log has it.
    pub fn can_acquire(&mut self, limits: &Limits) -> bool {
        self.next_fetch_offset() < self.next_offset || self.in_flight_count() < limits.record_locks_max
    }

    /// The log begins at `log_start_offset` now: what is below is finished.
    pub fn on_log_start(&mut self, log_start_offset: i64) {
        if log_start_offset > self.start_offset {
            self.start_offset = log_start_offset;
            self.next_offset = self.next_offset.max(log_start_offset);
            self.advance_start();
        }
    }

    /// Whether a write is in flight, or should be sent.
    pub fn is_writing(&self) -> bool {
        self.writes.is_any()
    }

    /// The write that should be sent now; its answer goes to [`SharePartition::on_written`].
    pub fn take_write(&mut self) -> Option<Write> {
        let changes = self.writes.begin()?;
        let complete = self.runs.iter().filter(|(_, run)| run.slot.counts_as_complete());
        let delivery_complete_count: i64 = complete.map(|(first, run)| run.last - first + 1).sum();
        Some(Write {
            id: changes.id(),
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch,
            start_offset: self.start_offset,
            delivery_complete_count: i32::try_from(delivery_complete_count).unwrap_or(i32::MAX),
            batches: changes.batches_from(self.start_offset),
        })
    }

    /// The coordinator has answered the write. Offsets that leave `Acquired` with it do so, or stay acquired after a
    /// failure; if their lock has ended meanwhile they become available, or are archived at the delivery limit. Returns whether
    /// a fetch may find something that it did not find before.
    pub fn on_written(&mut self, id: WriteId, is_ok: bool, now_ms: i64, limits: &Limits) -> bool {
        let ranges = self.writes.end(id);
        let (mut freed, mut locked_until_ms) = (i64::MAX, i64::MAX);
        for (first, last) in ranges {
            self.runs.update(first, last, |from, _, run| {
                let Slot::Pending { lock, write, target } = &run.slot else { return None };
                if *write != id.0 {
                    return None;
                }
                let slot = if is_ok {
                    Slot::settled(*target)
                } else if lock.deadline_ms <= now_ms {
                    Slot::settled(released(run.count, limits))
                } else {
                    locked_until_ms = locked_until_ms.min(lock.deadline_ms);
                    Slot::Acquired(lock.clone())
                };
                if slot.is_free() {
                    freed = freed.min(from);
                }
                Some((slot, run.count))
            });
        }
        self.free_from = self.free_from.min(freed);
        self.locked_until_ms = self.locked_until_ms.min(locked_until_ms);
        self.advance_start() || freed != i64::MAX
    }

    /// Lets the start offset pass finished offsets.
    pub(crate) fn advance_start(&mut self) -> bool {
        let before = self.start_offset;
        let unfinished =
            self.runs.within(self.start_offset, self.next_offset - 1).find(|(.., run)| !run.slot.is_final());
        self.start_offset = unfinished.map_or(self.next_offset, |(first, ..)| first);
        self.runs.remove_below(self.start_offset);
        self.start_offset > before
    }

    /// What must hold between any two calls.
    pub fn check_invariants(&self) {
        let mut next = self.start_offset;
        for (first, run) in self.runs.iter() {
            assert_eq!(first, next, "runs do not follow each other");
            assert!(first <= run.last, "an empty run at {first}");
            next = run.last + 1;
        }
        assert_eq!(next, self.next_offset, "runs do not cover what is in flight");
        assert!(self.runs.first().is_none_or(|(_, run)| !run.slot.is_final()), "the start offset stopped early");
    }
}

/// The state of a record that is released after `count` deliveries.
pub(crate) fn released(count: u16, limits: &Limits) -> RecordState {
    if count >= limits.delivery_count { RecordState::Archived } else { RecordState::Available }
}
