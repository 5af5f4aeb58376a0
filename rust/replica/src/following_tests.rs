//! A leader and its follower, with the exchange between them done by hand.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use klamm_base::clock::SystemClock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch, read_all};
use klamm_log::{FileSlice, LockedDir, LogContext, LogManager, ManagerConfig, Origin};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{
    BrokerRegistrationChangeRecord, ConfigRecord, PartitionChangeRecord, PartitionRecord, Record, RegisterBrokerRecord,
    TopicRecord,
};
use klamm_records::header::set_position;
use tempfile::{TempDir, tempdir};

use super::core::IsrAnswer;
use super::{
    CONSUMER, Diverging, Durability, Fetched, FetchedBatches, Fetching, Partition, PartitionFetch, Position, Replicas,
    ReplicasOptions, truncate_diverging,
};

const LEADER: i32 = 1;
const FOLLOWER: i32 = 2;
const TOPIC: Uuid = Uuid([7; 16]);
const TIMEOUT: Duration = Duration::from_secs(30);
const BYTES_MAX: usize = 1 << 20;

fn changed(image: &MetadataImage, records: &[Record<'_>]) -> Arc<MetadataImage> {
    let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
    Arc::new(image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit"))
}

fn truncate(partition: &Arc<Partition>, leader_epoch: i32, leader_end: (i32, i64)) -> Result<Position, ErrorCode> {
    let diverging = Diverging { partition: partition.clone(), leader_epoch, leader_end };
    truncate_diverging(&[diverging], 0).remove(0)
}

/// Two brokers with a replica each of one partition.
struct Pair {
    brokers: [Replicas; 2],
    image: Arc<MetadataImage>,
    _dirs: [TempDir; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with_settings(&[])
    }

    fn with_settings(settings: &[(&str, &str)]) -> Self {
        let dirs = [(); 2].map(|()| tempdir().expect("a folder"));
        let broker = |node_id: i32| {
            let dir = &dirs[usize::try_from(node_id - 1).expect("a broker")];
            let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
            let logs = LogManager::start(locked, ManagerConfig::default(), LogContext::new(64), 0, Arc::new(drop));
            let values = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Replicas::new(ReplicasOptions {
                node_id,
                durability: Durability::Flushed,
                settings: Settings::new(values).expect("valid values"),
                logs: logs.expect("start"),
                is_missing_dirs: false,
                clock: Arc::new(SystemClock::default()),
            })
        };
        let brokers = [broker(LEADER), broker(FOLLOWER)];
        let nodes = [LEADER, FOLLOWER];
        let partition = PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: (&nodes[..]).into(),
            isr: (&nodes[..]).into(),
            leader: LEADER,
            leader_epoch: 0,
            ..PartitionRecord::default()
        };
        let registered = |id: i32| {
            let rack = Some(if id == LEADER { "a" } else { "b" });
            let record =
                RegisterBrokerRecord { broker_id: id, broker_epoch: 10, rack, fenced: false, ..Default::default() };
            Record::RegisterBroker(record)
        };
        let topic = Record::Topic(TopicRecord { name: "t", topic_id: TOPIC });
        let records = [registered(LEADER), registered(FOLLOWER), topic, Record::Partition(partition)];
        let mut pair = Self { brokers, image: Arc::default(), _dirs: dirs };
        pair.publish(&records);
        pair
    }

    fn publish(&mut self, records: &[Record<'_>]) {
        self.image = changed(&self.image, records);
        for broker in &self.brokers {
            assert!(broker.publish(self.image.clone()).errors.is_empty());
        }
    }

    fn elect(&mut self, leader: i32, isr: &[i32]) {
        let isr = Some(isr.into());
        let change = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, leader, isr, ..Default::default() };
        self.publish(&[Record::PartitionChange(change)]);
    }

    /// Without a new leader epoch.
    fn change_isr(&mut self, isr: &[i32]) {
        let isr = Some(isr.into());
        let change = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, isr, ..Default::default() };
        self.publish(&[Record::PartitionChange(change)]);
    }

    fn on(&self, broker: i32) -> Arc<Partition> {
        self.brokers[usize::try_from(broker - 1).expect("a broker")].get(TOPIC, 0).expect("a replica")
    }

    fn leader_epoch(&self) -> i32 {
        let topic = self.image.topics().by_id(TOPIC).expect("the topic");
        topic.partition(0).expect("the partition").leader_epoch()
    }

    /// The follower's fetch from `leader` at `position`.
    fn fetch(&self, leader: i32, position: Position) -> Fetched {
        self.on(leader).fetch(&PartitionFetch {
            fetch_offset: position.fetch_offset,
            max_bytes: BYTES_MAX,
            current_leader_epoch: self.leader_epoch(),
            last_fetched_epoch: position.last_fetched_epoch,
            read_committed: false,
            replica_id: 3 - leader,
            client_rack: None,
            replica_epoch: 10,
            log_start_offset: position.log_start_offset,
            is_first_look: true,
            at_least_one: true,
            quiet: None,
        })
    }

    /// Exchanges until the follower has all of the leader's log and its high watermark.
    fn catch_up(&self, leader: i32) -> Position {
        let mut position = self.on(3 - leader).begin_following(self.leader_epoch(), 0).expect("it follows");
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let next = self.exchange(leader, position);
            let end = self.on(leader).with(|log| log.log_end_offset());
            // The leader's flusher advances the high watermark after the flush.
            if next == position && [1, 2].iter().all(|&broker| high_watermark(&self.on(broker)) == end) {
                return position;
            }
            position = next;
        }
        panic!("the follower does not catch up: {position:?}");
    }

    /// One fetch of the follower, and the handling of the response.
    fn exchange(&self, leader: i32, position: Position) -> Position {
        let (follower, epoch) = (self.on(3 - leader), self.leader_epoch());
        while !follower.is_flushed() {
            std::thread::yield_now();
        }
        let fetched = self.fetch(leader, position);
        assert_eq!(fetched.error, ErrorCode::NONE);
        let next = match fetched.diverging {
            Some(diverging) => truncate(&follower, epoch, diverging),
            None => {
                let records = fetched.records.map_or(Vec::new(), |slice| read(&slice));
                let (high_watermark, log_start_offset) = (fetched.high_watermark, fetched.log_start_offset);
                let batches = FetchedBatches { records: &records, high_watermark, log_start_offset };
                follower.append_fetched(epoch, &batches, 0)
            }
        };
        next.expect("it follows")
    }

    fn end(self) {
        self.brokers.iter().for_each(|broker| broker.shutdown(1));
    }
}

fn append(partition: &Partition, count: i32) -> i64 {
    append_of(partition, count, BatchSpec::default().value_bytes)
}

/// Appends batches of one record each; returns the end of the log.
fn append_of(partition: &Partition, count: i32, value_bytes: usize) -> i64 {
    let mut end = 0;
    for _ in 0..count {
        let mut bytes = batch(&BatchSpec { value_bytes, ..BatchSpec::default() });
        end = partition.append(&mut bytes, 1, Origin::Client, 0).expect("it leads").end_offset;
    }
    end
}

fn bytes_of(partition: &Partition) -> Vec<u8> {
    partition.with(|log| read_all(log, 0))
}

fn read(slice: &FileSlice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len];
    slice.file.file().read_exact_at(&mut bytes, slice.position).expect("readable");
    bytes
}

fn high_watermark(partition: &Partition) -> i64 {
    klamm_log::LogOwner::high_watermark(partition)
}

#[test]
fn an_append_is_acknowledged_when_the_follower_fetches_after_it() {
    let pair = Pair::new();
    let leader = pair.on(LEADER);
    let end = append(&leader, 1);
    let (sender, acked) = channel();
    leader.when_acked(end, Box::new(move |code| sender.send(code).expect("the test listens")));
    assert!(acked.recv_timeout(Duration::from_millis(50)).is_err(), "the follower has nothing yet");
    let position = pair.catch_up(LEADER);
    assert_eq!(acked.recv_timeout(TIMEOUT), Ok(ErrorCode::NONE));
    let follower = pair.on(FOLLOWER);
    assert_eq!((position.fetch_offset, high_watermark(&leader), high_watermark(&follower)), (end, end, end));
    assert_eq!(bytes_of(&leader), bytes_of(&follower));
    pair.end();
}

#[test]
fn a_former_leader_truncates_records_that_the_new_leader_lacks() {
    let mut pair = Pair::new();
    append(&pair.on(LEADER), 3);
    pair.catch_up(LEADER);
    // These are on the first leader only.
    append(&pair.on(LEADER), 2);
    pair.elect(FOLLOWER, &[FOLLOWER]);
    append(&pair.on(FOLLOWER), 4);
    let position = pair.catch_up(FOLLOWER);
    assert_eq!((position.fetch_offset, position.last_fetched_epoch), (7, 1));
    assert_eq!(bytes_of(&pair.on(LEADER)), bytes_of(&pair.on(FOLLOWER)));
    // Leadership moves back several times, so that the logs diverge in several epochs.
    for round in 0..3 {
        append(&pair.on(FOLLOWER), 1 + round);
        pair.elect(LEADER, &[LEADER]);
        append(&pair.on(LEADER), 2);
        pair.elect(FOLLOWER, &[FOLLOWER]);
        append(&pair.on(FOLLOWER), 1);
        pair.catch_up(FOLLOWER);
        assert_eq!(bytes_of(&pair.on(LEADER)), bytes_of(&pair.on(FOLLOWER)));
    }
    pair.end();
}

#[test]
fn a_response_of_an_older_leader_epoch_changes_nothing() {
    let mut pair = Pair::new();
    append(&pair.on(LEADER), 1);
    let follower = pair.on(FOLLOWER);
    let position = follower.begin_following(0, 0).expect("it follows");
    let fetched = pair.fetch(LEADER, position);
    let records = read(&fetched.records.expect("a batch"));
    pair.elect(LEADER, &[LEADER, FOLLOWER]);
    // A newer epoch of the same leader: a change record with a leader increments the epoch.
    assert_eq!(pair.leader_epoch(), 1);
    let stale = FetchedBatches { records: &records, high_watermark: 1, log_start_offset: 0 };
    assert_eq!(follower.append_fetched(0, &stale, 0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(truncate(&follower, 0, (0, 0)), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(follower.with(|log| log.log_end_offset()), 0);
    pair.elect(FOLLOWER, &[FOLLOWER]);
    assert_eq!(follower.append_fetched(2, &stale, 0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    pair.end();
}

#[test]
fn the_checkpoints_contain_nothing_above_a_truncation() {
    let mut pair = Pair::new();
    append(&pair.on(LEADER), 5);
    pair.catch_up(LEADER);
    let logs = pair.brokers[1].logs().clone();
    let checkpoint = |name: &str| {
        let text = std::fs::read_to_string(logs.dirs()[0].path().join(name)).expect("a checkpoint");
        text.trim_end().rsplit(' ').next().and_then(|offset| offset.parse::<i64>().ok()).expect("an offset")
    };
    logs.checkpoint();
    assert_eq!(checkpoint("recovery-point-offset-checkpoint"), 5);
    pair.elect(LEADER, &[LEADER]);
    let position = truncate(&pair.on(FOLLOWER), 1, (0, 3)).expect("it follows");
    assert_eq!(position.fetch_offset, 3);
    assert!(checkpoint("recovery-point-offset-checkpoint") <= 3);
    assert!(checkpoint("replication-offset-checkpoint") <= 3);
    let position = pair.on(FOLLOWER).move_into(1, 9, 9, 0).expect("it follows");
    assert_eq!((position.log_start_offset, position.fetch_offset), (9, 9));
    assert_eq!(checkpoint("recovery-point-offset-checkpoint"), 0, "the log before is gone");
    pair.end();
}

#[test]
fn an_answer_larger_than_a_segment_is_appended_in_parts() {
    let pair = Pair::with_settings(&[("log.segment.bytes", "1048576")]);
    let leader = pair.on(LEADER);
    append_of(&leader, 40, 100_000);
    let answer = bytes_of(&leader);
    assert!(answer.len() > 3 << 20);
    let follower = pair.on(FOLLOWER);
    follower.begin_following(0, 0).expect("it follows");
    let fetched = FetchedBatches { records: &answer, high_watermark: 0, log_start_offset: 0 };
    follower.append_fetched(0, &fetched, 0).expect("it follows");
    assert_eq!(bytes_of(&follower), answer);
    pair.end();
}

#[test]
fn a_follower_begins_at_a_leaders_log_start_within_a_batch() {
    let pair = Pair::new();
    let leader = pair.on(LEADER);
    let mut three = batch(&BatchSpec { records: 3, ..BatchSpec::default() });
    leader.append(&mut three, 1, Origin::Client, 0).expect("it leads");
    let answer = bytes_of(&leader);
    let follower = pair.on(FOLLOWER);
    follower.begin_following(0, 0).expect("it follows");
    let moved = follower.move_into(0, 1, 3, 0).expect("it follows");
    assert_eq!((moved.fetch_offset, moved.log_start_offset), (1, 1));
    let fetched = FetchedBatches { records: &answer, high_watermark: 3, log_start_offset: 1 };
    let position = follower.append_fetched(0, &fetched, 0).expect("it follows");
    assert_eq!((position.fetch_offset, position.high_watermark, position.log_start_offset), (3, 3, 1));
    pair.end();
}

#[test]
fn a_follower_without_records_begins_at_0_unless_it_is_in_the_isr() {
    let mut pair = Pair::new();
    let follower = pair.on(FOLLOWER);
    follower.begin_following(0, 0).expect("it follows");
    let moved = follower.move_into(0, 21, 21, 0).expect("it follows");
    assert_eq!((moved.log_start_offset, moved.fetch_offset), (21, 21));
    for (epoch, isr, expected) in [(1, &[LEADER, FOLLOWER][..], 21), (2, &[LEADER][..], 0)] {
        pair.elect(LEADER, isr);
        let position = follower.begin_following(epoch, 0).expect("it follows");
        assert_eq!((position.log_start_offset, position.fetch_offset), (expected, expected));
    }
    // It may be in the ISR since it fetched, before its image shows that.
    follower.move_into(2, 21, 21, 0).expect("it follows");
    let position = follower.begin_following(2, 0).expect("it follows");
    assert_eq!((position.log_start_offset, position.fetch_offset), (21, 21));
    pair.end();
}

/// A batch of the leader.
fn batch_at(base_offset: i64, epoch: i32, records: i32) -> Vec<u8> {
    let mut one = batch(&BatchSpec { records, ..BatchSpec::default() });
    set_position(&mut one, base_offset, epoch);
    one
}

#[test]
fn a_log_below_the_leaders_start_restarts_with_its_first_batch() {
    let mut pair = Pair::new();
    let follower = pair.on(FOLLOWER);
    follower.begin_following(0, 0).expect("it follows");
    let old = [batch_at(0, 0, 1), batch_at(1, 0, 1)].concat();
    let fetched = FetchedBatches { records: &old, high_watermark: 0, log_start_offset: 0 };
    follower.append_fetched(0, &fetched, 0).expect("it follows");
    // The batch of another leader contains offset 2, and everything below is deleted.
    pair.elect(LEADER, &[LEADER, FOLLOWER]);
    follower.begin_following(1, 0).expect("it follows");
    let inside = batch_at(1, 1, 3);
    let fetched = FetchedBatches { records: &inside, high_watermark: 4, log_start_offset: 2 };
    let position = follower.append_fetched(1, &fetched, 0).expect("it follows");
    assert_eq!((position.fetch_offset, position.log_start_offset), (4, 2));
    assert_eq!(follower.with(|log| log.active_base_offset()), 1);
    // The next leader has deleted these offsets, and the two logs cannot be compared there.
    pair.elect(LEADER, &[LEADER, FOLLOWER]);
    follower.begin_following(2, 0).expect("it follows");
    let next = batch_at(4, 2, 1);
    let fetched = FetchedBatches { records: &next, high_watermark: 4, log_start_offset: 4 };
    let position = follower.append_fetched(2, &fetched, 0).expect("it follows");
    assert_eq!((position.fetch_offset, position.log_start_offset), (5, 4));
    assert_eq!(follower.with(|log| log.active_base_offset()), 4);
    pair.end();
}

#[test]
fn fetches_of_others_than_replicas_of_a_stale_broker_and_beyond_the_log_are_refused() {
    let pair = Pair::new();
    append(&pair.on(LEADER), 2);
    let fetch = |replica_id, replica_epoch, fetch_offset, current_leader_epoch| {
        let fetched = pair.on(LEADER).fetch(&PartitionFetch {
            fetch_offset,
            max_bytes: BYTES_MAX,
            current_leader_epoch,
            last_fetched_epoch: -1,
            read_committed: false,
            replica_id,
            client_rack: None,
            replica_epoch,
            log_start_offset: 0,
            is_first_look: true,
            at_least_one: true,
            quiet: None,
        });
        fetched.error
    };
    assert_eq!(fetch(3, -1, 0, 0), ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(fetch(3, -1, 0, -1), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(fetch(FOLLOWER, 9, 2, 0), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(fetch(FOLLOWER, 10, 3, 0), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(fetch(FOLLOWER, 10, -1, 0), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(fetch(FOLLOWER, 10, 2, 1), ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(high_watermark(&pair.on(LEADER)), 0, "none of them counts");
    assert_eq!(fetch(FOLLOWER, 10, 2, 0), ErrorCode::NONE);
    pair.end();
}

#[test]
fn replicas_that_a_reassignment_adds_do_not_make_a_partition_under_replicated() {
    let mut pair = Pair::new();
    let gauges = |pair: &Pair| {
        let gauges = pair.brokers[0].gauges();
        [gauges.under_replicated, gauges.reassigning]
    };
    let replicas = [LEADER, FOLLOWER, 3];
    pair.publish(&[Record::PartitionChange(PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        replicas: Some((&replicas[..]).into()),
        adding_replicas: Some((&[3][..]).into()),
        ..Default::default()
    })]);
    assert_eq!(gauges(&pair), [0, 1]);
    pair.change_isr(&[LEADER]);
    assert_eq!(gauges(&pair), [1, 1]);
    pair.end();
}

#[test]
fn changes_of_the_isr_are_counted_by_the_answer_or_the_image_and_so_are_refusals() {
    let mut pair = Pair::new();
    append(&pair.on(LEADER), 1);
    let gauges = |pair: &Pair| {
        let gauges = pair.brokers[0].gauges();
        [gauges.leaders, gauges.under_replicated, gauges.at_min_isr, gauges.under_min_isr]
    };
    assert_eq!(gauges(&pair), [1, 0, 0, 0]);
    assert_eq!((pair.brokers[1].gauges().partitions, pair.brokers[1].gauges().leaders), (1, 0));
    pair.elect(LEADER, &[LEADER]);
    assert_eq!(gauges(&pair), [1, 1, 1, 0]);
    let leader = pair.on(LEADER);
    pair.catch_up(LEADER);
    let proposal = leader.pending_isr().expect("the follower is in sync again");
    assert!(!leader.on_isr_answer(&proposal, Err(ErrorCode::INELIGIBLE_REPLICA)));
    assert!(!leader.on_isr_answer(&proposal, Err(ErrorCode::INELIGIBLE_REPLICA)), "it is not pending any more");
    pair.catch_up(LEADER);
    let proposal = leader.pending_isr().expect("proposed again");
    let epochs = (proposal.leader_epoch, proposal.partition_epoch + 1);
    let answer = IsrAnswer { leader_epoch: epochs.0, partition_epoch: epochs.1, isr: vec![LEADER, FOLLOWER] };
    assert!(!leader.on_isr_answer(&proposal, Ok(&answer)));
    let counts = |pair: &Pair| {
        let counters = &pair.brokers[0].changes().counters;
        [&counters.isr_expands, &counters.isr_shrinks, &counters.failed_isr_updates].map(|it| it.get())
    };
    assert_eq!(counts(&pair), [1, 0, 1]);
    // The controller removes the follower, and the image that returns it comes before the answer.
    pair.elect(LEADER, &[LEADER]);
    pair.elect(LEADER, &[LEADER]);
    pair.catch_up(LEADER);
    assert!(leader.pending_isr().is_some());
    pair.change_isr(&[LEADER, FOLLOWER]);
    assert_eq!((leader.pending_isr(), counts(&pair)), (None, [2, 0, 1]));
}

const RACK_AWARE: (&str, &str) = ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector");

fn consume(partition: &Partition, client_rack: Option<&str>, fetch_offset: i64) -> Fetched {
    partition.fetch(&PartitionFetch {
        fetch_offset,
        max_bytes: BYTES_MAX,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        read_committed: false,
        replica_id: CONSUMER,
        client_rack,
        replica_epoch: -1,
        log_start_offset: -1,
        is_first_look: true,
        at_least_one: true,
        quiet: None,
    })
}

#[test]
fn a_consumer_that_names_a_rack_reads_committed_records_from_a_follower() {
    let pair = Pair::new();
    append(&pair.on(LEADER), 3);
    let position = pair.catch_up(LEADER);
    let follower = pair.on(FOLLOWER);
    append(&pair.on(LEADER), 2);
    // The follower holds them, and does not know yet that they are committed.
    pair.exchange(LEADER, position);
    let fetched = consume(&follower, Some(""), 0);
    assert_eq!((fetched.error, fetched.high_watermark), (ErrorCode::NONE, 3));
    let committed = consume(&pair.on(LEADER), None, 0);
    assert!(read(&committed.records.expect("records")).starts_with(&read(&fetched.records.expect("records"))));
    let ahead = consume(&follower, Some(""), 4);
    assert_eq!((ahead.error, ahead.records.is_none()), (ErrorCode::NONE, true));
    assert_eq!(consume(&follower, Some(""), 6).error, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(consume(&follower, None, 0).error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn records_are_deleted_when_every_live_replica_has_moved_its_log_start() {
    let mut pair = Pair::new();
    append(&pair.on(LEADER), 5);
    let position = pair.catch_up(LEADER);
    let leader = pair.on(LEADER);
    assert_eq!(leader.delete_records(6), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!((leader.delete_records(3), leader.low_watermark()), (Ok(3), Ok(0)));
    let next = pair.exchange(LEADER, position);
    assert_eq!(next.log_start_offset, 3);
    assert_eq!(leader.low_watermark(), Ok(0), "the follower has it, and has not fetched since");
    pair.exchange(LEADER, next);
    assert_eq!(leader.low_watermark(), Ok(3));
    assert_eq!(pair.on(FOLLOWER).low_watermark(), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));

    assert_eq!((leader.delete_records(4), leader.low_watermark()), (Ok(4), Ok(3)));
    let fenced =
        BrokerRegistrationChangeRecord { broker_id: FOLLOWER, broker_epoch: 10, fenced: 1, ..Default::default() };
    pair.publish(&[Record::BrokerRegistrationChange(fenced)]);
    assert_eq!(leader.low_watermark(), Ok(4), "a broker that is away is not waited for");
}

#[test]
fn a_leader_sends_a_consumer_to_the_replica_in_its_rack_if_it_is_configured_to() {
    for (settings, preferred) in [(&[][..], None), (&[RACK_AWARE][..], Some(FOLLOWER))] {
        let pair = Pair::with_settings(settings);
        append(&pair.on(LEADER), 3);
        pair.catch_up(LEADER);
        let fetched = consume(&pair.on(LEADER), Some("b"), 0);
        assert_eq!((fetched.preferred_read_replica, fetched.records.is_none()), (preferred, preferred.is_some()));
        assert_eq!((fetched.error, fetched.high_watermark), (ErrorCode::NONE, 3));
        for rack in [None, Some(""), Some("a"), Some("elsewhere")] {
            let fetched = consume(&pair.on(LEADER), rack, 0);
            assert_eq!((fetched.preferred_read_replica, fetched.records.is_some()), (None, true), "{rack:?}");
        }
    }
}

#[test]
fn a_follower_without_epochs_in_its_log_truncates_to_its_high_watermark() {
    let mut pair = Pair::new();
    let without_epoch = |offset| {
        let mut bytes = batch(&BatchSpec::default());
        set_position(&mut bytes, offset, -1);
        bytes
    };
    let old = [without_epoch(0), without_epoch(1)].concat();
    let follower = pair.on(FOLLOWER);
    let fetched = FetchedBatches { records: &old, high_watermark: 1, log_start_offset: 0 };
    assert_eq!(follower.append_fetched(0, &fetched, 0).expect("it follows").fetch_offset, 2);
    pair.elect(LEADER, &[LEADER, FOLLOWER]);
    let position = follower.begin_following(1, 0).expect("it follows");
    assert_eq!((position.fetch_offset, position.last_fetched_epoch), (1, -1));
    pair.end();
}

#[test]
fn a_replica_is_throttled_only_while_it_is_not_in_sync() {
    let mut pair = Pair::with_settings(&[
        ("leader.replication.throttled.rate", "1000"),
        ("follower.replication.throttled.rate", "1000"),
    ]);
    let config = |name, value| {
        let record = ConfigRecord { resource_type: 2, resource_name: "t", name, value: Some(value) };
        Record::Config(record)
    };
    pair.publish(&[
        config("leader.replication.throttled.replicas", "0:1"),
        config("follower.replication.throttled.replicas", "*"),
    ]);
    pair.change_isr(&[LEADER]);
    append_of(&pair.on(LEADER), 5, 10_000);
    let position = pair.on(FOLLOWER).begin_following(pair.leader_epoch(), 0).expect("it follows");
    let position = pair.exchange(LEADER, position);
    assert_eq!(position.fetch_offset, 5, "the rate was not exceeded before");
    assert!(pair.on(FOLLOWER).is_throttled_follower() && pair.on(FOLLOWER).is_follower_rate_exceeded());
    append_of(&pair.on(LEADER), 1, 10_000);
    let held_back = pair.fetch(LEADER, position);
    assert!(held_back.error == ErrorCode::NONE && held_back.records.is_none());
    pair.change_isr(&[LEADER, FOLLOWER]);
    assert!(pair.fetch(LEADER, position).records.is_some(), "in sync");
    pair.change_isr(&[LEADER]);
    pair.publish(&[config("leader.replication.throttled.replicas", "0:2")]);
    assert!(pair.fetch(LEADER, position).records.is_some(), "another leader is throttled");
    pair.end();
}

#[test]
fn a_follower_knows_its_lag() {
    let pair = Pair::new();
    append(&pair.on(LEADER), 1);
    let (follower, epoch) = (pair.on(FOLLOWER), pair.leader_epoch());
    assert_eq!(pair.on(LEADER).fetching(), None);
    let fetching = || follower.fetching().expect("a follower").1;
    follower.begin_following(epoch, 0).expect("it follows");
    assert_eq!(fetching(), Fetching::Begun);
    for (high_watermark, lag) in [(7, 7), (0, 0)] {
        let nothing = FetchedBatches { records: &[], high_watermark, log_start_offset: 0 };
        follower.append_fetched(epoch, &nothing, 0).expect("it follows");
        assert_eq!(fetching(), Fetching::Behind(lag));
    }
    follower.note_fetching(Fetching::Failed);
    assert_eq!(fetching(), Fetching::Failed);
    follower.begin_following(epoch, 0).expect("it follows");
    assert_eq!(fetching(), Fetching::Begun);
    pair.end();
}

#[test]
fn a_damaged_batch_removes_nothing() {
    let pair = Pair::new();
    append(&pair.on(LEADER), 1);
    let (follower, epoch) = (pair.on(FOLLOWER), pair.leader_epoch());
    let mut first = batch(&BatchSpec::default());
    set_position(&mut first, 0, epoch);
    let fetched = FetchedBatches { records: &first, high_watermark: 1, log_start_offset: 0 };
    follower.append_fetched(epoch, &fetched, 0).expect("it follows");
    let spanning = |base_offset| {
        let mut records = batch(&BatchSpec { records: 9, ..BatchSpec::default() });
        set_position(&mut records, base_offset, epoch);
        records
    };
    let mut damaged = spanning(0);
    *damaged.last_mut().expect("bytes") ^= 1;
    for records in [damaged, spanning(-1)] {
        let fetched = FetchedBatches { records: &records, high_watermark: 9, log_start_offset: 5 };
        follower.append_fetched(epoch, &fetched, 0).expect_err("no batch");
        assert_eq!(follower.with(|log| (log.log_start_offset(), log.log_end_offset())), (0, 1));
    }
    let mut newer = spanning(0);
    set_position(&mut newer, 0, epoch + 1);
    let fetched = FetchedBatches { records: &newer, high_watermark: 0, log_start_offset: 5 };
    follower.append_fetched(epoch, &fetched, 0).expect("a batch of a newer epoch is left out");
    assert_eq!(follower.with(|log| log.log_end_offset()), 1);
    let intact = spanning(0);
    let fetched = FetchedBatches { records: &intact, high_watermark: 9, log_start_offset: 5 };
    follower.append_fetched(epoch, &fetched, 0).expect("its leader's log begins inside");
    assert_eq!(follower.with(|log| (log.log_start_offset(), log.log_end_offset())), (5, 9));
    pair.end();
}
