//! Every request and response of the fast path, at every version, as Apache Kafka 4.3.1 writes it
//! (`golden/Frames.java`).

use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};

use super::api_versions::{self, ApiRange, ApiVersionsRequest, Features};
use super::describe_topic_partitions::{
    self, Cursor, DescribeTopicPartitionsRequest, DescribedPartition, DescribedTopic,
};
use super::fetch::{FetchPartition, FetchRequest, FetchResponseWriter, FetchResult};
use super::frame;
use super::list_offsets::{self, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResult};
use super::metadata::{MetadataRequest, MetadataResponseWriter, NOT_ASKED, PartitionState, TopicHead, TopicQuery};
use super::offset_for_leader_epoch::{self, EpochPartition, EpochResult, OffsetForLeaderEpochRequest};
use super::produce::{ProduceItem, ProduceRequest, ProduceResponseWriter, ProduceResult};
use super::topic::{NodeEndpoint, TopicRef};

pub(super) const ID: Uuid = Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
pub(super) const RECORDS: &[u8] = b"some records";

/// Version and bytes of each line for this message.
pub(super) fn lines(message: &str) -> impl Iterator<Item = (i16, Vec<u8>)> {
    let lines = include_str!("golden/frames.txt").lines().filter_map(move |line| {
        let mut words = line.split(' ');
        (words.next()? == message).then_some((words.next()?.parse().ok()?, unhex(words.next()?)))
    });
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty(), "no line of {message}");
    lines.into_iter()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(super) fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    write(&mut writer);
    writer.into_bytes()
}

pub(super) fn node(rack: Option<&str>) -> NodeEndpoint {
    NodeEndpoint { node_id: 4, host: "h".to_owned(), port: 99, rack: rack.map(str::to_owned) }
}

fn is_topic(topic: &TopicRef<'_>, by_id: bool) -> bool {
    *topic == if by_id { TopicRef::Id(ID) } else { TopicRef::Name("topic".into()) }
}

#[test]
fn produce_requests() {
    for (version, body) in lines("ProduceRequest") {
        let request = ProduceRequest::parse(&body, version).expect("Kafka's own");
        assert!(request.is_with_transactional_id);
        assert_eq!((request.acks, request.timeout_ms), (-1, 1500));
        assert_eq!((request.topic_count, request.partition_count), (1, 2));
        let mut walk = request.walk();
        let Some(ProduceItem::Topic { topic, partition_count: 2 }) = walk.next(&body) else { panic!("v{version}") };
        assert!(is_topic(&topic, version >= 13));
        let Some(ProduceItem::Partition { index: 7, records: Some(range) }) = walk.next(&body) else {
            panic!("v{version}")
        };
        assert_eq!(&body[range], RECORDS);
        assert_eq!(walk.next(&body), Some(ProduceItem::Partition { index: 8, records: None }));
        assert_eq!((walk.next(&body), walk.next(&body)), (Some(ProduceItem::TopicEnd), None));
    }
}

#[test]
fn ascending_partitions_are_recognized() {
    let topics: [(&[&[i32]], bool); 7] = [
        (&[&[0, 1, 5]], true),
        (&[&[i32::MIN, i32::MAX]], true),
        (&[&[3], &[1, 2]], true),
        (&[&[1, 1]], false),
        (&[&[1, 0]], false),
        (&[&[]], false),
        (&[&[], &[3]], false),
    ];
    for (topics, expected) in topics {
        let body = written(|writer| {
            writer.nullable_string(None);
            writer.i16(-1);
            writer.i32(1500);
            writer.array_len(topics.len());
            for partitions in topics {
                writer.string("topic");
                writer.array_len(partitions.len());
                partitions.iter().for_each(|&index| {
                    writer.i32(index);
                    writer.nullable_bytes(None);
                });
            }
        });
        let request = ProduceRequest::parse(&body, 3).expect("a request");
        assert_eq!(request.has_ascending_partitions, expected, "{topics:?}");
    }
}

#[test]
fn produce_answers() {
    for (version, answer) in lines("ProduceResponse") {
        let good = ProduceResult {
            base_offset: 1000,
            log_append_time_ms: 5,
            log_start_offset: 3,
            ..ProduceResult::refused(ErrorCode::NONE)
        };
        let bad = ProduceResult {
            record_errors: vec![(2, Some("x".to_owned())), (3, None)],
            message: Some("why".to_owned()),
            ..ProduceResult::refused(ErrorCode::INVALID_RECORD)
        };
        let moved = ProduceResult {
            current_leader: Some((4, 11)),
            ..ProduceResult::refused(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        };
        let mut positions = Vec::new();
        let bytes = written(|writer| {
            let topic = if version >= 13 { TopicRef::Id(ID) } else { TopicRef::Name("topic".into()) };
            let mut out = ProduceResponseWriter::begin(writer, version, 1);
            out.begin_topic(&topic, 3);
            for (index, result) in [(7, good), (8, bad), (9, moved)] {
                positions.push(out.partition(index, &result));
            }
            out.end_topic();
            out.end(0, &[node(None)]);
        });
        assert_eq!(bytes, answer, "v{version}");
        let codes = positions.iter().map(|&at| i16::from_be_bytes([bytes[at], bytes[at + 1]]));
        assert_eq!(codes.collect::<Vec<_>>(), [0, 87, 6]);
    }
}

#[test]
fn fetch_requests() {
    for (version, body) in lines("FetchRequest") {
        let request = FetchRequest::parse(&body, version).expect("Kafka's own");
        let since = |first: i16, value: i64, before: i64| if version >= first { value } else { before };
        let found = (request.replica_id, request.replica_epoch, request.isolation_level);
        assert_eq!(found, (3, since(15, 12, -1), 1));
        assert_eq!((request.max_wait_ms, request.min_bytes, request.max_bytes), (500, 1, 9000));
        let session = (i64::from(request.session_id), i64::from(request.session_epoch));
        assert_eq!(session, (since(7, 77, 0), since(7, 2, -1)));
        assert_eq!(request.rack_id, if version >= 11 { "r" } else { "" });
        let topics: Vec<_> = request.topics.collect();
        assert!(topics.len() == 1 && is_topic(&topics[0].topic, version >= 13));
        let full = FetchPartition {
            index: 7,
            current_leader_epoch: since(9, 11, -1) as i32,
            fetch_offset: 1000,
            last_fetched_epoch: since(12, 10, -1) as i32,
            log_start_offset: since(5, 3, -1),
            max_bytes: 4096,
            replica_directory: if version >= 17 { ID } else { Uuid::ZERO },
            high_watermark: since(18, 900, i64::MAX),
        };
        let plain = FetchPartition {
            index: 8,
            current_leader_epoch: -1,
            fetch_offset: 5,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: 1,
            replica_directory: Uuid::ZERO,
            high_watermark: i64::MAX,
        };
        assert_eq!(topics[0].partitions.clone().collect::<Vec<_>>(), [full, plain]);
        assert_eq!(request.forgotten.len(), usize::from(version >= 7));
        for forgotten in request.forgotten {
            assert!(is_topic(&forgotten.topic, version >= 13));
            assert_eq!(forgotten.partitions.collect::<Vec<_>>(), [1, 2]);
        }
    }
}

#[test]
fn fetch_answers() {
    for (version, answer) in lines("FetchResponse") {
        let full = FetchResult {
            high_watermark: 1000,
            last_stable_offset: 999,
            log_start_offset: 3,
            aborted: Some(vec![(5, 6)]),
            records_len: RECORDS.len(),
            ..FetchResult::refused(ErrorCode::NONE)
        };
        let empty = FetchResult {
            aborted: None,
            diverging: Some((9, 800)),
            current_leader: Some((4, 11)),
            ..FetchResult::refused(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        };
        let mut records_at = 0;
        let mut bytes = written(|writer| {
            let error = ErrorCode::INVALID_FETCH_SESSION_EPOCH;
            let mut out = FetchResponseWriter::begin(writer, version, error, 77, 1);
            out.begin_topic("topic", ID, 2);
            out.partition(7, &full);
            records_at = out.position();
            out.end_partition(&full);
            out.partition(8, &empty);
            out.end_partition(&empty);
            out.end_topic();
            out.end(&[node(Some("r"))]);
        });
        bytes.splice(records_at..records_at, RECORDS.iter().copied());
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn list_offsets() {
    for ((version, body), (_, answer)) in lines("ListOffsetsRequest").zip(lines("ListOffsetsResponse")) {
        let request = ListOffsetsRequest::parse(&body, version).expect("Kafka's own");
        assert_eq!((request.replica_id, request.isolation_level), (-1, i8::from(version >= 2)));
        assert_eq!(request.timeout_ms, if version >= 10 { 1500 } else { 0 });
        let current_leader_epoch = if version >= 4 { 11 } else { -1 };
        let result = ListOffsetsResult { error: ErrorCode::NONE, timestamp: 5, offset: 1000, leader_epoch: 11 };
        let bytes = written(|writer| {
            let topics = request.topics.clone().map(|topic| (topic.name, topic.partitions));
            list_offsets::write_response(writer, version, topics, |topic, partition| {
                let expected = ListOffsetsPartition { index: 7, current_leader_epoch, timestamp: -2 };
                assert_eq!((topic, partition), ("topic", &expected));
                result
            })
        });
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn metadata_requests() {
    for (version, body) in lines("MetadataRequest") {
        let request = MetadataRequest::parse(&body, version).expect("Kafka's own");
        let query = match version >= 12 {
            true => TopicQuery { id: ID, name: None },
            false => TopicQuery { id: Uuid::ZERO, name: Some("topic".into()) },
        };
        assert_eq!(request.topics.expect("not all").collect::<Vec<_>>(), [query]);
        assert_eq!(request.allow_auto_topic_creation, version < 4);
        assert_eq!(request.include_cluster_authorized_operations, (8..=10).contains(&version));
        assert_eq!(request.include_topic_authorized_operations, version >= 8);
    }
    for (version, body) in lines("MetadataRequestOfAll") {
        assert!(MetadataRequest::parse(&body, version).expect("Kafka's own").topics.is_none(), "v{version}");
    }
    assert!(MetadataRequest::parse(&[0; 4], 0).expect("no topic").topics.is_none());
    assert_eq!(MetadataRequest::parse(&[0; 4], 1).expect("no topic").topics.expect("not all").len(), 0);
}

#[test]
fn metadata_answers() {
    for (version, answer) in lines("MetadataResponse") {
        let known =
            TopicHead { error: ErrorCode::NONE, name: Some("topic"), id: ID, is_internal: true, partition_count: 1 };
        let unknown = TopicHead {
            error: ErrorCode::UNKNOWN_TOPIC_ID,
            name: None,
            id: Uuid::ZERO,
            is_internal: false,
            partition_count: 0,
        };
        let partition = PartitionState {
            error: ErrorCode::REPLICA_NOT_AVAILABLE,
            index: 7,
            leader_id: 4,
            leader_epoch: 11,
            replicas: &[4, 5],
            isr: &[4],
            offline: &[5],
        };
        let bytes = written(|writer| {
            let brokers = [node(Some("r"))];
            let mut out = MetadataResponseWriter::begin(writer, version, &brokers, Some("cluster"), 4, 2);
            out.begin_topic(&known);
            out.partition(&partition);
            out.end_topic(3576);
            out.begin_topic(&unknown);
            out.end_topic(NOT_ASKED);
            out.end(8096, ErrorCode::INVALID_REQUEST);
        });
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn api_versions() {
    for ((version, body), (_, answer)) in lines("ApiVersionsRequest").zip(lines("ApiVersionsResponse")) {
        let request = ApiVersionsRequest::parse(&body, version).expect("Kafka's own");
        let found = (&*request.client_software_name, &*request.client_software_version);
        assert_eq!(found, if version >= 3 { ("a-client", "1.2.3") } else { ("", "") });
        let features = Features {
            supported: vec![("metadata.version".to_owned(), 7, 30), ("group.version".to_owned(), 0, 1)],
            finalized: vec![("metadata.version".to_owned(), 30), ("kraft.version".to_owned(), 0)],
            finalized_epoch: 123,
        };
        let apis = [(0, 0, 13), (18, 0, 4)];
        let apis = apis.map(|(key, version_min, version_max)| ApiRange { key, version_min, version_max });
        let bytes = written(|writer| api_versions::write_response(writer, version, &apis, &features));
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn offset_for_leader_epoch() {
    let answers = lines("OffsetForLeaderEpochResponse");
    for ((version, body), (_, answer)) in lines("OffsetForLeaderEpochRequest").zip(answers) {
        let request = OffsetForLeaderEpochRequest::parse(&body, version).expect("Kafka's own");
        assert_eq!(request.replica_id, if version >= 3 { -1 } else { -2 });
        let result = EpochResult { error: ErrorCode::NONE, leader_epoch: 10, end_offset: 900 };
        let bytes = written(|writer| {
            offset_for_leader_epoch::write_response(writer, version, &request, |topic, partition| {
                let expected = EpochPartition { index: 7, current_leader_epoch: 11, leader_epoch: 10 };
                assert_eq!((topic, partition), ("topic", &expected));
                result
            })
        });
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn describe_topic_partitions() {
    for ((version, body), (_, answer)) in
        lines("DescribeTopicPartitionsRequest").zip(lines("DescribeTopicPartitionsResponse"))
    {
        let request = DescribeTopicPartitionsRequest::parse(&body, version).expect("Kafka's own");
        assert_eq!(request.topics.clone().collect::<Vec<_>>(), ["topic"]);
        assert_eq!(request.response_partition_limit, 20);
        assert_eq!(request.cursor, Some(Cursor { topic: "topic", partition: 7 }));
        let head =
            TopicHead { error: ErrorCode::NONE, name: Some("topic"), id: ID, is_internal: true, partition_count: 1 };
        let partition = DescribedPartition {
            index: 7,
            leader_id: 4,
            leader_epoch: 11,
            replicas: vec![4, 5],
            isr: vec![4],
            eligible_leaders: vec![6],
            last_known_eligible_leaders: vec![8],
            offline: vec![5],
        };
        let topic = DescribedTopic { head, partitions: vec![partition], authorized_operations: 3576 };
        let next = Cursor { topic: "topic", partition: 8 };
        let bytes = written(|writer| describe_topic_partitions::write_response(writer, &[topic], Some(next)));
        assert_eq!(bytes, answer);
    }
}

/// Invariant: whatever is cut off or changed, parsing ends without a panic.
#[test]
fn damaged_requests_are_read_or_refused() {
    let names = [
        ("ProduceRequest", 0),
        ("FetchRequest", 1),
        ("ListOffsetsRequest", 2),
        ("MetadataRequest", 3),
        ("ApiVersionsRequest", 18),
        ("OffsetForLeaderEpochRequest", 23),
        ("DescribeTopicPartitionsRequest", 75),
    ];
    for (name, key) in names {
        for (version, body) in lines(name) {
            for at in 0..body.len() {
                let _ = frame::read_request(key, version, &body[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = body.clone();
                    damaged[at] = value;
                    let _ = frame::read_request(key, version, &damaged);
                }
            }
        }
    }
}
