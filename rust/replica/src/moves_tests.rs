//! Moves of a partition to another log directory, step by step: with appends, truncations and restarts of the process
//! in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use klamm_base::clock::SystemClock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch, read_all};
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig, Origin};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{
    FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, Record, RegisterBrokerRecord, TopicRecord,
};
use tempfile::{TempDir, tempdir};

use super::following::{Planned, Truncation, truncate_in_dir};
use super::moves::MoveStep;
use super::{
    Diverging, Durability, FetchedBatches, Partition, Replicas, ReplicasOptions, Unassigned, truncate_diverging,
};

const NODE: i32 = 1;
const OTHER: i32 = 2;
pub const TOPIC: Uuid = Uuid([7; 16]);
const TIMEOUT: Duration = Duration::from_secs(30);
pub const IDS: [Uuid; 3] = [Uuid([101; 16]), Uuid([102; 16]), Uuid([103; 16])];

/// A version with everything that the records of these tests have.
fn version_of(record: &Record<'_>) -> i16 {
    match record {
        Record::RegisterBroker(_) => 3,
        Record::Partition(_) | Record::PartitionChange(_) => 2,
        _ => 0,
    }
}

fn changed(image: &MetadataImage, records: &[Record<'_>]) -> Arc<MetadataImage> {
    let encoded: Vec<Vec<u8>> =
        records.iter().map(|record| record.encode(version_of(record)).expect("a record")).collect();
    Arc::new(image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit"))
}

/// A topic of one partition with replicas on two brokers, in the first directory of this one.
pub fn image_of(leader: i32) -> Arc<MetadataImage> {
    let (nodes, isr) = ([NODE, OTHER], [leader]);
    let partition = PartitionRecord {
        topic_id: TOPIC,
        partition_id: 0,
        replicas: (&nodes[..]).into(),
        isr: (&isr[..]).into(),
        leader,
        leader_epoch: 0,
        directories: (&[IDS[0], Uuid([9; 16])][..]).into(),
        ..PartitionRecord::default()
    };
    let broker = RegisterBrokerRecord {
        broker_id: NODE,
        broker_epoch: 10,
        fenced: false,
        log_dirs: (&IDS[..]).into(),
        ..Default::default()
    };
    let records = [
        Record::FeatureLevel(FeatureLevelRecord { name: "metadata.version", feature_level: 30 }),
        Record::RegisterBroker(broker),
        Record::Topic(TopicRecord { name: "t", topic_id: TOPIC }),
        Record::Partition(partition),
    ];
    changed(&MetadataImage::default(), &records)
}

/// The same with the replica of this broker in another directory.
pub fn with_directory(image: &MetadataImage, directory_id: Uuid) -> Arc<MetadataImage> {
    let directories = [directory_id, Uuid([9; 16])];
    let change = PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        directories: Some((&directories[..]).into()),
        ..Default::default()
    };
    changed(image, &[Record::PartitionChange(change)])
}

/// The same with a new leader epoch.
pub fn with_leader(image: &MetadataImage, leader: i32) -> Arc<MetadataImage> {
    let change = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, leader, ..Default::default() };
    changed(image, &[Record::PartitionChange(change)])
}

/// A broker with three log directories and one partition in the first of them.
struct Broker {
    root: TempDir,
    replicas: Option<Arc<Replicas>>,
    image: Arc<MetadataImage>,
}

impl Broker {
    fn new(leader: i32) -> Self {
        let image = image_of(leader);
        let mut broker = Self { root: tempdir().expect("a folder"), replicas: None, image };
        broker.start();
        broker
    }

    fn dir(&self, at: usize) -> PathBuf {
        self.root.path().join(at.to_string())
    }

    fn start(&mut self) {
        let locked = (0..3).map(|at| LockedDir::open(&self.dir(at), IDS[at]).expect("free")).collect();
        let logs = LogManager::start(locked, ManagerConfig::default(), LogContext::new(64), 0, Arc::new(drop));
        let values = [("log.segment.bytes".to_owned(), "1048576".to_owned())].into();
        let replicas = Arc::new(Replicas::new(ReplicasOptions {
            node_id: NODE,
            durability: Durability::Flushed,
            settings: Settings::new(values).expect("valid"),
            logs: logs.expect("start"),
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        }));
        replicas.changes().moves.notify(|| {});
        replicas.changes().directories.notify(|| {});
        assert!(replicas.publish(self.image.clone()).errors.is_empty());
        self.replicas = Some(replicas);
        assert!(self.replicas().open_the_rest().is_empty());
    }

    fn replicas(&self) -> &Arc<Replicas> {
        self.replicas.as_ref().expect("it runs")
    }

    fn partition(&self) -> Arc<Partition> {
        self.replicas().get(TOPIC, 0).expect("a replica")
    }

    fn kill(&mut self) {
        let replicas = self.replicas.take().expect("it runs");
        replicas.logs().abandon();
    }

    fn stop(&mut self) {
        self.replicas.take().expect("it runs").shutdown(1);
    }

    /// The controller answers the reports.
    fn answer(&mut self) -> Vec<Unassigned> {
        let told = self.replicas().changes().directories.take();
        for one in &told {
            self.image = with_directory(&self.image, one.directory_id);
        }
        let unassigned = self.replicas().publish(self.image.clone()).unassigned;
        assert_eq!(unassigned, [], "the image is right while the move goes on");
        self.replicas().on_directories_assigned(&told);
        told
    }

    /// Takes some steps, while the controller does not answer.
    fn begin_move(&self, steps: usize, bytes_max: usize) {
        for _ in 0..steps {
            let step = self.replicas().step_move(&self.partition(), bytes_max);
            assert!(matches!(step, MoveStep::Copied(_) | MoveStep::Waiting), "{step:?}");
        }
    }

    /// Takes steps until the move has ended.
    fn run_move(&mut self, steps_max: usize, bytes_max: usize) -> bool {
        let partition = self.partition();
        for _ in 0..steps_max {
            match self.replicas().step_move(&partition, bytes_max) {
                MoveStep::Ended => return true,
                MoveStep::Failed(error) => panic!("{error}"),
                MoveStep::Copied(_) => {}
                MoveStep::Waiting => {
                    self.answer();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        false
    }

    fn folders(&self) -> [Vec<String>; 3] {
        [0, 1, 2].map(|at| {
            let names = fs::read_dir(self.dir(at)).expect("a directory").flatten();
            let names = names.map(|entry| entry.file_name().into_string().expect("a name"));
            let mut kinds: Vec<String> = names
                .filter(|name| name.starts_with("t-"))
                .map(|name| match name.rsplit_once('-') {
                    Some((_, "0")) => "live".to_owned(),
                    Some((_, kind)) => kind.to_owned(),
                    None => name,
                })
                .collect();
            kinds.sort();
            kinds
        })
    }
}

fn append(partition: &Partition, count: usize) {
    for _ in 0..count {
        let bytes = &mut batch(&BatchSpec { value_bytes: 500, ..BatchSpec::default() });
        let appended = partition.append(bytes, -1, Origin::Client, 0).expect("appended");
        let (sender, acked) = channel();
        partition.when_acked(appended.end_offset, Box::new(move |code| sender.send(code).expect("the test listens")));
        assert_eq!(acked.recv_timeout(TIMEOUT), Ok(ErrorCode::NONE));
    }
}

fn all(partition: &Partition) -> Vec<u8> {
    partition.with(|log| {
        let start = log.log_start_offset();
        read_all(log, start)
    })
}

fn holds(path: &Path) -> bool {
    path.join("t-0").is_dir()
}

#[test]
fn a_log_moves_with_records_appended_meanwhile() {
    let mut broker = Broker::new(NODE);
    let partition = broker.partition();
    append(&partition, 50);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    assert_eq!(broker.folders(), [vec!["live"], vec!["future"], vec![]]);
    broker.begin_move(3, 2000);
    append(&partition, 20);
    let before = all(&partition);
    assert!(broker.run_move(10_000, 2000));
    assert_eq!(broker.folders(), [vec!["delete"], vec!["live"], vec![]]);
    assert!(all(&partition) == before);
    append(&partition, 5);
    assert_eq!(partition.with(|log| log.log_end_offset()), 75);
    let after = all(&partition);
    for is_clean in [false, true] {
        drop(partition.clone());
        if is_clean {
            broker.stop()
        } else {
            broker.kill()
        };
        broker.start();
        assert!(all(&broker.partition()) == after, "clean: {is_clean}");
        assert!(holds(&broker.dir(1)) && !holds(&broker.dir(0)));
    }
}

#[test]
fn a_move_continues_after_a_restart_at_any_step() {
    for steps in [0, 1, 4, 40] {
        for is_clean in [false, true] {
            let mut broker = Broker::new(NODE);
            append(&broker.partition(), 60);
            assert_eq!(broker.replicas().alter_dir("t", 0, 2), ErrorCode::NONE);
            broker.begin_move(steps, 1500);
            let before = all(&broker.partition());
            if is_clean {
                broker.stop()
            } else {
                broker.kill()
            };
            broker.start();
            assert!(all(&broker.partition()) == before);
            append(&broker.partition(), 3);
            let before = all(&broker.partition());
            assert!(broker.run_move(10_000, 1500), "{steps}");
            assert!(all(&broker.partition()) == before);
            assert!(holds(&broker.dir(2)) && !holds(&broker.dir(0)));
        }
    }
}

#[test]
fn appends_from_many_threads_go_on_during_a_move() {
    let mut broker = Broker::new(NODE);
    let partition = broker.partition();
    append(&partition, 10);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (partition, stop) = (partition.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    append(&partition, 1);
                    count += 1;
                }
                count
            })
        })
        .collect();
    for dir in [1, 2, 0, 1] {
        assert_eq!(broker.replicas().alter_dir("t", 0, dir), ErrorCode::NONE);
        assert!(broker.run_move(1_000_000, 4000));
        assert!(holds(&broker.dir(dir)));
    }
    stop.store(true, Ordering::Relaxed);
    let count: usize = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
    let offsets: Vec<i64> =
        klamm_records::batches(&all(&partition)).map(|batch| batch.expect("whole").header().base_offset()).collect();
    assert_eq!(offsets, (0..10 + count as i64).collect::<Vec<_>>());
    broker.stop();
    broker.start();
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 10 + count as i64);
}

#[test]
fn a_move_back_cancels_it() {
    let mut broker = Broker::new(NODE);
    append(&broker.partition(), 30);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    // Until the report to the controller.
    broker.begin_move(50, 1000);
    assert_eq!(broker.replicas().alter_dir("t", 0, 0), ErrorCode::NONE);
    assert_eq!(broker.folders(), [vec!["live"], vec!["delete"], vec![]]);
    assert!(broker.run_move(5, 1000), "it has ended");
    append(&broker.partition(), 3);
    // A move to a third directory ends the one before.
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    assert_eq!(broker.replicas().alter_dir("t", 0, 2), ErrorCode::NONE);
    assert!(broker.run_move(10_000, 1000));
    assert!(holds(&broker.dir(2)));
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 33);
}

#[test]
fn a_cancelled_move_of_which_the_controller_knows_is_reverted_there() {
    let mut broker = Broker::new(NODE);
    append(&broker.partition(), 3);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    let partition = broker.partition();
    while !matches!(broker.replicas().step_move(&partition, 1000), MoveStep::Waiting) {}
    let target = |directory_id| Unassigned { directory_id, topic_id: TOPIC, partition: 0 };
    assert_eq!(broker.answer(), [target(IDS[1])]);
    assert_eq!(broker.replicas().alter_dir("t", 0, 0), ErrorCode::NONE);
    assert_eq!(broker.replicas().changes().directories.take(), [target(IDS[0])]);
}

#[test]
fn a_follower_that_truncates_or_restarts_its_log_moves_the_rest() {
    let mut broker = Broker::new(OTHER);
    let partition = broker.partition();
    partition.begin_following(0, 0).expect("it follows");
    let fetch = |from: i64, count: i64, epoch: i32, fill: usize| {
        let mut records = Vec::new();
        for at in from..from + count {
            let mut bytes = batch(&BatchSpec { value_bytes: fill, ..BatchSpec::default() });
            klamm_records::header::set_position(&mut bytes, at, epoch);
            records.extend(bytes);
        }
        let fetched = FetchedBatches { records: &records, high_watermark: from, log_start_offset: 0 };
        partition.append_fetched(0, &fetched, 0).expect("appended");
    };
    fetch(0, 40, 0, 300);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    broker.begin_move(30, 1000);
    // The copy has records that the leader lacks.
    let diverging = Diverging { partition: partition.clone(), leader_epoch: 0, leader_end: (0, 25) };
    assert!(truncate_diverging(&[diverging], 0)[0].is_ok());
    fetch(25, 30, 0, 200);
    broker.begin_move(2, 1000);
    partition.move_into(0, 90, 100, 0).expect("begun again");
    broker.begin_move(2, 1000);
    fetch(90, 20, 0, 250);
    let before = all(&partition);
    assert!(broker.run_move(10_000, 1000));
    assert!(all(&partition) == before);
    assert_eq!(partition.with(|log| (log.log_start_offset(), log.log_end_offset())), (90, 110));
}

#[test]
fn a_truncation_planned_for_the_directory_that_a_log_has_left_removes_nothing() {
    let mut broker = Broker::new(OTHER);
    let partition = broker.partition();
    let mut records = batch(&BatchSpec::default());
    klamm_records::header::set_position(&mut records, 0, 0);
    let fetched = FetchedBatches { records: &records, high_watermark: 1, log_start_offset: 0 };
    partition.append_fetched(0, &fetched, 0).expect("appended");
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    assert!(broker.run_move(10_000, 1000));
    let truncated = |dir| {
        let planned = Planned { partition: &partition, leader_epoch: 0, truncation: Truncation::To(0) };
        truncate_in_dir(dir, &[planned], 0).remove(0).map(|position| position.fetch_offset)
    };
    // The checkpoints of the other directory would contain offsets that it removes.
    assert_eq!(truncated(0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(partition.with(|log| log.log_end_offset()), 1);
    assert_eq!(truncated(1), Ok(0));
}

#[test]
fn deleted_records_do_not_move() {
    let mut broker = Broker::new(NODE);
    let partition = broker.partition();
    append(&partition, 20);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    broker.begin_move(2, 1000);
    assert_eq!(partition.delete_records(11), Ok(11));
    assert!(broker.run_move(10_000, 1000));
    assert_eq!(partition.with(|log| (log.log_start_offset(), log.log_end_offset())), (11, 20));
}

#[test]
fn after_a_crash_during_the_exchange_the_longer_log_is_kept() {
    let mut broker = Broker::new(NODE);
    append(&broker.partition(), 20);
    broker.kill();
    // The previous log, which a power cut may restore.
    let (from, to) = (broker.dir(0).join("t-0"), broker.dir(2).join("t-0"));
    fs::create_dir(&to).expect("a folder");
    for entry in fs::read_dir(&from).expect("files").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
    broker.start();
    append(&broker.partition(), 1);
    let is_in = [0, 2].map(|at| holds(&broker.dir(at)));
    assert_eq!(is_in.iter().filter(|is_there| **is_there).count(), 1, "{is_in:?}");
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 21);
    broker.kill();
    // The shorter one is dropped, wherever it is.
    let kept = if is_in[0] { 0 } else { 2 };
    let shorter = broker.dir(1).join("t-0");
    fs::create_dir(&shorter).expect("a folder");
    fs::copy(broker.dir(kept).join("t-0/partition.metadata"), shorter.join("partition.metadata")).expect("copied");
    broker.start();
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 21);
    assert_eq!(broker.folders()[1], ["stray"]);
}

#[test]
fn a_copy_without_its_log_replaces_it_if_the_controller_knows_of_it() {
    let mut broker = Broker::new(NODE);
    append(&broker.partition(), 20);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    let partition = broker.partition();
    while !matches!(broker.replicas().step_move(&partition, 1000), MoveStep::Waiting) {}
    broker.answer();
    drop(partition);
    broker.kill();
    fs::remove_dir_all(broker.dir(0).join("t-0")).expect("removed");
    broker.start();
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 20);
    assert!(holds(&broker.dir(1)));
}

#[test]
fn a_partition_without_files_moves_at_once() {
    let mut broker = Broker::new(NODE);
    assert_eq!(broker.replicas().alter_dir("t", 0, 2), ErrorCode::NONE);
    assert_eq!(broker.answer(), [Unassigned { directory_id: IDS[2], topic_id: TOPIC, partition: 0 }]);
    append(&broker.partition(), 1);
    assert_eq!(broker.folders(), [vec![], vec![], vec!["live"]]);
}

#[test]
fn a_partition_without_files_moves_to_where_an_earlier_one_was() {
    let mut broker = Broker { root: tempdir().expect("a folder"), replicas: None, image: image_of(NODE) };
    fs::create_dir(broker.dir(2)).expect("a folder");
    fs::write(broker.dir(2).join("recovery-point-offset-checkpoint"), "0\n1\nt 0 39\n").expect("written");
    broker.start();
    assert_eq!(broker.replicas().alter_dir("t", 0, 2), ErrorCode::NONE);
    broker.answer();
    append(&broker.partition(), 1);
    broker.kill();
    broker.start();
    assert_eq!(broker.partition().with(|log| log.log_end_offset()), 1);
}

/// The partition gets these replicas, and the other broker leads.
fn assigned<'a>(replicas: &'a [i32], directories: &'a [Uuid]) -> Record<'a> {
    Record::PartitionChange(PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        replicas: Some(replicas.into()),
        directories: Some(directories.into()),
        isr: Some((&[OTHER][..]).into()),
        ..Default::default()
    })
}

#[test]
fn a_later_partition_is_created_in_the_requested_directory() {
    let image = changed(&image_of(OTHER), &[assigned(&[OTHER], &[Uuid([9; 16])])]);
    let mut broker = Broker { root: tempdir().expect("a folder"), replicas: None, image };
    broker.start();
    assert_eq!(broker.replicas().alter_dir("t", 0, 2), ErrorCode::REPLICA_NOT_AVAILABLE);
    let unassigned = Uuid([0; 16]);
    let image = changed(&broker.image, &[assigned(&[OTHER, NODE], &[Uuid([9; 16]), unassigned])]);
    let published = broker.replicas().publish(image);
    assert_eq!(published.unassigned, [Unassigned { directory_id: IDS[2], topic_id: TOPIC, partition: 0 }]);
}

#[test]
fn errors_are_apache_kafkas() {
    let broker = Broker::new(NODE);
    append(&broker.partition(), 1);
    let replicas = broker.replicas();
    assert_eq!(replicas.alter_dir("u", 0, 1), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(replicas.alter_dir("t", 1, 1), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(replicas.alter_dir("t", 0, 0), ErrorCode::NONE);
    replicas.logs().set_cordoned(&[IDS[1]]);
    assert_eq!(replicas.alter_dir("t", 0, 1), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    replicas.logs().set_cordoned(&[]);
    replicas.logs().fail_dir(2, "a test");
    assert_eq!(replicas.alter_dir("t", 0, 2), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(replicas.alter_dir("t", 0, 1), ErrorCode::KAFKA_STORAGE_ERROR, "a copy may be in the failed directory");
    assert_eq!(broker.folders()[1], Vec::<String>::new());
}

#[test]
fn a_copy_whose_directory_fails_leaves_the_log_in_use() {
    let mut broker = Broker::new(NODE);
    append(&broker.partition(), 20);
    assert_eq!(broker.replicas().alter_dir("t", 0, 1), ErrorCode::NONE);
    broker.begin_move(2, 1000);
    broker.replicas().logs().fail_dir(1, "a test");
    assert!(broker.run_move(10, 1000));
    append(&broker.partition(), 1);
    assert_eq!(broker.partition().moves_to(), None);
}

#[test]
fn cordoned_directories_receive_no_new_logs() {
    let broker = Broker::new(NODE);
    let logs = broker.replicas().logs();
    logs.set_cordoned(&IDS[..2]);
    assert_eq!(logs.dir_for_new(|dir| 10 * dir), Some(2));
    logs.set_cordoned(&IDS);
    assert_eq!(logs.dir_for_new(|_| 0), Some(0));
}
