//! Acknowledgements, releases, and the end of acquisition locks.

use super::model::{Limits, Member, RecordState, StateBatch};
use super::partition::{SharePartition, released};
use super::runs::{Lock, Slot};
use super::writes::WriteId;

/// What a consumer says of a record, with the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AckType {
    /// The offset has no record that a consumer sees.
    Gap = 0,
    Accept = 1,
    Release = 2,
    Reject = 3,
    /// The record stays acquired, and its lock begins again (KIP-1222).
    Renew = 4,
}

impl AckType {
    pub fn of(id: u8) -> Option<Self> {
        [Self::Gap, Self::Accept, Self::Release, Self::Reject, Self::Renew].get(usize::from(id)).copied()
    }

    /// The state of a record with this delivery count after the acknowledgement; `None`: it does not change.
    fn target(self, count: u16, limits: &Limits) -> Option<RecordState> {
        match self {
            Self::Gap | Self::Reject => Some(RecordState::Archived),
            Self::Accept => Some(RecordState::Acknowledged),
            Self::Release => Some(released(count, limits)),
            Self::Renew => None,
        }
    }
}

/// An acknowledgement of `first` to `last`: one type for all, or one for each offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckBatch<'a> {
    pub first: i64,
    pub last: i64,
    pub types: &'a [u8],
}

impl AckBatch<'_> {
    /// The types as runs of offsets, from `start` on.
    fn runs(&self, start: i64) -> Vec<(i64, i64, AckType)> {
        let mut runs: Vec<(i64, i64, AckType)> = Vec::new();
        let is_one = self.types.len() == 1;
        for (offset, id) in (self.first..=self.last).zip(self.types) {
            let Some(ack) = AckType::of(*id) else { continue };
            let last = if is_one { self.last } else { offset };
            match runs.last_mut() {
                Some(run) if run.2 == ack && run.1 + 1 == offset => run.1 = last,
                _ => runs.push((offset, last, ack)),
            }
        }
        runs.retain_mut(|run| {
            run.0 = run.0.max(start);
            run.0 <= run.1
        });
        runs
    }
}

/// Why no acknowledgement of the partition was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// INVALID_REQUEST.
    Request(&'static str),
    /// INVALID_RECORD_STATE.
    RecordState(&'static str),
}

/// Locks that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Records whose lock has ended.
    pub count: i64,
    /// Locks that have ended.
    pub locks: usize,
}

/// Checks what a request says of one partition, without its state (`KafkaApis.validateAcknowledgementBatches`).
///
/// `type_max`: the largest type of the request's version; a renewal also needs `is_renew`.
pub fn check_acknowledgements(batches: &[AckBatch<'_>], type_max: u8, is_renew: bool) -> Result<(), AckError> {
    let mut previous_last = -1;
    for batch in batches {
        if batch.first > batch.last {
            return Err(AckError::Request("the first offset of an acknowledgement is greater than its last offset"));
        }
        if batch.first < previous_last {
            return Err(AckError::Request("acknowledgements overlap or are not in order"));
        }
        previous_last = batch.last;
        let offset_count = batch.last.abs_diff(batch.first) + 1;
        match batch.types {
            [] => return Err(AckError::Request("an acknowledgement has no type")),
            [_] => {}
            types if types.len() as u64 == offset_count => {}
            _ => return Err(AckError::Request("an acknowledgement has neither one type nor one for each offset")),
        }
        if batch.types.iter().any(|id| *id > type_max) {
            return Err(AckError::Request("unknown type of acknowledgement"));
        }
        if !is_renew && batch.types.contains(&(AckType::Renew as u8)) {
            return Err(AckError::Request("a renewal is in a request that does not allow it"));
        }
    }
    Ok(())
}

impl SharePartition {
    /// Takes all acknowledgements of a partition, or none. `Some`: they count once this write is confirmed; `None`: they
    /// count now, because nothing has to be written. Batches have passed [`check_acknowledgements`].
    pub fn acknowledge(
        &mut self,
        member: &Member,
        batches: &[AckBatch<'_>],
        now_ms: i64,
        limits: &Limits,
    ) -> Result<Option<WriteId>, AckError> {
        let mut previous: Option<&AckBatch<'_>> = None;
        for batch in batches {
            self.check_batch(member, batch, limits)?;
            if let Some(before) = previous.replace(batch)
                && batch.first <= before.last
                && batch.first >= self.start_offset
                && before.types.last() != Some(&(AckType::Renew as u8))
            {
                return Err(AckError::RecordState("an offset is acknowledged twice"));
            }
        }
        let mut write = None;
        for batch in batches {
            for (first, last, ack) in batch.runs(self.start_offset) {
                write = self.apply(first, last, ack, now_ms, limits).or(write);
            }
        }
        Ok(write)
    }

    fn check_batch(&self, member: &Member, batch: &AckBatch<'_>, limits: &Limits) -> Result<(), AckError> {
        if batch.types.iter().any(|id| AckType::of(*id).is_none()) {
            return Err(AckError::Request("unknown type of acknowledgement"));
        }
        if batch.last < self.start_offset {
            return Ok(());
        }
        if self.runs.is_empty() {
            return Err(AckError::RecordState("the offsets are not in flight"));
        }
        if batch.last >= self.next_offset {
            return Err(AckError::Request("the last offset is past the acquired records"));
        }
        for (_, _, run) in self.runs.within(batch.first.max(self.start_offset), batch.last) {
            match &run.slot {
                Slot::Acquired(lock) if lock.member == *member => {}
                Slot::Acquired(_) => return Err(AckError::RecordState("another member has acquired the offset")),
                Slot::Pending { .. } => return Err(AckError::RecordState("the offset is being acknowledged")),
                _ => return Err(AckError::RecordState("the offset is not acquired")),
            }
        }
        if batch.types.contains(&(AckType::Renew as u8)) && !limits.is_renew_enabled {
            return Err(AckError::RecordState("the group does not allow locks to be renewed"));
        }
        Ok(())
    }

    /// Applies one type to offsets that its member has acquired.
    fn apply(&mut self, first: i64, last: i64, ack: AckType, now_ms: i64, limits: &Limits) -> Option<WriteId> {
        if ack == AckType::Renew {
            let deadline_ms = now_ms + limits.lock_duration_ms;
            self.locked_until_ms = self.locked_until_ms.min(deadline_ms);
            self.runs.update(first, last, |_, _, run| match &run.slot {
                Slot::Acquired(lock) => {
                    Some((Slot::Acquired(Lock { member: lock.member.clone(), deadline_ms }), run.count))
                }
                _ => None,
            });
            return None;
        }
        self.leave(first, last, |_, count| ack.target(count, limits))
    }

    /// Lets acquired offsets in `[first, last]` leave their lock for the state that `target` chooses, once it is written.
    fn leave(&mut self, first: i64, last: i64, target: impl Fn(&Lock, u16) -> Option<RecordState>) -> Option<WriteId> {
        let mut changes = Vec::new();
        let id = self.writes.next_id();
        self.runs.update(first, last, |from, to, run| {
            let Slot::Acquired(lock) = &run.slot else { return None };
            let target = target(lock, run.count)?;
            changes.push(StateBatch { first: from, last: to, state: target, delivery_count: run.count });
            Some((Slot::Pending { lock: lock.clone(), write: id.0, target }, run.count))
        });
        changes.iter().for_each(|change| self.writes.add(*change, true));
        (!changes.is_empty()).then_some(id)
    }

    /// Releases what the member has acquired: its session has ended. Offsets that it has just acknowledged are left alone.
    pub fn release(&mut self, member: &Member, limits: &Limits) -> Option<WriteId> {
        let (first, last) = (self.start_offset, self.next_offset - 1);
        self.leave(first, last, |lock, count| (lock.member == *member).then(|| released(count, limits)))
    }

    /// Releases offsets whose lock has ended. This is not undone if it cannot be written.
    pub fn expire(&mut self, now_ms: i64, limits: &Limits) -> Expired {
        let mut expired = Expired::default();
        if self.locked_until_ms > now_ms {
            return expired;
        }
        let mut changes = Vec::new();
        self.locked_until_ms = i64::MAX;
        let (mut locked_until_ms, mut freed) = (i64::MAX, i64::MAX);
        self.runs.update(self.start_offset, self.next_offset - 1, |from, to, run| {
            let Slot::Acquired(lock) = &run.slot else { return None };
            if lock.deadline_ms > now_ms {
                locked_until_ms = locked_until_ms.min(lock.deadline_ms);
                return None;
            }
            let state = released(run.count, limits);
            if state == RecordState::Available {
                freed = freed.min(from);
            }
            expired.count += to - from + 1;
            expired.locks += 1;
            changes.push(StateBatch { first: from, last: to, state, delivery_count: run.count });
            Some((Slot::settled(state), run.count))
        });
        self.locked_until_ms = locked_until_ms;
        self.free_from = self.free_from.min(freed);
        changes.iter().for_each(|change| self.writes.add(*change, false));
        if !changes.is_empty() {
            self.advance_start();
        }
        expired
    }

    /// When [`SharePartition::expire`] should be called next, at the earliest; `None`: no lock is held.
    pub fn deadline_ms(&self) -> Option<i64> {
        (self.locked_until_ms != i64::MAX).then_some(self.locked_until_ms)
    }
}
