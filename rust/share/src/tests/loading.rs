use super::*;
use crate::LoadError;

#[test]
fn finished_records_are_not_delivered_again_after_a_move() {
    // 0-9 were acquired, 10-19 acknowledged.
    let batches = [state(10, 19, RecordState::Acknowledged, 1)];
    let mut partition = SharePartition::load(4, 1, 0, &batches).expect("in order");
    partition.check_invariants();
    assert_eq!((partition.start_offset(), partition.next_offset(), partition.next_fetch_offset()), (0, 20, 0));
    let log = [batch(0, 9), batch(10, 19), batch(20, 24)];
    assert_eq!(by("b").fetch(&mut partition, &log), [(0, 9, 1), (20, 24, 1)]);
    accept(&mut partition, "b", 0, 9);
    assert_eq!(partition.start_offset(), 20);
}

#[test]
fn a_gap_is_filled_up_to_its_end_only() {
    let batches = [state(5, 9, RecordState::Available, 2), state(20, 29, RecordState::Acknowledged, 1)];
    let mut partition = SharePartition::load(4, 1, 0, &batches).expect("in order");
    let log = [batch(0, 14), batch(15, 24), batch(25, 29)];
    let few = Fetching { records_max: 2, ..by("a") };
    assert_eq!(few.fetch(&mut partition, &log), [(0, 4, 1)]);
    assert_eq!(few.fetch(&mut partition, &log), [(5, 9, 3)]);
    let exactly = Fetching { mode: AcquireMode::RecordLimit, ..few };
    assert_eq!(exactly.fetch(&mut partition, &log), [(10, 11, 1)]);
    assert_eq!(exactly.fetch(&mut partition, &log), [(12, 13, 1)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(14, 14, 1), (15, 19, 1)]);
    assert_eq!(by("a").fetch(&mut partition, &log), []);
}

#[test]
fn the_start_offset_does_not_pass_a_gap() {
    let batches = [state(0, 4, RecordState::Archived, 1), state(7, 9, RecordState::Acknowledged, 1)];
    let mut partition = SharePartition::load(4, 1, 0, &batches).expect("in order");
    assert_eq!(partition.start_offset(), 5);
    // The log has no records at 5 and 6.
    assert_eq!(by("a").fetch(&mut partition, &[batch(7, 9), batch(10, 10)]), [(10, 10, 1)]);
    assert_eq!(partition.start_offset(), 10);
}

#[test]
fn an_invalid_state_is_rejected() {
    let load = |batches: &[StateBatch]| SharePartition::load(4, 1, 10, batches).expect_err("it breaks a rule");
    let available = |first, last| state(first, last, RecordState::Available, 1);
    assert_eq!(load(&[available(9, 12)]), LoadError::Overlap { batch_first: 9, next: 10 });
    assert_eq!(load(&[available(10, 12), available(12, 13)]), LoadError::Overlap { batch_first: 12, next: 13 });
    assert_eq!(load(&[available(12, 11)]), LoadError::Reversed { batch_first: 12, batch_last: 11 });
}
