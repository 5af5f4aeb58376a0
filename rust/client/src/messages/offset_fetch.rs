//! OffsetFetch v7: the committed offsets of a group (KIP-447).

use std::sync::Arc;

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible, read_by_topic};

const OFFSET_FETCH: i16 = 9;

/// v7 is the first version with RequireStable, and the last for a single group.
pub struct OffsetFetchRequest<'a> {
    pub group: &'a str,
    /// Partition 0 of this topic; `None`: everything that was committed.
    pub topic: Option<&'a str>,
    /// Whether to report offsets with an open transaction as pending. If nothing was committed before, this is
    /// reported only when the topic is requested.
    pub stable: bool,
}

/// The committed offset of a group for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub topic: Arc<str>,
    pub partition: i32,
    /// `None`: an open transaction has a pending offset.
    pub offset: Option<i64>,
    pub metadata: String,
}

/// In the order of the response; an error is the group's, or that of its first partition with an error.
pub type OffsetFetchAnswer = Result<Vec<CommittedOffset>, ErrorCode>;

impl Request for OffsetFetchRequest<'_> {
    const API: i16 = OFFSET_FETCH;
    const VERSION_MIN: i16 = 7;
    const VERSION_MAX: i16 = 7;
    type Answer = OffsetFetchAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        out.string(self.group);
        out.nullable_array_len(self.topic.map(|_| 1));
        if let Some(topic) = self.topic {
            out.string(topic);
            out.i32_array(&[0]);
            out.no_tags();
        }
        out.bool(self.stable);
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<OffsetFetchAnswer, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(OFFSET_FETCH, version));
        reader.i32()?;
        let mut found = Vec::new();
        let mut first = ErrorCode::NONE;
        read_by_topic(&mut reader, 20, |reader, topic| {
            let partition = reader.i32()?;
            let offset = reader.i64()?;
            reader.i32()?;
            let metadata = reader.nullable_string()?.unwrap_or_default().into_owned();
            let error = ErrorCode(reader.i16()?);
            let offset = (error != ErrorCode::UNSTABLE_OFFSET_COMMIT).then_some(offset);
            if offset.is_some() && error.is_error() && !first.is_error() {
                first = error;
            }
            // -1: nothing is committed.
            if offset.is_none_or(|offset| offset >= 0) {
                found.push(CommittedOffset { topic: topic.clone(), partition, offset, metadata });
            }
            Ok(())
        })?;
        let of_group = ErrorCode(reader.i16()?);
        let error = if of_group.is_error() { of_group } else { first };
        Ok(if error.is_error() { Err(error) } else { Ok(found) })
    }
}

#[cfg(test)]
mod tests {
    use klamm_base::primitives::Writer;

    use super::*;

    fn answer(of_partition: ErrorCode, of_group: ErrorCode) -> Bytes {
        let mut writer = Writer::with_capacity(64);
        let mut out = VersionedWriter::new(&mut writer, true);
        out.i32(0);
        out.array_len(1);
        out.string("t");
        out.array_len(2);
        for (partition, error) in [(0, ErrorCode::NONE), (7, of_partition)] {
            out.i32(partition);
            out.i64(4);
            out.i32(-1);
            out.nullable_string(Some("said"));
            out.i16(error.0);
            out.no_tags();
        }
        out.no_tags();
        out.i16(of_group.0);
        out.no_tags();
        writer.into_bytes().into()
    }

    #[test]
    fn an_open_transaction_hides_an_offset_and_other_errors_are_reported() {
        let one = |partition, offset| CommittedOffset { topic: "t".into(), partition, offset, metadata: "said".into() };
        let read = |of_partition, of_group| OffsetFetchRequest::read(&answer(of_partition, of_group), 7);
        let (none, unstable) = (ErrorCode::NONE, ErrorCode::UNSTABLE_OFFSET_COMMIT);
        assert_eq!(read(none, none), Ok(Ok(vec![one(0, Some(4)), one(7, Some(4))])));
        assert_eq!(read(unstable, none), Ok(Ok(vec![one(0, Some(4)), one(7, None)])));
        let loading = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
        assert_eq!(read(loading, none), Ok(Err(loading)));
        assert_eq!(read(none, loading), Ok(Err(loading)));
    }
}
