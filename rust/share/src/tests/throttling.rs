use super::*;

#[test]
fn records_near_the_delivery_limit_come_in_smaller_parts() {
    let log = [batch(0, 499), batch(500, 509)];
    let mut partition = fresh();
    deliver_without_acknowledgement(&mut partition, &log[..1], 3, LIMITS);
    assert_eq!(partition.state_of(0), Some((RecordState::Available, 3)));
    assert_eq!(by("a").fetch(&mut partition, &log), [(0, 249, 4)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(250, 499, 4)]);
    partition.expire(NOW + 30_000, &LIMITS);
    assert_eq!(by("a").fetch(&mut partition, &log), [(0, 0, 5)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(1, 1, 5)]);
}

#[test]
fn throttled_records_never_follow_others() {
    let mut partition = fresh();
    let log = [batch(0, 3), batch(4, 7)];
    by("other").fetch(&mut partition, &log[..1]);
    deliver_without_acknowledgement(&mut partition, &log, 1, LIMITS);
    // 0-3 were delivered once, 4-7 three times.
    let batches = [state(0, 3, RecordState::Available, 1), state(4, 7, RecordState::Available, 3)];
    let mut partition = SharePartition::load(3, 1, 0, &batches).expect("in order");
    assert_eq!(by("a").fetch(&mut partition, &log), [(0, 3, 2)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(4, 5, 4)]);
}

#[test]
fn a_last_delivery_is_separate() {
    let batches = [state(0, 3, RecordState::Available, 1), state(4, 4, RecordState::Available, 4)];
    let mut partition = SharePartition::load(3, 1, 0, &batches).expect("in order");
    let log = [batch(0, 9)];
    assert_eq!(by("a").fetch(&mut partition, &log), [(0, 3, 2)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(4, 4, 5)]);
    assert_eq!(by("a").fetch(&mut partition, &log), [(5, 9, 1)]);
}

#[test]
fn a_limit_of_two_deliveries_does_not_isolate_records() {
    let limits = Limits { delivery_count: 2, ..LIMITS };
    let mut partition = fresh();
    deliver_without_acknowledgement(&mut partition, &[batch(0, 9)], 1, limits);
    assert_eq!(Fetching { limits, ..by("a") }.fetch(&mut partition, &[batch(0, 9)]), [(0, 9, 2)]);
}
