//! A producer's requests to coordinators: its producer id, and the start and end of transactions (KIP-98).
//!
//! In these versions the client adds partitions and groups itself, and keeps its epoch across transactions; brokers
//! with KIP-890 support them too.

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::{Request, is_flexible, read_by_topic, write_by_topic};

const FIND_COORDINATOR: i16 = 10;
const INIT_PRODUCER_ID: i16 = 22;
const ADD_PARTITIONS_TO_TXN: i16 = 24;
const ADD_OFFSETS_TO_TXN: i16 = 25;
const END_TXN: i16 = 26;
const TXN_OFFSET_COMMIT: i16 = 28;

/// The identity of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub id: i64,
    pub epoch: i16,
}

/// The kind of coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorOf {
    Group = 0,
    Transaction = 1,
}

/// v1-3: finds the coordinator of a key.
pub struct FindCoordinatorRequest<'a> {
    pub key: &'a str,
    pub kind: CoordinatorOf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCoordinator {
    pub error: ErrorCode,
    pub host: String,
    pub port: i32,
}

impl Request for FindCoordinatorRequest<'_> {
    const API: i16 = FIND_COORDINATOR;
    const VERSION_MIN: i16 = 1;
    const VERSION_MAX: i16 = 3;
    type Answer = FoundCoordinator;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        out.string(self.key);
        out.i8(self.kind as i8);
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<FoundCoordinator, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(FIND_COORDINATOR, version));
        reader.i32()?;
        let error = ErrorCode(reader.i16()?);
        reader.nullable_string()?;
        reader.i32()?;
        Ok(FoundCoordinator { error, host: reader.string()?.into_owned(), port: reader.i32()? })
    }
}

/// v0-4: requests a producer id; for a transactional producer, also an epoch that fences earlier ones.
pub struct InitProducerIdRequest<'a> {
    pub transactional_id: Option<&'a str>,
    pub transaction_timeout_ms: i32,
}

impl Request for InitProducerIdRequest<'_> {
    const API: i16 = INIT_PRODUCER_ID;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 4;
    type Answer = (ErrorCode, Identity);

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        out.nullable_string(self.transactional_id);
        out.i32(self.transaction_timeout_ms);
        if version >= 3 {
            out.i64(-1);
            out.i16(-1);
        }
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<(ErrorCode, Identity), WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(INIT_PRODUCER_ID, version));
        reader.i32()?;
        let error = ErrorCode(reader.i16()?);
        Ok((error, Identity { id: reader.i64()?, epoch: reader.i16()? }))
    }
}

/// The transaction of a request.
#[derive(Clone, Copy)]
pub struct OfTransaction<'a> {
    pub transactional_id: &'a str,
    pub identity: Identity,
}

impl OfTransaction<'_> {
    fn write(&self, out: &mut VersionedWriter<'_>) {
        out.string(self.transactional_id);
        self.write_identity(out);
    }

    fn write_identity(&self, out: &mut VersionedWriter<'_>) {
        out.i64(self.identity.id);
        out.i16(self.identity.epoch);
    }
}

/// v0-3: adds partitions to the transaction. The result is the first error.
pub struct AddPartitionsRequest<'a> {
    pub of: OfTransaction<'a>,
    pub partitions: &'a [(&'a str, i32)],
}

impl Request for AddPartitionsRequest<'_> {
    const API: i16 = ADD_PARTITIONS_TO_TXN;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 3;
    type Answer = ErrorCode;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        self.of.write(out);
        // The items are plain numbers without tagged fields.
        let topics: Vec<_> = self.partitions.chunk_by(|one, other| one.0 == other.0).collect();
        out.array_len(topics.len());
        for partitions in topics {
            out.string(partitions[0].0);
            out.array_len(partitions.len());
            partitions.iter().for_each(|(_, partition)| out.i32(*partition));
            out.no_tags();
        }
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<ErrorCode, WireError> {
        read_first_error(body, is_flexible(ADD_PARTITIONS_TO_TXN, version))
    }
}

/// v0-3: adds a group whose offsets the transaction commits.
pub struct AddOffsetsRequest<'a> {
    pub of: OfTransaction<'a>,
    pub group: &'a str,
}

impl Request for AddOffsetsRequest<'_> {
    const API: i16 = ADD_OFFSETS_TO_TXN;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 3;
    type Answer = ErrorCode;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        self.of.write(out);
        out.string(self.group);
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<ErrorCode, WireError> {
        read_error(body, is_flexible(ADD_OFFSETS_TO_TXN, version))
    }
}

/// v0-3: offsets of a group that are committed with the transaction. The result is the first error.
pub struct TxnOffsetCommitRequest<'a> {
    pub of: OfTransaction<'a>,
    pub group: &'a str,
    /// Topic, partition, offset; those of a topic are adjacent.
    pub offsets: &'a [(String, i32, i64)],
    /// Stored with each of the offsets.
    pub metadata: &'a str,
}

impl Request for TxnOffsetCommitRequest<'_> {
    const API: i16 = TXN_OFFSET_COMMIT;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 3;
    type Answer = ErrorCode;

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        out.string(self.of.transactional_id);
        out.string(self.group);
        self.of.write_identity(out);
        if version >= 3 {
            out.i32(-1);
            out.string("");
            out.nullable_string(None);
        }
        write_by_topic(
            out,
            self.offsets,
            |(topic, ..)| topic,
            |out, (_, partition, offset)| {
                out.i32(*partition);
                out.i64(*offset);
                if version >= 2 {
                    out.i32(-1);
                }
                out.nullable_string(Some(self.metadata));
            },
        );
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<ErrorCode, WireError> {
        read_first_error(body, is_flexible(TXN_OFFSET_COMMIT, version))
    }
}

/// v0-3: ends a transaction.
pub struct EndTxnRequest<'a> {
    pub of: OfTransaction<'a>,
    pub commit: bool,
}

impl Request for EndTxnRequest<'_> {
    const API: i16 = END_TXN;
    const VERSION_MIN: i16 = 0;
    const VERSION_MAX: i16 = 3;
    type Answer = ErrorCode;

    fn write(&self, out: &mut VersionedWriter<'_>, _version: i16) {
        self.of.write(out);
        out.bool(self.commit);
        out.no_tags();
    }

    fn read(body: &Bytes, version: i16) -> Result<ErrorCode, WireError> {
        read_error(body, is_flexible(END_TXN, version))
    }
}

/// For a response of throttle time and error.
fn read_error(body: &Bytes, flexible: bool) -> Result<ErrorCode, WireError> {
    let mut reader = VersionedReader::new(body, flexible);
    reader.i32()?;
    reader.i16().map(ErrorCode)
}

/// For a response of throttle time and the error of each partition by topic. OPERATION_NOT_ATTEMPTED counts only if
/// there is no other error.
fn read_first_error(body: &Bytes, flexible: bool) -> Result<ErrorCode, WireError> {
    let mut reader = VersionedReader::new(body, flexible);
    reader.i32()?;
    let mut first = ErrorCode::NONE;
    read_by_topic(&mut reader, 6, |reader, _topic| {
        reader.i32()?;
        let error = ErrorCode(reader.i16()?);
        if error.is_error() && matches!(first, ErrorCode::NONE | ErrorCode::OPERATION_NOT_ATTEMPTED) {
            first = error;
        }
        Ok(())
    })?;
    Ok(first)
}
