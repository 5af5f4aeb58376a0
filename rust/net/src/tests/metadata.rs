//! Metadata and DescribeTopicPartitions with the image of the fixture.

use klamm_base::primitives::{Reader, Writer};
use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::records::{BrokerEndpoint, BrokerRegistrationChangeRecord, Record, RegisterBrokerRecord};
use klamm_wire::api::{DESCRIBE_TOPIC_PARTITIONS, METADATA};

use crate::testing::{Fixture, NAMED};

/// The parts of a response's topic that are parsed.
#[derive(Debug, PartialEq, Eq)]
struct Topic {
    error: ErrorCode,
    name: Option<String>,
    id: Uuid,
    is_internal: bool,
    /// Error, leader, replicas and offline replicas of each partition.
    partitions: Vec<(ErrorCode, i32, Vec<i32>, Vec<i32>)>,
    operations: i32,
}

fn ids(reader: &mut Reader<'_>) -> Vec<i32> {
    let count = reader.compact_array_len(4).expect("ids");
    (0..count).map(|_| reader.i32().expect("an id")).collect()
}

/// Body of Metadata v12 for topics by name and by id.
fn ask(names: &[&str], ids: &[Uuid], with_operations: bool) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_array_len(names.len() + ids.len());
    for name in names {
        writer.uuid(Uuid::ZERO);
        writer.compact_nullable_string(Some(name));
        writer.no_tagged_fields();
    }
    for id in ids {
        writer.uuid(*id);
        writer.compact_nullable_string(None);
        writer.no_tagged_fields();
    }
    writer.bool(false);
    writer.bool(with_operations);
    writer.no_tagged_fields();
    writer.into_bytes()
}

/// Topics of a response to [`ask`]; the brokers and the cluster are the fixture's.
fn topics(answer: &[u8]) -> Vec<Topic> {
    let mut reader = Reader::new(&answer[1..]);
    assert_eq!(reader.i32(), Ok(0));
    assert_eq!(reader.compact_array_len(1), Ok(1));
    assert_eq!((reader.i32(), reader.compact_string(), reader.i32()), (Ok(1), Ok("broker.example"), Ok(9092)));
    assert_eq!(reader.compact_nullable_string(), Ok(Some("r1")));
    reader.skip_tagged_fields().expect("tags");
    assert_eq!((reader.compact_nullable_string(), reader.i32()), (Ok(Some("a-cluster")), Ok(1)));
    let count = reader.compact_array_len(1).expect("topics");
    let topics = (0..count).map(|_| topic(&mut reader)).collect();
    reader.skip_tagged_fields().expect("tags");
    reader.finish().expect("nothing after it");
    topics
}

fn topic(reader: &mut Reader<'_>) -> Topic {
    let error = ErrorCode(reader.i16().expect("error"));
    let name = reader.compact_nullable_string().expect("name").map(str::to_owned);
    let (id, is_internal) = (reader.uuid().expect("id"), reader.bool().expect("internal"));
    let count = reader.compact_array_len(1).expect("partitions");
    let mut partitions = Vec::new();
    for index in 0..count {
        let error = ErrorCode(reader.i16().expect("error"));
        assert_eq!(reader.i32(), Ok(index as i32));
        let leader = reader.i32().expect("leader");
        assert_eq!(reader.i32(), Ok(5));
        let (replicas, isr, offline) = (ids(reader), ids(reader), ids(reader));
        assert_eq!(replicas, isr);
        reader.skip_tagged_fields().expect("tags");
        partitions.push((error, leader, replicas, offline));
    }
    let operations = reader.i32().expect("operations");
    reader.skip_tagged_fields().expect("tags");
    Topic { error, name, id, is_internal, partitions, operations }
}

fn known(name: &str, id: Uuid, partitions: usize) -> Topic {
    Topic {
        error: ErrorCode::NONE,
        name: Some(name.to_owned()),
        id,
        is_internal: false,
        partitions: vec![(ErrorCode::NONE, 1, vec![1], vec![]); partitions],
        operations: i32::MIN,
    }
}

fn missing(name: Option<&str>, id: Uuid, error: ErrorCode) -> Topic {
    let name = name.map(str::to_owned);
    Topic { error, name, id, is_internal: false, partitions: vec![], operations: i32::MIN }
}

#[test]
fn topics_are_returned_in_request_order() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let answer = topics(&client.call(METADATA, 12, &ask(&["nowhere", "named", "not legal", "named"], &[], false)));
    let unknown = missing(Some("nowhere"), Uuid::ZERO, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let illegal = missing(Some("not legal"), Uuid::ZERO, ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(answer, [unknown, known("named", NAMED, 2), illegal]);
    let answer = topics(&client.call(METADATA, 12, &ask(&[], &[Uuid([7; 16]), NAMED], false)));
    assert_eq!(answer, [missing(None, Uuid([7; 16]), ErrorCode::UNKNOWN_TOPIC_ID), known("named", NAMED, 2)]);
}

#[test]
fn authorized_operations_are_returned_on_request() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let operations = |answer: Vec<Topic>| answer.iter().map(|topic| topic.operations).collect::<Vec<_>>();
    let answer = topics(&client.call(METADATA, 12, &ask(&["named", "nowhere"], &[], true)));
    assert_eq!(operations(answer), [3576, 3576]);
    let answer = topics(&client.call(METADATA, 12, &ask(&[], &[Uuid([7; 16])], true)));
    assert_eq!(operations(answer), [i32::MIN]);
}

#[test]
fn an_unreachable_leader_is_reported_as_an_error() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let answer = topics(&client.call(METADATA, 12, &ask(&["other", "__consumer_offsets"], &[], false)));
    assert_eq!(answer[0].partitions, [(ErrorCode::LEADER_NOT_AVAILABLE, -1, vec![9], vec![9])]);
    assert!(answer[1].is_internal);
    // Version 0 omits brokers that are not registered.
    let answer = client.call(METADATA, 0, b"\0\0\0\x01\0\x05other");
    assert!(answer.ends_with(b"\0\x05\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0"), "{answer:?}");
}

#[test]
fn fenced_brokers_are_listed_where_none_is_alive() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let fence = |broker_id, fenced| {
        let record = BrokerRegistrationChangeRecord { broker_id, fenced, ..Default::default() };
        fixture.backend.apply([Record::BrokerRegistrationChange(record)].into_iter());
    };
    // `topics` asserts that broker 1, and no other one, is listed.
    fence(1, 1);
    let answer = topics(&client.call(METADATA, 12, &ask(&["nowhere"], &[], false)));
    assert_eq!(answer, [missing(Some("nowhere"), Uuid::ZERO, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]);
    let endpoints = [BrokerEndpoint { name: "CLIENTS", host: "other.example", port: 9092, security_protocol: 0 }];
    let other = RegisterBrokerRecord { broker_id: 2, end_points: (&endpoints[..]).into(), ..Default::default() };
    fixture.backend.apply([Record::RegisterBroker(other)].into_iter());
    fence(1, -1);
    fence(2, 1);
    topics(&client.call(METADATA, 12, &ask(&[], &[], false)));
}

#[test]
fn ids_and_null_names_have_their_versions() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let null_name = b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let answer = client.call(METADATA, 10, null_name);
    let refused = b"\x02\0\x2a\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x80\0\0\0\0\x80\0\0\0\0";
    assert!(answer.ends_with(refused), "{answer:?}");
    let answer = client.call(METADATA, 13, &null_name[..22]);
    assert!(
        answer.ends_with(b"\x02\xff\xff\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x80\0\0\0\0\xff\xff\0"),
        "{answer:?}"
    );
}

/// Body of DescribeTopicPartitions.
fn describe(names: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_array_len(names.len());
    for name in names {
        writer.compact_string(name);
        writer.no_tagged_fields();
    }
    writer.i32(limit);
    match cursor {
        None => writer.i8(-1),
        Some((topic, partition)) => {
            writer.i8(1);
            writer.compact_string(topic);
            writer.i32(partition);
            writer.no_tagged_fields();
        }
    }
    writer.no_tagged_fields();
    writer.into_bytes()
}

type Described = (Vec<(String, ErrorCode, Vec<i32>)>, Option<(String, i32)>);

/// Name, error and partitions of each topic in the response, and its cursor.
fn described(answer: &[u8]) -> Described {
    let mut reader = Reader::new(&answer[5..]);
    let count = reader.compact_array_len(1).expect("topics");
    let mut topics = Vec::new();
    for _ in 0..count {
        let error = ErrorCode(reader.i16().expect("error"));
        let name = reader.compact_string().expect("name").to_owned();
        reader.slice(17).expect("id, internal");
        let partition_count = reader.compact_array_len(1).expect("partitions");
        let mut indexes = Vec::new();
        for _ in 0..partition_count {
            assert_eq!(reader.i16(), Ok(0));
            indexes.push(reader.i32().expect("index"));
            reader.slice(8).expect("leader, epoch");
            (0..5).for_each(|_| drop(ids(&mut reader)));
            reader.skip_tagged_fields().expect("tags");
        }
        reader.i32().expect("operations");
        reader.skip_tagged_fields().expect("tags");
        topics.push((name, error, indexes));
    }
    let cursor = match reader.i8().expect("cursor") {
        ..0 => None,
        _ => {
            let cursor = (reader.compact_string().expect("topic").to_owned(), reader.i32().expect("partition"));
            reader.skip_tagged_fields().expect("tags");
            Some(cursor)
        }
    };
    reader.skip_tagged_fields().expect("tags");
    reader.finish().expect("nothing after it");
    (topics, cursor)
}

#[test]
fn partitions_are_described_from_cursor_to_cursor() {
    const NONE: ErrorCode = ErrorCode::NONE;
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut step = |names: &[&str], limit, cursor: Option<(&str, i32)>| {
        described(&client.call(DESCRIBE_TOPIC_PARTITIONS, 0, &describe(names, limit, cursor)))
    };
    let topic = |name: &str, error, indexes: &[i32]| (name.to_owned(), error, indexes.to_vec());
    let at = |name: &str, partition| Some((name.to_owned(), partition));
    let internal = topic("__consumer_offsets", NONE, &[0]);
    let all = vec![internal.clone(), topic("named", NONE, &[0, 1]), topic("other", NONE, &[0])];
    assert_eq!(step(&[], 100, None), (all, None));
    assert_eq!(step(&[], 2, None), (vec![internal.clone(), topic("named", NONE, &[0])], at("named", 1)));
    assert_eq!(step(&[], 1, Some(("named", 1))), (vec![topic("named", NONE, &[1])], at("other", 0)));
    assert_eq!(step(&[], 0, None), (vec![internal], at("named", 0)));
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let illegal = ErrorCode::INVALID_TOPIC_EXCEPTION;
    let mixed = vec![topic("a b", illegal, &[]), topic("named", NONE, &[0, 1]), topic("zz", unknown, &[])];
    assert_eq!(step(&["zz", "named", "a b", "named"], 3, None), (mixed, None));
    assert_eq!(step(&["named"], 9, Some(("named", 7))), (vec![topic("named", NONE, &[])], None));
    for wrong in [("elsewhere", 0), ("named", -1)] {
        let refused = vec![topic("named", ErrorCode::INVALID_REQUEST, &[])];
        assert_eq!(step(&["named"], 9, Some(wrong)), (refused, None));
    }
}
