//! The requests with ISR changes to the controller, and its responses.

use std::collections::HashMap;
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionChangeRecord, PartitionRecord, Record, RegisterBrokerRecord, TopicRecord};
use tempfile::{TempDir, tempdir};

use super::core::{IsrAnswer, IsrProposal};
use super::{AnsweredIsr, Durability, IsrChanges, Partition, PartitionFetch, PartitionId, Replicas, ReplicasOptions};

const LEADER: i32 = 1;
const FOLLOWER: i32 = 2;
const BROKER_EPOCH: i64 = 10;
const TOPIC: Uuid = Uuid([7; 16]);
const ALL: usize = 100;

/// A broker that leads some partitions, with itself as the only ISR member.
struct Broker {
    replicas: Replicas,
    image: Arc<MetadataImage>,
    _dir: TempDir,
}

impl Broker {
    fn new(partitions: i32) -> Self {
        let dir = tempdir().expect("a folder");
        let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
        let logs = LogManager::start(locked, ManagerConfig::default(), LogContext::new(64), 0, Arc::new(drop));
        let replicas = Replicas::new(ReplicasOptions {
            node_id: LEADER,
            durability: Durability::Flushed,
            settings: Settings::new(HashMap::new()).expect("valid values"),
            logs: logs.expect("start"),
            is_missing_dirs: false,
            clock: Arc::new(klamm_base::clock::SystemClock::default()),
        });
        let registered = |id: i32| {
            let (broker_id, broker_epoch) = (id, BROKER_EPOCH);
            let fenced = false;
            Record::RegisterBroker(RegisterBrokerRecord { broker_id, broker_epoch, fenced, ..Default::default() })
        };
        let led = |partition_id: i32| {
            Record::Partition(PartitionRecord {
                topic_id: TOPIC,
                partition_id,
                replicas: (&[LEADER, FOLLOWER][..]).into(),
                isr: (&[LEADER][..]).into(),
                leader: LEADER,
                leader_epoch: 0,
                ..PartitionRecord::default()
            })
        };
        let topic = Record::Topic(TopicRecord { name: "t", topic_id: TOPIC });
        let mut records = vec![registered(LEADER), registered(FOLLOWER), topic];
        records.extend((0..partitions).map(led));
        let mut broker = Self { replicas, image: Arc::default(), _dir: dir };
        broker.publish(&records);
        broker
    }

    fn publish(&mut self, records: &[Record<'_>]) {
        let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
        let image = self.image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit");
        self.image = Arc::new(image);
        assert!(self.replicas.publish(self.image.clone()).errors.is_empty());
    }

    fn partition(&self, index: i32) -> Arc<Partition> {
        self.replicas.get(TOPIC, index).expect("a replica")
    }

    /// The follower fetches at the end of the leader's log, so that the leader proposes to add it.
    fn caught_up(&self, index: i32) -> Arc<Partition> {
        let partition = self.partition(index);
        let fetched = partition.fetch(&PartitionFetch {
            fetch_offset: 0,
            max_bytes: 1000,
            current_leader_epoch: 0,
            last_fetched_epoch: -1,
            read_committed: false,
            replica_id: FOLLOWER,
            replica_epoch: BROKER_EPOCH,
            log_start_offset: 0,
            client_rack: None,
            is_first_look: true,
            at_least_one: true,
            quiet: None,
        });
        assert_eq!(fetched.error, ErrorCode::NONE);
        assert!(partition.pending_isr().is_some());
        partition
    }

    /// Changes with the proposals of these partitions.
    fn changes(&self, indexes: std::ops::Range<i32>) -> IsrChanges {
        let mut changes = IsrChanges::default();
        changes.add(indexes.map(|index| self.caught_up(index)).collect());
        changes
    }
}

fn indexes(request: Option<Vec<(PartitionId, IsrProposal)>>) -> Vec<i32> {
    request.unwrap_or_default().iter().map(|(id, _)| id.index).collect()
}

fn committed(index: i32) -> AnsweredIsr {
    let answer = IsrAnswer { leader_epoch: 0, partition_epoch: 1, isr: vec![LEADER, FOLLOWER] };
    AnsweredIsr { topic_id: TOPIC, index, result: Ok(answer) }
}

fn refused(index: i32, code: ErrorCode) -> AnsweredIsr {
    AnsweredIsr { topic_id: TOPIC, index, result: Err(code) }
}

#[test]
fn one_request_is_in_flight_and_the_next_has_the_changes_made_meanwhile() {
    let broker = Broker::new(3);
    let mut changes = broker.changes(0..1);
    let request = changes.next_request(ALL).expect("a proposal");
    let (id, proposal) = &request[0];
    assert_eq!((request.len(), id.index, proposal.leader_epoch), (1, 0, 0));
    let members: Vec<(i32, i64)> = proposal.members.iter().map(|member| (member.id, member.broker_epoch)).collect();
    assert_eq!(members, [(LEADER, -1), (FOLLOWER, BROKER_EPOCH)], "the sender puts in its own epoch");
    changes.add(vec![broker.caught_up(1), broker.caught_up(2)]);
    assert_eq!(changes.next_request(ALL), None, "one is in flight");
    changes.on_answer(Some(vec![committed(0)]));
    assert!(broker.partition(0).pending_isr().is_none());
    assert_eq!(indexes(changes.next_request(ALL)), [1, 2]);
    changes.on_answer(Some(vec![committed(2), committed(1)]));
    assert_eq!(changes.next_request(ALL), None);
    assert!((0..3).all(|index| broker.partition(index).pending_isr().is_none()));
}

#[test]
fn a_request_has_a_maximum_and_the_rest_follows() {
    let broker = Broker::new(5);
    let mut changes = broker.changes(0..5);
    assert_eq!(indexes(changes.next_request(2)), [0, 1]);
    changes.on_answer(Some(vec![committed(0), committed(1)]));
    assert_eq!(indexes(changes.next_request(2)), [2, 3]);
    changes.on_answer(Some(vec![committed(2), committed(3)]));
    assert_eq!(indexes(changes.next_request(2)), [4]);
}

#[test]
fn a_request_without_an_answer_is_sent_again() {
    let broker = Broker::new(2);
    let mut changes = broker.changes(0..2);
    let request = changes.next_request(ALL);
    changes.on_answer(None);
    assert_eq!(changes.next_request(ALL), request);
}

#[test]
fn a_partition_that_the_answer_lacks_is_sent_again() {
    let broker = Broker::new(2);
    let mut changes = broker.changes(0..2);
    changes.next_request(ALL);
    changes.on_answer(Some(vec![committed(1)]));
    assert_eq!(indexes(changes.next_request(ALL)), [0]);
}

#[test]
fn a_retriable_error_is_retried_and_a_final_one_is_not() {
    let broker = Broker::new(2);
    let mut changes = broker.changes(0..2);
    changes.next_request(ALL);
    changes
        .on_answer(Some(vec![refused(0, ErrorCode::UNKNOWN_SERVER_ERROR), refused(1, ErrorCode::FENCED_LEADER_EPOCH)]));
    assert_eq!(indexes(changes.next_request(ALL)), [0]);
}

#[test]
fn a_partition_that_proposes_twice_is_sent_once() {
    let broker = Broker::new(1);
    let mut changes = broker.changes(0..1);
    changes.add(vec![broker.partition(0)]);
    assert_eq!(indexes(changes.next_request(ALL)), [0]);
    changes.on_answer(Some(vec![committed(0)]));
    assert_eq!(changes.next_request(ALL), None);
}

#[test]
fn a_proposal_that_a_newer_image_ended_is_omitted() {
    let mut broker = Broker::new(3);
    let mut changes = broker.changes(0..3);
    for partition_id in 0..2 {
        let isr = Some((&[LEADER, FOLLOWER][..]).into());
        let change = PartitionChangeRecord { topic_id: TOPIC, partition_id, isr, ..Default::default() };
        broker.publish(&[Record::PartitionChange(change)]);
    }
    // The first two alone would fill the request.
    assert_eq!(indexes(changes.next_request(2)), [2]);
    changes.on_answer(Some(vec![committed(2)]));
    assert_eq!(changes.next_request(2), None);
}
