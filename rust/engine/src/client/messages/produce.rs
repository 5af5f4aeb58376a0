//! Produce v3-12: one batch each for some partitions.

use std::sync::Arc;

use bytes::Bytes;

use super::{Request, is_flexible};
use crate::ErrorCode;
use crate::wire::api::PRODUCE;
use crate::wire::primitives::WireError;
use crate::wire::versioned::{VersionedReader, VersionedWriter};

/// From here on a transactional request enlists its partitions by itself (KIP-890), which this client does before.
const ENLISTING_VERSION: i16 = 12;

pub struct ProduceRequest<'a> {
    pub transactional_id: Option<&'a str>,
    pub timeout_ms: i32,
    /// Topic, partition, batch; those of a topic in one row.
    pub batches: &'a [(Arc<str>, i32, Bytes)],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducedPartition {
    pub topic: String,
    pub partition: i32,
    pub error: ErrorCode,
    pub base_offset: i64,
    /// The broker's own words, from v8 on.
    pub message: Option<String>,
}

impl Request for ProduceRequest<'_> {
    const API: i16 = PRODUCE;
    const VERSION_MIN: i16 = 3;
    const VERSION_MAX: i16 = 12;
    type Answer = Vec<ProducedPartition>;

    fn version_max(&self) -> i16 {
        if self.transactional_id.is_some() { ENLISTING_VERSION - 1 } else { Self::VERSION_MAX }
    }

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        out.nullable_string(self.transactional_id);
        out.i16(-1);
        out.i32(self.timeout_ms);
        let topics: Vec<_> = self.batches.chunk_by(|one, other| one.0 == other.0).collect();
        out.array_len(topics.len());
        for batches in topics {
            out.string(&batches[0].0);
            out.array_len(batches.len());
            for (_, partition, batch) in batches {
                out.i32(*partition);
                out.records_len(batch.len());
                out.writer.slice(batch);
                out.no_tags();
            }
            out.no_tags();
        }
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<Vec<ProducedPartition>, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(PRODUCE, version));
        let mut produced = Vec::new();
        for _ in 0..reader.array_len(3)? {
            let topic = reader.string()?.into_owned();
            for _ in 0..reader.array_len(22)? {
                produced.push(read_partition(&mut reader, &topic, version)?);
            }
            reader.skip_tags()?;
        }
        Ok(produced)
    }
}

fn read_partition(reader: &mut VersionedReader<'_>, topic: &str, version: i16) -> Result<ProducedPartition, WireError> {
    let (partition, error, base_offset) = (reader.i32()?, ErrorCode(reader.i16()?), reader.i64()?);
    reader.i64()?;
    if version >= 5 {
        reader.i64()?;
    }
    let mut message = None;
    if version >= 8 {
        for _ in 0..reader.nullable_array_len(5)?.unwrap_or(0) {
            reader.i32()?;
            let of_record = reader.nullable_string()?;
            message = message.or(of_record.map(|text| text.into_owned()));
            reader.skip_tags()?;
        }
        message = reader.nullable_string()?.map(|text| text.into_owned()).or(message);
    }
    reader.skip_tags()?;
    // The topic is said again for each of its partitions: not more often than the answer is long.
    Ok(ProducedPartition { topic: topic.to_owned(), partition, error, base_offset, message })
}
