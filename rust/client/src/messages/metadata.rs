//! Metadata v4-13: brokers and the leaders of partitions.

use bytes::Bytes;
use klamm_base::primitives::WireError;
use klamm_base::{ErrorCode, Uuid};
use klamm_wire::api::METADATA;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible};

/// Requests some topics, or all. Does not create topics.
pub struct MetadataRequest<'a> {
    pub topics: Option<&'a [&'a str]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataAnswer {
    pub error: ErrorCodeOrNone,
    pub brokers: Vec<BrokerAddress>,
    pub cluster_id: Option<String>,
    pub topics: Vec<TopicMetadata>,
}

/// The response's top-level error, from v13 on.
pub type ErrorCodeOrNone = Option<ErrorCode>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    pub id: i32,
    pub host: String,
    pub port: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    pub error: ErrorCode,
    pub name: String,
    /// All zero before v10.
    pub id: Uuid,
    pub is_internal: bool,
    pub partitions: Vec<PartitionMetadata>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    pub error: ErrorCode,
    pub index: i32,
    /// -1: there is no leader.
    pub leader: i32,
    /// -1 before v7.
    pub leader_epoch: i32,
}

impl Request for MetadataRequest<'_> {
    const API: i16 = METADATA;
    const VERSION_MIN: i16 = 4;
    const VERSION_MAX: i16 = 13;
    type Answer = MetadataAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        out.nullable_array_len(self.topics.map(<[_]>::len));
        for topic in self.topics.unwrap_or_default() {
            if version >= 10 {
                out.uuid(Uuid::ZERO);
                out.nullable_string(Some(topic));
            } else {
                out.string(topic);
            }
            out.no_tags();
        }
        out.bool(false);
        if (8..=10).contains(&version) {
            out.bool(false);
        }
        if version >= 8 {
            out.bool(false);
        }
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<MetadataAnswer, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(METADATA, version));
        reader.i32()?;
        let brokers = reader.array(11, read_broker)?;
        let cluster_id = reader.nullable_string()?.map(|id| id.into_owned());
        reader.i32()?;
        let topics = reader.array(8, |reader| read_topic(reader, version))?;
        if (8..=10).contains(&version) {
            reader.i32()?;
        }
        let error = if version >= 13 { Some(ErrorCode(reader.i16()?)).filter(|code| code.is_error()) } else { None };
        Ok(MetadataAnswer { error, brokers, cluster_id, topics })
    }
}

fn read_broker(reader: &mut VersionedReader<'_>) -> Result<BrokerAddress, WireError> {
    let id = reader.i32()?;
    let host = reader.string()?.into_owned();
    let port = reader.i32()?;
    reader.nullable_string()?;
    reader.skip_tags()?;
    Ok(BrokerAddress { id, host, port })
}

fn read_topic(reader: &mut VersionedReader<'_>, version: i16) -> Result<TopicMetadata, WireError> {
    let error = ErrorCode(reader.i16()?);
    let name = reader.nullable_string()?.unwrap_or_default().into_owned();
    let id = if version >= 10 { reader.uuid()? } else { Uuid::ZERO };
    let is_internal = reader.bool()?;
    let partitions = reader.array(13, |reader| read_partition(reader, version))?;
    if version >= 8 {
        reader.i32()?;
    }
    reader.skip_tags()?;
    Ok(TopicMetadata { error, name, id, is_internal, partitions })
}

fn read_partition(reader: &mut VersionedReader<'_>, version: i16) -> Result<PartitionMetadata, WireError> {
    let error = ErrorCode(reader.i16()?);
    let (index, leader) = (reader.i32()?, reader.i32()?);
    let leader_epoch = if version >= 7 { reader.i32()? } else { -1 };
    let lists_of_replicas = if version >= 5 { 3 } else { 2 };
    for _ in 0..lists_of_replicas {
        for _ in 0..reader.array_len(4)? {
            reader.i32()?;
        }
    }
    reader.skip_tags()?;
    Ok(PartitionMetadata { error, index, leader, leader_epoch })
}
