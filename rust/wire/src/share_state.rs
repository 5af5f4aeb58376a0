//! ReadShareGroupState v0 and WriteShareGroupState v1 as the leader of a partition sends them: of one partition.

use std::borrow::Cow;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::versioned::{VersionedReader, VersionedWriter};

/// A share partition: its group, topic and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharePartitionName<'a> {
    pub group_id: &'a str,
    pub topic: Uuid,
    pub index: i32,
}

/// Offsets of equal state, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistedBatch {
    pub first: i64,
    pub last: i64,
    pub state: i8,
    pub delivery_count: i16,
}

/// What a write contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenState<'a> {
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    pub delivery_complete_count: i32,
    pub batches: &'a [PersistedBatch],
}

/// What the coordinator has. The message is the coordinator's, with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadState {
    pub error: ErrorCode,
    pub state_epoch: i32,
    /// -1: none is set yet.
    pub start_offset: i64,
    pub batches: Vec<PersistedBatch>,
}

impl SharePartitionName<'_> {
    fn begin(&self, out: &mut VersionedWriter<'_>) {
        out.string(self.group_id);
        out.array_len(1);
        out.uuid(self.topic);
        out.array_len(1);
        out.i32(self.index);
    }

    /// The body of a ReadShareGroupState request, v0.
    pub fn read_request(&self, leader_epoch: i32) -> Vec<u8> {
        let mut writer = Writer::new();
        let mut out = VersionedWriter::new(&mut writer, true);
        self.begin(&mut out);
        out.i32(leader_epoch);
        (0..3).for_each(|_| out.no_tags());
        writer.into_bytes()
    }

    /// The body of a WriteShareGroupState request, v1.
    pub fn write_request(&self, state: &WrittenState<'_>) -> Vec<u8> {
        let mut writer = Writer::new();
        let mut out = VersionedWriter::new(&mut writer, true);
        self.begin(&mut out);
        out.i32(state.state_epoch);
        out.i32(state.leader_epoch);
        out.i64(state.start_offset);
        out.i32(state.delivery_complete_count);
        out.array_len(state.batches.len());
        for batch in state.batches {
            out.i64(batch.first);
            out.i64(batch.last);
            out.i8(batch.state);
            out.i16(batch.delivery_count);
            out.no_tags();
        }
        (0..3).for_each(|_| out.no_tags());
        writer.into_bytes()
    }

    /// The result of this partition in a ReadShareGroupState response, v0; `None`: it has another partition, or several.
    pub fn read_response(&self, body: &[u8]) -> Result<Option<ReadState>, WireError> {
        self.only_result(body, |reader, error| {
            let (state_epoch, start_offset) = (reader.i32()?, reader.i64()?);
            let batches = reader.array(20, |reader| {
                let (first, last, state, delivery_count) = (reader.i64()?, reader.i64()?, reader.i8()?, reader.i16()?);
                reader.skip_tags()?;
                Ok(PersistedBatch { first, last, state, delivery_count })
            })?;
            Ok(ReadState { error, state_epoch, start_offset, batches })
        })
    }

    /// The error of this partition in a WriteShareGroupState response, v1; `None`: it has another partition, or several.
    pub fn write_response(&self, body: &[u8]) -> Result<Option<ErrorCode>, WireError> {
        self.only_result(body, |_, error| Ok(error))
    }

    fn only_result<T>(
        &self,
        body: &[u8],
        read: impl FnOnce(&mut VersionedReader<'_>, ErrorCode) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        let mut reader = VersionedReader::new(body, true);
        let topics = reader.array_len(18)?;
        if topics != 1 || reader.uuid()? != self.topic {
            return Ok(None);
        }
        let partitions = reader.array_len(8)?;
        if partitions != 1 || reader.i32()? != self.index {
            return Ok(None);
        }
        let error = ErrorCode(reader.i16()?);
        let _message: Option<Cow<'_, str>> = reader.nullable_string()?;
        let result = read(&mut reader, error)?;
        (0..3).try_for_each(|_| reader.skip_tags())?;
        Ok(Some(result))
    }
}
