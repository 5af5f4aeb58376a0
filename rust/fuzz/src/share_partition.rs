//! Invariant: no fetches, acknowledgements and answers make a share partition panic or break its invariants. A rejected
//! operation changes nothing. No record is acquired while it is finished, or by two members, or more often than the
//! limit.

use std::collections::BTreeMap;

use klamm_share::{
    AckBatch, Acquire, AcquireMode, Limits, LogBatch, Member, RecordState, SharePartition, WriteId,
    check_acknowledgements,
};

use crate::input::Input;

const LIMITS: Limits = Limits { record_locks_max: 60, delivery_count: 4, lock_duration_ms: 50, is_renew_enabled: true };
const MEMBERS: [&str; 3] = ["a", "b", "c"];
const STARTS: [i64; 3] = [0, 7, 1 << 62];
const TYPE_MAX: u8 = 4;

/// State, delivery count and owner of each offset in flight.
type Held = BTreeMap<i64, (RecordState, u16, Option<String>)>;

/// Reads the bytes as a start offset and as steps.
pub fn share_partition(data: &[u8]) {
    let mut input = Input::new(data);
    let start = STARTS[input.below(STARTS.len())];
    let partition = SharePartition::load(1, 1, start, &[]).expect("a start offset without batches");
    let mut world = World { partition, now_ms: 0, writing: None };
    while !input.is_empty() {
        world.step(&mut input);
        world.partition.check_invariants();
        assert!(world.partition.in_flight_count() <= LIMITS.record_locks_max + 2 * BATCH_MAX, "too many in flight");
    }
}

const BATCH_MAX: i64 = 16;

struct World {
    partition: SharePartition,
    now_ms: i64,
    writing: Option<WriteId>,
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(9) {
            0 | 1 => self.acquire(input),
            2..=4 => self.acknowledge(input),
            5 => {
                if self.writing.is_none() {
                    self.writing = self.partition.take_write().map(|write| write.id);
                }
            }
            6 => {
                if let Some(id) = self.writing.take() {
                    self.partition.on_written(id, !input.byte().is_multiple_of(4), self.now_ms, &LIMITS);
                }
            }
            7 => {
                self.now_ms += i64::from(input.byte());
                self.partition.expire(self.now_ms, &LIMITS);
            }
            _ => match input.byte() % 2 {
                0 => drop(self.partition.release(&member(input), &LIMITS)),
                _ => self.partition.on_log_start(self.partition.start_offset() + i64::from(input.byte() % 8)),
            },
        }
    }

    fn acquire(&mut self, input: &mut Input<'_>) {
        let fetch_offset = self.partition.next_fetch_offset();
        let mut next = fetch_offset;
        let batches: Vec<LogBatch> = (0..=input.below(2))
            .map(|_| {
                let first = next + (input.below(4) as i64 - 2).max(0);
                next = first + 1 + input.below(BATCH_MAX as usize) as i64;
                LogBatch { first, last: next - 1 }
            })
            .collect();
        let mode = if input.byte() & 1 == 0 { AcquireMode::BatchOptimized } else { AcquireMode::RecordLimit };
        let aborted = if input.byte().is_multiple_of(8) { &batches[..1] } else { &[] };
        let before = self.held();
        let acquired = self.partition.acquire(&Acquire {
            member: &member(input),
            mode,
            batch_size: 1 + input.below(8) as i64,
            records_max: input.below(24) as i64,
            fetch_offset,
            batches: &batches,
            aborted,
            now_ms: self.now_ms,
            limits: &LIMITS,
        });
        for range in &acquired.ranges {
            assert!(
                range.first <= range.last && (1..=LIMITS.delivery_count).contains(&range.delivery_count),
                "{range:?}"
            );
            for offset in range.first..=range.last {
                let state = before.get(&offset).map_or(RecordState::Available, |held| held.0);
                assert_eq!(state, RecordState::Available, "{offset} is acquired, but it was {state:?}");
            }
        }
        assert_eq!(acquired.count, acquired.ranges.iter().map(|range| range.last - range.first + 1).sum::<i64>());
    }

    fn acknowledge(&mut self, input: &mut Input<'_>) {
        let (start, acting) = (self.partition.start_offset(), member(input));
        let types: Vec<(i64, i64, Vec<u8>)> = (0..=input.below(3)).map(|_| acknowledgement(start, input)).collect();
        let batches: Vec<AckBatch<'_>> =
            types.iter().map(|(first, last, types)| AckBatch { first: *first, last: *last, types }).collect();
        if check_acknowledgements(&batches, TYPE_MAX, input.byte() & 1 == 1).is_err() {
            return;
        }
        let before = self.held();
        match self.partition.acknowledge(&acting, &batches, self.now_ms, &LIMITS) {
            Err(_) => assert_eq!(self.held(), before, "a refused acknowledgement changed something"),
            Ok(_) => {
                let of_others = |held: &Held| {
                    let owned = held.iter().filter(|(_, held)| held.2.as_deref() != Some(acting.id()));
                    owned.map(|(offset, held)| (*offset, held.clone())).collect::<Held>()
                };
                assert_eq!(of_others(&self.held()), of_others(&before), "offsets of others changed");
            }
        }
    }

    fn held(&self) -> Held {
        let offsets = self.partition.start_offset()..self.partition.next_offset();
        let held = |offset| {
            let (state, count) = self.partition.state_of(offset).expect("every offset in flight has a state");
            (state, count, self.partition.owner_of(offset).map(|owner| owner.id().to_owned()))
        };
        offsets.map(|offset| (offset, held(offset))).collect()
    }
}

fn member(input: &mut Input<'_>) -> Member {
    Member::new(MEMBERS[input.below(MEMBERS.len())])
}

/// First and last offset near the start, or far from everything, with one type, one for each offset, or any number.
fn acknowledgement(start: i64, input: &mut Input<'_>) -> (i64, i64, Vec<u8>) {
    let first = start + i64::from(input.signed());
    let span = i64::from(input.byte() % 20);
    let last = match input.byte() {
        255 => first - 1,
        254 => i64::MAX,
        253 => i64::MIN,
        _ => first + span,
    };
    let count = match input.below(4) {
        0 | 1 => 1,
        2 => span as usize + 1,
        _ => input.below(6),
    };
    let types = (0..count).map(|_| input.byte() % (TYPE_MAX + 2)).collect();
    (first, last, types)
}
