//! The slow, obvious share partition: one record for each offset, no runs, one write at a time.

use std::collections::BTreeMap;

use crate::{AckType, Acquire, AcquireMode, Limits, RecordState};

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub state: RecordState,
    pub count: u16,
    pub owner: String,
    pub deadline_ms: i64,
    /// Waits for the write in flight (`true`) or the next one.
    pub pending: Option<(bool, RecordState)>,
    /// First and last offset of its in-flight batch.
    pub batch: Option<(i64, i64)>,
    pub is_hole: bool,
}

impl Record {
    fn new(state: RecordState, count: u16, batch: Option<(i64, i64)>) -> Self {
        Self { state, count, owner: String::new(), deadline_ms: 0, pending: None, batch, is_hole: false }
    }

    fn is_free(&self) -> bool {
        self.state == RecordState::Available
    }

    fn acquire(&mut self, request: &Acquire<'_>) -> u16 {
        self.state = RecordState::Acquired;
        self.count += 1;
        self.owner = request.member.id().to_owned();
        self.deadline_ms = request.now_ms + request.limits.lock_duration_ms;
        self.is_hole = false;
        self.count
    }
}

#[derive(Debug, Default)]
pub struct Naive {
    pub records: BTreeMap<i64, Record>,
    pub start: i64,
    pub next: i64,
}

fn after_release(count: u16, limits: &Limits) -> RecordState {
    if count < limits.delivery_count { RecordState::Available } else { RecordState::Archived }
}

impl Naive {
    pub fn load(start: i64, batches: &[(i64, i64, RecordState, u16)]) -> Self {
        let mut naive = Self { records: BTreeMap::new(), start, next: start };
        for &(first, last, state, count) in batches {
            for offset in naive.next..first {
                let hole = Record { is_hole: true, ..Record::new(RecordState::Available, 0, None) };
                naive.records.insert(offset, hole);
            }
            for offset in first..=last {
                naive.records.insert(offset, Record::new(state, count, Some((first, last))));
            }
            naive.next = last + 1;
        }
        naive.advance();
        naive
    }

    pub fn next_fetch_offset(&self) -> i64 {
        let free = self.records.iter().find(|(_, record)| record.is_free());
        free.map_or(self.next, |(offset, _)| *offset)
    }

    pub fn advance(&mut self) {
        while self.records.get(&self.start).is_some_and(|record| record.state.is_final()) {
            self.records.remove(&self.start);
            self.start += 1;
        }
        assert!(self.start <= self.next);
    }

    pub fn on_log_start(&mut self, log_start: i64) {
        while self.start < log_start {
            self.records.remove(&self.start);
            self.start += 1;
        }
        self.next = self.next.max(self.start);
        self.advance();
    }

    pub fn acquire(&mut self, request: &Acquire<'_>) -> Vec<(i64, u16)> {
        let (Some(first), Some(end)) = (request.batches.first(), request.batches.last()) else { return Vec::new() };
        if end.last < self.start {
            return Vec::new();
        }
        let room = request.limits.record_locks_max - (self.next - self.start);
        let (most, mut last) = if room > 0 {
            (request.records_max.min(room), end.last)
        } else {
            (request.records_max.min(self.next - request.fetch_offset), end.last.min(self.next - 1))
        };
        last = last.max(-1);
        self.skip(request.fetch_offset, first.first);
        let mut got: Vec<(i64, u16)> = Vec::new();
        let mut at = first.first.max(self.start);
        while at <= last && (got.len() as i64) < most {
            let wanted = most - got.len() as i64;
            match self.records.get(&at).cloned() {
                None => {
                    if room > 0 {
                        self.acquire_new(request, at, last, wanted, &mut got);
                    }
                    break;
                }
                Some(record) if record.is_hole => {
                    let mut hole_last = at;
                    while hole_last < last && self.records.get(&(hole_last + 1)).is_some_and(|next| next.is_hole) {
                        hole_last += 1;
                    }
                    at = 1 + self.acquire_new(request, at, hole_last, wanted, &mut got);
                }
                Some(Record { batch: Some(batch), .. }) => {
                    if self.acquire_again(request, batch, (at, last), wanted, &mut got) {
                        break;
                    }
                    at = batch.1 + 1;
                }
                Some(_) => at += 1,
            }
        }
        for aborted in request.aborted {
            for offset in aborted.first..=aborted.last {
                if got.iter().any(|(taken, _)| *taken == offset) {
                    got.retain(|(taken, _)| *taken != offset);
                    let record = self.records.get_mut(&offset).expect("it was acquired");
                    record.state = RecordState::Archived;
                }
            }
        }
        self.advance();
        got
    }

    fn skip(&mut self, fetch_offset: i64, first: i64) {
        for offset in fetch_offset..first {
            if let Some(record) = self.records.get_mut(&offset) {
                let is_released = record.pending.is_some_and(|(_, target)| target == RecordState::Available);
                if record.is_free() || is_released {
                    record.state = RecordState::Archived;
                    record.pending = None;
                    record.is_hole = false;
                }
            }
        }
        if fetch_offset < first && first > self.next {
            if self.records.is_empty() {
                self.start = first;
            }
            for offset in self.next.max(self.start)..first {
                self.records.insert(offset, Record::new(RecordState::Archived, 0, None));
            }
            self.next = first;
        }
        self.advance();
    }

    fn acquire_new(
        &mut self,
        request: &Acquire<'_>,
        first: i64,
        last: i64,
        most: i64,
        got: &mut Vec<(i64, u16)>,
    ) -> i64 {
        let mut end = last;
        if first + most - 1 < last {
            let limit = first + most - 1;
            let batch = request.batches.iter().find(|batch| batch.first <= limit && limit <= batch.last);
            end = batch.map_or(limit, |batch| batch.last).min(last);
        }
        let is_exact = request.mode == AcquireMode::RecordLimit;
        let mut batch_first = first;
        for offset in first..=end {
            let begins = request.batches.iter().any(|batch| batch.first == offset);
            if !is_exact && begins && offset > batch_first && offset - batch_first >= request.batch_size {
                batch_first = offset;
            }
            let mut record = Record::new(RecordState::Available, 0, Some((batch_first, end)));
            if !is_exact || offset < first + most {
                got.push((offset, record.acquire(request)));
            }
            self.records.insert(offset, record);
        }
        // The ends of batches are known now.
        for offset in (first..=end).rev() {
            let begin = self.records[&offset].batch.expect("one of these").0;
            let batch_last = (offset..=end).take_while(|at| self.records[at].batch.map(|batch| batch.0) == Some(begin));
            let batch_last = batch_last.last().expect("the offset itself");
            self.records.get_mut(&offset).expect("one of these").batch = Some((begin, batch_last));
        }
        self.next = self.next.max(end + 1);
        end
    }

    fn acquire_again(
        &mut self,
        request: &Acquire<'_>,
        (first, last): (i64, i64),
        (from, to): (i64, i64),
        most: i64,
        got: &mut Vec<(i64, u16)>,
    ) -> bool {
        let limit = request.limits.delivery_count;
        let throttle = limit.div_ceil(2).max(2);
        let offsets: Vec<i64> = (from.max(first)..=to.min(last)).filter(|at| self.records[at].is_free()).collect();
        let is_throttled = offsets.iter().any(|at| self.records[at].count >= throttle);
        if is_throttled && !got.is_empty() {
            return true;
        }
        let is_whole = offsets.len() as i64 == last - first + 1;
        let is_equal = offsets.windows(2).all(|pair| self.records[&pair[0]].count == self.records[&pair[1]].count);
        let is_exact = request.mode == AcquireMode::RecordLimit;
        if is_whole && is_equal && !is_throttled && !(is_exact && last - first + 1 > most) {
            got.extend(offsets.iter().map(|at| (*at, self.records.get_mut(at).expect("free").acquire(request))));
            return false;
        }
        let mut throttle_max = None;
        let mut taken = 0;
        for at in offsets {
            let record = self.records.get_mut(&at).expect("free");
            let is_last = limit > 2 && record.count + 1 == limit;
            if is_last && taken > 0 {
                break;
            }
            if record.count >= throttle && throttle_max.is_none() {
                throttle_max = Some(((last - first + 1) >> (record.count - throttle + 1)).max(1));
            }
            if throttle_max.is_some_and(|throttle_max| taken >= throttle_max) {
                break;
            }
            got.push((at, record.acquire(request)));
            taken += 1;
            if is_last || (is_exact && taken == most) {
                break;
            }
        }
        is_throttled && taken > 0
    }

    /// Whether the acknowledgement is accepted.
    pub fn acknowledge(
        &mut self,
        member: &str,
        (first, last): (i64, i64),
        types: &[u8],
        now_ms: i64,
        limits: &Limits,
    ) -> bool {
        if last < self.start {
            return true;
        }
        let offsets: Vec<i64> = (first.max(self.start)..=last).collect();
        let is_own = |record: &Record| {
            record.state == RecordState::Acquired && record.owner == member && record.pending.is_none()
        };
        if !offsets.iter().all(|at| self.records.get(at).is_some_and(is_own)) {
            return false;
        }
        for at in offsets {
            let record = self.records.get_mut(&at).expect("checked");
            let id = if types.len() == 1 { types[0] } else { types[usize::try_from(at - first).expect("in order")] };
            let target = match AckType::of(id).expect("a type") {
                AckType::Renew => {
                    record.deadline_ms = now_ms + limits.lock_duration_ms;
                    continue;
                }
                AckType::Accept => RecordState::Acknowledged,
                AckType::Gap | AckType::Reject => RecordState::Archived,
                AckType::Release => after_release(record.count, limits),
            };
            record.pending = Some((false, target));
        }
        true
    }

    pub fn release(&mut self, member: &str, limits: &Limits) {
        for record in self.records.values_mut() {
            if record.state == RecordState::Acquired && record.owner == member && record.pending.is_none() {
                record.pending = Some((false, after_release(record.count, limits)));
            }
        }
    }

    pub fn expire(&mut self, now_ms: i64, limits: &Limits) {
        let mut has_expired = false;
        for record in self.records.values_mut() {
            if record.state == RecordState::Acquired && record.pending.is_none() && record.deadline_ms <= now_ms {
                record.state = after_release(record.count, limits);
                has_expired = true;
            }
        }
        if has_expired {
            self.advance();
        }
    }

    pub fn begin_write(&mut self) {
        for record in self.records.values_mut() {
            if let Some((is_sent, _)) = &mut record.pending {
                *is_sent = true;
            }
        }
    }

    pub fn on_written(&mut self, is_ok: bool, now_ms: i64, limits: &Limits) {
        for record in self.records.values_mut() {
            let Some((true, target)) = record.pending else { continue };
            record.pending = None;
            if is_ok {
                record.state = target;
            } else if record.deadline_ms <= now_ms {
                record.state = after_release(record.count, limits);
            }
        }
        self.advance();
    }
}
