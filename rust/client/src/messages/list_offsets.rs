//! ListOffsets v1-8: the offset for a timestamp, or of an end of the log.

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::api::LIST_OFFSETS;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible, read_by_topic};

/// Special timestamp: after the last record, or the last stable offset with read_committed.
pub const LATEST: i64 = -1;
/// Special timestamp: the first available record.
pub const EARLIEST: i64 = -2;
/// Special timestamp: the record with the largest timestamp (KIP-734, v7).
pub const MAX_TIMESTAMP: i64 = -3;

/// Special timestamp: the first record on the leader's own disks (KIP-405, v8).
pub const EARLIEST_LOCAL: i64 = -4;

/// Queries a broker for partitions of one topic that it leads.
pub struct ListOffsetsRequest<'a> {
    /// -1: a consumer, which sees committed records only.
    pub replica_id: i32,
    pub read_committed: bool,
    pub topic: &'a str,
    pub partitions: &'a [OffsetQuery],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    pub partition: i32,
    pub leader_epoch: i32,
    pub timestamp: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    pub partition: i32,
    pub error: ErrorCode,
    /// -1: there is no such record.
    pub offset: i64,
    pub timestamp: i64,
}

impl Request for ListOffsetsRequest<'_> {
    const API: i16 = LIST_OFFSETS;
    const VERSION_MIN: i16 = 1;
    const VERSION_MAX: i16 = 8;
    type Answer = Vec<FoundOffset>;

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        out.i32(self.replica_id);
        if version >= 2 {
            out.i8(i8::from(self.read_committed));
        }
        out.array_len(1);
        out.string(self.topic);
        out.array_len(self.partitions.len());
        for query in self.partitions {
            out.i32(query.partition);
            if version >= 4 {
                out.i32(query.leader_epoch);
            }
            out.i64(query.timestamp);
            out.no_tags();
        }
        out.no_tags();
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<Vec<FoundOffset>, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(LIST_OFFSETS, version));
        if version >= 2 {
            reader.i32()?;
        }
        let mut found = Vec::new();
        read_by_topic(&mut reader, 22, |reader, _topic| {
            found.push(read_partition(reader, version)?);
            Ok(())
        })?;
        Ok(found)
    }
}

fn read_partition(reader: &mut VersionedReader<'_>, version: i16) -> Result<FoundOffset, WireError> {
    let (partition, error) = (reader.i32()?, ErrorCode(reader.i16()?));
    let (timestamp, offset) = (reader.i64()?, reader.i64()?);
    if version >= 4 {
        reader.i32()?;
    }
    Ok(FoundOffset { partition, error, offset, timestamp })
}
