//! The rules of a leader's log for transactions, following Apache Kafka 4.3. "Case" is the number in the list of cases of transactions.

use klamm_base::ErrorCode;
use klamm_records::control::end_transaction_marker;
use tempfile::{TempDir, tempdir};

use crate::testing::{BatchSpec, batch, config, create};
use crate::{Log, Origin};

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
