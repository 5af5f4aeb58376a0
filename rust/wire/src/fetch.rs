//! Fetch v4-18: the request as arrays to iterate over, the response as bytes with gaps for slices of files.

use std::borrow::Cow;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::api::{Api, FETCH};
use super::elements::Elements;
use super::topic::{NodeEndpoint, TopicRef, write_leader, write_node_endpoints};
use super::versioned::{VersionedReader, VersionedWriter};

/// From this version on, topics are identified by id (KIP-516).
pub const TOPIC_ID_VERSION: i16 = 13;

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct FetchRequest<'a> {
    /// -1: a consumer; below -1: a tool.
    pub replica_id: i32,
    /// -1: not set.
    pub replica_epoch: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation_level: i8,
    pub session_id: i32,
    pub session_epoch: i32,
    pub topics: Elements<'a, FetchTopic<'a>>,
    pub forgotten: Elements<'a, ForgottenTopic<'a>>,
    pub rack_id: Cow<'a, str>,
    /// Set by replicas of the quorum.
    pub cluster_id: Option<&'a str>,
}

#[derive(Clone)]
pub struct FetchTopic<'a> {
    pub topic: TopicRef<'a>,
    pub partitions: Elements<'a, FetchPartition>,
}

/// Epochs are -1 if they are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub index: i32,
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    /// Set by followers.
    pub log_start_offset: i64,
    pub max_bytes: i32,
    pub replica_directory: Uuid,
    /// The high watermark that a follower knows; `i64::MAX` if the version does not contain it (KIP-1166).
    pub high_watermark: i64,
}

#[derive(Clone)]
pub struct ForgottenTopic<'a> {
    pub topic: TopicRef<'a>,
    pub partitions: Elements<'a, i32>,
}

impl<'a> FetchRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(version));
        let replica_id = if version <= 14 { reader.i32()? } else { -1 };
        let (max_wait_ms, min_bytes, max_bytes) = (reader.i32()?, reader.i32()?, reader.i32()?);
        let isolation_level = reader.i8()?;
        let (session_id, session_epoch) = if version >= 7 { (reader.i32()?, reader.i32()?) } else { (0, -1) };
        let count = reader.array_len(3)?;
        let topics = Elements::check(&mut reader, version, count, FetchTopic::read)?;
        let count = if version >= 7 { reader.array_len(3)? } else { 0 };
        let forgotten = Elements::check(&mut reader, version, count, ForgottenTopic::read)?;
        let rack_id = if version >= 11 { reader.string()? } else { Cow::Borrowed("") };
        let mut request = Self {
            replica_id,
            replica_epoch: -1,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
            cluster_id: None,
        };
        request.read_tags(&mut reader, version)?;
        Ok(request)
    }

    fn read_tags(&mut self, reader: &mut VersionedReader<'a>, version: i16) -> Result<(), WireError> {
        reader.tags(|tag, field| match tag {
            0 => {
                self.cluster_id = field.compact_nullable_string()?;
                Ok(true)
            }
            1 if version >= 15 => {
                (self.replica_id, self.replica_epoch) = (field.i32()?, field.i64()?);
                field.skip_tagged_fields().map(|()| true)
            }
            _ => Ok(false),
        })
    }

    /// Whether the request comes from a follower.
    pub fn is_from_follower(&self) -> bool {
        self.replica_id >= 0
    }
}

impl<'a> FetchTopic<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let topic = TopicRef::read(reader, version >= TOPIC_ID_VERSION)?;
        let count = reader.array_len(16)?;
        let partitions = Elements::check(reader, version, count, FetchPartition::read)?;
        reader.skip_tags()?;
        Ok(Self { topic, partitions })
    }
}

impl<'a> ForgottenTopic<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let topic = TopicRef::read(reader, version >= TOPIC_ID_VERSION)?;
        let count = reader.array_len(4)?;
        let partitions = Elements::check(reader, version, count, |reader, _| reader.i32())?;
        reader.skip_tags()?;
        Ok(Self { topic, partitions })
    }
}

impl FetchPartition {
    fn read(reader: &mut VersionedReader<'_>, version: i16) -> Result<Self, WireError> {
        let mut partition = Self {
            index: reader.i32()?,
            current_leader_epoch: if version >= 9 { reader.i32()? } else { -1 },
            fetch_offset: reader.i64()?,
            last_fetched_epoch: if version >= 12 { reader.i32()? } else { -1 },
            log_start_offset: if version >= 5 { reader.i64()? } else { -1 },
            max_bytes: reader.i32()?,
            replica_directory: Uuid::ZERO,
            high_watermark: i64::MAX,
        };
        reader.tags(|tag, field| {
            match tag {
                0 if version >= 17 => partition.replica_directory = field.uuid()?,
                1 if version >= 18 => partition.high_watermark = field.i64()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(partition)
    }
}

/// The response of one partition without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResult {
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Producer id and first offset of each aborted transaction in the records; `None` unless read_committed.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// The epoch and its end offset at which the reader's log diverges.
    pub diverging: Option<(i32, i64)>,
    /// Leader id and epoch, sent with an error about leadership (KIP-951).
    pub current_leader: Option<(i32, i32)>,
    pub preferred_read_replica: i32,
    pub records_len: usize,
}

impl FetchResult {
    /// An error that was found before the partition was read.
    pub fn refused(error: ErrorCode) -> Self {
        Self {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: Some(Vec::new()),
            diverging: None,
            current_leader: None,
            preferred_read_replica: -1,
            records_len: 0,
        }
    }
}

/// Writes a response from start to end, in this order: [`begin`], then for each topic [`begin_topic`], [`partition`]
/// and [`end_topic`], then [`end`]. Records are between two partitions: after each [`partition`] the caller adds
/// `records_len` bytes, in the writer or separately, then calls [`end_partition`].
///
/// [`begin`]: FetchResponseWriter::begin
/// [`begin_topic`]: FetchResponseWriter::begin_topic
/// [`partition`]: FetchResponseWriter::partition
/// [`end_partition`]: FetchResponseWriter::end_partition
/// [`end_topic`]: FetchResponseWriter::end_topic
/// [`end`]: FetchResponseWriter::end
pub struct FetchResponseWriter<'a> {
    out: VersionedWriter<'a>,
    version: i16,
}

impl<'a> FetchResponseWriter<'a> {
    pub fn begin(writer: &'a mut Writer, version: i16, error: ErrorCode, session_id: i32, topics: usize) -> Self {
        Self::begin_throttled(writer, version, 0, error, session_id, topics)
    }

    fn begin_throttled(
        writer: &'a mut Writer,
        version: i16,
        throttle_ms: i32,
        error: ErrorCode,
        session_id: i32,
        topics: usize,
    ) -> Self {
        let mut out = VersionedWriter::new(writer, is_flexible(version));
        out.throttle_time(throttle_ms);
        if version >= 7 {
            out.error_code(error);
            out.i32(session_id);
        }
        out.array_len(topics);
        Self { out, version }
    }

    /// The whole response to a fetch that its client's quota does not allow now.
    pub fn throttled(writer: &'a mut Writer, version: i16, throttle_ms: i32, error: ErrorCode, session_id: i32) {
        Self::begin_throttled(writer, version, throttle_ms, error, session_id, 0).end(&[]);
    }

    pub fn begin_topic(&mut self, name: &str, id: Uuid, partitions: usize) {
        match self.version >= TOPIC_ID_VERSION {
            true => self.out.uuid(id),
            false => self.out.string(name),
        }
        self.out.array_len(partitions);
    }

    pub fn partition(&mut self, index: i32, result: &FetchResult) {
        let out = &mut self.out;
        out.i32(index);
        out.error_code(result.error);
        out.i64(result.high_watermark);
        out.i64(result.last_stable_offset);
        if self.version >= 5 {
            out.i64(result.log_start_offset);
        }
        out.nullable_array_len(result.aborted.as_ref().map(Vec::len));
        for (producer_id, first_offset) in result.aborted.iter().flatten() {
            out.i64(*producer_id);
            out.i64(*first_offset);
            out.no_tags();
        }
        if self.version >= 11 {
            out.i32(result.preferred_read_replica);
        }
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

    pub fn end_partition(&mut self, result: &FetchResult) {
        let known = self.version >= 12;
        let diverging = result.diverging.filter(|_| known);
        let leader = result.current_leader.filter(|_| known);
        if diverging.is_none() && leader.is_none() {
            return self.out.no_tags();
        }
        let writer = &mut *self.out.writer;
        writer.unsigned_varint(u32::from(diverging.is_some()) + u32::from(leader.is_some()));
        if let Some((epoch, end_offset)) = diverging {
            writer.tagged_field(0, |field| {
                field.i32(epoch);
                field.i64(end_offset);
                field.no_tagged_fields();
            });
        }
        if let Some(leader) = leader {
            writer.tagged_field(1, |field| write_leader(field, leader));
        }
    }

    pub fn end_topic(&mut self) {
        self.out.no_tags();
    }

    pub fn end(mut self, endpoints: &[NodeEndpoint]) {
        write_node_endpoints(&mut self.out, self.version >= 16, endpoints);
    }
}

fn is_flexible(version: i16) -> bool {
    Api::of(FETCH).is_some_and(|api| api.is_flexible(version))
}
