//! A server with a backend of one file for each partition, and a client that sends bytes, for the tests of the
//! network.

mod fakes;
mod messages;
mod share;
mod share_requests;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use klamm_base::Uuid;
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{BrokerEndpoint, PartitionRecord, Record, RegisterBrokerRecord, TopicRecord};
use klamm_wire::api::ListenerKind;
use tokio::runtime::Runtime;

use super::{Event, ListenerOptions, NetConfig, Pipeline, Request, Server};

pub use fakes::FakeBackend;
pub use messages::{
    FetchAnswer, FetchSpec, batch, fetch, fetched, frame, produce, produce_to, produced, with_transactional_id,
};

pub use share::{Acks, ShareFetchSpec, SharePart, share_acknowledge, share_fetch};
pub use share_requests::ShareRequests;

pub const NAMED: Uuid = Uuid([1; 16]);
pub const OTHER: Uuid = Uuid([2; 16]);
pub const INTERNAL: Uuid = Uuid([3; 16]);

/// Broker 1 with topics `named` (2 partitions, epoch 5), `other` (1, led by the absent broker 9) and
/// `__consumer_offsets` (1).
pub fn image() -> MetadataImage {
    let endpoint = BrokerEndpoint { name: "CLIENTS", host: "broker.example", port: 9092, security_protocol: 0 };
    let endpoints = [endpoint];
    let mut records = vec![
        Record::RegisterBroker(RegisterBrokerRecord {
            broker_id: 1,
            end_points: (&endpoints[..]).into(),
            rack: Some("r1"),
            fenced: false,
            ..RegisterBrokerRecord::default()
        })
        .encode(0)
        .expect("a record"),
    ];
    for (name, topic_id, leaders) in
        [("named", NAMED, &[1, 1][..]), ("other", OTHER, &[9]), ("__consumer_offsets", INTERNAL, &[1])]
    {
        records.push(Record::Topic(TopicRecord { name, topic_id }).encode(0).expect("a record"));
        for (partition_id, &leader) in leaders.iter().enumerate() {
            let replicas = [leader];
            let record = PartitionRecord {
                partition_id: partition_id as i32,
                topic_id,
                replicas: (&replicas[..]).into(),
                isr: (&replicas[..]).into(),
                leader,
                leader_epoch: 5,
                partition_epoch: 0,
                ..PartitionRecord::default()
            };
            records.push(Record::Partition(record).encode(0).expect("a record"));
        }
    }
    MetadataImage::default().apply(records.iter().map(Vec::as_slice)).expect("records that fit")
}

/// A server on a free port of this host with an open listener `CLIENTS`.
pub struct Fixture {
    pub backend: Arc<FakeBackend>,
    pub server: Server,
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(NetConfig::default())
    }

    pub fn with(config: NetConfig) -> Self {
        Self::of(config, Pipeline::default())
    }

    pub fn of(config: NetConfig, pipeline: Pipeline) -> Self {
        let fixture = Self::closed_of(config, pipeline);
        assert!(fixture.server.open("CLIENTS"));
        fixture
    }

    /// The same, but not answering yet.
    pub fn closed(config: NetConfig) -> Self {
        Self::closed_of(config, Pipeline::default())
    }

    fn closed_of(config: NetConfig, pipeline: Pipeline) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let backend = FakeBackend::new();
        let server = Server::new(runtime.handle().clone(), config, "a-cluster".to_owned(), backend.clone(), pipeline);
        let server = server.expect("an event queue");
        let options = ListenerOptions {
            name: "CLIENTS".to_owned(),
            kind: ListenerKind::Broker,
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let address = server.listen(&options).expect("a free port");
        Self { backend, server, address, _runtime: runtime }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The next event that is not a log message.
    pub fn event(&self) -> Event {
        self.events_until(|event| !matches!(event, Event::Log { .. })).pop().expect("at least one")
    }

    pub fn request(&self) -> Box<Request> {
        match self.event() {
            Event::Request(request) => request,
            other => panic!("{other:?} where a request was expected"),
        }
    }

    /// The next log message.
    pub fn log_line(&self) -> String {
        match self.events_until(|event| matches!(event, Event::Log { .. })).pop() {
            Some(Event::Log { message, .. }) => message,
            other => panic!("{other:?} where a line was expected"),
        }
    }

    fn events_until(&self, is_last: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            self.wait_readable();
            events.extend(self.server.drain(1));
            if events.last().is_some_and(&is_last) {
                return events;
            }
        }
    }

    fn wait_readable(&self) {
        let mut poll = libc::pollfd { fd: self.server.event_fd().expect("open"), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed.
        let ready = unsafe { libc::poll(&mut poll, 1, 10_000) };
        assert_eq!(ready, 1, "no event within ten seconds");
    }

    /// Polls until `is_true`; for state that other threads change without an event.
    pub fn wait_until(&self, is_true: impl Fn() -> bool) {
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !is_true() {
            assert!(std::time::Instant::now() < end, "not true within ten seconds");
            std::thread::yield_now();
        }
    }
}

/// A client that writes and reads frames.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Self { stream }
    }

    pub fn send(&mut self, key: i16, version: i16, correlation_id: i32, body: &[u8]) {
        self.send_raw(&frame(key, version, correlation_id, body));
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("an open connection");
    }

    /// The next response: correlation id and all bytes after it.
    pub fn receive(&mut self) -> (i32, Vec<u8>) {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).expect("an answer");
        let mut bytes = vec![0; i32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut bytes).expect("a whole answer");
        let rest = bytes.split_off(4);
        (i32::from_be_bytes(bytes.try_into().expect("four bytes")), rest)
    }

    pub fn call(&mut self, key: i16, version: i16, body: &[u8]) -> Vec<u8> {
        self.send(key, version, 77, body);
        let (correlation_id, answer) = self.receive();
        assert_eq!(correlation_id, 77);
        answer
    }

    /// Whether the server closes the connection without sending another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub fn shut_down_writing(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }
}
