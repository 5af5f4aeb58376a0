//! OffsetForLeaderEpoch v2-4.

use std::borrow::Cow;

use klamm_base::ErrorCode;
use klamm_base::primitives::{WireError, Writer};

use super::api::{Api, OFFSET_FOR_LEADER_EPOCH};
use super::elements::Elements;
use super::versioned::{VersionedReader, VersionedWriter};

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct OffsetForLeaderEpochRequest<'a> {
    /// -2 if the version does not contain it.
    pub replica_id: i32,
    pub topics: Elements<'a, EpochTopic<'a>>,
}

#[derive(Clone)]
pub struct EpochTopic<'a> {
    pub name: Cow<'a, str>,
    pub partitions: Elements<'a, EpochPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPartition {
    pub index: i32,
    /// -1: not known.
    pub current_leader_epoch: i32,
    /// The requested epoch.
    pub leader_epoch: i32,
}

impl<'a> OffsetForLeaderEpochRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(version));
        let replica_id = if version >= 3 { reader.i32()? } else { -2 };
        let count = reader.array_len(3)?;
        let topics = Elements::check(&mut reader, version, count, EpochTopic::read)?;
        reader.skip_tags()?;
        Ok(Self { replica_id, topics })
    }
}

impl<'a> EpochTopic<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let name = reader.string()?;
        let count = reader.array_len(12)?;
        let partitions = Elements::check(reader, version, count, |reader, _| EpochPartition::read(reader))?;
        reader.skip_tags()?;
        Ok(Self { name, partitions })
    }
}

impl EpochPartition {
    fn read(reader: &mut VersionedReader<'_>) -> Result<Self, WireError> {
        let partition = Self { index: reader.i32()?, current_leader_epoch: reader.i32()?, leader_epoch: reader.i32()? };
        reader.skip_tags()?;
        Ok(partition)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochResult {
    pub error: ErrorCode,
    /// Both -1 if there is no such epoch.
    pub leader_epoch: i32,
    pub end_offset: i64,
}

/// Writes the response body; `find` returns the result for each partition of each topic, by name, in order.
pub fn write_response(
    writer: &mut Writer,
    version: i16,
    request: &OffsetForLeaderEpochRequest<'_>,
    mut find: impl FnMut(&str, &EpochPartition) -> EpochResult,
) {
    let mut out = VersionedWriter::new(writer, is_flexible(version));
    out.throttle_time(0);
    out.array_len(request.topics.len());
    for topic in request.topics.clone() {
        out.string(&topic.name);
        out.array_len(topic.partitions.len());
        for partition in topic.partitions {
            let result = find(&topic.name, &partition);
            out.error_code(result.error);
            out.i32(partition.index);
            out.i32(result.leader_epoch);
            out.i64(result.end_offset);
            out.no_tags();
        }
        out.no_tags();
    }
    out.no_tags();
}

fn is_flexible(version: i16) -> bool {
    Api::of(OFFSET_FOR_LEADER_EPOCH).is_some_and(|api| api.is_flexible(version))
}
