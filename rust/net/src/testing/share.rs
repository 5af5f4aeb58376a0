//! ShareFetch and ShareAcknowledge requests of a member, what their responses say, and a share coordinator that a test controls.

use klamm_base::primitives::{Reader, Writer};
use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::records::{ConfigRecord, FeatureLevelRecord, Record};
use klamm_wire::api::{SHARE_ACKNOWLEDGE, SHARE_FETCH, WRITE_SHARE_GROUP_STATE};

use super::{Client, Fixture, NAMED};
use crate::{Event, ShareStateCall};

/// Acknowledgements of a partition: first and last offset, and types.
pub type Acks<'a> = &'a [(i64, i64, &'a [u8])];

/// A ShareFetch request, v2.
#[derive(Clone, Copy)]
pub struct ShareFetchSpec<'a> {
    pub member: &'a str,
    pub epoch: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub max_records: i32,
    pub acquire_mode: i8,
    pub is_renew: bool,
    pub topic: Uuid,
    pub partitions: &'a [(i32, Acks<'a>)],
    pub forgotten: &'a [i32],
}

impl Default for ShareFetchSpec<'_> {
    fn default() -> Self {
        Self {
            member: "m",
            epoch: 0,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            acquire_mode: 0,
            is_renew: false,
            topic: NAMED,
            partitions: &[(0, &[])],
            forgotten: &[],
        }
    }
}

/// A partition of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharePart {
    pub index: i32,
    pub error: i16,
    pub acknowledge_error: i16,
    pub leader: (i32, i32),
    pub records: Vec<u8>,
    /// First and last offset, and delivery count.
    pub acquired: Vec<(i64, i64, i16)>,
}

/// A response: its error and partitions.
pub type ShareAnswer = (i16, Vec<SharePart>);

fn write_topics(writer: &mut Writer, topic: Uuid, partitions: &[(i32, Acks<'_>)]) {
    writer.compact_array_len(usize::from(!partitions.is_empty()));
    if partitions.is_empty() {
        return;
    }
    writer.uuid(topic);
    writer.compact_array_len(partitions.len());
    for (index, acks) in partitions {
        writer.i32(*index);
        writer.compact_array_len(acks.len());
        for (first, last, types) in *acks {
            writer.i64(*first);
            writer.i64(*last);
            writer.compact_bytes(types);
            writer.no_tagged_fields();
        }
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
}

pub fn share_fetch(spec: &ShareFetchSpec<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_nullable_string(Some("g"));
    writer.compact_nullable_string(Some(spec.member));
    for number in [spec.epoch, spec.max_wait_ms, spec.min_bytes, spec.max_bytes, spec.max_records, 500] {
        writer.i32(number);
    }
    writer.i8(spec.acquire_mode);
    writer.bool(spec.is_renew);
    write_topics(&mut writer, spec.topic, spec.partitions);
    writer.compact_array_len(usize::from(!spec.forgotten.is_empty()));
    if !spec.forgotten.is_empty() {
        writer.uuid(spec.topic);
        writer.compact_array_len(spec.forgotten.len());
        spec.forgotten.iter().for_each(|index| writer.i32(*index));
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.into_bytes()
}

pub fn share_acknowledge(epoch: i32, is_renew: bool, partitions: &[(i32, Acks<'_>)]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.compact_nullable_string(Some("g"));
    writer.compact_nullable_string(Some("m"));
    writer.i32(epoch);
    writer.bool(is_renew);
    write_topics(&mut writer, NAMED, partitions);
    writer.no_tagged_fields();
    writer.into_bytes()
}

/// The response to a ShareFetch or, without `is_fetch`, to a ShareAcknowledge, v2.
pub fn share_answer(body: &[u8], is_fetch: bool) -> ShareAnswer {
    let mut reader = Reader::new(&body[1..]);
    assert_eq!(reader.i32(), Ok(0), "no throttle time");
    let error = reader.i16().expect("error");
    reader.compact_nullable_string().expect("message");
    reader.i32().expect("lock timeout");
    let mut parts = Vec::new();
    for _ in 0..reader.compact_array_len(1).expect("topics") {
        reader.uuid().expect("topic");
        for _ in 0..reader.compact_array_len(1).expect("partitions") {
            parts.push(part(&mut reader, is_fetch));
        }
        reader.skip_tagged_fields().expect("tags");
    }
    (error, parts)
}

fn part(reader: &mut Reader<'_>, is_fetch: bool) -> SharePart {
    let mut part = SharePart { index: reader.i32().expect("index"), ..SharePart::default() };
    part.error = reader.i16().expect("error");
    reader.compact_nullable_string().expect("message");
    if is_fetch {
        part.acknowledge_error = reader.i16().expect("error of acknowledgements");
        reader.compact_nullable_string().expect("message");
    }
    part.leader = (reader.i32().expect("leader"), reader.i32().expect("epoch"));
    reader.skip_tagged_fields().expect("tags");
    if is_fetch {
        part.records = reader.compact_bytes().expect("records").to_vec();
        for _ in 0..reader.compact_array_len(1).expect("acquired") {
            let range = (reader.i64().expect("first"), reader.i64().expect("last"), reader.i16().expect("count"));
            part.acquired.push(range);
            reader.skip_tagged_fields().expect("tags");
        }
    }
    reader.skip_tagged_fields().expect("tags");
    part
}

impl Client {
    pub fn share_fetch(&mut self, spec: ShareFetchSpec<'_>) -> ShareAnswer {
        share_answer(&self.call(SHARE_FETCH, 2, &share_fetch(&spec)), true)
    }

    pub fn send_share_fetch(&mut self, spec: ShareFetchSpec<'_>) {
        self.send(SHARE_FETCH, 2, 1, &share_fetch(&spec));
    }

    pub fn receive_share_fetch(&mut self) -> ShareAnswer {
        share_answer(&self.receive().1, true)
    }

    pub fn send_share_acknowledge(&mut self, epoch: i32, is_renew: bool, partitions: &[(i32, Acks<'_>)]) {
        self.send(SHARE_ACKNOWLEDGE, 2, 1, &share_acknowledge(epoch, is_renew, partitions));
    }

    pub fn receive_share_acknowledge(&mut self) -> ShareAnswer {
        share_answer(&self.receive().1, false)
    }
}

impl Fixture {
    /// With share groups, whose own configs are these.
    pub fn sharing<'c>(configs: &[(&'c str, &'c str)]) -> Self {
        let fixture = Self::new();
        let level = FeatureLevelRecord { name: "share.version", feature_level: 1 };
        let group = |&(name, value): &(&'c str, &'c str)| {
            Record::Config(ConfigRecord { resource_type: 32, resource_name: "g", name, value: Some(value) })
        };
        fixture.backend.apply([Record::FeatureLevel(level)].into_iter().chain(configs.iter().map(group)));
        fixture
    }

    /// The next call to the share coordinator.
    pub fn share_call(&self) -> Box<ShareStateCall> {
        match self.event() {
            Event::ShareState(call) => call,
            other => panic!("{other:?} where a call to the share coordinator was expected"),
        }
    }

    /// Answers the next call, which reads a state, with this start offset and these batches.
    pub fn answer_read(&self, start_offset: i64, batches: &[(i64, i64, i8, i16)]) {
        let call = self.share_call();
        let body = read_answer(&call, start_offset, batches);
        self.server.share_state_answered(call.request_id, ErrorCode::NONE, &body);
    }

    /// Answers the next call, which writes a state, with this error of the coordinator.
    pub fn answer_write(&self, code: ErrorCode) {
        let call = self.share_call();
        assert_eq!(call.api_key, WRITE_SHARE_GROUP_STATE);
        self.server.share_state_answered(call.request_id, ErrorCode::NONE, &write_answer(&call, code));
    }
}

/// The response to a call that reads a state: its start offset and batches.
pub fn read_answer(call: &ShareStateCall, start_offset: i64, batches: &[(i64, i64, i8, i16)]) -> Vec<u8> {
    let mut writer = Writer::new();
    begin_result(&mut writer, call, ErrorCode::NONE);
    writer.i32(1);
    writer.i64(start_offset);
    writer.compact_array_len(batches.len());
    for (first, last, state, count) in batches {
        writer.i64(*first);
        writer.i64(*last);
        writer.i8(*state);
        writer.i16(*count);
        writer.no_tagged_fields();
    }
    (0..3).for_each(|_| writer.no_tagged_fields());
    writer.into_bytes()
}

/// The response to a call that writes a state.
pub fn write_answer(call: &ShareStateCall, code: ErrorCode) -> Vec<u8> {
    let mut writer = Writer::new();
    begin_result(&mut writer, call, code);
    (0..3).for_each(|_| writer.no_tagged_fields());
    writer.into_bytes()
}

fn begin_result(writer: &mut Writer, call: &ShareStateCall, code: ErrorCode) {
    writer.compact_array_len(1);
    writer.uuid(call.topic);
    writer.compact_array_len(1);
    writer.i32(call.index);
    writer.i16(code.0);
    writer.compact_nullable_string(None);
}
