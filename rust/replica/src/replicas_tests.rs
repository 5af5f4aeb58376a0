//! A broker's partitions across images that move leadership away and back.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use klamm_base::clock::SystemClock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch, read_all};
use klamm_log::{Event, LockedDir, LogContext, LogManager, ManagerConfig, OnEvent, Origin};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionChangeRecord, PartitionRecord, Record, TopicRecord};
use tempfile::tempdir;

use super::{Durability, Partition, Replicas, ReplicasOptions};

pub(super) const NODE: i32 = 1;
const OTHER_NODE: i32 = 2;
const NO_LEADER: i32 = -1;
const TOPIC: Uuid = Uuid([7; 16]);
const TIMEOUT: Duration = Duration::from_secs(30);

fn changed(image: &MetadataImage, records: &[Record<'_>]) -> Arc<MetadataImage> {
    let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
    Arc::new(image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit"))
}

/// A node with one topic of one partition, which it leads.
pub(super) fn leading(dir: &Path) -> Replicas {
    leading_with_events(dir, Arc::new(drop))
}

fn leading_with_events(dir: &Path, on_event: OnEvent) -> Replicas {
    let locked = vec![LockedDir::open(dir, Uuid([9; 16])).expect("free")];
    let logs = LogManager::start(locked, ManagerConfig::default(), LogContext::new(64), 0, on_event);
    let replicas = Replicas::new(ReplicasOptions {
        node_id: NODE,
        durability: Durability::Flushed,
        settings: Settings::default(),
        logs: logs.expect("start"),
        is_missing_dirs: false,
        clock: Arc::new(SystemClock::default()),
    });
    let nodes = [NODE, OTHER_NODE];
    let partition = PartitionRecord {
        topic_id: TOPIC,
        partition_id: 0,
        replicas: (&nodes[..]).into(),
        isr: (&nodes[..1]).into(),
        leader: NODE,
        leader_epoch: 0,
        ..PartitionRecord::default()
    };
    let records = [Record::Topic(TopicRecord { name: "t", topic_id: TOPIC }), Record::Partition(partition)];
    assert!(replicas.publish(changed(&MetadataImage::default(), &records)).errors.is_empty());
    replicas
}

pub(super) fn elect(replicas: &Replicas, leader: i32) {
    let isr = [leader];
    let isr = (leader != NO_LEADER).then_some((&isr[..]).into());
    let change = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, leader, isr, ..Default::default() };
    assert!(replicas.publish(changed(&replicas.image(), &[Record::PartitionChange(change)])).errors.is_empty());
}

/// Appends a record; returns its offset once it is acknowledged, or the error.
fn append(partition: &Partition) -> Result<i64, ErrorCode> {
    let bytes = &mut batch(&BatchSpec::default());
    let appended = partition.append(bytes, -1, Origin::Client, 0).map_err(|refused| refused.code)?;
    let (sender, acked) = channel();
    partition.when_acked(appended.end_offset, Box::new(move |code| sender.send(code).expect("the test listens")));
    match acked.recv_timeout(TIMEOUT).expect("an answer") {
        ErrorCode::NONE => Ok(appended.base_offset),
        code => Err(code),
    }
}

#[test]
fn a_partition_leads_again_when_a_new_image_says_so() {
    for without_us in [NO_LEADER, OTHER_NODE] {
        let dir = tempdir().expect("a folder");
        let replicas = leading(dir.path());
        let partition = replicas.get(TOPIC, 0).expect("led");
        assert_eq!(append(&partition), Ok(0));

        elect(&replicas, without_us);
        let open = replicas.get(TOPIC, 0).expect("open partitions stay");
        assert_eq!(append(&open), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));

        elect(&replicas, NODE);
        assert_eq!(append(&partition), Ok(1), "after {without_us}");
        let bytes = partition.with(|log| read_all(log, 0));
        let second = bytes.len() / 2;
        let epoch = |at: usize| i32::from_be_bytes(bytes[at + 12..at + 16].try_into().expect("four bytes"));
        assert_eq!((epoch(0), epoch(second)), (0, 2), "each election counts the leader epoch up");
        replicas.shutdown(1);
    }
}

#[test]
fn partitions_are_freed_with_their_broker_while_their_changes_are_not_handled() {
    let dir = tempdir().expect("a folder");
    let replicas = leading(dir.path());
    replicas.changes().roles.notify(|| {});
    let partition = Arc::downgrade(&replicas.get(TOPIC, 0).expect("led"));
    elect(&replicas, OTHER_NODE);
    replicas.logs().abandon();
    drop(replicas);
    assert_eq!(partition.strong_count(), 0);
}

#[test]
fn waiters_are_notified_when_leadership_ends() {
    let dir = tempdir().expect("a folder");
    let replicas = leading(dir.path());
    let partition = replicas.get(TOPIC, 0).expect("led");
    // Alone in the ISR it would keep its records, and its flush would acknowledge waiting appends.
    let isr = Some((&[NODE, OTHER_NODE][..]).into());
    let joined = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, isr, ..Default::default() };
    assert!(replicas.publish(changed(&replicas.image(), &[Record::PartitionChange(joined)])).errors.is_empty());
    let (sender, acked) = channel();
    partition.when_acked(1, Box::new(move |code| sender.send(code).expect("the test listens")));
    elect(&replicas, NO_LEADER);
    assert_eq!(acked.recv_timeout(TIMEOUT), Ok(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    replicas.shutdown(1);
}

#[test]
fn a_failed_directory_is_final_in_any_image() {
    let dir = tempdir().expect("a folder");
    let replicas = leading(dir.path());
    let partition = replicas.get(TOPIC, 0).expect("led");
    partition.stop(ErrorCode::KAFKA_STORAGE_ERROR);
    elect(&replicas, NO_LEADER);
    elect(&replicas, NODE);
    assert_eq!(append(&partition), Err(ErrorCode::KAFKA_STORAGE_ERROR));
    replicas.shutdown(1);
}

#[test]
fn waiting_for_a_recovery_blocks_no_worker() {
    let dir = tempdir().expect("a folder");
    let replicas = Arc::new(leading(dir.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    // Locked like by another thread that recovers the log.
    let recovering = replicas.opening[replicas.opening_of((TOPIC, 0))].lock();
    let (begun, has_begun) = channel();
    let asking = replicas.clone();
    let waiting = runtime.spawn(async move {
        begun.send(()).expect("the test listens");
        asking.get_in_task(TOPIC, 0).map(drop)
    });
    has_begun.recv_timeout(TIMEOUT).expect("a worker");
    let other = runtime.spawn(async {});
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, other).await }).expect("a worker").expect("no panic");
    assert!(!waiting.is_finished());
    drop(recovering);
    assert_eq!(runtime.block_on(waiting).expect("no panic"), Ok(()));
    replicas.shutdown(1);
}

/// Creates a partition's directory with a log and the given topic id.
fn left_behind(dir: &Path, name: &str, topic_id: &str) {
    let path = dir.join(name);
    fs::create_dir(&path).expect("a new directory");
    fs::write(path.join("partition.metadata"), format!("version: 0\ntopic_id: {topic_id}")).expect("written");
    fs::write(path.join(format!("{:020}.log", 0)), "").expect("written");
}

/// Names in a directory, without the unique part of a stray's name.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed").file_name());
    let name = |name: std::ffi::OsString| {
        let name = name.into_string().expect("UTF-8");
        if name.ends_with("-stray") {
            name[..name.find('.').expect("a unique part")].to_owned() + "-stray"
        } else {
            name
        }
    };
    let mut names: Vec<_> =
        entries.map(name).filter(|name| name.starts_with("t-") || name.starts_with("gone-")).collect();
    names.sort();
    names
}

const OWN_TEXT: &str = "BwcHBwcHBwcHBwcHBwcHBw";
const OTHER_TEXT: &str = "CAgICAgICAgICAgICAgICA";

#[test]
fn a_stop_before_every_log_was_opened_is_clean() {
    let dir = tempdir().expect("a folder");
    let replicas = leading(dir.path());
    assert_eq!(append(&replicas.get(TOPIC, 0).expect("led")), Ok(0));
    replicas.shutdown(1);
    // The state after a kill.
    for name in ["klamm-clean-stop", ".kafka_cleanshutdown"] {
        fs::remove_file(dir.path().join(name)).expect("there");
    }
    enum Start {
        Aborted,
        BeforeTheFirst,
        Opened,
    }
    let stop = |start: Start| {
        let replicas = leading(dir.path());
        elect(&replicas, NO_LEADER);
        let opened = match start {
            Start::Aborted => 0,
            Start::BeforeTheFirst => {
                replicas.begin_opening();
                0
            }
            Start::Opened => {
                assert!(replicas.open_the_rest().is_empty());
                1
            }
        };
        assert_eq!(replicas.opened().len(), opened);
        replicas.shutdown(1);
        ["klamm-clean-stop", ".kafka_cleanshutdown"].map(|name| dir.path().join(name).exists())
    };
    assert_eq!(stop(Start::Aborted), [false; 2], "a start that is given up recovers nothing");
    assert_eq!(stop(Start::BeforeTheFirst), [true; 2]);
    let record = fs::read_to_string(dir.path().join("klamm-clean-stop")).expect("there");
    assert!(record.contains("\nt 0 0 1 0 0:"), "{record}");
    assert_eq!(stop(Start::Opened), [true; 2], "what was clean stays clean");
    let replicas = leading(dir.path());
    assert_eq!(append(&replicas.get(TOPIC, 0).expect("led")), Ok(1));
    replicas.shutdown(1);
}

#[test]
fn files_of_an_earlier_topic_with_the_name_are_set_aside() {
    for in_background in [true, false] {
        let dir = tempdir().expect("a folder");
        left_behind(dir.path(), "t-0", OTHER_TEXT);
        let replicas = leading(dir.path());
        if in_background {
            assert!(replicas.open_the_rest().is_empty());
            assert_eq!(names(dir.path()), ["t-0-stray"]);
        }
        let partition = replicas.get(TOPIC, 0).expect("led");
        assert_eq!(names(dir.path()), ["t-0-stray"]);
        assert_eq!(append(&partition), Ok(0));
        assert_eq!(names(dir.path()), ["t-0", "t-0-stray"]);
        replicas.shutdown(1);
    }
}

#[test]
fn in_the_background_strays_are_set_aside_on_leaders_and_followers() {
    let dir = tempdir().expect("a folder");
    for (name, topic) in [("t-0", OTHER_TEXT), ("t-1", OWN_TEXT), ("gone-0", OTHER_TEXT)] {
        left_behind(dir.path(), name, topic);
    }
    let replicas = leading(dir.path());
    elect(&replicas, OTHER_NODE);
    assert!(replicas.open_the_rest().is_empty());
    assert_eq!(names(dir.path()), ["gone-0-stray", "t-0-stray", "t-1-stray"]);
    let follower = replicas.get(TOPIC, 0).expect("followers are opened in the background");
    assert_eq!(follower.with(|log| log.log_end_offset()), 0);
    replicas.shutdown(1);
}

#[test]
fn every_stray_is_a_warning_with_its_reason() {
    let dir = tempdir().expect("a folder");
    for (name, topic) in [("t-0", OTHER_TEXT), ("t-1", OWN_TEXT), ("gone-0", OTHER_TEXT)] {
        left_behind(dir.path(), name, topic);
    }
    let (sender, events) = channel();
    let on_event: OnEvent = Arc::new(move |event| drop(sender.send(event)));
    let replicas = leading_with_events(dir.path(), on_event);
    assert!(replicas.open_the_rest().is_empty());
    replicas.shutdown(1);
    drop(replicas);
    let mut warnings: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::Warning(text) => Some(text.replace(&format!("{}/", dir.path().display()), "")),
            Event::DirFailed { .. } => None,
        })
        .collect();
    warnings.sort();
    let without_hex: Vec<String> =
        warnings.iter().map(|text| text.split(". It is renamed").next().unwrap_or_default().to_owned()).collect();
    let other = format!(
        "its partition.metadata contains topic id {OTHER_TEXT}, but topic t has {TOPIC}. If the folder \
         belongs to this topic nevertheless, stop the node, correct that file, and give the folder its name again"
    );
    assert_eq!(
        without_hex,
        [
            "gone-0 is a stray: the metadata has no topic gone".to_owned(),
            format!("t-0 is a stray: {other}"),
            "t-1 is a stray: topic t has no partition 1".to_owned(),
        ]
    );
    assert!(warnings.iter().all(|text| text.contains("-stray, and nothing in it is removed")), "{warnings:?}");
}

#[test]
fn a_directory_without_a_topic_id_belongs_to_the_topic_of_its_name() {
    for damaged in [Some("version: 0\ntopic_id: ?"), None] {
        let dir = tempdir().expect("a folder");
        left_behind(dir.path(), "t-0", OTHER_TEXT);
        let file = dir.path().join("t-0/partition.metadata");
        match damaged {
            Some(text) => fs::write(&file, text).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        let replicas = leading(dir.path());
        assert!(replicas.open_the_rest().is_empty());
        assert_eq!(names(dir.path()), ["t-0"]);
        assert_eq!(replicas.opened().len(), 1);
        replicas.shutdown(1);
    }
}

#[test]
fn a_directory_whose_topic_cannot_be_read_takes_its_log_directory_out_of_use() {
    let dir = tempdir().expect("a folder");
    left_behind(dir.path(), "t-0", OWN_TEXT);
    let file = dir.path().join("t-0/partition.metadata");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("what cannot be read as a file");
    let replicas = leading(dir.path());
    assert_eq!(replicas.get(TOPIC, 0).err(), Some(ErrorCode::KAFKA_STORAGE_ERROR));
    assert!(replicas.logs().dirs()[0].offline_cause().is_some_and(|cause| cause.contains("partition.metadata")));
    assert_eq!(names(dir.path()), ["t-0"]);
    replicas.shutdown(1);
}
