//! Encodes requests, and parses the parts of responses that tests check.

use klamm_base::primitives::{Reader, Writer};
use klamm_base::{ErrorCode, Uuid};
use klamm_records::header::HEADER_LEN;
use klamm_wire::api::Api;

use super::NAMED;

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

/// A batch of `records` records, `padding` bytes long after its header. Only the header is valid.
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

/// The same body with a transactional id.
pub fn with_transactional_id(id: &str, body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_nullable_string(Some(id));
    writer.slice(&body[1..]);
    writer.into_bytes()
}

/// Error code and base offset of each partition in the response to [`produce`], in order.
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

/// The parameters of a fetch.
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

/// A response to [`fetch`].
#[derive(Debug)]
pub struct FetchAnswer {
    pub throttle_ms: i32,
    pub error: ErrorCode,
    pub session_id: i32,
    /// Partition, error, high watermark and records, in the order of the response.
    pub partitions: Vec<(i32, ErrorCode, i64, Vec<u8>)>,
}

pub fn fetched(answer: &[u8]) -> FetchAnswer {
    let mut reader = Reader::new(&answer[1..]);
    let mut parsed = FetchAnswer {
        throttle_ms: reader.i32().expect("throttle time"),
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
    reader.finish().expect("nothing after it");
    parsed
}
