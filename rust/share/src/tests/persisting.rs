use super::*;

fn acquired() -> SharePartition {
    let mut partition = fresh();
    by("a").fetch(&mut partition, &[batch(0, 9)]);
    partition
}

#[test]
fn a_write_has_epochs_start_offset_changes_and_the_complete_count() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 3, 9, &[1, 1, 2, 1, 1, 1, 1]).expect("acquired");
    let write = partition.take_write().expect("an acknowledgement");
    assert_eq!((write.state_epoch, write.leader_epoch, write.start_offset), (1, 3, 0));
    assert_eq!(write.delivery_complete_count, 6);
    let accepted = |first, last| state(first, last, RecordState::Acknowledged, 1);
    assert_eq!(write.batches, [accepted(3, 4), state(5, 5, RecordState::Available, 1), accepted(6, 9)]);
    assert_eq!(partition.state_of(3), Some((RecordState::Acquired, 1)), "until it is confirmed");
}

#[test]
fn after_a_failed_write_records_stay_acquired() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 0, 9, &[1]).expect("acquired");
    let write = partition.take_write().expect("an acknowledgement");
    partition.on_written(write.id, false, NOW, &LIMITS);
    partition.check_invariants();
    assert_eq!((partition.owner_of(0), partition.start_offset()), (Some(&member("a")), 0));
    accept(&mut partition, "a", 0, 9);
}

#[test]
fn after_a_failed_write_an_expired_lock_is_removed() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 0, 9, &[1]).expect("acquired");
    let write = partition.take_write().expect("an acknowledgement");
    assert_eq!(partition.expire(NOW + 40_000, &LIMITS).count, 0, "the write decides");
    assert!(partition.on_written(write.id, false, NOW + 40_000, &LIMITS));
    assert_eq!(by("b").fetch(&mut partition, &[batch(0, 9)]), [(0, 9, 2)]);
}

#[test]
fn an_expired_lock_is_not_restored_by_a_failed_write() {
    let mut partition = acquired();
    assert_eq!(partition.expire(NOW + 30_000, &LIMITS).count, 10);
    let write = partition.take_write().expect("the release");
    assert_eq!(write.batches, [state(0, 9, RecordState::Available, 1)]);
    partition.on_written(write.id, false, NOW, &LIMITS);
    assert_eq!(partition.next_fetch_offset(), 0);
}

#[test]
fn offsets_in_transition_are_neither_fetched_nor_passed() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 0, 4, &[2]).expect("acquired");
    let first = partition.take_write().expect("a release");
    assert_eq!(partition.next_fetch_offset(), 10);
    acknowledge(&mut partition, "a", 5, 9, &[1]).expect("acquired");
    assert_eq!(partition.take_write(), None, "one write at a time");
    partition.on_written(first.id, true, NOW, &LIMITS);
    let second = partition.take_write().expect("the acceptance");
    assert_eq!(second.delivery_complete_count, 5);
    assert_eq!(by("b").fetch(&mut partition, &[batch(0, 9)]), [(0, 4, 2)]);
    partition.on_written(second.id, true, NOW, &LIMITS);
    assert_eq!(partition.start_offset(), 0);
}

#[test]
fn a_late_answer_is_ignored() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 0, 9, &[1]).expect("acquired");
    let write = partition.take_write().expect("an acknowledgement");
    partition.on_log_start(20);
    assert!(!partition.on_written(write.id, true, NOW, &LIMITS));
    assert!(!partition.on_written(write.id, true, NOW, &LIMITS));
    partition.check_invariants();
    assert_eq!(partition.start_offset(), 20);
}

#[test]
fn later_changes_of_a_queued_write_replace_earlier_ones() {
    let mut partition = acquired();
    acknowledge(&mut partition, "a", 9, 9, &[1]).expect("acquired");
    let first = partition.take_write().expect("an acknowledgement");
    partition.expire(NOW + 30_000, &LIMITS);
    by("b").fetch(&mut partition, &[batch(0, 9)]);
    acknowledge(&mut partition, "b", 2, 3, &[1]).expect("acquired");
    partition.on_written(first.id, true, NOW, &LIMITS);
    let available = |first, last| state(first, last, RecordState::Available, 1);
    assert_eq!(confirm(&mut partition), [available(0, 1), state(2, 3, RecordState::Acknowledged, 2), available(4, 8)]);
}
