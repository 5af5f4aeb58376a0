//! Idempotent batches that a client sends without waiting for responses, while the broker stops leading and leads again.

use std::net::SocketAddr;
use std::sync::Arc;

use klamm_base::clock::SystemClock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::testing::{BatchSpec, batch};
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionChangeRecord, PartitionRecord, Record, TopicRecord};
use klamm_replica::{Durability, Partition, Replicas, ReplicasOptions};
use klamm_wire::api::{ListenerKind, PRODUCE};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::testing::{Client, frame, produce_to, produced};
use crate::{ListenerOptions, NetConfig, Pipeline, Server};

const NODE: i32 = 1;
const OTHER_NODE: i32 = 2;
const TOPIC: Uuid = Uuid([4; 16]);
const ROUNDS: i32 = 100;
/// As many as idempotent producers have in flight.
const IN_FLIGHT: i32 = 5;

/// A broker with a log that it leads at times. Nothing is fetched while it does not, so that its log stays as it is.
struct Broker {
    replicas: Arc<Replicas>,
    address: SocketAddr,
    _server: Server,
    _runtime: Runtime,
    _dir: TempDir,
}

impl Broker {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let locked = vec![LockedDir::open(dir.path(), Uuid([9; 16])).expect("free")];
        let config = ManagerConfig { intervals: None, cleaner: None, ..ManagerConfig::default() };
        let logs = LogManager::start(locked, config, LogContext::new(64), 0, Arc::new(drop)).expect("start");
        let replicas = Arc::new(Replicas::new(ReplicasOptions {
            node_id: NODE,
            durability: Durability::Flushed,
            settings: Settings::default(),
            logs,
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        }));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let cluster_id = "a-cluster".to_owned();
        let server = Server::new(
            runtime.handle().clone(),
            NetConfig::default(),
            cluster_id,
            replicas.clone(),
            Pipeline::default(),
        )
        .expect("an event queue");
        let listener = ListenerOptions {
            name: "CLIENTS".to_owned(),
            kind: ListenerKind::Broker,
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let address = server.listen(&listener).expect("a free port");
        assert!(server.open("CLIENTS"));
        let broker = Self { replicas, address, _server: server, _runtime: runtime, _dir: dir };
        let nodes = [NODE, OTHER_NODE];
        let partition = Record::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: (&nodes[..]).into(),
            isr: (&nodes[..1]).into(),
            leader: NODE,
            leader_epoch: 0,
            ..PartitionRecord::default()
        });
        broker
            .apply(&MetadataImage::default(), &[Record::Topic(TopicRecord { name: "t", topic_id: TOPIC }), partition]);
        broker
    }

    fn apply(&self, image: &MetadataImage, records: &[Record<'_>]) {
        let encoded: Vec<_> = records.iter().map(|record| record.encode(0).expect("a record")).collect();
        let image = image.apply(encoded.iter().map(Vec::as_slice)).expect("records that fit");
        assert!(self.replicas.publish(Arc::new(image)).errors.is_empty());
    }

    fn elect(&self, leader: i32) {
        let members = [leader];
        let isr = Some((&members[..]).into());
        let change = PartitionChangeRecord { topic_id: TOPIC, partition_id: 0, leader, isr, ..Default::default() };
        self.apply(&self.replicas.image(), &[Record::PartitionChange(change)]);
    }

    fn partition(&self) -> Arc<Partition> {
        self.replicas.get(TOPIC, 0).expect("a replica")
    }

    /// The sequences in the log.
    fn sequences(&self) -> Vec<i32> {
        let bytes = self.partition().with(|log| {
            let end = log.log_end_offset();
            log.read(0, usize::MAX >> 1, end, true).expect("one segment").read().expect("readable")
        });
        klamm_records::batches(&bytes).map(|batch| batch.expect("intact").header().base_sequence()).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.replicas.logs().abandon();
    }
}

/// A request with the batch of this sequence, with acks=all.
fn request(sequence: i32) -> Vec<u8> {
    let one = batch(&BatchSpec { producer: Some((7, 0, sequence)), ..BatchSpec::default() });
    frame(PRODUCE, 9, sequence, &produce_to("t", -1, 10_000, &[(0, &one)]))
}

/// The results of so many requests: error code, and whether the batch was appended.
fn results(client: &mut Client, first: i32, count: i32) -> Vec<(ErrorCode, bool)> {
    let result = |sequence| {
        let (correlation_id, answer) = client.receive();
        assert_eq!(correlation_id, sequence, "responses are in order");
        let (code, base_offset) = produced(&answer)[0];
        (code, base_offset >= 0)
    };
    (first..first + count).map(result).collect()
}

#[test]
fn no_batch_of_a_producer_is_appended_after_a_refused_one() {
    let broker = Broker::new();
    let mut client = Client::connect(broker.address);
    client.send_raw(&request(0));
    assert_eq!(results(&mut client, 0, 1), [(ErrorCode::NONE, true)]);
    broker.elect(OTHER_NODE);
    client.send_raw(&request(1));
    let refused = (ErrorCode::NOT_LEADER_OR_FOLLOWER, false);
    assert_eq!(results(&mut client, 1, 1), [refused]);
    broker.elect(NODE);
    // Those that were sent after it, before its response arrived.
    client.send_raw(&[request(2), request(3), request(4), request(5)].concat());
    assert_eq!(results(&mut client, 2, 4), [(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, false); 4]);
    client.send_raw(&[request(1), request(2)].concat());
    assert_eq!(results(&mut client, 1, 2), [(ErrorCode::NONE, true); 2]);
    assert_eq!(broker.sequences(), [0, 1, 2]);
}

#[test]
fn batches_in_flight_while_the_role_changes_are_appended_up_to_the_first_refused_one() {
    let broker = Broker::new();
    let mut client = Client::connect(broker.address);
    let mut next = 0;
    for round in 0..ROUNDS {
        let results = std::thread::scope(|scope| {
            for sequence in next..next + IN_FLIGHT {
                if sequence == next + round % IN_FLIGHT {
                    scope.spawn(|| [OTHER_NODE, NODE].map(|leader| broker.elect(leader)));
                }
                client.send_raw(&request(sequence));
            }
            results(&mut client, next, IN_FLIGHT)
        });
        let appended = results.iter().take_while(|(_, is_appended)| *is_appended).count();
        let are_refused = results[appended..].iter().all(|(code, is_appended)| code.is_error() && !is_appended);
        assert!(are_refused, "round {round}: {results:?}");
        next += i32::try_from(appended).expect("few");
        assert_eq!(broker.sequences(), (0..next).collect::<Vec<_>>(), "round {round}");
    }
}
