//! Fetches of the quorum's log on a controller listener: answered by the network while the core has granted a lease.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use klamm_base::Uuid;
use klamm_base::primitives::{Reader, Writer};
use klamm_log::LogContext;
use klamm_quorum::{Answering, Lead, OnLoss, QuorumLog, QuorumLogConfig, Taken};
use klamm_wire::api::{API_VERSIONS, Api, CREATE_TOPICS, FETCH, ListenerKind, VOTE};
use klamm_wire::header::ResponseHeader;
use tempfile::TempDir;

use crate::handlers::replica_fetch::WaitingReplica;
use crate::pending::{Asked, Owed, Pending, PendingQueue};
use crate::testing::{Client, Fixture, frame};
use crate::{Event, ListenerOptions, NetConfig, Reply, Request};

const LONG_MS: i32 = 60_000;
const EPOCH: i32 = 7;
/// The leader's log: three records, of which the first is committed.
const END: i64 = 3;

/// Leader 1 and voter 2, which fetches from it.
struct Scene {
    fixture: Fixture,
    log: Arc<QuorumLog>,
    answering: Arc<Answering>,
    address: std::net::SocketAddr,
    _dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(NetConfig::default())
    }

    fn with(config: NetConfig) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let log_config = QuorumLogConfig { segment_bytes: 1 << 20, segment_ms: 1 << 40, advice: None };
        let (log, _) = QuorumLog::open(&dir.path().join("log-0"), &log_config, &LogContext::new(16), OnLoss::Refuse, 0)
            .expect("open");
        let log = Arc::new(log);
        for _ in 0..END {
            log.append(&[b"value"], EPOCH, 0).expect("append");
        }
        let answering = Arc::new(Answering::new(log.clone()).expect("a descriptor"));
        let fixture = Fixture::with(config);
        fixture.server.set_answering(answering.clone());
        let options = ListenerOptions {
            name: "CONTROLLER".to_owned(),
            kind: ListenerKind::Controller,
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let address = fixture.server.listen(&options).expect("a free port");
        assert!(fixture.server.open("CONTROLLER"));
        let scene = Self { fixture, log, answering, address, _dir: dir };
        scene.begin();
        scene
    }

    fn begin(&self) {
        self.answering.begin(Lead {
            cluster_id: "cluster".to_owned(),
            leader_id: 1,
            epoch: EPOCH,
            start_offset: 0,
            high_watermark: 1,
            voters: vec![(2, 1), (3, 1)],
            counts_itself: true,
            endpoints: Vec::new(),
            take_timeout: Duration::from_secs(3600),
        });
        assert_eq!(self.answering.add_replica(2, Uuid([2; 16]), true), Some(0));
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client with a waiting fetch that has this correlation id.
    fn waiting_client(&self, correlation_id: i32, max_wait_ms: i32) -> Client {
        let before = self.taken_count();
        let mut client = self.client();
        client.send(FETCH, 18, correlation_id, &fetch(END, max_wait_ms));
        self.fixture.wait_until(|| self.taken_count() > before);
        client
    }

    fn taken_count(&self) -> u64 {
        let mut requests = self.fixture.server.request_metrics().requests();
        requests.find(|(key, _)| *key == FETCH).map_or(0, |(_, count)| count)
    }

    fn append(&self) {
        self.log.append(&[b"value"], EPOCH, 0).expect("append");
        self.answering.offer();
    }

    /// Checks that Python received no request, and that no connection ended.
    #[track_caller]
    fn is_quiet(&self) {
        let events = self.fixture.server.drain(9);
        assert!(events.is_empty(), "{events:?}");
    }
}

/// Body of Fetch v17 or v18, from voter 2 at `offset`.
fn fetch(offset: i64, max_wait_ms: i32) -> Vec<u8> {
    let mut out = Writer::new();
    [max_wait_ms, 0, 1 << 20].into_iter().for_each(|value| out.i32(value));
    out.i8(0);
    [0, -1].into_iter().for_each(|value| out.i32(value));
    out.compact_array_len(1);
    out.uuid(Uuid::UNASSIGNED);
    out.compact_array_len(1);
    [0, EPOCH].into_iter().for_each(|value| out.i32(value));
    out.i64(offset);
    out.i32(EPOCH);
    out.i64(-1);
    out.i32(0);
    out.unsigned_varint(1);
    out.tagged_field(0, |field| field.uuid(Uuid([2; 16])));
    out.no_tagged_fields();
    out.compact_array_len(0);
    out.compact_string("");
    out.unsigned_varint(1);
    out.tagged_field(1, |field| (field.i32(2), field.i64(-1), field.no_tagged_fields()).2);
    out.into_bytes()
}

/// High watermark and number of record bytes of a response, including its header's tags.
fn read(answer: &[u8]) -> (i64, usize) {
    let mut reader = Reader::new(answer);
    assert_eq!(reader.slice(35).expect("up to the partition's error")[..7], [0; 7]);
    let high_watermark = reader.i64().expect("an offset");
    reader.slice(21).expect("offsets, no transactions, no replica to read from");
    (high_watermark, reader.compact_bytes().expect("records").len())
}

#[test]
fn an_answered_fetch_never_becomes_an_event() {
    let scene = Scene::new();
    let mut client = scene.client();
    for version in [17, 18] {
        assert_eq!(read(&client.call(FETCH, version, &fetch(END, 0))), (1, 0));
        let (high_watermark, len) = read(&client.call(FETCH, version, &fetch(1, LONG_MS)));
        assert_eq!((high_watermark, len), (1, scene.log.read(1, 1 << 20).expect("read").len()));
    }
    scene.is_quiet();
    let fetches = scene.answering.take_fetches();
    assert_eq!(fetches.iter().map(|one| one.fetch_offset).collect::<Vec<_>>(), [END, 1, END, 1]);
}

#[test]
fn fetches_that_are_not_taken_go_to_the_core() {
    let scene = Scene::new();
    let mut client = scene.client();
    let body = fetch(END + 1, LONG_MS);
    client.send(FETCH, 18, 5, &body);
    let request = scene.fixture.request();
    assert_eq!((request.api_key, request.api_version, request.correlation_id), (FETCH, 18, 5));
    assert_eq!((&*request.listener, &request.body[..]), ("CONTROLLER", &body[..]));
    assert!(scene.answering.take_fetches().is_empty());
    scene.fixture.server.answer(request.handle, Reply::Body(Bytes::from_static(b"diverging")));
    assert_eq!(client.receive(), (5, b"\0diverging".to_vec()));
    assert_eq!(read(&client.call(FETCH, 18, &fetch(END, 0))), (1, 0));
}

#[test]
fn a_waiting_fetch_gets_appended_records() {
    let scene = Scene::new();
    let mut client = scene.waiting_client(8, LONG_MS);
    client.stream.set_nonblocking(true).expect("a socket option");
    assert!(client.stream.peek(&mut [0]).is_err());
    client.stream.set_nonblocking(false).expect("a socket option");
    scene.append();
    let (correlation_id, answer) = client.receive();
    let (high_watermark, len) = read(&answer);
    assert_eq!((correlation_id, high_watermark), (8, 1));
    assert_eq!(len, scene.log.read(END, 1 << 20).expect("read").len());
    scene.is_quiet();
}

#[test]
fn a_waiting_fetch_is_answered_at_its_deadline() {
    let scene = Scene::new();
    let begun = Instant::now();
    let answer = scene.client().call(FETCH, 18, &fetch(END, 150));
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(read(&answer), (1, 0));
}

#[test]
fn a_fetch_that_waits_when_the_lease_ends_goes_to_the_core() {
    for version in [17, 18] {
        let scene = Scene::new();
        let (mut client, body) = (scene.client(), fetch(END, LONG_MS));
        client.send(FETCH, version, 8, &body);
        scene.fixture.wait_until(|| scene.taken_count() == 1);
        scene.is_quiet();
        assert_eq!(scene.answering.end().len(), 1);
        let request = scene.fixture.request();
        assert_eq!((request.api_key, request.api_version, request.correlation_id), (FETCH, version, 8));
        assert_eq!((&*request.client_id, &*request.listener, &request.body[..]), ("test", "CONTROLLER", &body[..]));
        assert_eq!(request.address, client.stream.local_addr().expect("an address").ip());
        // From here on the core answers, whatever happens.
        scene.begin();
        scene.append();
        assert!(scene.fixture.server.answer(request.handle, Reply::Body(Bytes::from_static(b"later"))));
        assert_eq!(client.receive(), (8, b"\0later".to_vec()));
        assert!(scene.answering.take_fetches().is_empty());
        assert!(read(&client.call(FETCH, version, &fetch(END, LONG_MS))).1 > 0);
        scene.is_quiet();
    }
}

#[test]
fn a_fetch_passed_to_the_core_waits_for_room() {
    let scene = Scene::with(NetConfig { queued_requests_max: 1, ..NetConfig::default() });
    let mut other = scene.client();
    other.send(VOTE, 0, 9, b"vote");
    let events = scene.fixture.server.events();
    scene.fixture.wait_until(|| events.request_count() == 1);
    let mut client = scene.waiting_client(8, 50);
    scene.answering.end();
    // Also past its deadline.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.fixture.request().correlation_id, 9);
    let request = scene.fixture.request();
    assert_eq!((request.correlation_id, &request.body[..]), (8, &fetch(END, 50)[..]));
    scene.fixture.server.answer(request.handle, Reply::Body(Bytes::from_static(b"later")));
    assert_eq!(client.receive(), (8, b"\0later".to_vec()));
    scene.is_quiet();
}

#[test]
fn no_deadline_applies_while_a_fetch_waits_for_room() {
    let scene = Scene::new();
    let taken = scene.answering.take(&"CONTROLLER".into(), 18, &fetch(END, LONG_MS), Waker::noop());
    let Taken::Waits(waiting) = taken else { panic!("there is nothing to fetch") };
    let deadline = waiting.deadline;
    scene.fixture.client().send(CREATE_TOPICS, 5, 4, b"any");
    let header = ResponseHeader { correlation_id: 4, flexible: true };
    let mut queue = PendingQueue::default();
    let asked = Asked { api: Api::of(FETCH).expect("an API"), measured: None, timed: None };
    queue.push(WaitingReplica::pending(waiting, scene.fixture.request(), header), asked);
    assert_eq!(queue.deadline(), Some(deadline));
    // With a deadline in the past the connection would check again forever without a pause.
    let Some(Owed { pending: Pending::Replica(waiting), .. }) = queue.front_mut() else {
        panic!("it was pushed just before")
    };
    assert_eq!(waiting.hand_on(Err), None);
    assert_eq!(waiting.deadline(), None);
    assert_eq!(waiting.hand_on(Err), None);
    assert_eq!(queue.deadline(), None);
    let Some(Owed { pending: Pending::Replica(waiting), .. }) = queue.front_mut() else {
        panic!("it was pushed just before")
    };
    let ask = |request: Box<Request>| Ok(u64::from(request.correlation_id == 4));
    assert_eq!([waiting.hand_on(ask), waiting.hand_on(ask)], [Some(1), None]);
}

#[test]
fn a_connection_closed_while_it_waits_for_room_leaves_nothing() {
    let scene = Scene::with(NetConfig { queued_requests_max: 1, ..NetConfig::default() });
    let client = scene.waiting_client(8, LONG_MS);
    let mut other = scene.client();
    other.send(VOTE, 0, 9, b"vote");
    scene.fixture.wait_until(|| scene.fixture.server.events().request_count() == 1);
    scene.answering.end();
    let count = scene.fixture.server.connection_count();
    drop(client);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(scene.fixture.request().correlation_id, 9);
    // The fetch is passed on as if it had come directly.
    let request = scene.fixture.request();
    scene.fixture.server.answer(request.handle, Reply::Body(Bytes::new()));
    assert!(matches!(scene.fixture.event(), Event::Closed { connection_id } if connection_id == request.connection_id));
    scene.fixture.wait_until(|| scene.fixture.server.connection_count() == count - 1);
}

#[test]
fn clients_fetches_are_left_alone() {
    let scene = Scene::new();
    let answer = scene.fixture.client().call(FETCH, 17, &fetch(END, 0));
    let mut reader = Reader::new(&answer);
    reader.slice(1 + 10 + 1 + 16 + 1 + 4).expect("up to the partition's error");
    assert_eq!(reader.i16(), Ok(klamm_base::ErrorCode::UNKNOWN_TOPIC_ID.0));
    assert!(scene.answering.take_fetches().is_empty());
}

#[test]
fn a_connection_closed_while_it_waits_leaves_nothing() {
    let scene = Scene::new();
    let client = scene.waiting_client(8, LONG_MS);
    assert_eq!(Arc::strong_count(&scene.answering), 3);
    drop(client);
    assert!(matches!(scene.fixture.event(), Event::Closed { .. }));
    scene.fixture.wait_until(|| scene.fixture.server.connection_count() == 0);
    // Besides the server, only waiting fetches hold it.
    assert_eq!(Arc::strong_count(&scene.answering), 2);
    scene.append();
    assert_eq!(scene.answering.end().len(), 1);
    scene.is_quiet();
}

#[test]
fn requests_after_a_waiting_one_wait_too() {
    let scene = Scene::new();
    let mut client = scene.client();
    let frames = [frame(FETCH, 18, 1, &fetch(END, LONG_MS)), frame(FETCH, 18, 2, &fetch(END + 1, LONG_MS))];
    client.send_raw(&[&frames.concat()[..], &frame(API_VERSIONS, 0, 3, b"")].concat());
    scene.fixture.wait_until(|| scene.taken_count() == 1);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((scene.taken_count(), scene.answering.take_fetches().len()), (1, 1));
    scene.append();
    assert_eq!(client.receive().0, 1);
    scene.fixture.wait_until(|| scene.taken_count() == 2);
    scene.append();
    assert_eq!([client.receive().0, client.receive().0], [2, 3]);
    scene.is_quiet();
}

#[test]
fn answers_keep_their_order() {
    let scene = Scene::new();
    let mut client = scene.client();
    let one = |id, offset| frame(FETCH, 18, id, &fetch(offset, 0));
    let versions = |id| frame(API_VERSIONS, 0, id, b"");
    // The fifth is handled by the core.
    let frames = [versions(1), one(2, END), one(3, 1), versions(4), one(5, 9), one(6, END), versions(7)];
    client.send_raw(&frames.concat());
    let request = scene.fixture.request();
    assert_eq!((request.correlation_id, scene.answering.take_fetches().len()), (5, 2));
    scene.fixture.server.answer(request.handle, Reply::Body(Bytes::new()));
    assert_eq!([(); 7].map(|()| client.receive().0), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn finishing_answers_waiting_requests() {
    let scene = Scene::new();
    let mut client = scene.waiting_client(8, LONG_MS);
    scene.fixture.server.finish();
    let (correlation_id, answer) = client.receive();
    assert_eq!((correlation_id, read(&answer)), (8, (1, 0)));
    assert!(client.is_closed());
}

#[test]
fn a_closed_connection_leaves_nothing() {
    let scene = Scene::new();
    let mut client = scene.waiting_client(8, LONG_MS);
    scene.fixture.server.close();
    assert!(client.is_closed());
    scene.fixture.wait_until(|| Arc::strong_count(&scene.answering) == 2);
}
