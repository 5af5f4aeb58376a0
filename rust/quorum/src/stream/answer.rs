//! Recognizes answers of a leader that contain only the next records.

use std::ops::Range;

use klamm_base::primitives::{Reader, WireError};
use klamm_records::batches;

use crate::METADATA_TOPIC_ID;

/// The leader that the follower follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub leader_id: i32,
    pub epoch: i32,
}

/// The content of a plain answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub high_watermark: i64,
    /// The range of its batches in the body; empty if there are none.
    pub records: Range<usize>,
}

/// Parses the body if a follower needs to make no decision; `None` otherwise, and if it cannot be parsed.
pub fn plain(body: &[u8], expected: Expected) -> Option<Plain> {
    let plain = read(body, expected).ok().flatten()?;
    let all_plain = batches(&body[plain.records.clone()]).all(|batch| {
        batch.is_ok_and(|batch| {
            let header = batch.header();
            // Batches that the append would skip would be fetched again immediately.
            !header.is_control() && header.leader_epoch() <= expected.epoch
        })
    });
    all_plain.then_some(plain)
}

fn read(body: &[u8], expected: Expected) -> Result<Option<Plain>, WireError> {
    let mut reader = Reader::new(body);
    reader.i32()?;
    let error = reader.i16()?;
    reader.i32()?;
    if error != 0 || reader.compact_array_len(3)? != 1 {
        return Ok(None);
    }
    let topic = reader.uuid()?;
    if topic != METADATA_TOPIC_ID || reader.compact_array_len(27)? != 1 {
        return Ok(None);
    }
    let (partition, error, high_watermark) = (reader.i32()?, reader.i16()?, reader.i64()?);
    if partition != 0 || error != 0 {
        return Ok(None);
    }
    let (_last_stable_offset, _log_start_offset) = (reader.i64()?, reader.i64()?);
    for _ in 0..reader.compact_nullable_array_len(17)?.unwrap_or(0) {
        let (_producer_id, _first_offset) = (reader.i64()?, reader.i64()?);
        reader.skip_tagged_fields()?;
    }
    let _preferred_read_replica = reader.i32()?;
    let len = reader.compact_nullable_bytes()?.map_or(0, <[u8]>::len);
    let end = body.len() - reader.remaining().len();
    let is_plain = read_partition_tags(&mut reader, expected)?;
    reader.skip_tagged_fields()?;
    reader.skip_tagged_fields()?;
    reader.finish()?;
    Ok(is_plain.then_some(Plain { high_watermark, records: end - len..end }))
}

/// Whether the partition's tagged fields contain no diverging epoch, no snapshot id, and no other leader.
fn read_partition_tags(reader: &mut Reader<'_>, expected: Expected) -> Result<bool, WireError> {
    let mut is_plain = true;
    reader.tagged_fields(|tag, field| {
        is_plain &= match tag {
            0 => (field.i32()?, field.i64()?) == (-1, -1),
            1 => {
                let leader = (field.i32()?, field.i32()?);
                leader == (-1, -1) || leader == (expected.leader_id, expected.epoch)
            }
            2 => (field.i64()?, field.i32()?) == (-1, -1),
            _ => return Ok(false),
        };
        field.skip_tagged_fields()?;
        Ok(true)
    })?;
    Ok(is_plain)
}
