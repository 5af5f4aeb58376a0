use super::*;
use crate::check_acknowledgements;

fn acquired(log: &[LogBatch]) -> SharePartition {
    let mut partition = fresh();
    by("a").fetch(&mut partition, log);
    partition
}

fn is_record_state<T>(result: Result<T, AckError>) -> bool {
    matches!(result, Err(AckError::RecordState(_)))
}

fn is_request<T>(result: Result<T, AckError>) -> bool {
    matches!(result, Err(AckError::Request(_)))
}

#[test]
fn the_start_offset_moves_over_finished_records() {
    let mut partition = acquired(&[batch(0, 9)]);
    accept(&mut partition, "a", 0, 4);
    assert_eq!((partition.start_offset(), partition.in_flight_count()), (5, 5));
    accept(&mut partition, "a", 5, 9);
    assert_eq!((partition.start_offset(), partition.in_flight_count(), partition.run_count()), (10, 0, 0));
}

#[test]
fn each_offset_may_have_its_own_type() {
    let mut partition = acquired(&[batch(0, 5)]);
    acknowledge(&mut partition, "a", 0, 5, &[1, 0, 2, 2, 3, 4]).expect("all acquired").expect("written");
    assert_eq!(
        confirm(&mut partition),
        [
            state(0, 0, RecordState::Acknowledged, 1),
            state(1, 1, RecordState::Archived, 1),
            state(2, 3, RecordState::Available, 1),
            state(4, 4, RecordState::Archived, 1),
        ]
    );
    assert_eq!((partition.start_offset(), partition.next_fetch_offset()), (2, 2));
    assert_eq!(partition.owner_of(5), Some(&member("a")));
}

#[test]
fn only_the_owner_acknowledges_and_only_once() {
    let mut partition = acquired(&[batch(0, 9)]);
    assert!(is_record_state(acknowledge(&mut partition, "b", 0, 9, &[1])));
    acknowledge(&mut partition, "a", 0, 3, &[1]).expect("its own");
    assert!(is_record_state(acknowledge(&mut partition, "a", 2, 5, &[1])), "a write is in flight");
    confirm(&mut partition);
    assert_eq!(acknowledge(&mut partition, "a", 0, 3, &[1]), Ok(None), "below the start offset");
    acknowledge(&mut partition, "a", 6, 7, &[1]).expect("its own");
    confirm(&mut partition);
    assert!(is_record_state(acknowledge(&mut partition, "a", 6, 7, &[1])));
    assert!(is_request(acknowledge(&mut partition, "a", 8, 10, &[1])), "past the end offset");
    partition.expire(NOW + 30_000, &LIMITS);
    assert!(is_record_state(acknowledge(&mut partition, "a", 8, 9, &[1])));
}

#[test]
fn one_invalid_batch_rejects_all_of_a_partition() {
    let mut partition = acquired(&[batch(0, 9)]);
    let good = AckBatch { first: 0, last: 4, types: &[1] };
    let bad = AckBatch { first: 5, last: 12, types: &[1] };
    assert!(is_request(partition.acknowledge(&member("a"), &[good, bad], NOW, &LIMITS)));
    assert_eq!(partition.take_write(), None);
    assert!(partition.acknowledge(&member("a"), &[good], NOW, &LIMITS).is_ok());
    let mut partition = acquired(&[batch(0, 9)]);
    let twice = AckBatch { first: 4, last: 9, types: &[1] };
    assert!(is_record_state(partition.acknowledge(&member("a"), &[good, twice], NOW, &LIMITS)));
    accept(&mut partition, "a", 0, 9);
}

#[test]
fn a_request_is_validated_without_state() {
    type Batch<'a> = (i64, i64, &'a [u8]);
    let check = |batches: &[Batch<'_>], type_max, is_renew| {
        let batches: Vec<_> = batches.iter().map(|&(first, last, types)| AckBatch { first, last, types }).collect();
        check_acknowledgements(&batches, type_max, is_renew)
    };
    assert_eq!(check(&[(0, 9, &[1]), (9, 10, &[0, 3])], 3, false), Ok(()));
    assert_eq!(check(&[(0, 0, &[4])], 4, true), Ok(()));
    let refused: [(&[Batch<'_>], u8, bool); 8] = [
        (&[(0, 9, &[1, 2])], 3, false),
        (&[(0, 9, &[])], 3, false),
        (&[(1, 0, &[1])], 3, false),
        (&[(5, 9, &[1]), (4, 10, &[1])], 3, false),
        (&[(0, 0, &[4])], 3, true),
        (&[(0, 0, &[4])], 4, false),
        (&[(0, 0, &[5])], 4, true),
        (&[(0, 0, &[255])], 4, true),
    ];
    for (batches, type_max, is_renew) in refused {
        assert!(is_request(check(batches, type_max, is_renew)), "{batches:?}");
    }
}

#[test]
fn a_renewed_lock_ends_later() {
    let mut partition = acquired(&[batch(0, 9)]);
    let later = NOW + 20_000;
    let renewal = [AckBatch { first: 2, last: 3, types: &[4] }];
    assert_eq!(partition.acknowledge(&member("a"), &renewal, later, &LIMITS), Ok(None));
    assert_eq!(partition.take_write(), None);
    assert_eq!(partition.expire(NOW + 30_000, &LIMITS).count, 8);
    assert_eq!(partition.owner_of(2), Some(&member("a")));
    assert_eq!(partition.deadline_ms(), Some(later + 30_000));
    let disabled = Limits { is_renew_enabled: false, ..LIMITS };
    assert!(is_record_state(partition.acknowledge(&member("a"), &renewal, later, &disabled)));
    assert_eq!(partition.expire(later + 30_000, &LIMITS).count, 2);
}

#[test]
fn a_released_member_keeps_delivery_counts() {
    let mut partition = acquired(&[batch(0, 9)]);
    accept(&mut partition, "a", 0, 2);
    acknowledge(&mut partition, "a", 5, 5, &[1]).expect("its own").expect("written");
    let write = partition.take_write().expect("the acknowledgement");
    assert!(partition.release(&member("b"), &LIMITS).is_none());
    assert!(partition.release(&member("a"), &LIMITS).is_some());
    assert_eq!(partition.next_fetch_offset(), 10, "nothing is free before it is written");
    partition.on_written(write.id, true, NOW, &LIMITS);
    assert_eq!(
        confirm(&mut partition),
        [state(3, 4, RecordState::Available, 1), state(6, 9, RecordState::Available, 1)]
    );
    assert_eq!(by("b").fetch(&mut partition, &[batch(0, 9)]), [(3, 4, 2), (6, 9, 2)]);
}

#[test]
fn locks_end_and_records_are_archived_at_the_delivery_limit() {
    let mut partition = fresh();
    let log = [batch(0, 0)];
    for count in 1..=5 {
        assert_eq!(by("a").fetch(&mut partition, &log), [(0, 0, count)]);
        assert_eq!(partition.expire(NOW + 29_999, &LIMITS).count, 0);
        assert_eq!(partition.expire(NOW + 30_000, &LIMITS).count, 1);
    }
    assert_eq!((partition.start_offset(), partition.in_flight_count()), (1, 0));
}

#[test]
fn a_lower_delivery_limit_acts_on_records_in_flight() {
    let mut partition = acquired(&[batch(0, 9)]);
    let once = Limits { delivery_count: 1, ..LIMITS };
    partition.release(&member("a"), &once);
    assert_eq!(confirm(&mut partition), [state(0, 9, RecordState::Archived, 1)]);
    assert_eq!(partition.start_offset(), 10);
}
