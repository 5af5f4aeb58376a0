//! ShareFetch v1-2: the request as arrays to iterate over, the response as bytes with gaps for slices of files.

use std::borrow::Cow;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::elements::Elements;
use super::share_request::{RENEW_VERSION, ShareTopic};
use super::topic::{NodeEndpoint, write_node_endpoint_array};
use super::versioned::{VersionedReader, VersionedWriter};

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct ShareFetchRequest<'a> {
    pub group_id: Option<Cow<'a, str>>,
    pub member_id: Option<Cow<'a, str>>,
    /// 0 opens a session, -1 closes it.
    pub session_epoch: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub max_records: i32,
    /// Offsets after which a range of acquired records may be cut.
    pub batch_size: i32,
    /// 0: whole log batches; 1: never more than `max_records`.
    pub acquire_mode: i8,
    /// The request renews locks, and fetches nothing.
    pub is_renew_ack: bool,
    pub topics: Elements<'a, ShareTopic<'a>>,
    pub forgotten: Elements<'a, ForgottenShareTopic<'a>>,
}

#[derive(Clone)]
pub struct ForgottenShareTopic<'a> {
    pub id: Uuid,
    pub partitions: Elements<'a, i32>,
}

impl<'a> ShareFetchRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, true);
        let (group_id, member_id) = (reader.nullable_string()?, reader.nullable_string()?);
        let session_epoch = reader.i32()?;
        let (max_wait_ms, min_bytes, max_bytes) = (reader.i32()?, reader.i32()?, reader.i32()?);
        let (max_records, batch_size) = (reader.i32()?, reader.i32()?);
        let has_mode = version >= RENEW_VERSION;
        let (acquire_mode, is_renew_ack) = if has_mode { (reader.i8()?, reader.bool()?) } else { (0, false) };
        let count = reader.array_len(18)?;
        let topics = Elements::check(&mut reader, version, count, ShareTopic::read)?;
        let count = reader.array_len(18)?;
        let forgotten = Elements::check(&mut reader, version, count, ForgottenShareTopic::read)?;
        reader.skip_tags()?;
        Ok(Self {
            group_id,
            member_id,
            session_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            max_records,
            batch_size,
            acquire_mode,
            is_renew_ack,
            topics,
            forgotten,
        })
    }

    /// Whether it acknowledges anything.
    pub fn has_acknowledgements(&self) -> bool {
        let mut partitions = self.topics.clone().flat_map(|topic| topic.partitions);
        partitions.any(|partition| partition.acknowledgements.len() > 0)
    }
}

impl<'a> ForgottenShareTopic<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let id = reader.uuid()?;
        let count = reader.array_len(4)?;
        let partitions = Elements::check(reader, version, count, |reader, _| reader.i32())?;
        reader.skip_tags()?;
        Ok(Self { id, partitions })
    }
}

/// Offsets that the member has acquired, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredOffsets {
    pub first: i64,
    pub last: i64,
    pub delivery_count: i16,
}

/// The response of one partition without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFetchResult {
    pub error: ErrorCode,
    pub message: Option<Cow<'static, str>>,
    pub acknowledge_error: ErrorCode,
    pub acknowledge_message: Option<Cow<'static, str>>,
    /// Leader id and epoch, sent with an error about leadership (KIP-951); zeros otherwise.
    pub current_leader: (i32, i32),
    pub records_len: usize,
    pub acquired: Vec<AcquiredOffsets>,
}

impl ShareFetchResult {
    /// A result without records.
    pub fn of(error: ErrorCode) -> Self {
        Self {
            error,
            message: None,
            acknowledge_error: ErrorCode::NONE,
            acknowledge_message: None,
            current_leader: (0, 0),
            records_len: 0,
            acquired: Vec::new(),
        }
    }
}

/// Writes a response from start to end, in this order: [`begin`], then for each topic [`begin_topic`], [`partition`]
/// and [`end_topic`], then [`end`]. Records are in the middle of a partition: after each [`partition`] the caller adds
/// `records_len` bytes, in the writer or separately, then calls [`end_partition`].
///
/// [`begin`]: ShareFetchResponseWriter::begin
/// [`begin_topic`]: ShareFetchResponseWriter::begin_topic
/// [`partition`]: ShareFetchResponseWriter::partition
/// [`end_partition`]: ShareFetchResponseWriter::end_partition
/// [`end_topic`]: ShareFetchResponseWriter::end_topic
/// [`end`]: ShareFetchResponseWriter::end
pub struct ShareFetchResponseWriter<'a> {
    out: VersionedWriter<'a>,
}

impl<'a> ShareFetchResponseWriter<'a> {
    pub fn begin(
        writer: &'a mut Writer,
        throttle_ms: i32,
        error: ErrorCode,
        message: Option<&str>,
        lock_timeout_ms: i32,
        topics: usize,
    ) -> Self {
        let mut out = VersionedWriter::new(writer, true);
        out.throttle_time(throttle_ms);
        out.error_code(error);
        out.nullable_string(message);
        out.i32(lock_timeout_ms);
        out.array_len(topics);
        Self { out }
    }

    pub fn begin_topic(&mut self, id: Uuid, partitions: usize) {
        self.out.uuid(id);
        self.out.array_len(partitions);
    }

    pub fn partition(&mut self, index: i32, result: &ShareFetchResult) {
        let out = &mut self.out;
        out.i32(index);
        out.error_code(result.error);
        out.nullable_string(result.message.as_deref());
        out.error_code(result.acknowledge_error);
        out.nullable_string(result.acknowledge_message.as_deref());
        out.i32(result.current_leader.0);
        out.i32(result.current_leader.1);
        out.no_tags();
        out.records_len(result.records_len);
    }

    /// Lets `fill` write a partition's records; `false` if it did not, and the records must come from elsewhere.
    pub fn try_records(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        self.out.writer.try_fill(len, fill)
    }

    /// Bytes written so far: the position where separate records belong.
    pub fn position(&self) -> usize {
        self.out.writer.len()
    }

    pub fn end_partition(&mut self, result: &ShareFetchResult) {
        let out = &mut self.out;
        out.array_len(result.acquired.len());
        for range in &result.acquired {
            out.i64(range.first);
            out.i64(range.last);
            out.i16(range.delivery_count);
            out.no_tags();
        }
        out.no_tags();
    }

    pub fn end_topic(&mut self) {
        self.out.no_tags();
    }

    pub fn end(mut self, endpoints: &[NodeEndpoint]) {
        write_node_endpoint_array(&mut self.out, endpoints);
        self.out.no_tags();
    }
}
