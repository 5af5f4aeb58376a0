//! What producers may append, following Apache Kafka 4.3, and the state that is kept of them.

use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_records::control::end_transaction_marker;
use tempfile::tempdir;

use crate::testing::{BatchSpec, batch, config, create, open};
use crate::{Appended, Log, LogConfig, LogContext, OpenAt, Origin};

fn send(log: &mut Log, producer: (i64, i16, i32), records: i32, transactional: bool) -> Result<Appended, ErrorCode> {
    let spec = BatchSpec { records, producer: Some(producer), transactional, timestamp: 5000, ..BatchSpec::default() };
    log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client).map_err(|error| error.code())
}

/// Appends one record of producer 7.
fn append(log: &mut Log, epoch: i16, sequence: i32) -> Result<i64, ErrorCode> {
    send(log, (7, epoch, sequence), 1, false).map(|appended| appended.base_offset)
}

fn end(log: &mut Log, producer_id: i64, epoch: i16, commit: bool, coordinator_epoch: i32) -> Result<i64, ErrorCode> {
    let mut bytes = end_transaction_marker(producer_id, epoch, 6000, commit, coordinator_epoch).expect("small");
    log.append_as_leader(&mut bytes, 0, 0, Origin::Coordinator)
        .map(|appended| appended.base_offset)
        .map_err(|error| error.code())
}

const OUT_OF_ORDER: Result<i64, ErrorCode> = Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
const FENCED: Result<i64, ErrorCode> = Err(ErrorCode::INVALID_PRODUCER_EPOCH);

#[test]
fn sequences_go_up_by_one() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    assert_eq!(append(&mut log, 0, 0), Ok(0));
    assert_eq!(append(&mut log, 0, 2), OUT_OF_ORDER);
    assert_eq!(append(&mut log, 0, 1), Ok(1));
    assert_eq!(send(&mut log, (7, 0, 2), 3, false).map(|appended| appended.last_offset), Ok(4));
    assert_eq!(append(&mut log, 0, 4), OUT_OF_ORDER);
    assert_eq!(append(&mut log, 0, 5), Ok(5));
    assert_eq!(log.log_end_offset(), 6, "what is refused is not written");
}

#[test]
fn an_unknown_producer_may_begin_at_any_sequence() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    assert_eq!(append(&mut log, 3, 41), Ok(0));
    assert_eq!(append(&mut log, 3, 43), OUT_OF_ORDER);
    log.expire_producers(i64::MAX);
    assert_eq!(append(&mut log, 3, 77), Ok(1));
}

#[test]
fn the_sequence_wraps() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    assert_eq!(append(&mut log, 0, i32::MAX - 1), Ok(0));
    let over = send(&mut log, (7, 0, i32::MAX), 3, false).expect("wraps");
    assert_eq!((over.base_offset, over.last_offset), (1, 3));
    assert!(send(&mut log, (7, 0, i32::MAX), 3, false).expect("recognized").duplicate);
    assert_eq!(append(&mut log, 0, 3), OUT_OF_ORDER);
    assert_eq!(append(&mut log, 0, 2), Ok(4));
}

#[test]
fn a_new_epoch_begins_at_zero_and_fences_the_old_one() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    assert_eq!(append(&mut log, 1, 0), Ok(0));
    assert_eq!(append(&mut log, 2, 1), OUT_OF_ORDER);
    assert_eq!(append(&mut log, 2, 0), Ok(1));
    assert_eq!(append(&mut log, 1, 1), FENCED);
    assert_eq!(append(&mut log, 2, 1), Ok(2));
}

#[test]
fn the_last_five_batches_are_recognized() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    for sequence in 0..7 {
        assert_eq!(append(&mut log, 0, sequence), Ok(i64::from(sequence)));
    }
    for sequence in 2..7 {
        let again = send(&mut log, (7, 0, sequence), 1, false).expect("recognized");
        assert!(again.duplicate);
        assert_eq!((again.base_offset, again.append_time_ms), (i64::from(sequence), 5000));
    }
    for sequence in 0..2 {
        assert_eq!(append(&mut log, 0, sequence), OUT_OF_ORDER);
    }
    // The same first sequence number with a different length is a different batch.
    assert_eq!(send(&mut log, (7, 0, 6), 2, false), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
    assert_eq!(log.log_end_offset(), 7);
}

#[test]
fn producers_survive_roll_retention_and_restart() {
    for clean in [true, false] {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let settings = LogConfig { segment_bytes: 1000, retention_bytes: 3000, retention_ms: -1, ..config() };
        let mut log = create(&path, settings.clone());
        assert_eq!(send(&mut log, (8, 0, 0), 1, false).map(|appended| appended.base_offset), Ok(0));
        for sequence in 0..100 {
            append(&mut log, 0, sequence).expect("in order");
        }
        log.delete_expired(log.log_end_offset(), 5000).expect("retention");
        assert!(log.log_start_offset() > 50);
        let recovery_point = log.flush().expect("flush");
        if clean {
            log.close().expect("close");
        }
        drop(log);
        let (mut log, _) = open(&path, settings, clean, recovery_point);
        assert!(send(&mut log, (7, 0, 99), 1, false).expect("recognized").duplicate, "clean: {clean}");
        assert_eq!(append(&mut log, 0, 101), OUT_OF_ORDER);
        assert_eq!(append(&mut log, 0, 100), Ok(101));
        // Its only record was removed with its segment, but a snapshot contains the producer.
        assert!(send(&mut log, (8, 0, 0), 1, false).expect("recognized").duplicate, "clean: {clean}");
        assert_eq!(send(&mut log, (8, 0, 1), 1, false).map(|appended| appended.base_offset), Ok(102));
    }
}

#[test]
fn producers_survive_a_log_start_that_passed_their_records() {
    for (clean, recovery_point) in [(true, 0), (false, 0), (false, 11)] {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let mut log = create(&path, config());
        send(&mut log, (8, 0, 0), 1, false).expect("the first");
        for sequence in 0..10 {
            append(&mut log, 0, sequence).expect("in order");
        }
        log.flush().expect("flush");
        assert!(log.advance_log_start(5));
        if clean {
            log.close().expect("close");
        }
        drop(log);
        let at = OpenAt { recovery_point, log_start_offset: 5, clean, has_gaps: false, ..OpenAt::default() };
        let context = LogContext::new(64);
        let (mut log, _) = Log::open(&path, "t", 0, Arc::new(config()), &context, at.clone(), 0).expect("open");
        assert_eq!(log.log_start_offset(), 5);
        assert!(send(&mut log, (8, 0, 0), 1, false).expect("recognized").duplicate, "{at:?}");
        assert_eq!(send(&mut log, (8, 0, 1), 1, false).map(|appended| appended.base_offset), Ok(11));
    }
}

#[test]
fn truncation_restores_earlier_producer_states() {
    let dir = tempdir().expect("temporary directory");
    let settings = LogConfig { segment_bytes: 1000, ..config() };
    let mut log = create(&dir.path().join("t-0"), settings);
    for sequence in 0..60 {
        append(&mut log, 0, sequence).expect("in order");
    }
    for to in [55, 30, 3] {
        log.truncate_to(to, 5000).expect("truncate");
        assert_eq!(append(&mut log, 0, to as i32 + 1), OUT_OF_ORDER);
        assert!(send(&mut log, (7, 0, to as i32 - 1), 1, false).expect("recognized").duplicate);
        assert_eq!(append(&mut log, 0, to as i32), Ok(to));
    }
}

#[test]
fn open_transactions_bound_the_last_stable_offset() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    append(&mut log, 0, 0).expect("plain");
    assert_eq!(send(&mut log, (1, 0, 0), 2, true).expect("begins").base_offset, 1);
    assert_eq!(send(&mut log, (2, 0, 0), 1, true).expect("begins").base_offset, 3);
    assert_eq!(log.last_stable_offset(1), 1);
    assert_eq!(log.last_stable_offset(4), 1);
    assert_eq!(send(&mut log, (1, 0, 2), 1, false), Err(ErrorCode::INVALID_TXN_STATE));
    assert_eq!(end(&mut log, 1, 0, false, 3), Ok(4));
    // Unstable for consumers until the marker itself is below the high watermark.
    assert_eq!(log.last_stable_offset(4), 1);
    assert_eq!(log.last_stable_offset(5), 3);
    assert_eq!(end(&mut log, 2, 0, true, 3), Ok(5));
    assert_eq!(log.last_stable_offset(6), 6);
    let aborted = log.aborted_between(0, 6).expect("read");
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset, aborted[0].last_offset), (1, 1, 4));
    assert_eq!(aborted[0].last_stable_offset, 3);
    assert_eq!(log.aborted_between(5, 6).expect("read"), []);
    drop(log);
    let (mut log, _) = open(&path, config(), false, 0);
    assert_eq!(log.aborted_between(0, 6).expect("read"), aborted);
    assert_eq!(log.last_stable_offset(6), 6);
}

#[test]
fn markers_of_an_older_coordinator_or_epoch_are_refused() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    send(&mut log, (1, 5, 0), 1, true).expect("begins");
    assert_eq!(end(&mut log, 1, 4, true, 3), FENCED);
    assert_eq!(end(&mut log, 1, 5, true, 3), Ok(1));
    send(&mut log, (1, 5, 1), 1, true).expect("begins");
    assert_eq!(end(&mut log, 1, 5, true, 2), Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
    assert_eq!(end(&mut log, 1, 6, true, 3), Ok(3));
    // The marker moved the producer to its epoch, where sequence numbers start at 0.
    assert_eq!(send(&mut log, (1, 5, 2), 1, true), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    assert_eq!(send(&mut log, (1, 6, 0), 1, true).map(|appended| appended.base_offset), Ok(4));
}

#[test]
fn a_marker_without_a_transaction_hides_nothing() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    assert_eq!(end(&mut log, 1, 0, false, 0), Ok(0));
    assert_eq!(log.last_stable_offset(1), 1);
    assert_eq!(log.aborted_between(0, 1).expect("read"), []);
}

#[test]
fn a_follower_accepts_what_its_leader_accepted() {
    let dir = tempdir().expect("temporary directory");
    let mut leader = create(&dir.path().join("t-0"), config());
    let mut follower = create(&dir.path().join("t-1"), config());
    let mut bytes = Vec::new();
    for (sequence, offset) in [(0, 0), (5, 1), (3, 2)] {
        // The producer expired on the leader between the batches.
        leader.expire_producers(i64::MAX);
        assert_eq!(append(&mut leader, 0, sequence), Ok(offset));
        bytes.extend(crate::testing::read_all(&mut leader, offset));
    }
    let cut = bytes.len() - 10;
    let appended = follower.append_as_follower(&bytes[..cut], 0, 0).expect("append").expect("two whole batches");
    assert_eq!((appended.base_offset, appended.last_offset), (0, 1));
    let last = crate::testing::read_all(&mut leader, 2);
    follower.append_as_follower(&last, 0, 0).expect("append");
    assert_eq!(follower.producers.get(7).last_batch(), leader.producers.get(7).last_batch());
    let again = follower.append_as_follower(&last, 0, 0).expect_err("there already");
    assert_eq!(again.code(), ErrorCode::UNKNOWN_SERVER_ERROR);
    let mut newer = last.clone();
    newer[12..16].copy_from_slice(&9i32.to_be_bytes());
    assert_eq!(follower.append_as_follower(&newer, 8, 0).expect("nothing to take"), None);
    let mut damaged = last;
    damaged[70] ^= 1;
    assert_eq!(follower.append_as_follower(&damaged, 8, 0).expect_err("damaged").code(), ErrorCode::CORRUPT_MESSAGE);
}
