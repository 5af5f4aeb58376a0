//! Which answers are plain: valid ones, changed ones and truncated ones. The thread is tested from Python, together
//! with the codec.

use klamm_base::primitives::Writer;
use klamm_records::{BatchBuilder, BatchFields, Compression};
use klamm_wire::fetch::FetchRequest;
use proptest::prelude::*;

use super::answer::{Expected, Plain, plain};
use super::request::{Position, fetch_body};
use super::*;
use crate::METADATA_TOPIC_ID;

const LEADER: Expected = Expected { leader_id: 2, epoch: 7 };

fn batch(control: bool, epoch: i32) -> Vec<u8> {
    let fields = BatchFields { control, ..BatchFields::default() };
    let mut builder = BatchBuilder::new(fields, Compression::NONE);
    builder.append(0, Some(&[0, 0, 0, 2]), Some(b"value"), &[]).expect("small");
    let mut batch = builder.finish().expect("small");
    klamm_records::header::set_position(&mut batch, 5, epoch);
    batch
}

struct Answer {
    error: i16,
    topic: Uuid,
    partition: i32,
    partition_error: i16,
    diverging: Option<(i32, i64)>,
    leader: Option<(i32, i32)>,
    snapshot: Option<(i64, i32)>,
    records: Option<Vec<u8>>,
}

impl Default for Answer {
    fn default() -> Self {
        let records = Some(batch(false, 7));
        let (diverging, leader, snapshot) = (None, Some((2, 7)), None);
        let topic = METADATA_TOPIC_ID;
        Self { error: 0, topic, partition: 0, partition_error: 0, diverging, leader, snapshot, records }
    }
}

impl Answer {
    fn body(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.i32(0);
        out.i16(self.error);
        out.i32(0);
        out.compact_array_len(1);
        out.uuid(self.topic);
        out.compact_array_len(1);
        out.i32(self.partition);
        out.i16(self.partition_error);
        [9, -1, 0].into_iter().for_each(|offset| out.i64(offset));
        out.compact_nullable_array_len(None);
        out.i32(-1);
        out.compact_nullable_bytes(self.records.as_deref());
        let tags = [self.diverging.is_some(), self.leader.is_some(), self.snapshot.is_some()];
        out.unsigned_varint(tags.into_iter().map(u32::from).sum());
        if let Some((epoch, end_offset)) = self.diverging {
            out.tagged_field(0, |field| (field.i32(epoch), field.i64(end_offset), field.no_tagged_fields()).2);
        }
        if let Some((id, epoch)) = self.leader {
            out.tagged_field(1, |field| (field.i32(id), field.i32(epoch), field.no_tagged_fields()).2);
        }
        if let Some((end_offset, epoch)) = self.snapshot {
            out.tagged_field(2, |field| (field.i64(end_offset), field.i32(epoch), field.no_tagged_fields()).2);
        }
        out.no_tagged_fields();
        out.no_tagged_fields();
        out.into_bytes()
    }
}

fn plan(version: i16) -> FetchPlan {
    FetchPlan {
        host: "localhost".to_owned(),
        port: 1,
        version,
        client_id: "me".to_owned(),
        cluster_id: Some("cluster".to_owned()),
        replica_id: 3,
        directory_id: Uuid([7; 16]),
        epoch: 7,
        leader_id: 2,
        high_watermark: 4,
        max_wait_ms: 500,
        max_bytes: 1 << 20,
        timeout_ms: 1000,
        flushes: true,
        conditions: None,
    }
}

#[test]
fn plain_answers_contain_the_range_of_their_records() {
    let sent = Answer::default();
    let body = sent.body();
    let found = plain(&body, LEADER).expect("plain");
    assert_eq!((found.high_watermark, Some(&body[found.records])), (9, sent.records.as_deref()));
    let no_leader = Answer { leader: Some((-1, -1)), ..Answer::default() };
    let absent = Answer { leader: None, diverging: Some((-1, -1)), snapshot: Some((-1, -1)), ..Answer::default() };
    for answer in [no_leader, absent] {
        assert!(plain(&answer.body(), LEADER).is_some());
    }
    for records in [None, Some(Vec::new())] {
        let empty = Answer { records, ..Answer::default() };
        assert!(matches!(plain(&empty.body(), LEADER), Some(Plain { records, .. }) if records.is_empty()));
    }
}

#[test]
fn an_answer_that_needs_a_decision_is_not_plain() {
    let two = [batch(false, 7), batch(true, 7)].concat();
    let cut = batch(false, 7)[..40].to_vec();
    let answers = [
        Answer { error: 104, ..Answer::default() },
        Answer { topic: Uuid::LOST, ..Answer::default() },
        Answer { partition: 1, ..Answer::default() },
        Answer { partition_error: 74, ..Answer::default() },
        Answer { diverging: Some((6, 3)), ..Answer::default() },
        Answer { leader: Some((1, 7)), ..Answer::default() },
        Answer { leader: Some((2, 8)), ..Answer::default() },
        Answer { leader: Some((-1, 7)), ..Answer::default() },
        Answer { snapshot: Some((3, 6)), ..Answer::default() },
        Answer { records: Some(two), ..Answer::default() },
        Answer { records: Some(cut), ..Answer::default() },
        Answer { records: Some(batch(false, 8)), ..Answer::default() },
    ];
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(plain(&answer.body(), LEADER), None, "answer {at}");
    }
    let body = Answer::default().body();
    assert!((0..body.len()).all(|len| plain(&body[..len], LEADER).is_none()));
    assert_eq!(plain(&[&body[..], b"\0"].concat(), LEADER), None);
}

#[test]
fn requests_contain_the_current_state() {
    for version in [17, 18] {
        let at = Position { end_offset: 11, last_epoch: 6, high_watermark: 10 };
        let body = fetch_body(&plan(version), at);
        let request = FetchRequest::parse(&body, version).expect("a fetch");
        assert_eq!((request.replica_id, request.max_wait_ms, request.max_bytes), (3, 500, 1 << 20));
        let partition = request.topics.flat_map(|topic| topic.partitions).next().expect("one");
        assert_eq!((partition.fetch_offset, partition.last_fetched_epoch), (11, 6));
        assert_eq!((partition.current_leader_epoch, partition.replica_directory), (7, Uuid([7; 16])));
        assert_eq!(partition.high_watermark, if version == 18 { 10 } else { i64::MAX });
    }
}

#[test]
fn invalid_plans_are_rejected() {
    let long = FetchPlan { client_id: "x".repeat(40_000), ..plan(18) };
    let hurried = FetchPlan { timeout_ms: 0, ..plan(18) };
    assert!([plan(16), plan(19), long, hurried].iter().all(|plan| plan.fault().is_some()));
    assert_eq!(plan(17).fault(), None);
}

proptest! {
    #[test]
    fn changed_and_truncated_answers_are_classified(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        len in any::<prop::sample::Index>(),
    ) {
        let mut body = Answer { diverging: Some((-1, -1)), ..Answer::default() }.body();
        for (at, value) in changes {
            let at = at.index(body.len());
            body[at] = value;
        }
        let cut = &body[..len.index(body.len() + 1)];
        for bytes in [&body[..], cut] {
            if let Some(found) = plain(bytes, LEADER) {
                prop_assert!(found.records.start <= found.records.end && found.records.end <= bytes.len());
            }
        }
    }

    #[test]
    fn any_bytes_are_classified(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        plain(&bytes, LEADER);
    }
}
