//! Changes to a batch that Apache Kafka's leader makes before it stores it.

use crate::batch::Batch;
use crate::build::{BatchBuilder, BatchFields};
use crate::codec::{Codec, Compression, Decompressor};
use crate::error::RecordsError;
use crate::header::{self, HEADER_LEN, Header, LENGTH_PREFIX, TIMESTAMP_TYPE_BIT};
use crate::iterate::records;
use crate::record::RecordHeader;
use crate::validate::{ProduceRules, Produced, TimestampType};
use crate::walk::Scratch;

/// Sets the timestamp type and max timestamp (ms) of the batch that is all of `batch`, and updates the CRC. Does
/// nothing when they are already set.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    let header = Header::at_start_of(batch).expect("a whole batch");
    let bit = if timestamp_type == TimestampType::LogAppendTime { TIMESTAMP_TYPE_BIT } else { 0 };
    let attributes = (header.attributes() & !TIMESTAMP_TYPE_BIT) | bit;
    if attributes == header.attributes() && max_timestamp == header.max_timestamp() {
        return;
    }
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    batch[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
    header::set_crc(batch);
}

/// The batch as the topic stores it, or `None` when the producer's bytes can be stored unchanged.
///
/// `target` is the topic's `compression.type` and level; `None` is `producer`. The batch is rewritten when its codec
/// differs, or when its records do not count up from 0: Apache Kafka stores such records as they are, or fails when
/// they are compressed. The new batch may be larger, so it is checked against `max.message.bytes` again. Position and
/// timestamps must still be set, as for the original.
pub fn rewrite_if_needed(
    produced: &Produced<'_>,
    target: Option<Compression>,
    rules: &ProduceRules,
) -> Result<Option<Vec<u8>>, RecordsError> {
    if target.is_none() && produced.offsets_consecutive {
        return Ok(None);
    }
    let batch = produced.batch;
    let source = batch.codec()?;
    // Markers that were written uncompressed stay so, so that they can be read without a codec.
    let keeps_codec = source == Codec::None && batch.header().is_control();
    let target = target.filter(|_| !keeps_codec).unwrap_or(Compression::of(source));
    let rewritten = if !produced.offsets_consecutive {
        renumber(batch, target, rules.decompressed_bytes_max)?
    } else if target.codec() != source {
        recompress(batch, target, rules.decompressed_bytes_max)?
    } else {
        return Ok(None);
    };
    let (size, max) = (rewritten.len(), rules.batch_bytes_max);
    if size > max {
        return Err(RecordsError::BatchTooLarge { size, max });
    }
    Ok(Some(rewritten))
}

/// The same batch with its records under another codec; offsets, timestamps and producer are unchanged.
pub fn recompress(batch: Batch<'_>, target: Compression, bytes_max: usize) -> Result<Vec<u8>, RecordsError> {
    let source = batch.codec()?;
    let mut raw = Vec::new();
    Scratch::with(|scratch| {
        Decompressor::new(source, batch.payload(), bytes_max, scratch.contexts()).read_to_end(&mut raw)
    })?;
    let mut out = batch.bytes()[..HEADER_LEN].to_vec();
    target.compress(&raw, &mut out)?;
    let size = out.len();
    let length = i32::try_from(size - LENGTH_PREFIX);
    let length = length.map_err(|_| RecordsError::TooLargeToBuild { what: "the batch", size })?;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    let attributes = (batch.header().attributes() & !header::COMPRESSION_MASK) | target.codec().id();
    out[21..23].copy_from_slice(&attributes.to_be_bytes());
    header::set_crc(&mut out);
    Ok(out)
}

/// The same records, numbered from the base offset up, under a codec.
pub fn renumber(batch: Batch<'_>, target: Compression, bytes_max: usize) -> Result<Vec<u8>, RecordsError> {
    let mut builder = BatchBuilder::new(BatchFields::of(&batch.header()), target);
    let mut buffer = Vec::new();
    let mut headers: Vec<RecordHeader<'_>> = Vec::new();
    for record in records(batch, &mut buffer, bytes_max)? {
        let record = record?;
        headers.clear();
        headers.extend(record.headers);
        builder.append(record.timestamp, record.key, record.value, &headers)?;
    }
    builder.finish()
}

/// An empty batch that keeps the header of `header`: compaction removed all records, but the producer's sequence must
/// be remembered.
pub fn without_records(header: &Header<'_>) -> Result<Vec<u8>, RecordsError> {
    let mut builder = BatchBuilder::new(BatchFields::of(header), Compression::NONE);
    builder.reach(header.last_offset())?;
    let mut batch = builder.finish()?;
    batch[35..43].copy_from_slice(&header.max_timestamp().to_be_bytes());
    header::set_crc(&mut batch);
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::validate_produced;

    const NOW: i64 = 1_700_000_000_000;

    fn batch(codec: Codec) -> Vec<u8> {
        let fields = BatchFields {
            producer_id: 12,
            producer_epoch: 3,
            base_sequence: 70,
            transactional: true,
            ..BatchFields::default()
        };
        let mut builder = BatchBuilder::new(fields, Compression::of(codec));
        for index in 0..50 {
            let header = RecordHeader { key: b"h", value: Some(b"v") };
            builder.append(NOW + index, Some(b"k"), Some(&[index as u8; 90]), &[header]).expect("small");
        }
        builder.finish().expect("small")
    }

    fn values(bytes: &[u8]) -> Vec<(i64, i64, Option<Vec<u8>>)> {
        let batch = Batch::at_start_of(bytes).expect("whole");
        batch.check().expect("valid");
        let mut buffer = Vec::new();
        let records = records(batch, &mut buffer, usize::MAX).expect("readable");
        records.map(|r| r.expect("valid")).map(|r| (r.offset, r.timestamp, r.value.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn every_codec_becomes_every_other_with_the_same_header() {
        let rules = ProduceRules::of_client(NOW);
        for source in Codec::ALL {
            let bytes = batch(source);
            let produced = validate_produced(&bytes, &rules).expect("valid");
            assert!(rewrite_if_needed(&produced, None, &rules).expect("valid").is_none());
            for target in Codec::ALL {
                let rewritten = rewrite_if_needed(&produced, Some(Compression::of(target)), &rules).expect("valid");
                assert_eq!(rewritten.is_none(), source == target);
                let rewritten = rewritten.unwrap_or_else(|| bytes.clone());
                assert_eq!(values(&rewritten), values(&bytes));
                let header = Header::at_start_of(&rewritten).expect("whole");
                assert_eq!(header.compression_id(), target.id());
                assert_eq!(BatchFields::of(&header), BatchFields::of(&produced.batch.header()));
                assert!(validate_produced(&rewritten, &rules).is_ok());
            }
        }
    }

    #[test]
    fn a_rewritten_batch_must_still_fit() {
        let bytes = batch(Codec::Zstd);
        let rules = ProduceRules { batch_bytes_max: bytes.len(), ..ProduceRules::of_client(NOW) };
        let produced = validate_produced(&bytes, &rules).expect("valid");
        let error = rewrite_if_needed(&produced, Some(Compression::NONE), &rules).expect_err("it grows");
        assert_eq!(error.error_code(), 10);
    }

    #[test]
    fn records_are_renumbered() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(BatchFields::default(), Compression::of(codec));
            for offset in [0, 5, 6] {
                builder.append_at(offset, NOW, None, Some(b"v"), &[]).expect("small");
            }
            let mut bytes = builder.finish().expect("small");
            bytes[23..27].copy_from_slice(&2i32.to_be_bytes());
            header::set_crc(&mut bytes);
            let rules = ProduceRules::of_client(NOW);
            let produced = validate_produced(&bytes, &rules).expect("repairable");
            let rewritten = rewrite_if_needed(&produced, None, &rules).expect("valid").expect("needed");
            let offsets: Vec<i64> = values(&rewritten).iter().map(|value| value.0).collect();
            assert_eq!(offsets, [0, 1, 2]);
            assert!(validate_produced(&rewritten, &rules).expect("valid").offsets_consecutive);
        }
    }

    #[test]
    fn the_append_time_becomes_that_of_all_records() {
        let mut bytes = batch(Codec::Lz4);
        set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, NOW + 1000);
        assert!(values(&bytes).iter().all(|value| value.1 == NOW + 1000));
        let again = bytes.clone();
        set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, NOW + 1000);
        assert_eq!(bytes, again);
    }

    #[test]
    fn a_batch_without_records_keeps_its_offsets_and_producer() {
        let bytes = batch(Codec::Gzip);
        let header = Header::at_start_of(&bytes).expect("whole");
        let empty = without_records(&header).expect("small");
        assert_eq!(empty.len(), HEADER_LEN);
        assert_eq!(values(&empty), []);
        let left = Header::at_start_of(&empty).expect("whole");
        assert_eq!((left.last_offset(), left.max_timestamp()), (header.last_offset(), header.max_timestamp()));
        assert_eq!(BatchFields::of(&left), BatchFields::of(&header));
    }
}
