//! ListOffsets v1-11.

use std::borrow::Cow;

use klamm_base::ErrorCode;
use klamm_base::primitives::{WireError, Writer};

use super::api::{Api, LIST_OFFSETS};
use super::elements::Elements;
use super::versioned::{VersionedReader, VersionedWriter};

/// Special timestamps, each with the first version that supports it (`ListOffsetsRequest`).
pub const SPECIAL_TIMESTAMPS: [(i64, i16); 6] = [
    (LATEST, 0),
    (EARLIEST, 0),
    (MAX_TIMESTAMP, 7),
    (EARLIEST_LOCAL, 8),
    (LATEST_TIERED, 9),
    (EARLIEST_PENDING_UPLOAD, 11),
];
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;
pub const MAX_TIMESTAMP: i64 = -3;
pub const EARLIEST_LOCAL: i64 = -4;
pub const LATEST_TIERED: i64 = -5;
pub const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Replica id of a tool that queries any replica.
pub const DEBUGGING_REPLICA_ID: i32 = -2;
/// Replica id of a consumer.
pub const CONSUMER_REPLICA_ID: i32 = -1;

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct ListOffsetsRequest<'a> {
    pub replica_id: i32,
    pub isolation_level: i8,
    pub topics: Elements<'a, ListOffsetsTopic<'a>>,
    pub timeout_ms: i32,
}

#[derive(Clone)]
pub struct ListOffsetsTopic<'a> {
    pub name: Cow<'a, str>,
    pub partitions: Elements<'a, ListOffsetsPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartition {
    pub index: i32,
    /// -1: not known.
    pub current_leader_epoch: i32,
    pub timestamp: i64,
}

impl<'a> ListOffsetsRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(version));
        let replica_id = reader.i32()?;
        let isolation_level = if version >= 2 { reader.i8()? } else { 0 };
        let count = reader.array_len(3)?;
        let topics = Elements::check(&mut reader, version, count, ListOffsetsTopic::read)?;
        let timeout_ms = if version >= 10 { reader.i32()? } else { 0 };
        reader.skip_tags()?;
        Ok(Self { replica_id, isolation_level, topics, timeout_ms })
    }
}

impl<'a> ListOffsetsTopic<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let name = reader.string()?;
        let count = reader.array_len(12)?;
        let partitions = Elements::check(reader, version, count, ListOffsetsPartition::read)?;
        reader.skip_tags()?;
        Ok(Self { name, partitions })
    }
}

impl ListOffsetsPartition {
    fn read(reader: &mut VersionedReader<'_>, version: i16) -> Result<Self, WireError> {
        let partition = Self {
            index: reader.i32()?,
            current_leader_epoch: if version >= 4 { reader.i32()? } else { -1 },
            timestamp: reader.i64()?,
        };
        reader.skip_tags()?;
        Ok(partition)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsResult {
    pub error: ErrorCode,
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}

impl ListOffsetsResult {
    /// No offset: an error, or (with `NONE`) no matching record.
    pub fn none(error: ErrorCode) -> Self {
        Self { error, timestamp: -1, offset: -1, leader_epoch: -1 }
    }
}

/// Writes the response body; `find` returns the result for each partition of each topic, by name, in order.
pub fn write_response<'a, P: ExactSizeIterator<Item = ListOffsetsPartition>>(
    writer: &mut Writer,
    version: i16,
    topics: impl ExactSizeIterator<Item = (Cow<'a, str>, P)>,
    mut find: impl FnMut(&str, &ListOffsetsPartition) -> ListOffsetsResult,
) {
    let mut out = VersionedWriter::new(writer, is_flexible(version));
    if version >= 2 {
        out.throttle_time(0);
    }
    out.array_len(topics.len());
    for (name, partitions) in topics {
        out.string(&name);
        out.array_len(partitions.len());
        for partition in partitions {
            let result = find(&name, &partition);
            out.i32(partition.index);
            out.error_code(result.error);
            out.i64(result.timestamp);
            out.i64(result.offset);
            if version >= 4 {
                out.i32(result.leader_epoch);
            }
            out.no_tags();
        }
        out.no_tags();
    }
    out.no_tags();
}

fn is_flexible(version: i16) -> bool {
    Api::of(LIST_OFFSETS).is_some_and(|api| api.is_flexible(version))
}
