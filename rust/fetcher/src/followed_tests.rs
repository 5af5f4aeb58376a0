//! Partitions whose roles change: thousands that become followers at once, and one that stops following.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use klamm_base::clock::SystemClock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::files::FileCache;
use klamm_log::recorder::{Change as FileChange, Recorder};
use klamm_log::testing::{BatchSpec, batch};
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionChangeRecord, PartitionRecord, Record, TopicRecord};
use klamm_records::header::set_position;
use klamm_replica::{Durability, FetchedBatches, Fetching, Partition, Replicas, ReplicasOptions};
use tempfile::{TempDir, tempdir};

use super::followed::{Change, FollowedPartitions, Times};
use super::messages::{FetchedPartition, ReplicaFetchAnswer};

const NODE: i32 = 1;
const LEADER: i32 = 2;
const TOPIC: Uuid = Uuid([7; 16]);
const TIMES: Times = Times { now_ms: 0, wall_ms: 0 };
const TIMEOUT: Duration = Duration::from_secs(120);

/// A broker that follows every partition of a topic, each with two batches of epoch 0 on the disk; epoch 1 has begun.
pub(super) struct Follower {
    pub(super) replicas: Replicas,
    followed: FollowedPartitions,
    recorder: Arc<Recorder>,
    partitions: i32,
    _dir: TempDir,
}

fn changed(image: &MetadataImage, records: &[Record<'_>]) -> Arc<MetadataImage> {
    let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
    Arc::new(image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit"))
}

impl Follower {
    pub(super) fn new(partitions: i32) -> Self {
        let dir = tempdir().expect("a folder");
        let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
        let recorder: Arc<Recorder> = Arc::default();
        let context = LogContext::over(FileCache::with_recorder(64, Some(recorder.clone())));
        let config = ManagerConfig { intervals: None, cleaner: None, ..ManagerConfig::default() };
        let logs = LogManager::start(locked, config, context, 0, Arc::new(drop)).expect("start");
        let replicas = Replicas::new(ReplicasOptions {
            node_id: NODE,
            durability: Durability::Flushed,
            settings: Settings::default(),
            logs,
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        });
        let nodes = [NODE, LEADER];
        let partition = |partition_id| {
            Record::Partition(PartitionRecord {
                topic_id: TOPIC,
                partition_id,
                replicas: (&nodes[..]).into(),
                isr: (&nodes[..]).into(),
                leader: LEADER,
                leader_epoch: 0,
                ..PartitionRecord::default()
            })
        };
        let topic = Record::Topic(TopicRecord { name: "t", topic_id: TOPIC });
        let records: Vec<Record<'_>> = [topic].into_iter().chain((0..partitions).map(partition)).collect();
        assert!(replicas.publish(changed(&MetadataImage::default(), &records)).errors.is_empty());
        let followed = FollowedPartitions::new(LEADER, 1000);
        let mut follower = Self { replicas, followed, recorder, partitions, _dir: dir };
        follower.fetch_two_batches();
        follower.begin_epoch();
        follower
    }

    fn fetch_two_batches(&mut self) {
        let mut records = Vec::new();
        for offset in 0..2 {
            let mut one = batch(&BatchSpec { records: 1, ..BatchSpec::default() });
            set_position(&mut one, offset, 0);
            records.extend(one);
        }
        for index in 0..self.partitions {
            let partition = self.replicas.get(TOPIC, index).expect("a replica");
            let batches = FetchedBatches { records: &records, high_watermark: 1, log_start_offset: 0 };
            partition.append_fetched(0, &batches, 0).expect("it follows");
            self.followed.change(Change::Add(partition), 0);
        }
        self.wait_for_flushes();
        self.replicas.logs().checkpoint();
    }

    fn begin_epoch(&mut self) {
        self.elect(LEADER);
        for partition in self.replicas.opened() {
            self.followed.change(Change::Add(partition), 0);
        }
        self.wait_for_flushes();
    }

    fn elect(&self, leader: i32) {
        let nodes = [NODE, LEADER];
        let isr = Some((&nodes[..]).into());
        let change = |partition_id| {
            Record::PartitionChange(PartitionChangeRecord {
                topic_id: TOPIC,
                partition_id,
                leader,
                isr,
                ..Default::default()
            })
        };
        let records: Vec<Record<'_>> = (0..self.partitions).map(change).collect();
        assert!(self.replicas.publish(changed(&self.replicas.image(), &records)).errors.is_empty());
    }

    pub(super) fn only_replica(&self) -> Arc<Partition> {
        self.replicas.get(TOPIC, 0).expect("a replica")
    }

    /// This broker's replica of the only partition is removed, with its records, and added again.
    pub(super) fn remove_and_add_again(&self) {
        self.replicas.begin_opening();
        self.assign(&[LEADER]);
        self.assign(&[NODE, LEADER]);
    }

    /// A reassignment of the only partition, which the leader stays in sync for.
    fn assign(&self, replicas: &[i32]) {
        let record = Record::PartitionChange(PartitionChangeRecord {
            topic_id: TOPIC,
            partition_id: 0,
            isr: Some((&[LEADER][..]).into()),
            replicas: Some(replicas.into()),
            ..Default::default()
        });
        assert!(self.replicas.publish(changed(&self.replicas.image(), &[record])).errors.is_empty());
    }

    fn wait_for_flushes(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.followed.is_flushed() {
            assert!(Instant::now() < deadline, "nothing is flushed");
            std::thread::yield_now();
        }
    }

    /// The leader returns these batches of the only partition.
    fn answer(&mut self, records: Vec<u8>) {
        let fetched = FetchedPartition {
            key: (TOPIC, 0),
            error: ErrorCode::NONE,
            high_watermark: 2,
            log_start_offset: 0,
            diverging: None,
            records: records.into(),
        };
        let answer = ReplicaFetchAnswer { error: ErrorCode::NONE, session_id: 1, partitions: vec![fetched] };
        assert_eq!(self.followed.on_answer(answer, TIMES), []);
    }

    /// The leader's log ends after the first batch of epoch 0.
    fn diverge(&mut self) {
        let diverging = |index| FetchedPartition {
            key: (TOPIC, index),
            error: ErrorCode::NONE,
            high_watermark: 1,
            log_start_offset: 0,
            diverging: Some((0, 1)),
            records: Bytes::new(),
        };
        let partitions = (0..self.partitions).map(diverging).collect();
        let answer = ReplicaFetchAnswer { error: ErrorCode::NONE, session_id: 1, partitions };
        assert_eq!(self.followed.on_answer(answer, TIMES), []);
        self.wait_for_flushes();
    }
}

#[test]
fn many_concurrent_divergences_write_each_checkpoint_once_and_share_syncs() {
    let mut follower = Follower::new(200);
    follower.recorder.take();
    follower.diverge();
    let changes = follower.recorder.take();
    let count = |is_it: &dyn Fn(&FileChange) -> bool| changes.iter().filter(|change| is_it(change)).count();
    let replaced = |name: &'static str| {
        count(&|change| matches!(change, FileChange::Rename { to, .. } if to.file_name().is_some_and(|to| to == name)))
    };
    assert_eq!(replaced("recovery-point-offset-checkpoint"), 1);
    assert!(replaced("replication-offset-checkpoint") <= 1);
    assert_eq!(count(&|change| matches!(change, FileChange::SetLen { len: 1.., .. })), 200, "each log is cut");
    assert_eq!(count(&|change| matches!(change, FileChange::SyncAll)), 1);
    let syncs = count(&|change| matches!(change, FileChange::Sync { .. } | FileChange::SyncDir { .. }));
    assert!(syncs <= 4, "{syncs} syncs besides, more than two checkpoints need");
    for partition in follower.replicas.opened() {
        let state = partition.with(|log| (log.log_end_offset(), log.flushed_offset(), log.has_unsynced_cut()));
        assert_eq!(state, (1, 1, false));
    }
    follower.replicas.shutdown(1);
}

#[test]
fn a_partition_with_another_role_is_not_fetched_after_its_append() {
    let mut follower = Follower::new(1);
    let mut records = batch(&BatchSpec { records: 1, ..BatchSpec::default() });
    set_position(&mut records, 2, 1);
    follower.answer(records);
    // This fetcher is notified later, and does not wait for the flush of a leader's log.
    follower.elect(NODE);
    follower.wait_for_flushes();
    assert_eq!(follower.followed.next_plan(0), None, "the leader of before would count what is not flushed");
    follower.replicas.shutdown(1);
}

#[test]
fn a_replica_that_was_removed_and_added_again_is_fetched() {
    let mut follower = Follower::new(1);
    let mut records = batch(&BatchSpec { records: 1, ..BatchSpec::default() });
    set_position(&mut records, 2, 1);
    follower.answer(records);
    // This fetcher is notified of both together, before the next request.
    follower.remove_and_add_again();
    let added = follower.only_replica();
    follower.followed.change(Change::Remove((TOPIC, 0)), 0);
    follower.followed.change(Change::Add(added), 0);
    follower.wait_for_flushes();
    let plan = follower.followed.next_plan(0).expect("a partition to fetch");
    let wanted: Vec<_> = plan.wanted.iter().map(|wanted| (wanted.key, wanted.position.fetch_offset)).collect();
    assert_eq!(wanted, [((TOPIC, 0), 0)]);
    follower.replicas.shutdown(1);
}

#[test]
fn a_partition_that_the_leader_fences_has_failed_until_its_next_epoch() {
    let mut follower = Follower::new(1);
    let partition = follower.only_replica();
    let fetching = || partition.fetching().expect("it follows").1;
    assert_eq!(fetching(), Fetching::Begun);
    let fenced = FetchedPartition {
        key: (TOPIC, 0),
        error: ErrorCode::FENCED_LEADER_EPOCH,
        high_watermark: -1,
        log_start_offset: -1,
        diverging: None,
        records: Bytes::new(),
    };
    let answer = ReplicaFetchAnswer { error: ErrorCode::NONE, session_id: 1, partitions: vec![fenced] };
    assert_eq!(follower.followed.on_answer(answer, TIMES), []);
    assert_eq!(fetching(), Fetching::Failed);
    follower.begin_epoch();
    assert_eq!(fetching(), Fetching::Begun);
    follower.replicas.shutdown(1);
}

#[test]
fn records_appended_by_another_fetcher_are_not_fetched_again() {
    // When the number of fetchers changes, the previous fetcher may still append a response.
    let mut follower = Follower::new(1);
    let mut records = batch(&BatchSpec { records: 1, ..BatchSpec::default() });
    set_position(&mut records, 2, 1);
    let batches = FetchedBatches { records: &records, high_watermark: 2, log_start_offset: 0 };
    follower.only_replica().append_fetched(1, &batches, 0).expect("it follows");
    follower.answer(records);
    follower.wait_for_flushes();
    let plan = follower.followed.next_plan(1000).expect("the pause is over");
    let offsets: Vec<i64> = plan.wanted.iter().map(|wanted| wanted.position.fetch_offset).collect();
    assert_eq!(offsets, [3]);
    follower.replicas.shutdown(1);
}
