use super::*;

#[test]
fn a_whole_log_batch_is_acquired_unless_records_are_limited() {
    let mut partition = fresh();
    let few = Fetching { records_max: 5, ..by("a") };
    assert_eq!(few.fetch(&mut partition, &[batch(0, 9)]), [(0, 9, 1)]);

    let mut partition = fresh();
    let exactly = Fetching { mode: AcquireMode::RecordLimit, ..few };
    assert_eq!(exactly.fetch(&mut partition, &[batch(0, 9)]), [(0, 4, 1)]);
    assert_eq!((partition.state_of(5), partition.in_flight_count()), (Some((RecordState::Available, 0)), 10));
    assert_eq!(exactly.fetch(&mut partition, &[batch(0, 9)]), [(5, 9, 1)]);
}

#[test]
fn ranges_are_cut_at_log_batches_of_at_least_the_batch_size() {
    let mut partition = fresh();
    let log = [batch(0, 3), batch(4, 9), batch(10, 19), batch(20, 24)];
    let small = Fetching { batch_size: 8, ..by("a") };
    assert_eq!(small.fetch(&mut partition, &log), [(0, 9, 1), (10, 19, 1), (20, 24, 1)]);
    assert_eq!(partition.batch_count(), 3);
}

#[test]
fn nothing_is_acquired_twice() {
    let mut partition = fresh();
    let log = [batch(0, 9), batch(10, 19)];
    assert_eq!(by("a").fetch(&mut partition, &log[..1]), [(0, 9, 1)]);
    assert_eq!(by("b").fetch(&mut partition, &log), [(10, 19, 1)]);
    assert_eq!(by("b").fetch(&mut partition, &log), []);
    assert_eq!((partition.owner_of(9), partition.owner_of(10)), (Some(&member("a")), Some(&member("b"))));
}

#[test]
fn a_fetch_inside_a_log_batch_begins_at_the_start_offset() {
    let mut partition = SharePartition::load(3, 1, 4, &[]).expect("no batch");
    assert_eq!(by("a").fetch(&mut partition, &[batch(0, 9)]), [(4, 9, 1)]);
}

#[test]
fn at_the_limit_only_records_in_flight_are_acquired() {
    let mut partition = fresh();
    let limits = Limits { record_locks_max: 20, ..LIMITS };
    let limited = Fetching { limits, ..by("a") };
    let log = [batch(0, 9), batch(10, 19), batch(20, 29)];
    assert_eq!(limited.fetch(&mut partition, &log), [(0, 19, 1)]);
    assert!(!partition.can_acquire(&limits));
    assert_eq!(limited.fetch(&mut partition, &log), []);
    acknowledge(&mut partition, "a", 5, 7, &[2]).expect("acquired");
    confirm(&mut partition);
    assert!(partition.can_acquire(&limits));
    assert_eq!(limited.fetch(&mut partition, &log), [(5, 7, 2)]);
    // A group continues after its limit was raised.
    let more = Limits { record_locks_max: 21, ..limits };
    assert!(partition.can_acquire(&more));
    assert_eq!(Fetching { limits: more, ..limited }.fetch(&mut partition, &log), [(20, 29, 1)]);
}

#[test]
fn released_records_come_before_new_ones() {
    let mut partition = fresh();
    let log = [batch(0, 9), batch(10, 19)];
    by("a").fetch(&mut partition, &log[..1]);
    acknowledge(&mut partition, "a", 3, 3, &[2]).expect("acquired");
    confirm(&mut partition);
    assert_eq!(by("a").fetch(&mut partition, &log), [(3, 3, 2), (10, 19, 1)]);
}

#[test]
fn records_of_aborted_transactions_are_not_delivered() {
    let mut partition = fresh();
    let log = [batch(0, 4), batch(5, 9), batch(10, 10), batch(11, 14)];
    let committed = Fetching { aborted: &[batch(5, 9)], ..by("a") };
    assert_eq!(committed.fetch(&mut partition, &log), [(0, 4, 1), (10, 14, 1)]);
    assert_eq!(partition.state_of(7).map(|(state, _)| state), Some(RecordState::Archived));
    accept(&mut partition, "a", 0, 4);
    assert_eq!(partition.start_offset(), 10);
}

#[test]
fn aborted_records_alone_do_not_stay_in_flight() {
    let mut partition = fresh();
    let committed = Fetching { aborted: &[batch(0, 4), batch(5, 9)], ..by("a") };
    assert_eq!(committed.fetch(&mut partition, &[batch(0, 4), batch(5, 9)]), []);
    assert_eq!((partition.start_offset(), partition.in_flight_count()), (10, 0));
}

#[test]
fn offsets_that_compaction_removed_are_finished_when_a_fetch_skips_them() {
    let mut partition = fresh();
    assert_eq!(by("a").fetch(&mut partition, &[batch(3, 9)]), [(3, 9, 1)]);
    assert_eq!(partition.start_offset(), 3);
    acknowledge(&mut partition, "a", 3, 9, &[2]).expect("acquired");
    confirm(&mut partition);
    assert_eq!(by("a").fetch(&mut partition, &[batch(6, 9), batch(15, 19)]), [(6, 9, 2), (10, 19, 1)]);
    assert_eq!(partition.start_offset(), 6);
    accept(&mut partition, "a", 6, 9);
    assert_eq!(by("b").fetch(&mut partition, &[batch(30, 30)]), [(30, 30, 1)]);
    accept(&mut partition, "a", 10, 19);
    assert_eq!(partition.start_offset(), 30);
}

#[test]
fn a_log_start_above_the_start_offset_moves_it() {
    let mut partition = fresh();
    let log = [batch(0, 9), batch(10, 19), batch(20, 29)];
    by("a").fetch(&mut partition, &log[..1]);
    accept(&mut partition, "a", 0, 9);
    by("a").fetch(&mut partition, &log[..2]);
    partition.on_log_start(15);
    partition.check_invariants();
    assert_eq!(partition.start_offset(), 15);
    assert_eq!(acknowledge(&mut partition, "a", 10, 14, &[1]), Ok(None));
    acknowledge(&mut partition, "a", 10, 19, &[1]).expect("the rest is acquired").expect("and written");
    assert_eq!(confirm(&mut partition), [state(15, 19, RecordState::Acknowledged, 1)]);
    assert_eq!((partition.start_offset(), partition.next_fetch_offset()), (20, 20));
    partition.on_log_start(12);
    assert_eq!(partition.start_offset(), 20, "it never moves back");
    partition.on_log_start(25);
    assert_eq!((partition.next_fetch_offset(), partition.in_flight_count()), (25, 0));
    assert_eq!(by("a").fetch(&mut partition, &log), [(25, 29, 1)]);
}
