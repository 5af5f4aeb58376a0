//! A backend of one file per partition, and a client that speaks bytes, for the tests of the network.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use klamm_records::header::{self, HEADER_LEN, Header};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::backend::{Appended, Backend, Fetched, FoundOffset, OffsetQuery, Partition, PartitionFetch, Refused};
use super::{Event, FetchWaiter, FileSlice, ListenerOptions, NetConfig, Request, Server};
use crate::log::files::{FileCache, LogFile, OpenFile, PartitionDir};
use crate::log::names::{FileName, Kind};
use crate::metadata::MetadataImage;
use crate::metadata::records::{
    BrokerEndpoint, PartitionRecord, Record, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};
use crate::wire::api::{Api, ListenerKind};
use crate::wire::api_versions::ApiRange;
use crate::wire::{Reader, Writer};
use crate::{ErrorCode, Uuid};

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

/// One partition: batches in a file, acknowledged at once or when told.
pub struct FakePartition {
    file: Arc<OpenFile>,
    pub state: Mutex<FakeState>,
}

/// What is called when an offset is committed.
type Waiting = (i64, Box<dyn FnOnce(ErrorCode) + Send>);

pub struct FakeState {
    /// Base offset, position and length of each batch.
    batches: Vec<(i64, u64, usize)>,
    size: u64,
    pub end_offset: i64,
    pub high_watermark: i64,
    pub holds_back: bool,
    pub append_error: Option<ErrorCode>,
    pub fetch_error: Option<ErrorCode>,
    waiting: Vec<Waiting>,
    watching: Vec<Arc<FetchWaiter>>,
}

impl FakePartition {
    fn new(file: Arc<OpenFile>) -> Self {
        let state = Mutex::new(FakeState {
            batches: Vec::new(),
            size: 0,
            end_offset: 0,
            high_watermark: 0,
            holds_back: false,
            append_error: None,
            fetch_error: None,
            waiting: Vec::new(),
            watching: Vec::new(),
        });
        Self { file, state }
    }

    /// Lets the high watermark reach `offset`.
    pub fn commit(&self, offset: i64) {
        let mut state = self.state.lock();
        state.high_watermark = offset;
        let waiting = std::mem::take(&mut state.waiting);
        let (due, later): (Vec<Waiting>, _) = waiting.into_iter().partition(|(end, _)| *end <= offset);
        state.waiting = later;
        let watching = std::mem::take(&mut state.watching);
        drop(state);
        due.into_iter().for_each(|(_, done)| done(ErrorCode::NONE));
        watching.iter().for_each(|waiter| waiter.wake());
    }

    /// Drops the file's pages from the page cache, where the file system has one.
    #[cfg(target_os = "linux")]
    pub fn forget_cached(&self) {
        self.file.sync().expect("a disk");
        let fd = std::os::fd::AsRawFd::as_raw_fd(self.file.file());
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    pub fn cut_file(&self) {
        self.file.set_len(0).expect("a file");
    }

    pub fn watcher_count(&self) -> usize {
        self.state.lock().watching.iter().filter(|waiter| !waiter.has_ended()).count()
    }
}

impl Partition for FakePartition {
    fn append(&self, batch: &mut [u8], _acks: i16, _now_ms: i64) -> Result<Appended, Refused> {
        let refused = |code| Refused { code, message: None, record_errors: Vec::new(), log_start_offset: -1 };
        let mut state = self.state.lock();
        if let Some(code) = state.append_error {
            let record_errors = vec![(0, Some("no key".to_owned())), (2, None)];
            return Err(Refused { message: Some("one or more".to_owned()), record_errors, ..refused(code) });
        }
        let Some(records) = Header::at_start_of(batch).map(|header| header.record_count()) else {
            return Err(refused(ErrorCode::INVALID_RECORD));
        };
        let (base_offset, position) = (state.end_offset, state.size);
        header::set_position(batch, base_offset, 5);
        self.file.write_at(batch, position).expect("room on the disk");
        state.batches.push((base_offset, position, batch.len()));
        state.size += batch.len() as u64;
        state.end_offset += i64::from(records);
        let end_offset = state.end_offset;
        let holds_back = state.holds_back;
        drop(state);
        if !holds_back {
            self.commit(end_offset);
        }
        Ok(Appended { base_offset, log_append_time_ms: -1, log_start_offset: 0, end_offset })
    }

    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>) {
        let mut state = self.state.lock();
        if state.high_watermark >= end_offset {
            drop(state);
            return done(ErrorCode::NONE);
        }
        state.waiting.push((end_offset, done));
    }

    fn fetch(&self, request: &PartitionFetch) -> Fetched {
        let state = self.state.lock();
        if let Some(code) = state.fetch_error {
            return Fetched::error(code);
        }
        let committed = state.batches.iter().filter(|(base, ..)| *base < state.high_watermark);
        let mut len = 0;
        let mut position = None;
        for (_, at, size) in committed.filter(|(base, ..)| *base >= request.fetch_offset) {
            let first = position.is_none() && request.at_least_one;
            if len + size > request.max_bytes && !first {
                break;
            }
            position.get_or_insert(*at);
            len += size;
        }
        let slice = |position| FileSlice { file: self.file.clone(), position, len };
        Fetched {
            high_watermark: state.high_watermark,
            last_stable_offset: state.high_watermark,
            log_start_offset: 0,
            aborted: request.read_committed.then(Vec::new),
            records: position.map(slice),
            ..Fetched::error(ErrorCode::NONE)
        }
    }

    fn watch(&self, waiter: Arc<FetchWaiter>) {
        let mut state = self.state.lock();
        state.watching.retain(|waiter| !waiter.has_ended());
        state.watching.push(waiter);
    }

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        let end = self.state.lock().high_watermark;
        match query.timestamp {
            -1 => Ok(FoundOffset { timestamp: -1, offset: end, leader_epoch: 5 }),
            -2 => Ok(FoundOffset { timestamp: -1, offset: 0, leader_epoch: 5 }),
            _ => Err(ErrorCode::OFFSET_NOT_AVAILABLE),
        }
    }

    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        match current_leader_epoch {
            6.. => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            _ if epoch == 5 => Ok((5, self.state.lock().end_offset)),
            _ => Ok((-1, -1)),
        }
    }
}

/// The partitions of [`image`] that broker 1 leads.
pub struct FakeBackend {
    image: Mutex<Arc<MetadataImage>>,
    partitions: HashMap<(Uuid, i32), Arc<FakePartition>>,
    _dir: tempfile::TempDir,
}

impl FakeBackend {
    pub fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let cache = FileCache::new(16);
        let of = PartitionDir::new(dir.path());
        let partition = |offset| {
            let file = LogFile::new(&of, FileName::live(offset, Kind::Log)).create(&cache).expect("a file");
            Arc::new(FakePartition::new(file))
        };
        let partitions = [((NAMED, 0), partition(0)), ((NAMED, 1), partition(1)), ((INTERNAL, 0), partition(2))];
        Arc::new(Self { image: Mutex::new(Arc::new(image())), partitions: partitions.into(), _dir: dir })
    }

    /// Another image, from which the topics of these names are gone.
    pub fn remove_topics(&self, ids: &[Uuid]) {
        let removals: Vec<_> = ids
            .iter()
            .map(|&topic_id| Record::RemoveTopic(RemoveTopicRecord { topic_id }).encode(0).expect("a record"))
            .collect();
        let mut image = self.image.lock();
        *image = Arc::new(image.apply(removals.iter().map(Vec::as_slice)).expect("records that fit"));
        drop(image);
        for partition in self.partitions.values() {
            let high_watermark = partition.state.lock().high_watermark;
            partition.commit(high_watermark);
        }
    }

    pub fn at(&self, topic: Uuid, index: i32) -> &FakePartition {
        &self.partitions[&(topic, index)]
    }
}

impl Backend for FakeBackend {
    fn image(&self) -> Arc<MetadataImage> {
        self.image.lock().clone()
    }

    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode> {
        let found = self.partitions.get(&(topic, index)).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        Ok(found.clone())
    }
}

/// A server on a free port of this host, listener `CLIENTS`, open.
pub struct Fixture {
    pub backend: Arc<FakeBackend>,
    pub server: Server,
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(NetConfig::default())
    }

    pub fn with(config: NetConfig) -> Self {
        let fixture = Self::closed(config);
        assert!(fixture.server.open("CLIENTS"));
        fixture
    }

    /// The same, not answering yet.
    pub fn closed(config: NetConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let backend = FakeBackend::new();
        let server = Server::new(runtime.handle().clone(), config, "a-cluster".to_owned(), backend.clone());
        let server = server.expect("an event queue");
        let outside = [12, 13, 19, 32].map(|key| ApiRange { key, version_min: 0, version_max: 9 }).to_vec();
        let options = ListenerOptions {
            name: "CLIENTS".to_owned(),
            kind: ListenerKind::Broker,
            host: "127.0.0.1".to_owned(),
            port: 0,
            outside,
        };
        let address = server.listen(&options).expect("a free port");
        Self { backend, server, address, _runtime: runtime }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The next event that is not a log line.
    pub fn event(&self) -> Event {
        self.events_until(|event| !matches!(event, Event::Log { .. })).pop().expect("at least one")
    }

    pub fn request(&self) -> Box<Request> {
        match self.event() {
            Event::Request(request) => request,
            other => panic!("{other:?} where a request was expected"),
        }
    }

    /// The next line for the log.
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

    /// Waits until `is_true`; for what happens on other threads and tells nobody.
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

    /// The next answer: correlation id and everything behind it.
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

    /// Whether the server ends the connection without a further byte.
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

/// A frame with length and request header, client id `test`.
pub fn frame(key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i32(0);
    writer.i16(key);
    writer.i16(version);
    writer.i32(correlation_id);
    writer.string("test");
    if Api::of(key).is_some_and(|api| api.is_flexible(version)) {
        writer.no_tagged_fields();
    }
    writer.slice(body);
    let len = (writer.len() - 4) as i32;
    writer.as_mut_slice()[..4].copy_from_slice(&len.to_be_bytes());
    writer.into_bytes()
}

/// A batch of `records` records, `padding` bytes long behind its header. Only its header is a batch's.
pub fn batch(records: i32, padding: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN + padding];
    let len = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&len.to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    bytes[43..51].copy_from_slice(&(-1i64).to_be_bytes());
    bytes[57..61].copy_from_slice(&records.to_be_bytes());
    bytes
}

/// Body of Produce v9 for partitions of `named`.
pub fn produce(acks: i16, timeout_ms: i32, partitions: &[(i32, &[u8])]) -> Vec<u8> {
    produce_to("named", acks, timeout_ms, partitions)
}

pub fn produce_to(topic: &str, acks: i16, timeout_ms: i32, partitions: &[(i32, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_nullable_string(None);
    writer.i16(acks);
    writer.i32(timeout_ms);
    writer.compact_array_len(1);
    writer.compact_string(topic);
    writer.compact_array_len(partitions.len());
    for (index, records) in partitions {
        writer.i32(*index);
        writer.compact_bytes(records);
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.no_tagged_fields();
    writer.into_bytes()
}

/// Error code and base offset of each partition in the answer to [`produce`], in order.
pub fn produced(answer: &[u8]) -> Vec<(ErrorCode, i64)> {
    let mut reader = Reader::new(&answer[1..]);
    assert_eq!(reader.compact_array_len(1).expect("topics"), 1);
    reader.compact_string().expect("name");
    let count = reader.compact_array_len(1).expect("partitions");
    let mut results = Vec::new();
    for _ in 0..count {
        reader.i32().expect("index");
        results.push((ErrorCode(reader.i16().expect("code")), reader.i64().expect("base offset")));
        reader.slice(16).expect("append time, log start offset");
        for _ in 0..reader.compact_array_len(1).expect("record errors") {
            reader.i32().expect("index");
            reader.compact_nullable_string().expect("message");
            reader.skip_tagged_fields().expect("tags");
        }
        reader.compact_nullable_string().expect("message");
        reader.skip_tagged_fields().expect("tags");
    }
    results
}

/// What a fetch asks for.
#[derive(Clone, Copy)]
pub struct FetchSpec<'a> {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub session: (i32, i32),
    /// Partition of `named`, offset and limit.
    pub partitions: &'a [(i32, i64, i32)],
    pub forgotten: &'a [i32],
    pub topic: Uuid,
}

impl Default for FetchSpec<'_> {
    fn default() -> Self {
        Self {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session: (0, -1),
            partitions: &[],
            forgotten: &[],
            topic: NAMED,
        }
    }
}

/// Body of Fetch v13.
pub fn fetch(spec: &FetchSpec<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i32(-1);
    writer.i32(spec.max_wait_ms);
    writer.i32(spec.min_bytes);
    writer.i32(spec.max_bytes);
    writer.i8(0);
    writer.i32(spec.session.0);
    writer.i32(spec.session.1);
    writer.compact_array_len(usize::from(!spec.partitions.is_empty()));
    if !spec.partitions.is_empty() {
        writer.uuid(spec.topic);
        writer.compact_array_len(spec.partitions.len());
        for (index, offset, max_bytes) in spec.partitions {
            writer.i32(*index);
            writer.i32(-1);
            writer.i64(*offset);
            writer.i32(-1);
            writer.i64(-1);
            writer.i32(*max_bytes);
            writer.no_tagged_fields();
        }
        writer.no_tagged_fields();
    }
    writer.compact_array_len(usize::from(!spec.forgotten.is_empty()));
    if !spec.forgotten.is_empty() {
        writer.uuid(spec.topic);
        writer.compact_array_len(spec.forgotten.len());
        spec.forgotten.iter().for_each(|index| writer.i32(*index));
        writer.no_tagged_fields();
    }
    writer.compact_string("");
    writer.no_tagged_fields();
    writer.into_bytes()
}

/// An answer to [`fetch`].
#[derive(Debug)]
pub struct FetchAnswer {
    pub error: ErrorCode,
    pub session_id: i32,
    /// Partition, error, high watermark and records, in the order of the answer.
    pub partitions: Vec<(i32, ErrorCode, i64, Vec<u8>)>,
}

pub fn fetched(answer: &[u8]) -> FetchAnswer {
    let mut reader = Reader::new(&answer[1..]);
    reader.i32().expect("throttle time");
    let mut parsed = FetchAnswer {
        error: ErrorCode(reader.i16().expect("error")),
        session_id: reader.i32().expect("session"),
        partitions: Vec::new(),
    };
    for _ in 0..reader.compact_array_len(1).expect("topics") {
        reader.uuid().expect("topic");
        for _ in 0..reader.compact_array_len(1).expect("partitions") {
            let index = reader.i32().expect("index");
            let error = ErrorCode(reader.i16().expect("error"));
            let high_watermark = reader.i64().expect("high watermark");
            reader.slice(16).expect("last stable offset, log start offset");
            reader.compact_nullable_array_len(16).expect("aborted");
            reader.i32().expect("preferred replica");
            let records = reader.compact_bytes().expect("records").to_vec();
            reader.skip_tagged_fields().expect("tags");
            parsed.partitions.push((index, error, high_watermark, records));
        }
        reader.skip_tagged_fields().expect("tags");
    }
    reader.skip_tagged_fields().expect("tags");
    reader.finish().expect("nothing behind");
    parsed
}
