//! Produce v3-12: one batch each for some partitions.

use std::sync::Arc;

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::api::PRODUCE;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible, read_by_topic, write_by_topic};

/// From this version on a transactional request adds its partitions to the transaction (KIP-890); this client adds
/// them separately.
const ENLISTING_VERSION: i16 = 12;

pub struct ProduceRequest<'a> {
    pub transactional_id: Option<&'a str>,
    pub timeout_ms: i32,
    /// Topic, partition, batch; those of a topic are adjacent.
    pub batches: &'a [(Arc<str>, i32, Bytes)],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducedPartition {
    pub topic: Arc<str>,
    pub partition: i32,
    pub error: ErrorCode,
    pub base_offset: i64,
    /// The broker's error message, from v8 on.
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
        write_by_topic(
            out,
            self.batches,
            |(topic, ..)| topic,
            |out, (_, partition, batch)| {
                out.i32(*partition);
                out.records_len(batch.len());
                out.writer.slice(batch);
            },
        );
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<Vec<ProducedPartition>, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(PRODUCE, version));
        let mut produced = Vec::new();
        read_by_topic(&mut reader, 22, |reader, topic| {
            produced.push(read_partition(reader, topic, version)?);
            Ok(())
        })?;
        Ok(produced)
    }
}

fn read_partition(
    reader: &mut VersionedReader<'_>,
    topic: &Arc<str>,
    version: i16,
) -> Result<ProducedPartition, WireError> {
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
    Ok(ProducedPartition { topic: topic.clone(), partition, error, base_offset, message })
}

#[cfg(test)]
mod tests {
    use klamm_base::primitives::Writer;

    use super::*;

    #[test]
    fn partitions_share_the_name_of_their_topic() {
        const COUNT: usize = 1000;
        let mut writer = Writer::with_capacity(64);
        let mut out = VersionedWriter::new(&mut writer, false);
        let partitions: Vec<_> = (0..COUNT).map(|index| ("t".repeat(30_000), index as i32)).collect();
        let write = |out: &mut VersionedWriter<'_>, (_, index): &(String, i32)| {
            out.i32(*index);
            out.i16(0);
            out.i64(7);
            out.i64(-1);
        };
        write_by_topic(&mut out, &partitions, |(topic, _)| topic, write);
        out.i32(0);
        let produced = ProduceRequest::read(&writer.into_bytes().into(), 3).expect("an answer");
        assert_eq!(produced.len(), COUNT);
        assert!(
            produced.iter().all(|one| Arc::ptr_eq(&one.topic, &produced[0].topic)),
            "or it takes 1000 times its bytes"
        );
    }
}
