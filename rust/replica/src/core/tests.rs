//! The rules of Apache Kafka's `PartitionTest`, one by one, and a model under random events.

use std::collections::HashMap;

use klamm_base::ErrorCode;
use proptest::prelude::*;

use super::*;

mod quiet;

use quiet::Session;

const LAG_MAX_MS: i64 = 30_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetch(&'static str);

impl Waiter for Fetch {
    type Session = Session;

    fn has_ended(&self) -> bool {
        false
    }
}

/// Broker 0 is in rack "a", brokers 1 and 2 are in rack "b".
#[derive(Clone, Default)]
struct Cluster(HashMap<i32, BrokerStanding>);

impl Brokers for Cluster {
    fn standing(&self, broker_id: i32) -> Option<BrokerStanding> {
        self.0.get(&broker_id).copied()
    }

    fn is_in_rack(&self, broker_id: i32, rack: &str) -> bool {
        rack == if broker_id == 0 { "a" } else { "b" }
    }
}

/// A partition of broker 0 with its log's offsets and a clock.
struct Rig {
    core: PartitionCore<&'static str, Fetch>,
    cluster: Cluster,
    offsets: LogOffsets,
    now_ms: i64,
    effects: Effects<&'static str, Fetch>,
}

impl Rig {
    fn new(min_insync_replicas: usize) -> Self {
        let standing = |id: i32| (id, BrokerStanding { epoch: 100 + i64::from(id), is_active: true });
        Self {
            core: PartitionCore::new(0, LAG_MAX_MS, 0, min_insync_replicas),
            cluster: Cluster((0..4).map(standing).collect()),
            offsets: LogOffsets { start: 0, end: 0, counted: 0 },
            now_ms: 1_000_000,
            effects: Effects::default(),
        }
    }

    /// Broker 0 leads with replicas 0, 1 and 2 and this ISR.
    fn leading(isr: &[i32]) -> Self {
        let mut rig = Self::new(2);
        rig.assign(0, 1, 1, isr);
        rig.effects = Effects::default();
        rig
    }

    fn assign(&mut self, leader: i32, leader_epoch: i32, partition_epoch: i32, isr: &[i32]) {
        let assignment =
            Assignment { leader, leader_epoch, partition_epoch, replicas: vec![0, 1, 2], isr: isr.to_vec() };
        self.core.on_assignment(&assignment, &self.offsets, self.now_ms, &self.cluster, &mut self.effects);
    }

    fn append(&mut self, records: i64) {
        self.offsets.end += records;
        self.offsets.counted = self.offsets.end;
        self.core.on_appended(&self.offsets, &self.cluster, &mut self.effects);
    }

    fn fetch(&mut self, replica_id: i32, fetch_offset: i64) -> Result<(), ErrorCode> {
        self.fetch_of(replica_id, 100 + i64::from(replica_id), fetch_offset)
    }

    fn fetch_of(&mut self, replica_id: i32, broker_epoch: i64, fetch_offset: i64) -> Result<(), ErrorCode> {
        let (log_start_offset, leader_end_offset) = (0, self.offsets.end);
        self.take(&FollowerFetch { replica_id, broker_epoch, fetch_offset, log_start_offset, leader_end_offset })
    }

    fn take(&mut self, fetch: &FollowerFetch) -> Result<(), ErrorCode> {
        self.core.on_follower_fetch(fetch, &self.offsets, self.now_ms, &self.cluster, &mut self.effects)
    }

    fn check_lag(&mut self) {
        self.core.on_lag_check(&self.offsets, self.now_ms, &self.cluster, &mut self.effects);
    }

    fn answer(&mut self, proposal: &IsrProposal, answer: Result<&IsrAnswer, ErrorCode>) -> bool {
        self.core.on_isr_answer(proposal, answer, &self.offsets, &self.cluster, &mut self.effects)
    }

    fn proposal(&mut self) -> Option<IsrProposal> {
        self.effects.proposal.take()
    }

    fn proposed(&mut self) -> Option<Vec<i32>> {
        self.proposal().map(|proposal| proposal.members.iter().map(|member| member.id).collect())
    }
}

fn committed(partition_epoch: i32, isr: &[i32]) -> IsrAnswer {
    IsrAnswer { leader_epoch: 1, partition_epoch, isr: isr.to_vec() }
}

#[test]
fn the_high_watermark_is_the_lowest_end_offset_of_the_isr() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.append(10);
    assert_eq!(rig.core.high_watermark(), 0);
    rig.fetch(1, 10).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 0, "replica 2 has not fetched");
    rig.fetch(2, 7).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 7);
}

#[test]
fn the_leader_counts_itself_up_to_what_is_flushed() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.append(10);
    rig.offsets.counted = 4;
    rig.fetch(1, 10).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 4);
    rig.offsets.counted = 9;
    rig.core.on_flushed(&rig.offsets, &rig.cluster, &mut rig.effects);
    assert_eq!(rig.core.high_watermark(), 9);
}

#[test]
fn below_the_min_isr_nothing_is_committed_and_nothing_may_be_appended() {
    let mut rig = Rig::leading(&[0]);
    rig.append(5);
    assert_eq!((rig.core.high_watermark(), rig.core.check_min_isr()), (0, Err(ErrorCode::NOT_ENOUGH_REPLICAS)));
    rig.core.on_min_isr(1, &rig.offsets, &rig.cluster, &mut rig.effects);
    assert_eq!((rig.core.high_watermark(), rig.core.check_min_isr()), (5, Ok(())));
}

#[test]
fn a_replica_that_has_all_of_the_epoch_is_proposed_and_counts_at_once() {
    let mut rig = Rig::new(1);
    rig.append(10);
    rig.assign(0, 1, 1, &[0]);
    assert_eq!(rig.core.high_watermark(), 10);
    rig.append(2);
    rig.effects = Effects::default();
    // Everything that is committed is not enough: records of an earlier leader may be missing.
    rig.fetch(1, 9).expect("a replica");
    assert_eq!(rig.proposed(), None);
    rig.fetch(1, 12).expect("a replica");
    let proposal = rig.proposal().expect("a proposal");
    assert_eq!(proposal.members[1], IsrMember { id: 1, broker_epoch: 101 });
    // The controller may have committed it already, so that it must hold what is acknowledged from now on.
    rig.append(1);
    assert_eq!((rig.core.high_watermark(), rig.core.isr()), (12, &[0][..]));
    assert!(!rig.answer(&proposal, Ok(&committed(2, &[0, 1]))));
    assert_eq!(rig.core.isr(), [0, 1]);
    rig.fetch(1, 13).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 13);
}

#[test]
fn committed_records_are_not_enough_to_join() {
    let mut rig = Rig::new(1);
    rig.append(10);
    rig.assign(0, 1, 1, &[0, 2]);
    rig.effects = Effects::default();
    rig.fetch(1, 9).expect("a replica");
    assert_eq!((rig.core.high_watermark(), rig.proposed()), (0, None), "a record of an earlier leader is missing");
    rig.fetch(1, 10).expect("a replica");
    assert_eq!(rig.proposed(), Some(vec![0, 2, 1]));
}

#[test]
fn a_follower_with_records_below_the_leaders_log_does_not_join() {
    let mut rig = Rig::leading(&[0, 2]);
    rig.append(10);
    rig.offsets.start = 10;
    let fetch = FollowerFetch {
        replica_id: 1,
        broker_epoch: 101,
        fetch_offset: 10,
        log_start_offset: 0,
        leader_end_offset: 10,
    };
    rig.take(&fetch).expect("a replica");
    assert_eq!(rig.proposed(), None, "they may be of an epoch that the leader's log no longer has");
    rig.take(&FollowerFetch { log_start_offset: 10, ..fetch }).expect("a replica");
    assert_eq!(rig.proposed(), Some(vec![0, 2, 1]));
}

#[test]
fn the_high_watermark_stays_within_the_log() {
    let mut rig = Rig::new(1);
    rig.append(10);
    rig.assign(1, 1, 1, &[1, 0]);
    rig.core.on_leader_high_watermark(12, &rig.offsets, &mut rig.effects);
    assert_eq!(rig.core.high_watermark(), 10, "the leader has more than was fetched");
    (rig.offsets.end, rig.offsets.counted) = (7, 7);
    rig.core.on_truncated(&rig.offsets, &mut rig.effects);
    assert_eq!(rig.core.high_watermark(), 7);
    rig.offsets = LogOffsets { start: 20, end: 20, counted: 20 };
    rig.core.on_truncated(&rig.offsets, &mut rig.effects);
    assert_eq!(rig.core.high_watermark(), 20, "the log begins above it");
    // A checkpoint may state more than the log of a new leader contains, or less than its start.
    for (checkpointed, expected) in [(30, 10), (2, 5)] {
        let mut rig = Rig::new(1);
        rig.core = PartitionCore::new(0, LAG_MAX_MS, checkpointed, 1);
        rig.offsets = LogOffsets { start: 5, end: 10, counted: 10 };
        rig.assign(0, 1, 1, &[0, 1]);
        assert_eq!(rig.core.high_watermark(), expected);
    }
}

#[test]
fn a_fenced_or_restarted_broker_does_not_join() {
    for (standing, epoch) in [
        (Some(BrokerStanding { epoch: 101, is_active: false }), 101),
        (Some(BrokerStanding { epoch: 100, is_active: true }), 101),
        (None, 101),
    ] {
        let mut rig = Rig::leading(&[0, 2]);
        rig.cluster.0.remove(&1);
        rig.cluster.0.extend(standing.map(|standing| (1, standing)));
        rig.fetch_of(1, epoch, 0).expect("a replica");
        assert_eq!(rig.proposed(), None, "{standing:?}");
    }
    let mut rig = Rig::leading(&[0, 2]);
    rig.fetch_of(1, -1, 0).expect("an old follower sends no epoch");
    assert_eq!(rig.proposed(), Some(vec![0, 2, 1]));
}

#[test]
fn a_fetch_from_an_earlier_incarnation_is_rejected() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    assert_eq!(rig.fetch_of(1, 99, 0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    // The image does not contain the newest registration yet, but the broker has fetched with it.
    rig.fetch_of(1, 105, 0).expect("a newer registration");
    assert_eq!(rig.fetch_of(1, 101, 0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(rig.fetch(7, 0), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(rig.core.check_follower(7, true), Err(ErrorCode::UNKNOWN_LEADER_EPOCH));
    assert_eq!(rig.core.check_follower(7, false), Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

#[test]
fn a_lagging_member_is_proposed_to_leave_and_counts_until_that_is_committed() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.append(10);
    rig.fetch(1, 10).expect("a replica");
    rig.fetch(2, 5).expect("a replica");
    rig.now_ms += LAG_MAX_MS;
    rig.fetch(1, 10).expect("a replica");
    rig.check_lag();
    assert_eq!(rig.proposed(), None, "not longer than the limit");
    rig.now_ms += 1;
    rig.check_lag();
    let proposal = rig.proposal().expect("a proposal");
    assert_eq!(rig.core.high_watermark(), 5);
    rig.check_lag();
    assert_eq!(rig.proposed(), None, "one change at a time");
    assert!(!rig.answer(&proposal, Ok(&committed(2, &[0, 1]))));
    assert_eq!((rig.core.high_watermark(), rig.core.isr()), (10, &[0, 1][..]));
}

#[test]
fn a_quiet_partition_counts_as_caught_up() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.append(10);
    rig.fetch(1, 10).expect("a replica");
    rig.fetch(2, 10).expect("a replica");
    rig.now_ms += 100 * LAG_MAX_MS;
    rig.check_lag();
    assert_eq!(rig.proposed(), None);
}

#[test]
fn a_replica_that_has_the_records_of_its_last_fetch_is_caught_up() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    for at in 1..20 {
        rig.append(10);
        rig.fetch(1, at * 10).expect("a replica");
        rig.fetch(2, (at - 1) * 10).expect("a replica");
        rig.now_ms += LAG_MAX_MS / 2;
        rig.check_lag();
        assert_eq!(rig.proposed(), None, "step {at}");
    }
}

#[test]
fn answers_to_a_proposal() {
    use ErrorCode as E;
    for (error, is_resent, is_withdrawn) in [
        (E::INELIGIBLE_REPLICA, false, true),
        (E::OPERATION_NOT_ATTEMPTED, false, true),
        (E::UNKNOWN_TOPIC_OR_PARTITION, false, false),
        (E::UNKNOWN_TOPIC_ID, false, false),
        (E::FENCED_LEADER_EPOCH, false, false),
        (E::INVALID_UPDATE_VERSION, false, false),
        (E::INVALID_REQUEST, false, false),
        (E::NEW_LEADER_ELECTED, false, false),
        (E::STALE_BROKER_EPOCH, true, false),
        (E::NOT_CONTROLLER, true, false),
        (E::UNKNOWN_SERVER_ERROR, true, false),
        (E::REQUEST_TIMED_OUT, true, false),
    ] {
        let mut rig = Rig::leading(&[0, 2]);
        rig.fetch(1, 0).expect("a replica");
        let proposal = rig.proposal().expect("a proposal");
        assert_eq!(rig.answer(&proposal, Err(error)), is_resent, "{error}");
        assert_eq!(!rig.core.is_pending(&proposal), is_withdrawn, "{error}");
        // A newer image ends it in any case, and a late answer changes nothing.
        rig.assign(0, 1, 3, &[0, 2]);
        assert!(!rig.core.is_pending(&proposal));
        assert!(!rig.answer(&proposal, Ok(&committed(2, &[0, 1, 2]))));
        assert_eq!(rig.core.isr(), [0, 2]);
    }
}

#[test]
fn an_image_that_contains_the_answer_does_not_end_the_next_proposal() {
    let mut rig = Rig::leading(&[0, 2]);
    rig.fetch(1, 0).expect("a replica");
    let first = rig.proposal().expect("a proposal");
    rig.answer(&first, Ok(&committed(2, &[0, 2, 1])));
    rig.append(1);
    rig.fetch(1, 1).expect("a replica");
    rig.now_ms += LAG_MAX_MS + 1;
    rig.check_lag();
    let second = rig.proposal().expect("replica 2 lags");
    rig.assign(0, 1, 2, &[0, 2, 1]);
    assert!(rig.core.is_pending(&second), "that image is not news");
}

#[test]
fn only_a_new_leader_epoch_resets_the_start_of_the_epoch_and_progress() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.append(10);
    rig.fetch(1, 10).expect("a replica");
    rig.append(2);
    rig.assign(0, 1, 2, &[0, 1, 2]);
    assert_eq!((rig.core.epoch_start_offset(), rig.core.high_watermark()), (Some(0), 10));
    assert_eq!(rig.effects.role, None);
    rig.assign(0, 2, 3, &[0, 1, 2]);
    assert_eq!(rig.core.epoch_start_offset(), Some(12));
    assert_eq!(rig.effects.role, Some(RoleChange::Lead { epoch: 2, start_offset: 12 }));
}

#[test]
fn a_new_epoch_of_the_same_leader_resets_progress() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.append(10);
    rig.fetch(1, 10).expect("a replica");
    rig.fetch(2, 8).expect("a replica");
    // Broker 2 led epoch 2 without notice here, and broker 1 truncated its log to that of broker 2.
    rig.assign(0, 3, 3, &[0, 1, 2]);
    rig.fetch(2, 10).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 8, "broker 1 has not fetched in this epoch");
    rig.fetch(1, 10).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 10);
}

#[test]
fn a_new_leader_begins_at_its_own_high_watermark_and_waits_for_every_member() {
    let mut rig = Rig::new(1);
    rig.append(10);
    rig.assign(1, 1, 1, &[1, 0]);
    rig.core.on_leader_high_watermark(6, &rig.offsets, &mut rig.effects);
    assert_eq!(rig.effects.role, Some(RoleChange::Follow { leader: 1, epoch: 1 }));
    rig.assign(0, 2, 2, &[1, 0]);
    assert_eq!((rig.core.high_watermark(), rig.core.epoch_start_offset()), (6, Some(10)));
    rig.fetch(1, 8).expect("a replica");
    assert_eq!(rig.core.high_watermark(), 8);
}

#[test]
fn a_consumer_reads_from_the_furthest_replica_of_its_rack_that_is_in_sync_and_alive() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.append(10);
    rig.fetch(1, 6).expect("a replica");
    rig.fetch(2, 8).expect("a replica");
    let choose = |rig: &Rig, rack, offset| rig.core.replica_in_rack(rack, offset, &rig.cluster);
    assert_eq!(choose(&rig, "b", 5), Some(2));
    assert_eq!(choose(&rig, "b", 8), Some(2));
    assert_eq!(choose(&rig, "b", 9), None, "no replica of the rack has it");
    assert_eq!(choose(&rig, "a", 5), None, "the leader is in the rack");
    assert_eq!((choose(&rig, "", 5), choose(&rig, "c", 5)), (None, None));
    rig.cluster.0.insert(2, BrokerStanding { epoch: 102, is_active: false });
    assert_eq!(choose(&rig, "b", 5), Some(1));
    rig.fetch(1, 8).expect("a replica");
    rig.cluster.0.insert(2, BrokerStanding { epoch: 102, is_active: true });
    rig.assign(0, 1, 2, &[0, 1]);
    assert_eq!(choose(&rig, "b", 5), Some(1), "not in the ISR");
    rig.assign(1, 2, 3, &[0, 1]);
    assert_eq!(choose(&rig, "b", 5), None, "a follower sends a consumer nowhere");
}

#[test]
fn a_leader_that_has_resigned_acknowledges_nothing() {
    let mut rig = Rig::new(1);
    rig.assign(0, 1, 1, &[0]);
    rig.offsets.end = 5;
    assert_eq!(rig.core.await_ack(5, "append"), None);
    assert!(rig.core.await_data(Awaits::HighWatermark, Fetch("consumer")).is_none());
    rig.assign(-1, 2, 2, &[0]);
    assert_eq!(rig.effects.acks, [("append", ErrorCode::NOT_LEADER_OR_FOLLOWER)]);
    assert_eq!(rig.effects.fetches, [Fetch("consumer")]);
    rig.offsets.counted = 5;
    rig.core.on_flushed(&rig.offsets, &rig.cluster, &mut rig.effects);
    assert_eq!(rig.effects.acks.len(), 1);
    assert_eq!(rig.core.ack_result(5), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

#[test]
fn an_append_waits_for_the_high_watermark_and_a_shrunk_isr_is_reported() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.append(5);
    assert_eq!(rig.core.await_ack(5, "first"), None);
    assert_eq!(rig.core.await_ack(3, "second"), None);
    rig.fetch(1, 4).expect("a replica");
    assert_eq!(rig.effects.acks, [("second", ErrorCode::NONE)]);
    rig.fetch(1, 5).expect("a replica");
    assert_eq!(rig.effects.acks, [("second", ErrorCode::NONE), ("first", ErrorCode::NONE)]);
    rig.assign(0, 1, 2, &[0]);
    assert_eq!(rig.core.ack_result(5), Some(ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND));
    assert_eq!(rig.core.ack_result(6), None);
    // A member that is proposed counts, because it holds everything.
    rig.fetch(1, 5).expect("a replica");
    assert_eq!(rig.core.ack_result(5), Some(ErrorCode::NONE));
}

#[test]
fn followers_wait_for_the_end_of_the_log_and_consumers_for_the_high_watermark() {
    let mut rig = Rig::leading(&[0, 1]);
    for (awaits, fetch) in [(Awaits::HighWatermark, "consumer"), (Awaits::LogEnd, "follower")] {
        assert!(rig.core.await_data(awaits, Fetch(fetch)).is_none());
    }
    rig.append(1);
    assert_eq!(rig.effects.fetches, [Fetch("follower")]);
    assert!(rig.core.await_data(Awaits::LogEnd, Fetch("follower again")).is_none());
    rig.fetch(1, 1).expect("a replica");
    let woken: Vec<_> = rig.effects.fetches.iter().map(|fetch| fetch.0).collect();
    assert_eq!(woken, ["follower", "consumer", "follower again"]);
}

#[test]
fn the_error_of_a_failed_directory_is_kept() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.core.go_offline(ErrorCode::KAFKA_STORAGE_ERROR, &mut rig.effects);
    rig.core.go_offline(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, &mut rig.effects);
    rig.assign(0, 5, 9, &[0, 1]);
    assert_eq!(rig.core.check_leader(), Err(ErrorCode::KAFKA_STORAGE_ERROR));
    assert!(rig.core.await_data(Awaits::LogEnd, Fetch("any")).is_some());
}

#[test]
fn an_older_image_changes_nothing() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.assign(0, 3, 7, &[0, 1, 2]);
    rig.assign(1, 2, 6, &[1]);
    rig.assign(0, 3, 6, &[0]);
    assert_eq!((rig.core.leader_epoch(), rig.core.partition_epoch(), rig.core.isr()), (3, 7, &[0, 1, 2][..]));
}

#[test]
fn the_low_watermark_counts_replicas_that_are_alive() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    rig.offsets.start = 5;
    rig.fetch(1, 9).expect("a replica");
    assert_eq!(rig.core.low_watermark(&rig.offsets, &rig.cluster), Ok(-1));
    let mut cluster = rig.cluster.clone();
    cluster.0.get_mut(&2).expect("registered").is_active = false;
    assert_eq!(rig.core.low_watermark(&rig.offsets, &cluster), Ok(0));
}

#[derive(Clone, Debug)]
enum Event {
    Append(i64),
    Flush,
    Fetch(i32, i64),
    Time(i64),
    Answer(bool),
    Image(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (1i64..5).prop_map(Event::Append),
        2 => Just(Event::Flush),
        8 => (1i32..3, 0i64..5).prop_map(|(id, short)| Event::Fetch(id, short)),
        2 => (0i64..LAG_MAX_MS).prop_map(Event::Time),
        3 => any::<bool>().prop_map(Event::Answer),
        1 => any::<bool>().prop_map(Event::Image),
    ];
    prop::collection::vec(event, 1..120)
}

proptest! {
    /// Compared with the controller's view: committed records are on every member of the ISR that the controller knows,
    /// whether or not its response has arrived, and a leader in the minority of its ISR commits nothing.
    #[test]
    fn committed_records_are_on_every_member_that_the_controller_may_elect(events in events()) {
        let mut rig = Rig::leading(&[0, 1, 2]);
        // The controller's ISR and partition epoch; the pending proposal, and whether it was applied.
        let (mut isr, mut epoch) = (vec![0, 1, 2], 1);
        let mut in_flight: Option<(IsrProposal, bool)> = None;
        let mut held = [0i64; 3];
        let mut acked = 0;
        for event in events {
            match event {
                Event::Append(records) => {
                    rig.offsets.end += records;
                    rig.core.on_appended(&rig.offsets, &rig.cluster, &mut rig.effects);
                }
                Event::Flush => {
                    rig.offsets.counted = rig.offsets.end;
                    rig.core.on_flushed(&rig.offsets, &rig.cluster, &mut rig.effects);
                }
                Event::Fetch(id, short) => {
                    let at = &mut held[id as usize];
                    *at = (rig.offsets.end - short).max(*at);
                    let at = *at;
                    rig.fetch(id, at).expect("a replica");
                }
                Event::Time(ms) => {
                    rig.now_ms += ms;
                    rig.check_lag();
                }
                Event::Answer(arrives) => {
                    if let Some((proposal, is_applied)) = &mut in_flight {
                        if !*is_applied && proposal.partition_epoch == epoch {
                            isr = proposal.members.iter().map(|member| member.id).collect();
                            epoch += 1;
                            *is_applied = true;
                        }
                        if arrives {
                            let proposal = proposal.clone();
                            let answer = IsrAnswer { leader_epoch: 1, partition_epoch: epoch, isr: isr.clone() };
                            rig.answer(&proposal, Ok(&answer));
                            in_flight = None;
                        }
                    }
                }
                Event::Image(changes) => {
                    if changes {
                        epoch += 1;
                    }
                    let isr = isr.clone();
                    rig.assign(0, 1, epoch, &isr);
                    if in_flight.as_ref().is_some_and(|(proposal, _)| !rig.core.is_pending(proposal)) {
                        in_flight = None;
                    }
                }
            }
            if let Some(proposal) = rig.effects.proposal.take() {
                prop_assert!(in_flight.is_none());
                in_flight = Some((proposal, false));
            }
            rig.effects = Effects::default();
            held[0] = rig.offsets.counted;
            let high_watermark = rig.core.high_watermark();
            prop_assert!(high_watermark >= acked);
            if high_watermark > acked {
                for &id in &isr {
                    prop_assert!(held[id as usize] >= high_watermark, "{id} holds {held:?}, committed {high_watermark}");
                }
                acked = high_watermark;
            }
        }
    }
}
