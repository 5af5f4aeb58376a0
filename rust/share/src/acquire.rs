//! Acquiring what a fetch has read (`SharePartition.acquire`).

use super::model::{Limits, Member};
use super::partition::SharePartition;
use super::runs::{Lock, Slot};

/// A log batch that was read: its offsets, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBatch {
    pub first: i64,
    pub last: i64,
}

/// `share.acquire.mode` of the consumer (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireMode {
    /// Up to the end of the log batch that contains the last record that was asked for.
    BatchOptimized,
    /// Never more records than were asked for.
    RecordLimit,
}

/// A fetch that has read the log from `fetch_offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    pub member: &'a Member,
    pub mode: AcquireMode,
    /// Ranges are cut at the beginning of a log batch once they have this many offsets.
    pub batch_size: i64,
    pub records_max: i64,
    pub fetch_offset: i64,
    /// What was read, in order.
    pub batches: &'a [LogBatch],
    /// Those of them that belong to aborted transactions; empty unless the group reads committed records only.
    pub aborted: &'a [LogBatch],
    pub now_ms: i64,
    pub limits: &'a Limits,
}

/// Offsets that a member has acquired, all with this delivery count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredRange {
    pub first: i64,
    pub last: i64,
    pub delivery_count: u16,
}

/// The ranges in order, with the number of their offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquired {
    pub ranges: Vec<AcquiredRange>,
    pub count: i64,
}

/// The offsets of one in-flight batch that a fetch may take.
struct Portion {
    batch_first: i64,
    batch_last: i64,
    /// First, last and delivery count of the available runs.
    available: Vec<(i64, i64, u16)>,
}

/// The smallest delivery count from which on deliveries are throttled.
const THROTTLE_MIN: u16 = 2;

impl Limits {
    fn throttle_from(&self) -> u16 {
        self.delivery_count.div_ceil(2).max(THROTTLE_MIN)
    }

    /// Whether a record of this delivery count gets its last delivery next, and gets it alone.
    fn is_last_delivery(&self, count: u16) -> bool {
        self.delivery_count > 2 && count + 1 == self.delivery_count
    }
}

impl Acquired {
    fn push(&mut self, first: i64, last: i64, delivery_count: u16) {
        self.ranges.push(AcquiredRange { first, last, delivery_count });
        self.count += last - first + 1;
    }
}

impl SharePartition {
    /// Acquires records for a member out of what was read. Available records come before new ones.
    pub fn acquire(&mut self, request: &Acquire<'_>) -> Acquired {
        let mut acquired = Acquired::default();
        let (Some(first_batch), Some(last_batch)) = (request.batches.first(), request.batches.last()) else {
            return acquired;
        };
        if request.records_max <= 0 || last_batch.last < self.start_offset {
            return acquired;
        }
        let Some((records_max, last)) = self.room(request, last_batch.last) else { return acquired };
        self.skip_to(request.fetch_offset, first_batch.first);
        let mut at = first_batch.first.max(self.start_offset);
        while at <= last && acquired.count < records_max {
            let wanted = records_max - acquired.count;
            let Some((_, run)) = self.runs.at(at) else {
                self.acquire_new(request, at, last, wanted, &mut acquired);
                break;
            };
            let run_last = run.last;
            if run.slot == Slot::Hole {
                at = 1 + self.acquire_new(request, at, run_last.min(last), wanted, &mut acquired);
            } else if let Some((batch_first, batch_last)) = self.runs.batch_of(at) {
                let portion = self.portion(batch_first, batch_last, at, batch_last.min(last));
                if self.acquire_again(request, portion, wanted, &mut acquired) {
                    break;
                }
                at = batch_last + 1;
            } else {
                at = run_last + 1;
            }
        }
        self.archive_aborted(request, &mut acquired);
        acquired
    }

    /// The most records to acquire, and the last offset. At the limit of records in flight only what is in flight already.
    fn room(&self, request: &Acquire<'_>, last: i64) -> Option<(i64, i64)> {
        let room = request.limits.record_locks_max - self.in_flight_count();
        if room > 0 {
            Some((request.records_max.min(room), last))
        } else if request.fetch_offset < self.next_offset {
            Some((request.records_max.min(self.next_offset - request.fetch_offset), last.min(self.next_offset - 1)))
        } else {
            None
        }
    }

    /// The log has nothing between the fetch offset and `first`, so these offsets are finished (compaction).
    fn skip_to(&mut self, fetch_offset: i64, first: i64) {
        if fetch_offset >= first {
            return;
        }
        let from = fetch_offset.max(self.start_offset);
        self.runs.update(from, first.min(self.next_offset) - 1, |_, _, run| {
            let is_free = match &run.slot {
                Slot::Pending { target, .. } => !target.is_final(),
                slot => slot.is_free(),
            };
            is_free.then_some((Slot::Archived, run.count))
        });
        if first > self.next_offset {
            if !self.runs.is_empty() {
                self.runs.push(self.next_offset, first - 1, Slot::Archived, 0);
            } else {
                self.start_offset = first;
            }
            self.next_offset = first;
        }
        self.advance_start();
    }

    fn lock(&mut self, request: &Acquire<'_>) -> Lock {
        let deadline_ms = request.now_ms + request.limits.lock_duration_ms;
        self.locked_until_ms = self.locked_until_ms.min(deadline_ms);
        Lock { member: request.member.clone(), deadline_ms }
    }

    /// Acquires offsets that were never delivered, or were in a hole, and returns the last of them that became an in-flight
    /// batch.
    fn acquire_new(
        &mut self,
        request: &Acquire<'_>,
        first: i64,
        last: i64,
        records_max: i64,
        acquired: &mut Acquired,
    ) -> i64 {
        let last = match first + records_max - 1 {
            limit if limit < last => end_of_batch_with(request.batches, limit).min(last),
            _ => last,
        };
        let lock = self.lock(request);
        match request.mode {
            AcquireMode::BatchOptimized => {
                for (from, to) in cut(request, first, last) {
                    self.take(from, to, to, &lock);
                    acquired.push(from, to, 1);
                }
            }
            AcquireMode::RecordLimit => {
                let taken = last.min(first + records_max - 1);
                self.take(first, taken, last, &lock);
                acquired.push(first, taken, 1);
                self.free_from = self.free_from.min(taken + 1);
            }
        }
        last
    }

    /// Makes `[first, last]` an in-flight batch, acquired up to `taken` and available after it.
    fn take(&mut self, first: i64, taken: i64, last: i64, lock: &Lock) {
        self.runs.add_batch(first, last);
        let mut parts = vec![(first, taken, Slot::Acquired(lock.clone()), 1)];
        if taken < last {
            parts.push((taken + 1, last, Slot::Available, 0));
        }
        for (from, to, slot, count) in parts {
            if from < self.next_offset {
                assert!(to < self.next_offset, "{from} to {to} is partly in a hole");
                self.runs.update(from, to, |_, _, _| Some((slot.clone(), count)));
            } else {
                self.runs.push(from, to, slot, count);
                self.next_offset = to + 1;
            }
        }
    }

    fn portion(&self, batch_first: i64, batch_last: i64, first: i64, last: i64) -> Portion {
        let runs = self.runs.within(first, last).filter(|(.., run)| run.slot == Slot::Available);
        let available = runs.map(|(first, last, run)| (first, last, run.count)).collect();
        Portion { batch_first, batch_last, available }
    }

    /// Acquires available records of one in-flight batch. Returns whether the fetch must end with them.
    fn acquire_again(
        &mut self,
        request: &Acquire<'_>,
        portion: Portion,
        records_max: i64,
        acquired: &mut Acquired,
    ) -> bool {
        let is_throttled = portion.available.iter().any(|(.., count)| *count >= request.limits.throttle_from());
        if is_throttled && acquired.count > 0 {
            return true;
        }
        let size = portion.batch_last - portion.batch_first + 1;
        let is_limited = request.mode == AcquireMode::RecordLimit && size > records_max;
        let taken = match portion.available[..] {
            [(first, last, count)]
                if (first, last) == (portion.batch_first, portion.batch_last) && !is_limited && !is_throttled =>
            {
                vec![(first, last, count)]
            }
            _ => select(request, &portion, records_max),
        };
        let lock = self.lock(request);
        let mut ranges: Vec<(i64, i64, u16)> = Vec::new();
        for (first, last, count) in taken {
            let count = count.saturating_add(1);
            self.runs.update(first, last, |_, _, _| Some((Slot::Acquired(lock.clone()), count)));
            match ranges.last_mut() {
                Some(before) if before.1 + 1 == first && before.2 == count => before.1 = last,
                _ => ranges.push((first, last, count)),
            }
        }
        let has_taken = !ranges.is_empty();
        ranges.into_iter().for_each(|(first, last, count)| acquired.push(first, last, count));
        is_throttled && has_taken
    }

    /// Records of aborted transactions are finished, and not delivered.
    fn archive_aborted(&mut self, request: &Acquire<'_>, acquired: &mut Acquired) {
        if request.aborted.is_empty() || acquired.ranges.is_empty() {
            return;
        }
        let mut kept = Acquired::default();
        let mut aborted = request.aborted.iter().copied().peekable();
        for range in std::mem::take(&mut acquired.ranges) {
            let mut first = range.first;
            while let Some(batch) = aborted.peek().copied()
                && batch.first <= range.last
            {
                if batch.last >= first {
                    if batch.first > first {
                        kept.push(first, batch.first - 1, range.delivery_count);
                    }
                    let (from, to) = (batch.first.max(first), batch.last.min(range.last));
                    self.runs.update(from, to, |_, _, run| Some((Slot::Archived, run.count)));
                    first = to + 1;
                }
                if batch.last > range.last {
                    break;
                }
                aborted.next();
            }
            if first <= range.last {
                kept.push(first, range.last, range.delivery_count);
            }
        }
        *acquired = kept;
        self.advance_start();
    }
}

/// The offsets of a batch that differ among themselves, or are throttled, that one fetch takes.
fn select(request: &Acquire<'_>, portion: &Portion, records_max: i64) -> Vec<(i64, i64, u16)> {
    let limits = request.limits;
    let size = portion.batch_last - portion.batch_first + 1;
    let mut most = if request.mode == AcquireMode::RecordLimit { records_max } else { i64::MAX };
    let mut is_throttled = false;
    let mut count_taken = 0;
    let mut taken = Vec::new();
    for &(first, last, count) in &portion.available {
        if limits.is_last_delivery(count) {
            if count_taken == 0 {
                taken.push((first, first, count));
            }
            break;
        }
        if count >= limits.throttle_from() && !is_throttled {
            is_throttled = true;
            let shift = u32::from(count - limits.throttle_from()) + 1;
            most = most.min(size.checked_shr(shift).unwrap_or(0).max(1));
        }
        let room = most - count_taken;
        if room <= 0 {
            break;
        }
        let last = last.min(first.saturating_add(room - 1));
        taken.push((first, last, count));
        count_taken += last - first + 1;
    }
    taken
}

/// The last offset of the batch that contains `offset`; `offset` itself if none does.
fn end_of_batch_with(batches: &[LogBatch], offset: i64) -> i64 {
    let after = batches.partition_point(|batch| batch.first <= offset);
    let batch = after.checked_sub(1).map(|at| batches[at]);
    batch.filter(|batch| offset <= batch.last).map_or(offset, |batch| batch.last)
}

/// `[first, last]` cut at beginnings of log batches, once a part has as many offsets as a batch should have.
fn cut(request: &Acquire<'_>, first: i64, last: i64) -> Vec<(i64, i64)> {
    let mut parts = Vec::new();
    let mut from = first;
    if last - first + 1 > request.batch_size {
        for batch in request.batches.iter().filter(|batch| batch.first <= last) {
            if batch.first > from && batch.first - from >= request.batch_size {
                parts.push((from, batch.first - 1));
                from = batch.first;
            }
        }
    }
    parts.push((from, last));
    parts
}
