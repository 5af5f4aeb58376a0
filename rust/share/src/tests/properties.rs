//! Random operations: the share partition equals the naive one after each, and keeps KIP-932's guarantees.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::naive::Naive;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append { gap: i64, len: i64, is_aborted: bool },
    Fetch { member: usize, is_exact: bool, records_max: i64, batch_size: i64, batches: usize },
    Acknowledge { member: usize, skip: i64, len: i64, types: Vec<u8> },
    Release { member: usize },
    Pass { ms: i64 },
    Send,
    Answer { is_ok: bool },
    DeleteRecords { up_to: i64 },
    Compact { batch: usize },
    Limit { delivery_count: u16, record_locks_max: i64 },
}

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn step() -> impl Strategy<Value = Step> {
    let member = 0..MEMBERS.len();
    prop_oneof![
        3 => (0_i64..3, 1_i64..9, prop::bool::weighted(0.15))
            .prop_map(|(gap, len, is_aborted)| Step::Append { gap: (gap - 1).max(0), len, is_aborted }),
        6 => (member.clone(), any::<bool>(), 1_i64..20, 1_i64..10, 1_usize..6).prop_map(
            |(member, is_exact, records_max, batch_size, batches)| {
                Step::Fetch { member, is_exact, records_max, batch_size, batches }
            }
        ),
        6 => (member.clone(), -2_i64..12, 1_i64..10, prop::collection::vec(0_u8..5, 1..2), any::<bool>(), any::<u32>())
            .prop_map(|(member, skip, len, mut types, is_each, seed)| {
                if is_each {
                    types = (0..len).map(|at| u8::try_from((seed >> (at * 3)) % 5).expect("small")).collect();
                }
                Step::Acknowledge { member, skip, len, types }
            }),
        1 => member.prop_map(|member| Step::Release { member }),
        2 => (0_i64..80).prop_map(|ms| Step::Pass { ms }),
        3 => Just(Step::Send),
        4 => prop::bool::weighted(0.8).prop_map(|is_ok| Step::Answer { is_ok }),
        1 => (0_i64..12).prop_map(|up_to| Step::DeleteRecords { up_to }),
        1 => (0_usize..20).prop_map(|batch| Step::Compact { batch }),
        1 => (2_u16..7, 5_i64..40)
            .prop_map(|(delivery_count, record_locks_max)| Step::Limit { delivery_count, record_locks_max }),
    ]
}

/// Both share partitions, their log, and the guarantees so far.
struct World {
    fast: SharePartition,
    naive: Naive,
    log: Vec<LogBatch>,
    aborted: Vec<LogBatch>,
    end: i64,
    now_ms: i64,
    limits: Limits,
    writing: Option<(WriteId, Vec<StateBatch>)>,
    finished: BTreeSet<i64>,
    counts: BTreeMap<i64, u16>,
    start: i64,
}

impl World {
    fn new() -> Self {
        let loaded = [(2, 4, RecordState::Acknowledged, 1), (7, 9, RecordState::Available, 2)];
        let batches = loaded.map(|(first, last, settled, count)| state(first, last, settled, count));
        Self {
            fast: SharePartition::load(1, 1, 0, &batches).expect("in order"),
            naive: Naive::load(0, &loaded),
            log: vec![batch(0, 5), batch(6, 9)],
            aborted: Vec::new(),
            end: 10,
            now_ms: 0,
            limits: Limits { record_locks_max: 25, lock_duration_ms: 100, ..LIMITS },
            writing: None,
            finished: (2..=4).collect(),
            counts: BTreeMap::new(),
            start: 0,
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Append { gap, len, is_aborted } => {
                let first = self.end + gap;
                self.end = first + len;
                self.log.push(batch(first, self.end - 1));
                if is_aborted {
                    self.aborted.push(batch(first, self.end - 1));
                }
            }
            Step::Fetch { member, is_exact, records_max, batch_size, batches } => {
                let mode = if is_exact { AcquireMode::RecordLimit } else { AcquireMode::BatchOptimized };
                self.fetch(member, mode, records_max, batch_size, batches);
            }
            Step::Acknowledge { member, skip, len, ref types } => {
                let first = self.fast.start_offset() + skip;
                self.acknowledge(member, first, first + len - 1, types);
            }
            Step::Release { member } => {
                self.fast.release(&super::member(MEMBERS[member]), &self.limits);
                self.naive.release(MEMBERS[member], &self.limits);
            }
            Step::Pass { ms } => {
                self.now_ms += ms;
                self.fast.expire(self.now_ms, &self.limits);
                self.naive.expire(self.now_ms, &self.limits);
            }
            Step::Send => {
                if let Some(write) = self.fast.take_write() {
                    assert!(self.writing.is_none(), "two writes in flight");
                    assert!(write.batches.iter().all(|batch| batch.first >= write.start_offset));
                    self.writing = Some((write.id, write.batches));
                    self.naive.begin_write();
                }
            }
            Step::Answer { is_ok } => {
                if let Some((id, batches)) = self.writing.take() {
                    self.fast.on_written(id, is_ok, self.now_ms, &self.limits);
                    self.naive.on_written(is_ok, self.now_ms, &self.limits);
                    let finished = batches.iter().filter(|batch| is_ok && batch.state.is_final());
                    self.finished.extend(finished.flat_map(|batch| batch.first..=batch.last));
                }
            }
            Step::DeleteRecords { up_to } => {
                let start = (self.fast.start_offset() + up_to - 8).min(self.end);
                self.log.retain(|batch| batch.last >= start);
                self.fast.on_log_start(start);
                self.naive.on_log_start(start);
            }
            Step::Compact { batch } => {
                if batch < self.log.len() {
                    self.log.remove(batch);
                }
            }
            Step::Limit { delivery_count, record_locks_max } => {
                self.limits = Limits { delivery_count, record_locks_max, ..self.limits };
            }
        }
    }

    fn fetch(&mut self, member: usize, mode: AcquireMode, records_max: i64, batch_size: i64, batches: usize) {
        let fetch_offset = self.fast.next_fetch_offset();
        assert_eq!(fetch_offset, self.naive.next_fetch_offset());
        let end_before = self.fast.next_offset();
        let is_full = self.fast.in_flight_count() >= self.limits.record_locks_max;
        if !self.fast.can_acquire(&self.limits) {
            return;
        }
        let read: Vec<_> = self.log.iter().filter(|batch| batch.last >= fetch_offset).take(batches).copied().collect();
        let aborted: Vec<_> = self.aborted.iter().filter(|batch| read.contains(batch)).copied().collect();
        let member = super::member(MEMBERS[member]);
        let request = Acquire {
            member: &member,
            mode,
            batch_size,
            records_max,
            fetch_offset,
            batches: &read,
            aborted: &aborted,
            now_ms: self.now_ms,
            limits: &self.limits,
        };
        let ranges = self.fast.acquire(&request).ranges;
        let each = ranges.iter().flat_map(|range| (range.first..=range.last).map(|at| (at, range.delivery_count)));
        let each: Vec<_> = each.collect();
        assert_eq!(each, self.naive.acquire(&request), "{request:?}");
        if mode == AcquireMode::RecordLimit && !each.is_empty() {
            assert!(each.len() as i64 <= records_max.max(1) || each.iter().any(|(_, count)| *count > 1));
        }
        for (offset, count) in each {
            assert!(!self.finished.contains(&offset), "{offset} is finished and delivered again");
            assert!(!is_full || offset < end_before, "{offset} exceeds the records in flight");
            let before = self.counts.insert(offset, count).unwrap_or(0);
            assert!(count > before, "the count of {offset} falls from {before} to {count}");
        }
    }

    fn acknowledge(&mut self, member: usize, first: i64, last: i64, types: &[u8]) {
        let types = if types.len() == 1 || types.len() as i64 == last - first + 1 { types } else { &types[..1] };
        let ack = [AckBatch { first, last, types }];
        let result = self.fast.acknowledge(&super::member(MEMBERS[member]), &ack, self.now_ms, &self.limits);
        let is_taken = self.naive.acknowledge(MEMBERS[member], (first, last), types, self.now_ms, &self.limits);
        assert_eq!(result.is_ok(), is_taken, "{ack:?}: {result:?}");
    }

    fn check(&mut self) {
        self.fast.check_invariants();
        assert_eq!((self.fast.start_offset(), self.fast.next_offset()), (self.naive.start, self.naive.next));
        assert!(self.fast.start_offset() >= self.start, "the start offset moved back");
        self.start = self.fast.start_offset();
        for (offset, record) in &self.naive.records {
            assert_eq!(self.fast.state_of(*offset), Some((record.state, record.count)), "offset {offset}");
            let owner = (record.state == RecordState::Acquired).then(|| record.owner.clone());
            assert_eq!(self.fast.owner_of(*offset).map(|member| member.id().to_owned()), owner, "offset {offset}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn runs_equal_single_records(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.check();
        }
    }
}
