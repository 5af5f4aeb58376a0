//! The rules of a leader's log for transactions, following Apache Kafka 4.3. "Case" is the number in the list of cases of transactions.

use klamm_base::ErrorCode;
use klamm_records::control::end_transaction_marker;
use tempfile::{TempDir, tempdir};

use crate::testing::{BatchSpec, batch, config, create, open, read_all};
use crate::{Claim, Guard, Log, Origin};

fn new_log() -> (TempDir, Log) {
    let dir = tempdir().expect("temporary directory");
    let log = create(&dir.path().join("t-0"), config());
    (dir, log)
}

/// One record of producer 1 in a transaction.
fn data(log: &mut Log, epoch: i16, sequence: i32) -> Result<i64, ErrorCode> {
    let spec = BatchSpec { producer: Some((1, epoch, sequence)), transactional: true, ..BatchSpec::default() };
    let appended = log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client);
    appended.map(|appended| appended.base_offset).map_err(|error| error.code())
}

/// The guard of producer 1 for a batch; `bumps_epoch` is that of a TV2 producer.
fn verify(log: &mut Log, epoch: i16, sequence: i32, bumps_epoch: bool) -> Result<Option<Guard>, ErrorCode> {
    let claim = Claim { producer_id: 1, producer_epoch: epoch, base_sequence: sequence };
    log.begin_verification(claim, bumps_epoch, 0).map_err(|error| error.code())
}

/// A batch with the guard of its verification.
fn verified(log: &mut Log, epoch: i16, sequence: i32, guard: Option<Guard>) -> Result<i64, ErrorCode> {
    let spec = BatchSpec { producer: Some((1, epoch, sequence)), transactional: true, ..BatchSpec::default() };
    let appended = log.append_as_leader(&mut batch(&spec), 0, 0, Origin::VerifiedClient(guard));
    appended.map(|appended| appended.base_offset).map_err(|error| error.code())
}

/// A marker for producer 1.
fn marker(log: &mut Log, transaction_version: i8, epoch: i16, coordinator_epoch: i32) -> Result<i64, ErrorCode> {
    let mut bytes = end_transaction_marker(1, epoch, 0, true, coordinator_epoch).expect("small");
    let appended = log.append_as_leader(&mut bytes, 0, 0, Origin::Markers { transaction_version });
    appended.map(|appended| appended.base_offset).map_err(|error| error.code())
}

const FENCED: Result<i64, ErrorCode> = Err(ErrorCode::INVALID_PRODUCER_EPOCH);

#[test]
fn case_33_a_marker_needs_the_epoch_of_its_transaction_version() {
    for (version, equal) in [(0, Ok(1)), (1, Ok(1)), (2, FENCED), (3, FENCED)] {
        let (_dir, mut log) = new_log();
        assert_eq!(data(&mut log, 5, 0), Ok(0));
        assert_eq!(marker(&mut log, version, 4, 0), FENCED, "version {version}");
        assert_eq!(marker(&mut log, version, 5, 0), equal, "version {version}");
    }
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 5, 0), Ok(0));
    assert_eq!(marker(&mut log, 2, 6, 0), Ok(1));
    assert_eq!(marker(&mut log, 2, 6, 0), Ok(2), "the coordinator repeats a marker whose answer was lost");
    assert_eq!(data(&mut log, 6, 0), Ok(3));
    assert_eq!(marker(&mut log, 2, 6, 0), FENCED, "too late: the next transaction is open");
    assert_eq!(log.last_stable_offset(4), 3);
    assert_eq!(marker(&mut log, 2, 7, 0), Ok(4));
}

#[test]
fn the_last_epoch_of_a_producer_is_accepted_twice() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, i16::MAX, 0), Ok(0));
    assert_eq!(marker(&mut log, 2, i16::MAX, 0), Ok(1));
}

#[test]
fn case_34_a_marker_of_an_older_coordinator_is_refused_also_without_a_transaction() {
    for version in [0, 2] {
        let (_dir, mut log) = new_log();
        assert_eq!(marker(&mut log, version, 5, -1), Ok(0), "nothing is known of the producer");
        assert_eq!(marker(&mut log, version, 5, 3), Ok(1));
        assert_eq!(marker(&mut log, version, 5, 2), Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
        assert_eq!(data(&mut log, 5, 0), Ok(2));
        assert_eq!(marker(&mut log, version, 6, 2), Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
        assert_eq!(marker(&mut log, version, 6, 3), Ok(3));
    }
}

const NOT_VERIFIED: Result<i64, ErrorCode> = Err(ErrorCode::INVALID_TXN_STATE);
const OUT_OF_ORDER: Result<i64, ErrorCode> = Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);

#[test]
fn only_the_batch_that_begins_a_transaction_needs_a_guard() {
    let (_dir, mut log) = new_log();
    assert_eq!(verified(&mut log, 0, 0, None), NOT_VERIFIED);
    let guard = verify(&mut log, 0, 0, false).expect("a known epoch");
    assert!(guard.is_some());
    assert_eq!(verify(&mut log, 0, 0, false), Ok(guard), "two requests of one producer have the same guard");
    assert_eq!(verified(&mut log, 0, 0, guard), Ok(0));
    assert_eq!(verify(&mut log, 0, 1, false), Ok(None), "open");
    assert_eq!(verified(&mut log, 0, 1, None), Ok(1));
    assert_eq!(marker(&mut log, 0, 0, 0), Ok(2));
    assert_eq!(verified(&mut log, 0, 2, guard), NOT_VERIFIED, "the guard was used");
    let plain = BatchSpec { producer: Some((9, 0, 0)), ..BatchSpec::default() };
    log.append_as_leader(&mut batch(&plain), 0, 0, Origin::VerifiedClient(None)).expect("not transactional");
}

#[test]
fn case_42_a_marker_before_the_append_voids_the_verification() {
    for (bumps_epoch, expected) in [(false, NOT_VERIFIED), (true, FENCED)] {
        let (_dir, mut log) = new_log();
        let guard = verify(&mut log, 3, 0, bumps_epoch).expect("a known epoch");
        let (version, marker_epoch) = if bumps_epoch { (2, 4) } else { (0, 3) };
        assert_eq!(marker(&mut log, version, marker_epoch, 0), Ok(0));
        assert_eq!(verified(&mut log, 3, 0, guard), expected);
        assert_eq!(log.log_end_offset(), 1);
    }
}

#[test]
fn the_marker_of_the_previous_transaction_keeps_the_next_verification() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 3, 0), Ok(0));
    let guard = verify(&mut log, 4, 0, true).expect("a known epoch");
    assert_eq!(marker(&mut log, 2, 4, 0), Ok(1));
    assert_eq!(verified(&mut log, 4, 0, guard), Ok(2));
    // Without an epoch per transaction, it may be the marker of the pending transaction.
    let (_dir, mut log) = new_log();
    let guard = verify(&mut log, 4, 0, false).expect("a known epoch");
    assert_eq!(marker(&mut log, 0, 4, 0), Ok(0));
    assert_eq!(verified(&mut log, 4, 0, guard), NOT_VERIFIED);
}

#[test]
fn case_43_a_later_batch_does_not_overtake_one_whose_verification_failed() {
    for bumps_epoch in [false, true] {
        let (_dir, mut log) = new_log();
        verify(&mut log, 0, 0, bumps_epoch).expect("its answer is an error");
        let guard = verify(&mut log, 0, 1, bumps_epoch).expect("a known epoch");
        assert_eq!(verified(&mut log, 0, 1, guard), OUT_OF_ORDER);
        assert_eq!(verify(&mut log, 0, 0, bumps_epoch), Ok(guard));
        assert_eq!(verified(&mut log, 0, 0, guard), Ok(0));
        assert_eq!(verified(&mut log, 0, 1, None), Ok(1));
    }
}

#[test]
fn a_newer_epoch_begins_its_own_sequence() {
    let (_dir, mut log) = new_log();
    verify(&mut log, 0, 0, true).expect("a known epoch");
    let guard = verify(&mut log, 2, 5, true).expect("a newer epoch");
    assert_eq!(verify(&mut log, 1, 0, true), Ok(guard), "an older one changes nothing");
    assert_eq!(verify(&mut log, 2, 7, true), Ok(guard));
    assert_eq!(verified(&mut log, 2, 7, guard), OUT_OF_ORDER);
    let (_dir, mut log) = new_log();
    let guard = verify(&mut log, 2, 5, false).expect("a known epoch");
    assert_eq!(verified(&mut log, 2, 6, guard), OUT_OF_ORDER);
    assert_eq!(verified(&mut log, 2, 5, guard), Ok(0), "an unknown producer of TV1 goes on at any sequence");
}

#[test]
fn case_44_an_older_epoch_is_rejected_without_a_verification() {
    let (_dir, mut log) = new_log();
    assert_eq!(marker(&mut log, 0, 5, 0), Ok(0));
    assert_eq!(verify(&mut log, 4, 0, true), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    assert_eq!(verified(&mut log, 4, 0, None), FENCED, "not an error of the transaction's state, which is fatal");
}

#[test]
fn case_45_without_state_a_tv2_producer_begins_at_zero() {
    for (bumps_epoch, expected) in [(true, OUT_OF_ORDER), (false, Ok(0))] {
        let (_dir, mut log) = new_log();
        let guard = verify(&mut log, 0, 5, bumps_epoch).expect("a known epoch");
        assert_eq!(verified(&mut log, 0, 5, guard), expected);
    }
}

#[test]
fn case_46_sequences_after_a_marker() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 0, 0), Ok(0));
    assert_eq!(marker(&mut log, 2, 1, 0), Ok(1));
    let guard = verify(&mut log, 1, 3, true).expect("a known epoch");
    assert_eq!(verified(&mut log, 1, 3, guard), OUT_OF_ORDER);
    let guard = verify(&mut log, 1, 0, true).expect("a known epoch");
    assert_eq!(verified(&mut log, 1, 0, guard), Ok(2));
    // The epoch of a TV1 producer is unchanged, and its sequences continue.
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 0, 0), Ok(0));
    assert_eq!(marker(&mut log, 0, 0, 0), Ok(1));
    let guard = verify(&mut log, 0, 1, false).expect("a known epoch");
    assert_eq!(verified(&mut log, 0, 0, None), Ok(0), "a batch that is in the log is recognized first");
    assert_eq!(verified(&mut log, 0, 1, guard), Ok(2));
}

#[test]
fn case_47_a_batch_outside_of_the_open_transaction_is_refused() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 0, 0), Ok(0));
    let plain = BatchSpec { producer: Some((1, 0, 1)), ..BatchSpec::default() };
    let refused = log.append_as_leader(&mut batch(&plain), 0, 0, Origin::VerifiedClient(None)).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::INVALID_TXN_STATE);
}

#[test]
fn case_49_a_batch_is_sent_again() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 0, 0), Ok(0));
    assert_eq!(verify(&mut log, 0, 0, true), Ok(None), "nothing to ask while it is open");
    assert_eq!(verified(&mut log, 0, 0, None), Ok(0));
    assert_eq!(log.log_end_offset(), 1);
    assert_eq!(marker(&mut log, 2, 1, 0), Ok(1));
    assert_eq!(verify(&mut log, 0, 0, true), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    assert_eq!(verified(&mut log, 0, 0, None), FENCED);
}

#[test]
fn case_62_a_producer_with_an_open_transaction_does_not_expire() {
    let (_dir, mut log) = new_log();
    assert_eq!(data(&mut log, 0, 0), Ok(0));
    let guard = verify(&mut log, 1, 0, true).expect("a known epoch");
    log.expire_producers(i64::MAX);
    assert_eq!(log.producers().count(), 1);
    assert_eq!(log.last_stable_offset(1), 0);
    assert_eq!(verified(&mut log, 1, 0, guard), NOT_VERIFIED, "a verification expires all the same");
    assert_eq!(marker(&mut log, 0, 0, 0), Ok(1));
    log.expire_producers(i64::MAX);
    assert_eq!(log.producers().count(), 0);
}

/// A batch of a producer in a transaction.
fn of(log: &mut Log, producer_id: i64, epoch: i16, sequence: i32, records: i32) -> i64 {
    let producer = Some((producer_id, epoch, sequence));
    let spec = BatchSpec { producer, records, transactional: true, ..BatchSpec::default() };
    log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client).expect("append").base_offset
}

/// Ends a transaction of TV1.
fn end(log: &mut Log, producer_id: i64, commits: bool) -> i64 {
    let mut bytes = end_transaction_marker(producer_id, 0, 0, commits, 0).expect("small");
    let origin = Origin::Markers { transaction_version: 0 };
    log.append_as_leader(&mut bytes, 0, 0, origin).expect("append").base_offset
}

/// Producer, first offset, marker and last stable offset of the aborted transactions of a fetch in `[from, to)`.
fn aborted(log: &mut Log, from: i64, to: i64) -> Vec<(i64, i64, i64, i64)> {
    let found = log.aborted_between(from, to).expect("read");
    found.iter().map(|it| (it.producer_id, it.first_offset, it.last_offset, it.last_stable_offset)).collect()
}

#[test]
fn case_51_the_last_stable_offset_moves_once_the_marker_is_committed() {
    let (_dir, mut log) = new_log();
    let plain = BatchSpec { records: 10, ..BatchSpec::default() };
    log.append_as_leader(&mut batch(&plain), 0, 0, Origin::Client).expect("append");
    assert_eq!(of(&mut log, 1, 0, 0, 30), 10);
    assert_eq!(log.last_stable_offset(40), 10);
    assert_eq!(end(&mut log, 1, true), 40);
    assert_eq!(log.last_stable_offset(40), 10);
    assert_eq!(log.last_stable_offset(41), 41);
}

#[test]
fn case_52_overlapping_aborted_transactions_are_indexed_with_the_offset_that_was_stable() {
    let (_dir, mut log) = new_log();
    assert_eq!((of(&mut log, 1, 0, 0, 2), of(&mut log, 2, 0, 0, 2)), (0, 2));
    assert_eq!((end(&mut log, 1, false), end(&mut log, 2, false)), (4, 5));
    assert_eq!(aborted(&mut log, 3, 4), [(1, 0, 4, 2), (2, 2, 5, 6)]);
    assert_eq!(aborted(&mut log, 5, 6), [(2, 2, 5, 6)]);
    assert_eq!((of(&mut log, 3, 0, 0, 1), end(&mut log, 3, true)), (6, 7));
    assert_eq!(end(&mut log, 1, false), 8, "an empty transaction");
    assert_eq!(aborted(&mut log, 0, 9).len(), 2);
}

#[test]
fn case_53_a_transaction_that_ends_in_a_later_segment_is_found() {
    let (_dir, mut log) = new_log();
    for sequence in 0..3 {
        of(&mut log, 1, 0, sequence, 1);
        log.roll(i64::from(sequence) + 1, 0).expect("roll");
    }
    assert_eq!(end(&mut log, 1, false), 3);
    assert_eq!(log.segment_count(), 4);
    let slice = log.read(0, 1, 4, true).expect("read");
    let found = log.aborted_transactions(0, &slice).expect("read");
    assert_eq!(found.iter().map(|it| (it.producer_id, it.first_offset)).collect::<Vec<_>>(), [(1, 0)]);
}

#[test]
fn case_56_transactions_after_an_unclean_stop() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    of(&mut log, 1, 0, 0, 2);
    of(&mut log, 2, 0, 0, 1);
    assert_eq!(end(&mut log, 1, false), 3);
    let (before, stable) = (aborted(&mut log, 0, 4), log.last_stable_offset(4));
    assert_eq!((before.len(), stable), (1, 2));
    drop(log);
    let (mut log, _) = open(&path, config(), false, 0);
    assert_eq!((aborted(&mut log, 0, 4), log.last_stable_offset(4)), (before, stable));
    assert_eq!(end(&mut log, 2, true), 4);
    assert_eq!(log.last_stable_offset(5), 5);
}

#[test]
fn case_57_truncation_below_a_marker_opens_its_transaction_again() {
    for rolls in [false, true] {
        let (_dir, mut log) = new_log();
        of(&mut log, 1, 0, 0, 2);
        if rolls {
            log.roll(2, 0).expect("roll");
        }
        assert_eq!(end(&mut log, 1, false), 2);
        assert_eq!((aborted(&mut log, 0, 3).len(), log.last_stable_offset(3)), (1, 3));
        log.truncate_to(2, 0).expect("truncate");
        assert_eq!((aborted(&mut log, 0, 3), log.last_stable_offset(2)), (vec![], 0));
        assert_eq!(end(&mut log, 1, true), 2);
        assert_eq!((aborted(&mut log, 0, 3), log.last_stable_offset(3)), (vec![], 3));
    }
}

#[test]
fn case_58_an_open_transaction_below_the_log_start_counts_from_there() {
    let (_dir, mut log) = new_log();
    of(&mut log, 1, 0, 0, 4);
    assert!(log.advance_log_start(2));
    assert_eq!(log.last_stable_offset(4), 2);
    assert_eq!(end(&mut log, 1, false), 4);
    assert_eq!(log.last_stable_offset(5), 5);
    assert_eq!(aborted(&mut log, 2, 5), [(1, 0, 4, 5)]);
}

#[test]
fn case_61_a_follower_has_the_leaders_transactions_and_continues_them() {
    let dir = tempdir().expect("temporary directory");
    let (leader_path, follower_path) = (dir.path().join("t-0"), dir.path().join("t-1"));
    let mut leader = create(&leader_path, config());
    let mut follower = create(&follower_path, config());
    of(&mut leader, 1, 0, 0, 2);
    of(&mut leader, 2, 0, 0, 1);
    end(&mut leader, 1, false);
    of(&mut leader, 3, 0, 0, 1);
    let bytes = read_all(&mut leader, 0);
    follower.append_as_follower(&bytes, 0, 0).expect("append").expect("whole batches");
    for high_watermark in 0..6 {
        assert_eq!(follower.last_stable_offset(high_watermark), leader.last_stable_offset(high_watermark));
    }
    let index = |path: &std::path::Path| std::fs::read(path.join("00000000000000000000.txnindex")).expect("a file");
    assert_eq!(index(&follower_path), index(&leader_path));
    assert_eq!(verify_of(&mut follower, 2), None, "it leads now, and the transaction is open");
    assert_eq!(of(&mut follower, 2, 0, 1, 1), 5);
    assert_eq!((end(&mut follower, 2, true), end(&mut follower, 3, false)), (6, 7));
    assert_eq!(follower.last_stable_offset(8), 8);
    assert_eq!(aborted(&mut follower, 0, 8), [(1, 0, 3, 2), (3, 4, 7, 8)]);
}

fn verify_of(log: &mut Log, producer_id: i64) -> Option<Guard> {
    let claim = Claim { producer_id, producer_epoch: 0, base_sequence: 1 };
    log.begin_verification(claim, false, 0).expect("a known epoch")
}

#[test]
fn many_transactions_in_one_append_of_a_follower_have_the_leaders_index() {
    let dir = tempdir().expect("temporary directory");
    let (leader_path, follower_path) = (dir.path().join("t-0"), dir.path().join("t-1"));
    let mut leader = create(&leader_path, config());
    let mut follower = create(&follower_path, config());
    of(&mut leader, 1, 0, 0, 1);
    end(&mut leader, 1, false);
    of(&mut leader, 1, 0, 1, 1);
    end(&mut leader, 1, false);
    // Not open before these markers.
    of(&mut leader, 3, 0, 0, 1);
    let bytes = read_all(&mut leader, 0);
    follower.append_as_follower(&bytes, 0, 0).expect("append").expect("whole batches");
    let expected = [(1, 0, 1, 2), (1, 2, 3, 4)];
    assert_eq!(aborted(&mut leader, 0, 4), expected);
    assert_eq!(aborted(&mut follower, 0, 4), expected);
    assert_eq!(follower.last_stable_offset(5), leader.last_stable_offset(5));
}

#[test]
fn the_name_of_a_new_index_is_flushed_with_its_marker() {
    let (_dir, mut log) = new_log();
    log.flush().expect("flush");
    let files_of_next_flush = |log: &mut Log| {
        let job = log.begin_flush().expect("something to flush");
        job.run().expect("flush");
        log.complete_flush(job.end());
        job.file_count()
    };
    of(&mut log, 1, 0, 0, 1);
    assert_eq!(files_of_next_flush(&mut log), 1, "the log");
    end(&mut log, 1, false);
    assert_eq!(files_of_next_flush(&mut log), 2, "the directory, too");
    of(&mut log, 1, 0, 1, 1);
    end(&mut log, 1, false);
    assert_eq!(files_of_next_flush(&mut log), 1);
}

#[test]
fn recovery_resumes_after_an_aborted_transaction_only_at_a_mark() {
    let (_dir, mut log) = new_log();
    of(&mut log, 1, 0, 0, 1);
    end(&mut log, 1, true);
    assert_eq!((log.flush().expect("flush"), log.recovery_point()), (2, 2));
    of(&mut log, 1, 0, 1, 1);
    end(&mut log, 1, false);
    assert_eq!((log.flush().expect("flush"), log.recovery_point()), (4, 0), "its index is not durable");
    let job = log.begin_mark().expect("written").expect("something to sync");
    job.sync().expect("synced");
    log.complete_mark(job.end()).expect("completed");
    assert_eq!(log.recovery_point(), 4);
}
