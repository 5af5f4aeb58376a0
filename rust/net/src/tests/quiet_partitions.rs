//! Sessions whose quiet partitions are not visited, and equal sessions that visit every partition at every check: the
//! same events must lead to the same answers, the same ISR proposals and the same replicas.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Waker;

use klamm_base::clock::Clock;
use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch};
use klamm_log::{Claim, Guard, LockedDir, LogContext, LogManager, ManagerConfig, Origin};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{
    BrokerRegistrationChangeRecord, PartitionChangeRecord, PartitionRecord, Record, RegisterBrokerRecord,
    RemoveTopicRecord, TopicRecord,
};
use klamm_records::header::set_position;
use klamm_replica::core::{IsrAnswer, IsrProposal};
use klamm_replica::{
    Appended, Awaits, Durability, FetchWaiter, Fetched, FetchedBatches, FoundOffset, OffsetQuery, PartitionFetch,
    Refused, Replicas, ReplicasOptions, SessionEntry, Standing,
};
use klamm_wire::api::FETCH;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::backend::{Backend, Partition};
use crate::sessions::SessionOptions;
use crate::share::ShareConfig;
use crate::unconnected::{Looked, Unconnected, UnconnectedRequests, WaitingRequest};

const LEADER: i32 = 1;
const BROKERS: [i32; 3] = [LEADER, 2, 3];
const PARTITIONS: i32 = 4;
/// With the replica's state and the epochs of KIP-595.
const VERSION: i16 = 17;
const LAG_MAX_MS: i64 = 30_000;

#[derive(Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn wall_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A broker whose partitions are never quiet: each check visits all partitions of a session.
struct Visiting(Arc<Replicas>);

struct NeverQuiet(Arc<dyn Partition>);

impl Backend for Visiting {
    fn image(&self) -> Arc<MetadataImage> {
        self.0.image()
    }

    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode> {
        Ok(Arc::new(NeverQuiet(self.0.get(topic, index)?)))
    }
}

impl Partition for NeverQuiet {
    fn append(&self, batch: &mut [u8], acks: i16, guard: Option<Guard>, now_ms: i64) -> Result<Appended, Refused> {
        self.0.append(batch, acks, guard, now_ms)
    }

    fn begin_verification(&self, claim: Claim, is_adding: bool, now_ms: i64) -> Result<Option<Guard>, ErrorCode> {
        self.0.begin_verification(claim, is_adding, now_ms)
    }

    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>) {
        self.0.when_acked(end_offset, done);
    }

    fn fetch(&self, request: &PartitionFetch<'_>) -> Fetched {
        self.0.fetch(&PartitionFetch { quiet: None, ..*request })
    }

    fn watch(&self, awaits: Awaits, waiter: Arc<FetchWaiter>) {
        self.0.watch(awaits, waiter);
    }

    fn end_quiet(&self, _: &SessionEntry) {
        panic!("it is never quiet");
    }

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        self.0.find_offset(query)
    }

    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        self.0.end_of_epoch(current_leader_epoch, epoch)
    }
}

/// The fetching client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Follower(i32),
    Consumer,
    ConsumerInRack,
    Debugging,
}

const READERS: [Who; 5] = [Who::Follower(2), Who::Follower(3), Who::Consumer, Who::ConsumerInRack, Who::Debugging];

/// What a reader sends for a partition.
#[derive(Clone, Copy, Debug)]
enum At {
    End,
    HighWatermark,
    Start,
    Behind,
    Beyond,
    OldEpoch,
}

#[derive(Clone, Debug)]
struct FetchEvent {
    who: Who,
    named: Vec<(i32, At)>,
    forgotten: Vec<i32>,
    waits: bool,
    max_bytes: i32,
    min_bytes: i32,
    /// Continue the session, open one, or end it.
    session: SessionStep,
}

#[derive(Clone, Copy, Debug)]
enum SessionStep {
    Continue,
    Open,
    End,
}

#[derive(Clone, Debug)]
enum Step {
    Append(i32),
    Fetch(FetchEvent),
    Pass(i64),
    CheckLag,
    /// The controller answers the proposal of a partition.
    Answer(i32, bool),
    /// The image has the proposed ISR, before the answer or without it.
    CommitIsr(i32),
    SetIsr(i32, Vec<i32>),
    NewEpoch(i32),
    Elect(i32, i32),
    /// As a follower.
    AppendFetched(i32),
    Truncate(i32, i64),
    DeleteRecords(i32),
    Fence(i32, bool),
    Restart(i32),
    RecreateTopic,
    /// A waiting fetch of a reader reaches its deadline.
    Late(Who),
}

fn who() -> impl Strategy<Value = Who> {
    (0..READERS.len()).prop_map(|at| READERS[at])
}

fn fetch_event() -> impl Strategy<Value = FetchEvent> {
    let at = prop_oneof![
        8 => Just(At::End),
        2 => Just(At::HighWatermark),
        1 => Just(At::Start),
        2 => Just(At::Behind),
        1 => Just(At::Beyond),
        1 => Just(At::OldEpoch),
    ];
    let session = prop_oneof![
        16 => Just(SessionStep::Continue),
        2 => Just(SessionStep::Open),
        1 => Just(SessionStep::End),
    ];
    let named = prop_oneof![
        2 => Just(Vec::new()),
        2 => proptest::collection::vec((0..PARTITIONS, at), 0..3),
    ];
    let forgotten = prop_oneof![6 => Just(Vec::new()), 1 => (0..PARTITIONS).prop_map(|index| vec![index])];
    (who(), named, forgotten, any::<bool>(), prop_oneof![Just(100), Just(200), Just(1 << 20)], 0..150, session)
        .prop_map(|(who, named, forgotten, waits, max_bytes, min_bytes, session)| FetchEvent {
            who,
            named,
            forgotten,
            waits,
            max_bytes,
            min_bytes,
            session,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let index = || 0..PARTITIONS;
    let isr = prop_oneof![Just(vec![1]), Just(vec![1, 2]), Just(vec![1, 3]), Just(vec![1, 2, 3])];
    prop_oneof![
        20 => fetch_event().prop_map(Step::Fetch),
        8 => index().prop_map(Step::Append),
        4 => prop_oneof![Just(1), Just(100), Just(9_000), Just(15_000), Just(30_000), Just(31_000)].prop_map(Step::Pass),
        4 => Just(Step::CheckLag),
        3 => (index(), any::<bool>()).prop_map(|(index, is_ok)| Step::Answer(index, is_ok)),
        2 => index().prop_map(Step::CommitIsr),
        1 => (index(), isr).prop_map(|(index, isr)| Step::SetIsr(index, isr)),
        1 => index().prop_map(Step::NewEpoch),
        2 => (index(), prop_oneof![2 => Just(LEADER), 1 => Just(2), 1 => Just(-1)])
            .prop_map(|(index, leader)| Step::Elect(index, leader)),
        2 => index().prop_map(Step::AppendFetched),
        1 => (index(), 0..4_i64).prop_map(|(index, back)| Step::Truncate(index, back)),
        1 => index().prop_map(Step::DeleteRecords),
        1 => (2..4, any::<bool>()).prop_map(|(broker, is_fenced)| Step::Fence(broker, is_fenced)),
        1 => (2..4).prop_map(Step::Restart),
        1 => Just(Step::RecreateTopic),
        2 => who().prop_map(Step::Late),
    ]
}

/// With the offsets at which the log begins and ends.
type ReplicaState = (Standing, Option<IsrProposal>, i64, i64);

/// A broker with the fetch handler.
struct Side {
    replicas: Arc<Replicas>,
    fetches: UnconnectedRequests,
    clock: Arc<SetClock>,
    sessions: BTreeMap<Who, (i32, i32)>,
    waiting: BTreeMap<Who, WaitingRequest>,
    _dir: TempDir,
}

impl Side {
    fn new(visits_all: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
        let config = ManagerConfig {
            flush_threads: 0,
            recovery_threads: 1,
            intervals: None,
            cleaner: None,
            ..ManagerConfig::default()
        };
        let logs = LogManager::start(locked, config, LogContext::new(64), 0, Arc::new(drop)).expect("start");
        let clock = Arc::new(SetClock(AtomicI64::new(1_000_000)));
        let settings = HashMap::from([
            ("replica.lag.time.max.ms", LAG_MAX_MS.to_string()),
            ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector".to_owned()),
        ]);
        let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let replicas = Arc::new(Replicas::new(ReplicasOptions {
            node_id: LEADER,
            durability: Durability::PageCache,
            settings: Settings::new(settings).expect("valid values"),
            logs,
            is_missing_dirs: false,
            clock: clock.clone(),
        }));
        let backend: Arc<dyn Backend> =
            if visits_all { Arc::new(Visiting(replicas.clone())) } else { replicas.clone() };
        let fetches = UnconnectedRequests::new(backend, SessionOptions::with_slots(1000), ShareConfig::default());
        Self {
            replicas,
            fetches: fetches.expect("an event queue"),
            clock,
            sessions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            _dir: dir,
        }
    }

    fn partition(&self, topic: Uuid, index: i32) -> Option<Arc<klamm_replica::Partition>> {
        self.replicas.get(topic, index).ok()
    }

    /// The response without its session id, or `None` while the fetch waits.
    fn fetch(&mut self, topic: Uuid, broker_epochs: &HashMap<i32, i64>, event: &FetchEvent) -> Option<Vec<u8>> {
        // A reader has one request at a time.
        self.waiting.remove(&event.who);
        let body = self.body(topic, broker_epochs, event);
        let fetch = Unconnected { api_key: FETCH, version: VERSION, connection_id: 1, body: &body };
        let looked = self.fetches.take(fetch, Waker::noop()).expect("well-formed");
        self.looked(event.who, looked)
    }

    /// The response without its session id, or `None` while the fetch waits.
    fn looked(&mut self, who: Who, looked: Looked) -> Option<Vec<u8>> {
        match looked {
            Looked::Answered(body) => Some(self.answered(who, body)),
            Looked::Waits(waiting) => {
                self.waiting.insert(who, waiting);
                None
            }
        }
    }

    fn body(&self, topic: Uuid, broker_epochs: &HashMap<i32, i64>, event: &FetchEvent) -> Vec<u8> {
        let session = self.sessions.get(&event.who).copied().unwrap_or((0, 0));
        let (id, epoch) = match event.session {
            SessionStep::Continue => session,
            SessionStep::Open => (session.0, 0),
            SessionStep::End => (session.0, -1),
        };
        let mut named: BTreeMap<i32, At> = event.named.iter().copied().collect();
        if epoch == 0 {
            for index in 0..PARTITIONS {
                named.entry(index).or_insert(At::End);
            }
        }
        let mut out = Writer::new();
        out.i32(if event.waits { 60_000 } else { 0 });
        out.i32(event.min_bytes);
        out.i32(event.max_bytes);
        out.i8(i8::from(event.who == Who::Consumer));
        out.i32(id);
        out.i32(epoch);
        out.compact_array_len(usize::from(!named.is_empty()));
        if !named.is_empty() {
            out.uuid(topic);
            out.compact_array_len(named.len());
            for (index, at) in named {
                let (start, high_watermark, end, leader_epoch) = self.offsets(topic, index);
                let (offset, leader_epoch) = match at {
                    At::End => (end, leader_epoch),
                    At::HighWatermark => (high_watermark, leader_epoch),
                    At::Start => (start, leader_epoch),
                    At::Behind => ((end - 1).max(0), leader_epoch),
                    At::Beyond => (end + 1, leader_epoch),
                    At::OldEpoch => (end, leader_epoch - 1),
                };
                out.i32(index);
                out.i32(if matches!(event.who, Who::Follower(_)) { leader_epoch } else { -1 });
                out.i64(offset);
                out.i32(-1);
                out.i64(if matches!(event.who, Who::Follower(_)) { start } else { -1 });
                out.i32(event.max_bytes);
                out.no_tagged_fields();
            }
            out.no_tagged_fields();
        }
        out.compact_array_len(usize::from(!event.forgotten.is_empty()));
        if !event.forgotten.is_empty() {
            out.uuid(topic);
            out.compact_array_len(event.forgotten.len());
            event.forgotten.iter().for_each(|index| out.i32(*index));
            out.no_tagged_fields();
        }
        out.compact_string(if event.who == Who::ConsumerInRack { "rack-3" } else { "" });
        let (replica_id, replica_epoch) = match event.who {
            Who::Follower(id) => (id, broker_epochs[&id]),
            Who::Consumer | Who::ConsumerInRack => (-1, -1),
            Who::Debugging => (-2, -1),
        };
        out.unsigned_varint(1);
        out.tagged_field(1, |field| {
            field.i32(replica_id);
            field.i64(replica_epoch);
            field.no_tagged_fields();
        });
        out.into_bytes()
    }

    /// Start, high watermark, end and leader epoch.
    fn offsets(&self, topic: Uuid, index: i32) -> (i64, i64, i64, i32) {
        let Some(partition) = self.partition(topic, index) else { return (0, 0, 0, 0) };
        let standing = partition.standing();
        let (start, end) = partition.with(|log| (log.log_start_offset(), log.log_end_offset()));
        (start, standing.high_watermark, end, standing.leader_epoch)
    }

    fn answered(&mut self, who: Who, mut bytes: Vec<u8>) -> Vec<u8> {
        let id = i32::from_be_bytes(bytes[6..10].try_into().expect("four bytes"));
        match id {
            0 => drop(self.sessions.remove(&who)),
            _ => match self.sessions.get_mut(&who).filter(|session| session.0 == id) {
                Some((_, epoch)) => *epoch += 1,
                None => drop(self.sessions.insert(who, (id, 1))),
            },
        }
        bytes[6..10].fill(u8::from(id != 0));
        bytes
    }

    /// Lets woken fetches check again, until none is woken.
    fn settle(&mut self, late: Option<Who>) -> Vec<(Who, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            let mut due = self.waiting.iter().filter(|(who, waiting)| waiting.is_woken() || Some(**who) == late);
            let Some(who) = due.next().map(|(who, _)| *who) else { return answers };
            let waiting = self.waiting.remove(&who).expect("it waits");
            let looked = self.fetches.look_again(waiting, Waker::noop(), Some(who) == late).expect("read");
            answers.extend(self.looked(who, looked).map(|body| (who, body)));
        }
    }

    fn state(&self, topic: Uuid) -> Vec<Option<ReplicaState>> {
        let state = |index| {
            let partition = self.partition(topic, index)?;
            let (start, end) = partition.with(|log| (log.log_start_offset(), log.log_end_offset()));
            Some((partition.standing(), partition.pending_isr(), start, end))
        };
        (0..PARTITIONS).map(state).collect()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.replicas.logs().abandon();
    }
}

/// Both sides, and their common image.
struct Both {
    sides: [Side; 2],
    image: Arc<MetadataImage>,
    topic: Uuid,
    topics: u8,
    broker_epochs: HashMap<i32, i64>,
}

impl Both {
    fn new() -> Self {
        let mut both = Self {
            sides: [Side::new(false), Side::new(true)],
            image: Arc::default(),
            topic: Uuid::ZERO,
            topics: 0,
            broker_epochs: HashMap::new(),
        };
        BROKERS.into_iter().for_each(|id| both.register(id));
        both.create_topic();
        both
    }

    fn publish(&mut self, records: &[Record<'_>]) {
        let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
        self.image = Arc::new(self.image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit"));
        for side in &self.sides {
            assert!(side.replicas.publish(self.image.clone()).errors.is_empty());
        }
    }

    fn register(&mut self, broker_id: i32) {
        let broker_epoch = self.broker_epochs.get(&broker_id).map_or(10, |epoch| epoch + 1);
        self.broker_epochs.insert(broker_id, broker_epoch);
        let rack = format!("rack-{broker_id}");
        let record =
            RegisterBrokerRecord { broker_id, broker_epoch, rack: Some(&rack), fenced: false, ..Default::default() };
        self.publish(&[Record::RegisterBroker(record)]);
    }

    fn create_topic(&mut self) {
        self.topics += 1;
        self.topic = Uuid([self.topics; 16]);
        let topic_id = self.topic;
        let partition = |partition_id| {
            Record::Partition(PartitionRecord {
                topic_id,
                partition_id,
                replicas: (&BROKERS[..]).into(),
                isr: (&BROKERS[..]).into(),
                leader: LEADER,
                leader_epoch: 0,
                partition_epoch: 0,
                ..PartitionRecord::default()
            })
        };
        let mut records = vec![Record::Topic(TopicRecord { name: "t", topic_id })];
        records.extend((0..PARTITIONS).map(partition));
        self.publish(&records);
    }

    fn change(&mut self, partition_id: i32, leader: Option<i32>, isr: Option<&[i32]>) {
        let (topic_id, isr) = (self.topic, isr.map(Into::into));
        let leader = leader.unwrap_or(PartitionChangeRecord::default().leader);
        let change = PartitionChangeRecord { topic_id, partition_id, leader, isr, ..Default::default() };
        self.publish(&[Record::PartitionChange(change)]);
    }

    fn proposal(&self, index: i32) -> Option<IsrProposal> {
        // Each side opens the partition at its first use, where its leadership begins.
        let of_each = self.sides.each_ref().map(|side| side.partition(self.topic, index)?.pending_isr());
        of_each.into_iter().next().flatten()
    }

    fn on_each(&self, index: i32, work: impl Fn(&klamm_replica::Partition)) {
        for side in &self.sides {
            if let Some(partition) = side.partition(self.topic, index) {
                work(&partition);
            }
        }
    }

    fn take(&mut self, step: &Step) {
        let topic = self.topic;
        let mut late = None;
        match step {
            Step::Append(index) => self.on_each(*index, |partition| {
                drop(partition.append(&mut batch(&BatchSpec::default()), 1, Origin::Client, 1000));
            }),
            Step::Fetch(event) => {
                let broker_epochs = self.broker_epochs.clone();
                let [one, other] = &mut self.sides;
                assert_eq!(one.fetch(topic, &broker_epochs, event), other.fetch(topic, &broker_epochs, event));
            }
            Step::Pass(ms) => {
                for side in &self.sides {
                    side.clock.0.fetch_add(*ms, Ordering::Relaxed);
                }
            }
            Step::CheckLag => self.sides.iter().for_each(|side| side.replicas.check_lag()),
            Step::Answer(index, is_ok) => {
                let Some(proposal) = self.proposal(*index) else { return };
                let isr = proposal.members.iter().map(|member| member.id).collect();
                let (leader_epoch, partition_epoch) = (proposal.leader_epoch, proposal.partition_epoch + 1);
                let answer = IsrAnswer { leader_epoch, partition_epoch, isr };
                let answer = if *is_ok { Ok(&answer) } else { Err(ErrorCode::INELIGIBLE_REPLICA) };
                self.on_each(*index, |partition| assert!(!partition.on_isr_answer(&proposal, answer)));
                if *is_ok {
                    let isr: Vec<i32> = proposal.members.iter().map(|member| member.id).collect();
                    self.change(*index, None, Some(&isr));
                }
            }
            Step::CommitIsr(index) => {
                let Some(proposal) = self.proposal(*index) else { return };
                let isr: Vec<i32> = proposal.members.iter().map(|member| member.id).collect();
                self.change(*index, None, Some(&isr));
            }
            Step::SetIsr(index, isr) => self.change(*index, None, Some(isr)),
            Step::NewEpoch(index) => {
                let leader = self.image.topics().by_id(topic).and_then(|topic| topic.partition(*index));
                let leader = leader.expect("a partition").leader();
                self.change(*index, Some(leader), None);
            }
            Step::Elect(index, leader) => self.change(*index, Some(*leader), None),
            Step::AppendFetched(index) => self.on_each(*index, |partition| {
                let Some(following) = partition.following() else { return };
                let end = partition.with(|log| log.log_end_offset());
                let mut records = batch(&BatchSpec::default());
                set_position(&mut records, end, following.leader_epoch);
                let fetched = FetchedBatches { records: &records, high_watermark: end, log_start_offset: 0 };
                let _ = partition.append_fetched(following.leader_epoch, &fetched, 1000);
            }),
            Step::Truncate(index, back) => self.on_each(*index, |partition| {
                let Some(following) = partition.following() else { return };
                let (start, end) = partition.with(|log| (log.log_start_offset(), log.log_end_offset()));
                let _ = partition.move_into(following.leader_epoch, start, (end - back).max(start), 1000);
            }),
            Step::DeleteRecords(index) => self.on_each(*index, |partition| {
                let _ = partition.delete_records(-1);
            }),
            Step::Fence(broker_id, is_fenced) => {
                let (fenced, broker_epoch) = (if *is_fenced { 1 } else { -1 }, self.broker_epochs[broker_id]);
                let (broker_id, rest) = (*broker_id, BrokerRegistrationChangeRecord::default());
                let record = BrokerRegistrationChangeRecord { broker_id, broker_epoch, fenced, ..rest };
                self.publish(&[Record::BrokerRegistrationChange(record)]);
            }
            Step::Restart(broker_id) => self.register(*broker_id),
            Step::RecreateTopic => {
                self.publish(&[Record::RemoveTopic(RemoveTopicRecord { topic_id: topic })]);
                self.create_topic();
            }
            Step::Late(who) => late = Some(*who),
        }
        let [one, other] = &mut self.sides;
        let answers = |side: &mut Side| side.settle(late).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(answers(one), answers(other));
        assert_eq!(one.waiting.keys().collect::<Vec<_>>(), other.waiting.keys().collect::<Vec<_>>());
        assert_eq!(one.state(self.topic), other.state(self.topic));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_session_that_visits_changed_partitions_answers_like_one_that_visits_all(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        let mut both = Both::new();
        steps.iter().for_each(|step| both.take(step));
    }
}
