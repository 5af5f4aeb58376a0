//! Metadata v0-13: written directly from the image, topic by topic.

use std::borrow::Cow;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::api::{Api, METADATA};
use super::elements::Elements;
use super::topic::NodeEndpoint;
use super::versioned::{VersionedReader, VersionedWriter};

/// From this version on, a topic may be requested by id; versions 10 and 11 have the field but must not use it.
pub const TOPIC_ID_VERSION: i16 = 12;

/// Authorized operations that were not requested.
pub const NOT_ASKED: i32 = i32::MIN;

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct MetadataRequest<'a> {
    /// `None`: all topics.
    pub topics: Option<Elements<'a, TopicQuery<'a>>>,
    pub allow_auto_topic_creation: bool,
    pub include_cluster_authorized_operations: bool,
    pub include_topic_authorized_operations: bool,
}

/// A topic by name, or by id if the name is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicQuery<'a> {
    /// Zero: requested by name.
    pub id: Uuid,
    pub name: Option<Cow<'a, str>>,
}

impl<'a> MetadataRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(version));
        let count = match version {
            0 => Some(reader.array_len(2)?).filter(|&count| count > 0),
            _ => reader.nullable_array_len(2)?,
        };
        let topics = count.map(|count| Elements::check(&mut reader, version, count, TopicQuery::read)).transpose()?;
        let allow_auto_topic_creation = if version >= 4 { reader.bool()? } else { true };
        let include_cluster_authorized_operations = (8..=10).contains(&version) && reader.bool()?;
        let include_topic_authorized_operations = version >= 8 && reader.bool()?;
        reader.skip_tags()?;
        Ok(Self {
            topics,
            allow_auto_topic_creation,
            include_cluster_authorized_operations,
            include_topic_authorized_operations,
        })
    }
}

impl<'a> TopicQuery<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let id = if version >= 10 { reader.uuid()? } else { Uuid::ZERO };
        let name = if version >= 10 { reader.nullable_string()? } else { Some(reader.string()?) };
        reader.skip_tags()?;
        Ok(Self { id, name })
    }
}

/// One topic of the response, without its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicHead<'a> {
    pub error: ErrorCode,
    /// `None` only for an unknown id.
    pub name: Option<&'a str>,
    pub id: Uuid,
    pub is_internal: bool,
    pub partition_count: usize,
}

/// One partition of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionState<'a> {
    pub error: ErrorCode,
    pub index: i32,
    /// -1: no leader that the client can reach.
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replicas: &'a [i32],
    pub isr: &'a [i32],
    pub offline: &'a [i32],
}

/// Writes a response from start to end: [`begin`], then for each topic [`begin_topic`], [`partition`] as often as
/// announced and [`end_topic`], then [`end`].
///
/// [`begin`]: MetadataResponseWriter::begin
/// [`begin_topic`]: MetadataResponseWriter::begin_topic
/// [`partition`]: MetadataResponseWriter::partition
/// [`end_topic`]: MetadataResponseWriter::end_topic
/// [`end`]: MetadataResponseWriter::end
pub struct MetadataResponseWriter<'a> {
    out: VersionedWriter<'a>,
    version: i16,
}

impl<'a> MetadataResponseWriter<'a> {
    pub fn begin(
        writer: &'a mut Writer,
        version: i16,
        brokers: &[NodeEndpoint],
        cluster_id: Option<&str>,
        controller_id: i32,
        topics: usize,
    ) -> Self {
        let mut out = VersionedWriter::new(writer, is_flexible(version));
        if version >= 3 {
            out.throttle_time(0);
        }
        out.array_len(brokers.len());
        for broker in brokers {
            out.i32(broker.node_id);
            out.string(&broker.host);
            out.i32(broker.port);
            if version >= 1 {
                out.nullable_string(broker.rack.as_deref());
            }
            out.no_tags();
        }
        if version >= 2 {
            out.nullable_string(cluster_id);
        }
        if version >= 1 {
            out.i32(controller_id);
        }
        out.array_len(topics);
        Self { out, version }
    }

    pub fn begin_topic(&mut self, topic: &TopicHead<'_>) {
        let out = &mut self.out;
        out.error_code(topic.error);
        match self.version >= TOPIC_ID_VERSION {
            true => out.nullable_string(topic.name),
            false => out.string(topic.name.unwrap_or("")),
        }
        if self.version >= 10 {
            out.uuid(topic.id);
        }
        if self.version >= 1 {
            out.bool(topic.is_internal);
        }
        out.array_len(topic.partition_count);
    }

    pub fn partition(&mut self, partition: &PartitionState<'_>) {
        let out = &mut self.out;
        out.error_code(partition.error);
        out.i32(partition.index);
        out.i32(partition.leader_id);
        if self.version >= 7 {
            out.i32(partition.leader_epoch);
        }
        out.i32_array(partition.replicas);
        out.i32_array(partition.isr);
        if self.version >= 5 {
            out.i32_array(partition.offline);
        }
        out.no_tags();
    }

    pub fn end_topic(&mut self, authorized_operations: i32) {
        if self.version >= 8 {
            self.out.i32(authorized_operations);
        }
        self.out.no_tags();
    }

    pub fn end(mut self, cluster_authorized_operations: i32, error: ErrorCode) {
        if (8..=10).contains(&self.version) {
            self.out.i32(cluster_authorized_operations);
        }
        if self.version >= 13 {
            self.out.error_code(error);
        }
        self.out.no_tags();
    }
}

fn is_flexible(version: i16) -> bool {
    Api::of(METADATA).is_some_and(|api| api.is_flexible(version))
}
