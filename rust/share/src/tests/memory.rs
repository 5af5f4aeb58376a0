use super::*;

const RECORDS: i64 = 100_000;

/// Memory grows with the differences between records, also when every second one is finished.
#[test]
fn equal_records_share_a_run() {
    let limits = Limits { record_locks_max: RECORDS, ..LIMITS };
    let log: Vec<_> = (0..RECORDS / 1000).map(|at| batch(at * 1000, at * 1000 + 999)).collect();
    let mut partition = fresh();
    let all = Fetching { limits, records_max: RECORDS, batch_size: RECORDS, ..by("a") };
    assert_eq!(all.fetch(&mut partition, &log), [(0, RECORDS - 1, 1)]);
    assert_eq!((partition.run_count(), partition.in_flight_count()), (1, RECORDS));

    let types: Vec<u8> = (0..RECORDS).map(|at| if at % 2 == 0 { 4 } else { 1 }).collect();
    acknowledge(&mut partition, "a", 0, RECORDS - 1, &types).expect("acquired").expect("written");
    confirm(&mut partition);
    assert_eq!(partition.run_count(), RECORDS as usize);
    accept(&mut partition, "a", 0, 0);
    assert_eq!(partition.start_offset(), 2);
    partition.expire(NOW + 30_000, &limits);
    assert_eq!(partition.next_fetch_offset(), 2);
    partition.on_log_start(RECORDS - 10);
    partition.check_invariants();
    assert_eq!(partition.run_count(), 10);
}

#[test]
fn a_run_is_small() {
    assert!(size_of::<(i64, crate::runs::Run)>() <= 48, "{}", size_of::<(i64, crate::runs::Run)>());
}

#[test]
fn runs_are_joined_when_they_become_equal() {
    let mut partition = fresh();
    by("a").fetch(&mut partition, &[batch(0, 99)]);
    acknowledge(&mut partition, "a", 50, 50, &[2]).expect("acquired").expect("written");
    confirm(&mut partition);
    assert_eq!(partition.run_count(), 3);
    partition.release(&member("a"), &LIMITS);
    confirm(&mut partition);
    assert_eq!(partition.run_count(), 1);
    assert_eq!(by("b").fetch(&mut partition, &[batch(0, 99)]), [(0, 99, 2)]);
}
