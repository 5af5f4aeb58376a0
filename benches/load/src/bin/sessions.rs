//! Measures the processor time of a fetch in an incremental session of which one partition is busy: one JSON object per line.
//!
//! `klamm-sessions [partitions=100,10000] [fetches=20000]`. A server in this process leads the partitions; a consumer, then a
//! follower, fetches over a connection. Each turn appends a batch to one partition, fetches it, and fetches again, which finds
//! nothing. The time is that of the server's threads.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use klamm_base::Uuid;
use klamm_base::clock::SystemClock;
use klamm_base::primitives::Writer;
use klamm_config::Settings;
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig, Origin};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionRecord, Record, RegisterBrokerRecord, TopicRecord};
use klamm_net::{ListenerOptions, NetConfig, Pipeline, Server};
use klamm_replica::{Durability, Partition, Replicas, ReplicasOptions};
use klamm_wire::api::ListenerKind;

const TOPIC: Uuid = Uuid([7; 16]);
const LEADER: i32 = 1;
const FOLLOWER: i32 = 2;
const CONSUMER: i32 = -1;
const FETCH: i16 = 1;
/// By topic id; the replica id is a field.
const VERSION: i16 = 13;
const BYTES_MAX: i32 = 1 << 20;

fn main() {
    let (mut sizes, mut fetches) = (vec![100, 10_000], 20_000);
    for argument in std::env::args().skip(1) {
        let number = |value: &str| value.parse().unwrap_or_else(|_| panic!("{argument}: a number must follow"));
        match argument.split_once('=') {
            Some(("partitions", values)) => sizes = values.split(',').map(number).collect(),
            Some(("fetches", value)) => fetches = number(value),
            _ => panic!("{argument}: partitions=NUMBER,... or fetches=NUMBER is known"),
        }
    }
    for (who, replica_id, isr) in [("consumer", CONSUMER, &[LEADER][..]), ("follower", FOLLOWER, &[LEADER, FOLLOWER])] {
        for &partitions in &sizes {
            let us = Leader::new(partitions, isr).measure(replica_id, fetches);
            println!(r#"{{"session": "{who}", "partitions": {partitions}, "fetches": {fetches}, "us": {us:.3}}}"#);
        }
    }
}

/// A server whose broker leads all partitions of a topic.
struct Leader {
    replicas: Arc<Replicas>,
    partitions: i32,
    stream: TcpStream,
    _server: Server,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

impl Leader {
    fn new(partitions: i32, isr: &[i32]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
        let logs = LogManager::start(locked, ManagerConfig::default(), LogContext::new(64), 0, Arc::new(drop));
        let replicas = Arc::new(Replicas::new(ReplicasOptions {
            node_id: LEADER,
            durability: Durability::PageCache,
            settings: Settings::new(HashMap::new()).expect("valid values"),
            logs: logs.expect("start"),
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        }));
        assert!(replicas.publish(Arc::new(image(partitions, isr))).errors.is_empty());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let handle = runtime.handle().clone();
        let server = Server::new(handle, NetConfig::default(), String::new(), replicas.clone(), Pipeline::default());
        let server = server.expect("an event queue");
        let (name, host) = ("CLIENTS".to_owned(), "127.0.0.1".to_owned());
        let options = ListenerOptions { name, kind: ListenerKind::Broker, host, port: 0 };
        let address = server.listen(&options).expect("a free port");
        assert!(server.open("CLIENTS"));
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_nodelay(true).expect("a socket option");
        Self { replicas, partitions, stream, _server: server, _runtime: runtime, _dir: dir }
    }

    /// Microseconds of the server for one fetch.
    fn measure(&mut self, replica_id: i32, fetches: i32) -> f64 {
        let busy = self.partitions / 2;
        let all: Vec<(i32, i64)> = (0..self.partitions).map(|index| (index, 0)).collect();
        let session = self.fetch(replica_id, (0, 0), &all);
        assert!(session > 0, "a session was opened");
        let partition = self.replicas.get(TOPIC, busy).expect("a replica");
        let (mut epoch, mut offset) = (1, 0);
        let mut turn = |own: &mut Self| {
            offset += append(&partition);
            own.fetch(replica_id, (session, epoch), &[]);
            own.fetch(replica_id, (session, epoch + 1), &[(busy, offset)]);
            epoch += 2;
        };
        // All partitions become quiet.
        (0..100).for_each(|_| turn(self));
        let before = server_time();
        (0..fetches / 2).for_each(|_| turn(self));
        (server_time() - before).as_secs_f64() * 1e6 / f64::from(fetches / 2 * 2)
    }

    /// Fetches without waiting; returns the session's id.
    fn fetch(&mut self, replica_id: i32, (id, epoch): (i32, i32), wanted: &[(i32, i64)]) -> i32 {
        let mut out = Writer::new();
        out.i32(0);
        out.i16(FETCH);
        out.i16(VERSION);
        out.i32(1);
        out.string("bench");
        out.no_tagged_fields();
        out.i32(replica_id);
        out.i32(0);
        out.i32(1);
        out.i32(BYTES_MAX);
        out.i8(0);
        out.i32(id);
        out.i32(epoch);
        out.compact_array_len(usize::from(!wanted.is_empty()));
        if !wanted.is_empty() {
            out.uuid(TOPIC);
            out.compact_array_len(wanted.len());
            for (index, offset) in wanted {
                out.i32(*index);
                out.i32(-1);
                out.i64(*offset);
                out.i32(-1);
                out.i64(if replica_id == CONSUMER { -1 } else { 0 });
                out.i32(BYTES_MAX);
                out.no_tagged_fields();
            }
            out.no_tagged_fields();
        }
        out.compact_array_len(0);
        out.compact_string("");
        out.no_tagged_fields();
        let len = i32::try_from(out.len() - 4).expect("a frame");
        out.as_mut_slice()[..4].copy_from_slice(&len.to_be_bytes());
        self.stream.write_all(&out.into_bytes()).expect("an open connection");
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).expect("an answer");
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(len)).expect("a length")];
        self.stream.read_exact(&mut answer).expect("a whole answer");
        // Correlation id, tags and throttle time are before it.
        assert_eq!(answer[9..11], [0, 0], "no error");
        i32::from_be_bytes(answer[11..15].try_into().expect("four bytes"))
    }
}

/// Appends a record; returns the number of records.
fn append(partition: &Partition) -> i64 {
    let mut batch = klamm_load::batch(1, 100, 0);
    partition.append(&mut batch, 1, Origin::Client, 0).expect("a leader");
    1
}

fn image(partitions: i32, isr: &[i32]) -> MetadataImage {
    let replicas = [LEADER, FOLLOWER];
    let broker = |broker_id| {
        Record::RegisterBroker(RegisterBrokerRecord { broker_id, fenced: false, ..RegisterBrokerRecord::default() })
    };
    let mut records = vec![broker(LEADER), broker(FOLLOWER)];
    records.push(Record::Topic(TopicRecord { name: "t", topic_id: TOPIC }));
    records.extend((0..partitions).map(|partition_id| {
        Record::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id,
            replicas: (&replicas[..]).into(),
            isr: isr.into(),
            leader: LEADER,
            leader_epoch: 0,
            partition_epoch: 0,
            ..PartitionRecord::default()
        })
    }));
    let encoded: Vec<Vec<u8>> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
    MetadataImage::default().apply(encoded.iter().map(Vec::as_slice)).expect("records that fit")
}

/// Processor time of this process without this thread.
fn server_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(time_of(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call may write to.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0, "the clock exists");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
