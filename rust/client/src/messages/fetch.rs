//! Fetch v4-17 of one partition, without a session.

use bytes::Bytes;
use klamm_base::primitives::WireError;
use klamm_base::{ErrorCode, Uuid};
use klamm_wire::api::FETCH;
use klamm_wire::fetch::TOPIC_ID_VERSION;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible};

pub struct FetchRequest<'a> {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub read_committed: bool,
    pub topic: &'a str,
    /// All zero if it is not known: then the topic's name is used.
    pub topic_id: Uuid,
    pub partition: i32,
    pub leader_epoch: i32,
    pub offset: i64,
    pub partition_max_bytes: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    pub error: ErrorCode,
    pub partitions: Vec<FetchedPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    pub index: i32,
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// -1 before v5.
    pub log_start_offset: i64,
    /// Producer id and first offset of each aborted transaction in the records.
    pub aborted: Vec<(i64, i64)>,
    /// A part of the response frame, not copied.
    pub records: Bytes,
}

impl Request for FetchRequest<'_> {
    const API: i16 = FETCH;
    const VERSION_MIN: i16 = 4;
    const VERSION_MAX: i16 = 17;
    type Answer = FetchAnswer;

    fn version_max(&self) -> i16 {
        if self.topic_id.is_zero() { TOPIC_ID_VERSION - 1 } else { Self::VERSION_MAX }
    }

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        if version <= 14 {
            out.i32(-1);
        }
        out.i32(self.max_wait_ms);
        out.i32(self.min_bytes);
        out.i32(self.max_bytes);
        out.i8(i8::from(self.read_committed));
        if version >= 7 {
            // Session 0 at epoch -1: no session (KIP-227).
            out.i32(0);
            out.i32(-1);
        }
        out.array_len(1);
        match version >= TOPIC_ID_VERSION {
            true => out.uuid(self.topic_id),
            false => out.string(self.topic),
        }
        out.array_len(1);
        self.write_partition(out, version);
        out.no_tags();
        if version >= 7 {
            out.array_len(0);
        }
        if version >= 11 {
            out.string("");
        }
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<FetchAnswer, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(FETCH, version));
        reader.i32()?;
        let mut error = ErrorCode::NONE;
        if version >= 7 {
            error = ErrorCode(reader.i16()?);
            reader.i32()?;
        }
        let mut partitions = Vec::new();
        for _ in 0..reader.array_len(3)? {
            match version >= TOPIC_ID_VERSION {
                true => drop(reader.uuid()?),
                false => drop(reader.string()?),
            }
            for _ in 0..reader.array_len(27)? {
                partitions.push(read_partition(&mut reader, body, version)?);
            }
            reader.skip_tags()?;
        }
        Ok(FetchAnswer { error, partitions })
    }
}

impl FetchRequest<'_> {
    fn write_partition(&self, out: &mut VersionedWriter<'_>, version: i16) {
        out.i32(self.partition);
        if version >= 9 {
            out.i32(self.leader_epoch);
        }
        out.i64(self.offset);
        if version >= 12 {
            out.i32(-1);
        }
        if version >= 5 {
            out.i64(-1);
        }
        out.i32(self.partition_max_bytes);
        out.no_tags();
    }
}

fn read_partition(reader: &mut VersionedReader<'_>, body: &Bytes, version: i16) -> Result<FetchedPartition, WireError> {
    let (index, error) = (reader.i32()?, ErrorCode(reader.i16()?));
    let (high_watermark, last_stable_offset) = (reader.i64()?, reader.i64()?);
    let log_start_offset = if version >= 5 { reader.i64()? } else { -1 };
    let aborted_count = reader.nullable_array_len(16)?.unwrap_or(0);
    let mut aborted = Vec::with_capacity(aborted_count);
    for _ in 0..aborted_count {
        aborted.push((reader.i64()?, reader.i64()?));
        reader.skip_tags()?;
    }
    if version >= 11 {
        reader.i32()?;
    }
    let len = reader.nullable_array_len(1)?.unwrap_or(0);
    let records = body.slice_ref(reader.reader.slice(len)?);
    reader.skip_tags()?;
    Ok(FetchedPartition { index, error, high_watermark, last_stable_offset, log_start_offset, aborted, records })
}
