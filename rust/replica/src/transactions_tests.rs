//! Transactions at the leader of a partition: verification of batches, and what consumers may read. "Case" is the number in the list of
//! cases of transactions.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Wake, Waker};
use std::time::Duration;

use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch, read_all};
use klamm_log::{Claim, Guard, LogConfig, Origin};
use klamm_records::control::end_transaction_marker;
use tempfile::tempdir;

use super::partition::Partition;
use super::reading::{LATEST, MAX_TIMESTAMP};
use super::replicas_tests::{elect, leading};
use super::results::{CONSUMER, Fetched, FoundOffset, OffsetQuery, PartitionFetch};
use super::{Awaits, FetchWaiter, PartitionConfig, Quiet, Replicas, SessionEntry};

const NO_LEADER: i32 = -1;
const TOPIC: Uuid = Uuid([7; 16]);
const TIMEOUT: Duration = Duration::from_secs(30);

fn spec(sequence: i32) -> BatchSpec {
    BatchSpec { producer: Some((1, 0, sequence)), transactional: true, timestamp: 5000, ..BatchSpec::default() }
}

/// Appends bytes and waits until they are committed; returns their offset.
fn committed(partition: &Partition, bytes: &mut [u8], origin: Origin) -> i64 {
    let appended = partition.append(bytes, -1, origin, 0).expect("appended");
    let (sender, acked) = channel();
    partition.when_acked(appended.end_offset, Box::new(move |code| sender.send(code).expect("the test listens")));
    assert_eq!(acked.recv_timeout(TIMEOUT), Ok(ErrorCode::NONE));
    appended.base_offset
}

fn data(partition: &Partition, sequence: i32) -> i64 {
    committed(partition, &mut batch(&spec(sequence)), Origin::Client)
}

fn end(partition: &Partition, commits: bool) -> i64 {
    let mut bytes = end_transaction_marker(1, 0, 6000, commits, 0).expect("small");
    committed(partition, &mut bytes, Origin::Markers { transaction_version: 0 })
}

fn plain(partition: &Partition) -> i64 {
    committed(partition, &mut batch(&BatchSpec::default()), Origin::Client)
}

fn request(fetch_offset: i64, read_committed: bool) -> PartitionFetch<'static> {
    PartitionFetch {
        fetch_offset,
        max_bytes: 1 << 20,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        read_committed,
        replica_id: CONSUMER,
        client_rack: None,
        replica_epoch: -1,
        log_start_offset: -1,
        is_first_look: true,
        at_least_one: true,
        quiet: None,
    }
}

fn fetch(partition: &Partition, fetch_offset: i64, read_committed: bool) -> Fetched {
    partition.fetch(&request(fetch_offset, read_committed))
}

fn records_len(fetched: &Fetched) -> usize {
    fetched.records.as_ref().map_or(0, |records| records.len)
}

fn find(partition: &Partition, timestamp: i64, read_committed: Option<bool>) -> i64 {
    let query = OffsetQuery { timestamp, current_leader_epoch: -1, read_committed, only_from_leader: true };
    let FoundOffset { offset, .. } = partition.find_offset(&query).expect("found or not");
    offset
}

fn led(dir: &Path) -> (Replicas, Arc<Partition>) {
    let replicas = leading(dir);
    let partition = replicas.get(TOPIC, 0).expect("led");
    (replicas, partition)
}

#[test]
fn case_52_aborted_transactions_are_for_consumers_that_read_committed_records() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!((plain(&partition), data(&partition, 0), plain(&partition)), (0, 1, 2));
    let open = fetch(&partition, 0, true);
    assert_eq!((open.high_watermark, open.last_stable_offset), (3, 1));
    let one = records_len(&open);
    assert_eq!(records_len(&fetch(&partition, 0, false)), 3 * one, "the batches have one size");
    assert_eq!(open.aborted, Some(vec![]));
    assert_eq!(end(&partition, false), 3);
    let ended = fetch(&partition, 0, true);
    assert_eq!((ended.last_stable_offset, ended.aborted.as_deref()), (4, Some(&[(1, 1)][..])));
    assert_eq!(fetch(&partition, 0, false).aborted, None);
    assert_eq!(fetch(&partition, 4, true).aborted, Some(vec![]));
    replicas.shutdown(1);
}

#[test]
fn open_transactions_are_measured() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    let measured = || {
        let (gauges, lags) = (replicas.gauges(), replicas.partition_gauges());
        (gauges.late_transactions, gauges.producer_ids, lags.into_iter().map(|(_, lag)| lag).collect::<Vec<_>>())
    };
    assert_eq!((plain(&partition), measured()), (0, (0, 0, vec![0])));
    // Its records are of 1970.
    assert_eq!((data(&partition, 0), plain(&partition)), (1, 2));
    assert_eq!(measured(), (1, 1, vec![2]));
    let (name, _) = replicas.partition_gauges().remove(0);
    let topic = &partition.id.topic;
    assert_eq!(name, format!("kafka.cluster:type=Partition,name=LastStableOffsetLag,topic={topic},partition=0"));
    assert_eq!((end(&partition, true), measured()), (3, (0, 1, vec![0])));
    replicas.shutdown(1);
}

#[test]
fn a_topics_limits_do_not_apply_to_markers() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!(data(&partition, 0), 0);
    let log = LogConfig {
        timestamp_before_max_ms: 0,
        timestamp_after_max_ms: 0,
        max_message_bytes: 1,
        compact: true,
        ..LogConfig::default()
    };
    partition.set_config(Arc::new(PartitionConfig { log: Arc::new(log), ..PartitionConfig::default() }));
    assert_eq!(end(&partition, true), 1);
    replicas.shutdown(1);
}

struct Woken(std::sync::mpsc::Sender<()>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

#[test]
fn case_54_a_fetch_at_the_last_stable_offset_is_woken_by_the_marker() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!(data(&partition, 0), 0);
    let (sender, woken) = channel();
    assert_eq!(records_len(&fetch(&partition, 0, true)), 0);
    let waiter = Arc::new(FetchWaiter::new(Waker::from(Arc::new(Woken(sender)))));
    partition.watch(Awaits::HighWatermark, waiter);
    assert_eq!(records_len(&fetch(&partition, 0, true)), 0);
    assert_eq!(end(&partition, true), 1);
    woken.recv_timeout(TIMEOUT).expect("woken");
    assert!(records_len(&fetch(&partition, 0, true)) > 0);
    replicas.shutdown(1);
}

#[test]
fn readers_that_wait_are_woken_when_a_damaged_marker_is_repaired() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!((data(&partition, 0), end(&partition, true), plain(&partition)), (0, 1, 2));
    let after = partition.with(|log| read_all(log, 1));
    let marker = klamm_records::batches(&after).next().expect("a marker").expect("intact").bytes().to_vec();
    let logs = replicas.logs().clone();
    logs.checkpoint();
    drop((replicas, partition));
    logs.abandon();
    drop(logs);
    let file = dir.path().join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&file).expect("read");
    let at = bytes.windows(marker.len()).position(|window| window == marker).expect("it is there");
    bytes[at + marker.len() - 1] ^= 1;
    fs::write(&file, bytes).expect("write");
    // Otherwise the start does not read what was flushed.
    fs::remove_file(dir.path().join("recovery-point-offset-checkpoint")).expect("remove");

    let (replicas, partition) = led(dir.path());
    assert_eq!(plain(&partition), 3);
    let [range] = &partition.damaged()[..] else { panic!("the marker is damaged") };
    let entry = SessionEntry { news: Arc::default(), change: (1, 1) };
    let quiet = Some(Quiet { entry: &entry, high_watermark: 4, log_start_offset: 0 });
    let found = partition.fetch(&PartitionFetch { quiet, ..request(0, true) });
    assert_eq!((found.last_stable_offset, found.is_quiet), (0, true), "the transaction is in doubt");
    let (sender, woken) = channel();
    partition.watch(Awaits::HighWatermark, Arc::new(FetchWaiter::new(Waker::from(Arc::new(Woken(sender))))));
    assert!(partition.repair(range, &marker));
    woken.recv_timeout(TIMEOUT).expect("a waiting fetch is woken");
    let mut changed = Vec::new();
    entry.news.take(&mut changed);
    assert_eq!(changed, [(1, 1)], "a session visits the partition again");
    let found = fetch(&partition, 0, true);
    assert_eq!((found.last_stable_offset, found.aborted.as_deref()), (4, Some(&[][..])));
    assert!(records_len(&found) > 0);
    replicas.shutdown(1);
}

#[test]
fn case_55_list_offsets_up_to_the_last_stable_offset() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!((plain(&partition), data(&partition, 0)), (0, 1));
    for (isolation, latest, of_time) in [(Some(true), 1, -1), (Some(false), 2, 1), (None, 2, 1)] {
        assert_eq!(find(&partition, LATEST, isolation), latest, "{isolation:?}");
        assert_eq!(find(&partition, 5000, isolation), of_time, "{isolation:?}");
        assert_eq!(find(&partition, MAX_TIMESTAMP, isolation), of_time, "{isolation:?}");
        assert_eq!(find(&partition, 1000, isolation), 0, "{isolation:?}");
    }
    assert_eq!(end(&partition, true), 2);
    assert_eq!((find(&partition, LATEST, Some(true)), find(&partition, 5000, Some(true))), (3, 1));
    replicas.shutdown(1);
}

fn verify(partition: &Partition, sequence: i32, is_adding: bool) -> Result<Option<Guard>, ErrorCode> {
    let claim = Claim { producer_id: 1, producer_epoch: 0, base_sequence: sequence };
    partition.begin_verification(claim, is_adding, 0)
}

fn produce(partition: &Partition, sequence: i32, guard: Option<Guard>) -> Result<i64, ErrorCode> {
    let appended = partition.append_produced(&mut batch(&spec(sequence)), -1, guard, 0);
    appended.map(|appended| appended.base_offset).map_err(|refused| refused.code)
}

#[test]
fn a_leader_verifies_and_a_follower_does_not() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    assert_eq!(produce(&partition, 0, None), Err(ErrorCode::INVALID_TXN_STATE));
    let guard = verify(&partition, 0, false).expect("it leads");
    assert!(guard.is_some());
    elect(&replicas, NO_LEADER);
    assert_eq!(verify(&partition, 0, false), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(produce(&partition, 0, guard), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    elect(&replicas, super::replicas_tests::NODE);
    assert_eq!(produce(&partition, 0, guard), Ok(0));
    assert_eq!(verify(&partition, 1, false), Ok(None));
    replicas.shutdown(1);
}

#[test]
fn case_50_without_verification_only_partitions_to_add_are_sent() {
    let dir = tempdir().expect("a folder");
    let (replicas, partition) = led(dir.path());
    let off = [("transaction.partition.verification.enable".to_owned(), "false".to_owned())];
    replicas.set_settings(Settings::new(off.into()).expect("valid"));
    assert_eq!(verify(&partition, 0, false), Ok(None));
    assert!(verify(&partition, 0, true).expect("it leads").is_some());
    assert_eq!(produce(&partition, 0, None), Ok(0), "the guard is not checked either");
    replicas.shutdown(1);
}
