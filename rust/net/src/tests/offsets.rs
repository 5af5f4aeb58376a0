//! ListOffsets and OffsetForLeaderEpoch: which requests reach partitions, and which are answered without them.

use klamm_base::ErrorCode;
use klamm_base::primitives::{Reader, Writer};
use klamm_wire::api::{LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, PRODUCE};

use crate::testing::{Fixture, batch, produce};

/// Body of ListOffsets v7 (flexible, without the timeout) for partitions of one topic.
fn list(isolation_level: i8, topic: &str, partitions: &[(i32, i64)]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i32(-1);
    writer.i8(isolation_level);
    writer.compact_array_len(1);
    writer.compact_string(topic);
    writer.compact_array_len(partitions.len());
    for (index, timestamp) in partitions {
        writer.i32(*index);
        writer.i32(-1);
        writer.i64(*timestamp);
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.no_tagged_fields();
    writer.into_bytes()
}

/// Partition, error, offset and epoch of each result.
fn listed(answer: &[u8]) -> Vec<(i32, ErrorCode, i64, i32)> {
    let mut reader = Reader::new(&answer[5..]);
    assert_eq!(reader.compact_array_len(1), Ok(1));
    reader.compact_string().expect("topic");
    let count = reader.compact_array_len(1).expect("partitions");
    let mut results = Vec::new();
    for _ in 0..count {
        let (index, error) = (reader.i32().expect("index"), ErrorCode(reader.i16().expect("error")));
        assert_eq!(reader.i64(), Ok(-1));
        results.push((index, error, reader.i64().expect("offset"), reader.i32().expect("epoch")));
        reader.skip_tagged_fields().expect("tags");
    }
    results
}

#[test]
fn offsets_are_found_or_refused_one_by_one() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(4, 10))]));
    let none = |index, error| (index, error, -1, -1);
    let answer = listed(&client.call(LIST_OFFSETS, 7, &list(0, "named", &[(0, -1), (1, -2), (2, -1), (-1, -1)])));
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(answer, [(0, ErrorCode::NONE, 4, 5), (1, ErrorCode::NONE, 0, 5), none(2, unknown), none(-1, unknown)]);
    let answer = listed(&client.call(LIST_OFFSETS, 7, &list(0, "named", &[(0, -1), (1, -4), (0, -2)])));
    let twice = none(0, ErrorCode::INVALID_REQUEST);
    assert_eq!(answer, [twice, none(1, ErrorCode::UNSUPPORTED_VERSION)], "each is answered once, as by Apache Kafka");
    let answer = listed(&client.call(LIST_OFFSETS, 7, &list(9, "named", &[(0, -1)])));
    assert_eq!(answer, [none(0, ErrorCode::UNKNOWN_SERVER_ERROR)]);
    let answer = listed(&client.call(LIST_OFFSETS, 7, &list(0, "other", &[(0, -1)])));
    assert_eq!(answer, [none(0, ErrorCode::NOT_LEADER_OR_FOLLOWER)]);
}

#[test]
fn old_clients_receive_leader_not_available_instead_of_offset_not_available() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for (version, code) in [(1, ErrorCode::LEADER_NOT_AVAILABLE), (5, ErrorCode::OFFSET_NOT_AVAILABLE)] {
        let mut writer = Writer::new();
        writer.i32(-1);
        if version >= 2 {
            writer.i8(0);
        }
        writer.array_len(1);
        writer.string("named");
        writer.array_len(1);
        writer.i32(0);
        if version >= 4 {
            writer.i32(-1);
        }
        writer.i64(1000);
        let answer = client.call(LIST_OFFSETS, version, writer.as_slice());
        let at = if version >= 2 { 23 } else { 19 };
        assert_eq!(answer[at..at + 2], code.0.to_be_bytes(), "v{version}");
    }
}

#[test]
fn ends_of_epochs() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(4, 10))]));
    let mut ask = |index: i32, current: i32, epoch: i32| {
        let mut writer = Writer::new();
        writer.i32(-1);
        writer.compact_array_len(1);
        writer.compact_string("named");
        writer.compact_array_len(1);
        [index, current, epoch].iter().for_each(|field| writer.i32(*field));
        (0..3).for_each(|_| writer.no_tagged_fields());
        let answer = client.call(OFFSET_FOR_LEADER_EPOCH, 4, writer.as_slice());
        let mut reader = Reader::new(&answer[5 + 1 + 6 + 1..]);
        let error = ErrorCode(reader.i16().expect("error"));
        assert_eq!(reader.i32(), Ok(index));
        (error, reader.i32().expect("epoch"), reader.i64().expect("end"))
    };
    assert_eq!(ask(0, 5, 5), (ErrorCode::NONE, 5, 4));
    assert_eq!(ask(0, -1, 9), (ErrorCode::NONE, -1, -1));
    assert_eq!(ask(0, 6, 5), (ErrorCode::UNKNOWN_LEADER_EPOCH, -1, -1));
    assert_eq!(ask(9, 5, 5), (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1, -1));
}
