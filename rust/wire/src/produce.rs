//! Produce v3-13: the request as ranges of its frame, the response written partition by partition.
//!
//! Nothing is copied out of a request: batches are validated and modified in place. Therefore the request is not
//! borrowed during iteration: [`ProduceWalk`] stores a position and receives the body again for every step.

use std::borrow::Cow;
use std::ops::Range;

use klamm_base::ErrorCode;
use klamm_base::primitives::{WireError, Writer};

use super::api::{Api, PRODUCE};
use super::topic::{NodeEndpoint, TopicRef, write_leader, write_node_endpoints};
use super::versioned::{VersionedReader, VersionedWriter};

/// From this version on, topics are identified by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// First version that contains the current leader (KIP-951).
const LEADER_VERSION: i16 = 10;

/// Room for the name and the end of a topic, and for a partition without an error, in any version.
const TOPIC_BYTES: usize = 64;
const PARTITION_BYTES: usize = 40;

/// A request that was parsed once to validate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    pub is_with_transactional_id: bool,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topic_count: usize,
    /// The number of partitions of all topics.
    pub partition_count: usize,
    /// Whether each topic has partitions, in ascending order.
    pub has_ascending_partitions: bool,
    version: i16,
    is_flexible: bool,
    /// The position of the first topic in the body.
    topics_at: usize,
}

/// The next item of a request: a topic with this many partitions, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProduceItem<'a> {
    Topic {
        topic: TopicRef<'a>,
        partition_count: usize,
    },
    /// `records` is the range of the batches in the body; `None` for null.
    Partition {
        index: i32,
        records: Option<Range<usize>>,
    },
    /// The end of a topic, after its last partition.
    TopicEnd,
}

impl ProduceRequest {
    /// Parses all of `body` except the batches themselves.
    pub fn parse(body: &[u8], version: i16) -> Result<Self, WireError> {
        let is_flexible = is_flexible(version);
        let mut reader = VersionedReader::new(body, is_flexible);
        let is_with_transactional_id = reader.nullable_string()?.is_some();
        let (acks, timeout_ms) = (reader.i16()?, reader.i32()?);
        let topic_count = reader.array_len(3)?;
        let topics_at = reader.position_in(body);
        let (mut partition_count, mut has_ascending_partitions) = (0, true);
        for _ in 0..topic_count {
            TopicRef::read(&mut reader, version >= TOPIC_ID_VERSION)?;
            let count = reader.array_len(5)?;
            let mut before = i64::MIN;
            for _ in 0..count {
                let index = i64::from(read_partition(&mut reader)?.0);
                has_ascending_partitions &= index > before;
                before = index;
            }
            reader.skip_tags()?;
            has_ascending_partitions &= count > 0;
            partition_count += count;
        }
        reader.skip_tags()?;
        Ok(Self {
            is_with_transactional_id,
            acks,
            timeout_ms,
            topic_count,
            partition_count,
            has_ascending_partitions,
            version,
            is_flexible,
            topics_at,
        })
    }

    /// The transactional id in the request's body.
    pub fn transactional_id<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        let mut reader = VersionedReader::new(body, self.is_flexible);
        reader.nullable_string().expect("checked when the request was read")
    }

    /// Iterates over topics and partitions.
    pub fn walk(&self) -> ProduceWalk {
        let Self { version, is_flexible, topic_count, topics_at, .. } = *self;
        ProduceWalk { version, is_flexible, position: topics_at, topics_left: topic_count, partitions_left: None }
    }
}

/// Index and records.
#[inline]
fn read_partition<'a>(reader: &mut VersionedReader<'a>) -> Result<(i32, Option<&'a [u8]>), WireError> {
    let partition = (reader.i32()?, reader.nullable_bytes()?);
    reader.skip_tags()?;
    Ok(partition)
}

/// A position in a request. Only the batches of the body may change between two steps.
pub struct ProduceWalk {
    version: i16,
    is_flexible: bool,
    position: usize,
    topics_left: usize,
    /// The number of remaining partitions of the current topic.
    partitions_left: Option<usize>,
}

impl ProduceWalk {
    /// The next item; `None` after the last topic.
    pub fn next<'a>(&mut self, body: &'a [u8]) -> Option<ProduceItem<'a>> {
        let mut reader = VersionedReader::new(&body[self.position..], self.is_flexible);
        let item = self.read(&mut reader, body).expect("checked when the request was read");
        self.position = reader.position_in(body);
        item
    }

    fn read<'a>(
        &mut self,
        reader: &mut VersionedReader<'a>,
        body: &'a [u8],
    ) -> Result<Option<ProduceItem<'a>>, WireError> {
        Ok(match &mut self.partitions_left {
            None if self.topics_left == 0 => None,
            None => {
                let topic = TopicRef::read(reader, self.version >= TOPIC_ID_VERSION)?;
                let partition_count = reader.array_len(5)?;
                self.topics_left -= 1;
                self.partitions_left = Some(partition_count);
                Some(ProduceItem::Topic { topic, partition_count })
            }
            Some(0) => {
                reader.skip_tags()?;
                self.partitions_left = None;
                Some(ProduceItem::TopicEnd)
            }
            Some(left) => {
                *left -= 1;
                let index = reader.i32()?;
                let len = reader.nullable_bytes()?.map(<[u8]>::len);
                let end = reader.position_in(body);
                reader.skip_tags()?;
                Some(ProduceItem::Partition { index, records: len.map(|len| end - len..end) })
            }
        })
    }
}

/// The result for one partition's batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceResult {
    pub error: ErrorCode,
    pub base_offset: i64,
    /// -1 unless the topic uses append time.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// Index in the batch and reason for each invalid record (KIP-467).
    pub record_errors: Vec<(i32, Option<String>)>,
    pub message: Option<String>,
    /// Leader id and epoch, sent with NOT_LEADER_OR_FOLLOWER (KIP-951).
    pub current_leader: Option<(i32, i32)>,
}

impl ProduceResult {
    /// Nothing was appended.
    pub fn refused(error: ErrorCode) -> Self {
        Self {
            error,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            message: None,
            current_leader: None,
        }
    }
}

/// Writes a response along an iteration over its request: [`begin`], then for each topic [`begin_topic`],
/// [`partition`] as often as announced and [`end_topic`], then [`end`].
///
/// [`begin`]: ProduceResponseWriter::begin
/// [`begin_topic`]: ProduceResponseWriter::begin_topic
/// [`partition`]: ProduceResponseWriter::partition
/// [`end_topic`]: ProduceResponseWriter::end_topic
/// [`end`]: ProduceResponseWriter::end
pub struct ProduceResponseWriter<'a> {
    out: VersionedWriter<'a>,
    version: i16,
}

impl<'a> ProduceResponseWriter<'a> {
    pub fn begin(writer: &'a mut Writer, version: i16, topics: usize) -> Self {
        let mut out = VersionedWriter::new(writer, is_flexible(version));
        out.array_len(topics);
        Self { out, version }
    }

    pub fn begin_topic(&mut self, topic: &TopicRef<'_>, partitions: usize) {
        self.out.writer.reserve(TOPIC_BYTES + partitions * PARTITION_BYTES);
        topic.write(&mut self.out);
        self.out.array_len(partitions);
    }

    /// Returns the position of the error code in the writer, so that an error that is known later can be stored
    /// there.
    pub fn partition(&mut self, index: i32, result: &ProduceResult) -> usize {
        let out = &mut self.out;
        out.i32(index);
        let code_position = out.writer.len();
        out.error_code(result.error);
        let offsets = [
            result.base_offset.to_be_bytes(),
            result.log_append_time_ms.to_be_bytes(),
            result.log_start_offset.to_be_bytes(),
        ];
        out.writer.slice(if self.version >= 5 { offsets.as_flattened() } else { offsets[..2].as_flattened() });
        if self.version >= 8 {
            write_record_errors(out, result);
        }
        match result.current_leader {
            Some(leader) if self.version >= LEADER_VERSION => {
                out.writer.unsigned_varint(1);
                out.writer.tagged_field(0, |field| write_leader(field, leader));
            }
            _ => out.no_tags(),
        }
        code_position
    }

    pub fn end_topic(&mut self) {
        self.out.no_tags();
    }

    pub fn end(mut self, throttle_ms: i32, endpoints: &[NodeEndpoint]) {
        self.out.throttle_time(throttle_ms);
        write_node_endpoints(&mut self.out, self.version >= LEADER_VERSION, endpoints);
    }
}

fn write_record_errors(out: &mut VersionedWriter<'_>, result: &ProduceResult) {
    out.array_len(result.record_errors.len());
    for (index, message) in &result.record_errors {
        out.i32(*index);
        out.nullable_string(message.as_deref());
        out.no_tags();
    }
    out.nullable_string(result.message.as_deref());
}

fn is_flexible(version: i16) -> bool {
    Api::of(PRODUCE).is_some_and(|api| api.is_flexible(version))
}
