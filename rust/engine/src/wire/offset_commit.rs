//! OffsetCommit v2-10: the answer that nearly every one gets. What is decided about the others is Python's.

use super::api::{Api, OFFSET_COMMIT};
use super::primitives::{WireError, Writer};
use super::versioned::{VersionedReader, VersionedWriter};

/// Writes the body of the answer to the request in `body`, all of whose offsets are committed.
pub fn write_all_committed(writer: &mut Writer, version: i16, body: &[u8]) -> Result<(), WireError> {
    let is_flexible = Api::of(OFFSET_COMMIT).is_some_and(|api| api.is_flexible(version));
    let mut request = VersionedReader::new(body, is_flexible);
    let mut answer = VersionedWriter::new(writer, is_flexible);
    skip_head(&mut request, version)?;
    if version >= 3 {
        answer.i32(0);
    }
    let topics = request.array_len(3)?;
    answer.array_len(topics);
    for _ in 0..topics {
        match version {
            10.. => answer.uuid(request.uuid()?),
            _ => answer.string(&request.string()?),
        }
        let partitions = request.array_len(12)?;
        answer.array_len(partitions);
        for _ in 0..partitions {
            answer.i32(request.i32()?);
            answer.i16(0);
            answer.no_tags();
            skip_offset(&mut request, version)?;
        }
        answer.no_tags();
        request.skip_tags()?;
    }
    answer.no_tags();
    Ok(())
}

/// The group, its generation and the member, and how long to keep the offsets.
fn skip_head(request: &mut VersionedReader<'_>, version: i16) -> Result<(), WireError> {
    request.string()?;
    request.i32()?;
    request.string()?;
    if version >= 7 {
        request.nullable_string()?;
    }
    if version <= 4 {
        request.i64()?;
    }
    Ok(())
}

/// What stands behind a partition's index.
fn skip_offset(request: &mut VersionedReader<'_>, version: i16) -> Result<(), WireError> {
    request.i64()?;
    if version >= 6 {
        request.i32()?;
    }
    request.nullable_string()?;
    request.skip_tags()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 8: a group "g" without generation commits offset 1 of partition 7 of topic "t".
    const REQUEST: &[u8] =
        b"\x02g\xff\xff\xff\xff\x01\x00\x02\x02t\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\x01\0\0\0";

    #[test]
    fn every_partition_is_told_that_nothing_is_wrong() {
        let mut writer = Writer::new();
        write_all_committed(&mut writer, 8, REQUEST).expect("a whole request");
        assert_eq!(writer.as_slice(), b"\0\0\0\0\x02\x02t\x02\0\0\0\x07\0\0\0\0\0");
    }

    #[test]
    fn a_request_that_is_cut_is_refused() {
        for len in 0..REQUEST.len() - 2 {
            assert!(write_all_committed(&mut Writer::new(), 8, &REQUEST[..len]).is_err(), "{len}");
        }
    }
}
