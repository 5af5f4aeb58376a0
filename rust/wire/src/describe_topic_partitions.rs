//! DescribeTopicPartitions v0: metadata with a cursor, and the ELR fields of KIP-966.

use std::borrow::Cow;

use klamm_base::ErrorCode;
use klamm_base::primitives::{Reader, WireError, Writer};

use super::elements::Elements;
use super::metadata::{PartitionState, TopicHead};
use super::versioned::{VersionedReader, VersionedWriter};

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct DescribeTopicPartitionsRequest<'a> {
    /// Empty: all topics.
    pub topics: Elements<'a, Cow<'a, str>>,
    pub response_partition_limit: i32,
    pub cursor: Option<Cursor<'a>>,
}

/// The first topic and partition that were not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor<'a> {
    pub topic: &'a str,
    pub partition: i32,
}

impl<'a> DescribeTopicPartitionsRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, true);
        let count = reader.array_len(2)?;
        let topics = Elements::check(&mut reader, version, count, |reader, _| {
            let name = reader.string()?;
            reader.skip_tags().map(|()| name)
        })?;
        let response_partition_limit = reader.i32()?;
        let cursor = Cursor::parse(&mut reader.reader)?;
        reader.skip_tags()?;
        Ok(Self { topics, response_partition_limit, cursor })
    }
}

impl<'a> Cursor<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Option<Self>, WireError> {
        if reader.i8()? < 0 {
            return Ok(None);
        }
        let cursor = Self { topic: reader.compact_string()?, partition: reader.i32()? };
        reader.skip_tagged_fields()?;
        Ok(Some(cursor))
    }
}

/// One topic of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedTopic<'a> {
    pub head: TopicHead<'a>,
    pub partitions: Vec<DescribedPartition>,
    pub authorized_operations: i32,
}

/// One partition of the response. It owns its lists: a response has at most a few thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedPartition {
    pub index: i32,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub eligible_leaders: Vec<i32>,
    pub last_known_eligible_leaders: Vec<i32>,
    pub offline: Vec<i32>,
}

impl DescribedPartition {
    /// A partition as in a Metadata response, with the two lists of KIP-966.
    pub fn new(state: &PartitionState<'_>, eligible_leaders: &[i32], last_known_eligible_leaders: &[i32]) -> Self {
        Self {
            index: state.index,
            leader_id: state.leader_id,
            leader_epoch: state.leader_epoch,
            replicas: state.replicas.to_vec(),
            isr: state.isr.to_vec(),
            eligible_leaders: eligible_leaders.to_vec(),
            last_known_eligible_leaders: last_known_eligible_leaders.to_vec(),
            offline: state.offline.to_vec(),
        }
    }
}

/// Writes the response body.
pub fn write_response(writer: &mut Writer, topics: &[DescribedTopic<'_>], next_cursor: Option<Cursor<'_>>) {
    let mut out = VersionedWriter::new(writer, true);
    out.throttle_time(0);
    out.array_len(topics.len());
    for topic in topics {
        write_topic(&mut out, topic);
    }
    match next_cursor {
        None => out.i8(-1),
        Some(cursor) => {
            out.i8(1);
            out.string(cursor.topic);
            out.i32(cursor.partition);
            out.no_tags();
        }
    }
    out.no_tags();
}

fn write_topic(out: &mut VersionedWriter<'_>, topic: &DescribedTopic<'_>) {
    out.error_code(topic.head.error);
    out.nullable_string(topic.head.name);
    out.uuid(topic.head.id);
    out.bool(topic.head.is_internal);
    out.array_len(topic.partitions.len());
    for partition in &topic.partitions {
        out.error_code(ErrorCode::NONE);
        out.i32(partition.index);
        out.i32(partition.leader_id);
        out.i32(partition.leader_epoch);
        out.i32_array(&partition.replicas);
        out.i32_array(&partition.isr);
        out.i32_array(&partition.eligible_leaders);
        out.i32_array(&partition.last_known_eligible_leaders);
        out.i32_array(&partition.offline);
        out.no_tags();
    }
    out.i32(topic.authorized_operations);
    out.no_tags();
}
