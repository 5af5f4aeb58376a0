//! What can be wrong with a batch, and the protocol's error code for it.

use crate::codec::Codec;

/// Why a batch was refused.
///
/// [`error_code`](Self::error_code) is the code with which Apache Kafka's broker answers a produce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    #[error("no record batch: a partition of a produce request holds exactly one")]
    NoBatch,
    #[error("{bytes} bytes follow the first record batch: a partition of a produce request holds exactly one")]
    MoreThanOneBatch { bytes: usize },
    #[error("the record batch is cut: {need} bytes needed, {have} there")]
    Incomplete { have: usize, need: usize },
    #[error("the record batch claims a length of {length} bytes; its header alone takes 49")]
    BadLength { length: i32 },
    #[error("message format {magic} was given up by Apache Kafka 4.0: only record batches (magic 2) are read")]
    OldMagic { magic: i8 },
    #[error("magic {magic} is no known message format")]
    UnknownMagic { magic: i8 },
    #[error("the record batch has {size} bytes, max.message.bytes allows {max}")]
    BatchTooLarge { size: usize, max: usize },
    #[error("the record batch is corrupt: CRC {stored:#010x} stored, {computed:#010x} computed")]
    BadCrc { stored: u32, computed: u32 },
    #[error("compression id {id} is not assigned")]
    UnknownCompression { id: i16 },
    #[error("zstd needs Produce version 7 or newer")]
    ZstdTooEarly,
    #[error("attributes {attributes:#06x} have bits set that a producer must leave 0")]
    ReservedAttributes { attributes: i16 },
    #[error("the base offset of a produced batch must be 0, not {base_offset}")]
    BaseOffsetNotZero { base_offset: i64 },
    #[error("the batch counts {count} records but its last offset delta is {last_offset_delta}")]
    BadCount { count: i32, last_offset_delta: i32 },
    #[error("base offset {base_offset} and last offset delta {last_offset_delta} make no offset range")]
    BadOffsetRange { base_offset: i64, last_offset_delta: i32 },
    #[error("clients must not write control batches")]
    ControlFromClient,
    #[error("producer id {producer_id} with sequence {sequence}: it must not be negative")]
    BadProducer { producer_id: i64, sequence: i32 },
    #[error("a transactional batch needs a producer id")]
    TransactionalWithoutProducer,
    #[error("a producer must not set the timestamp type LogAppendTime")]
    LogAppendTimeFromProducer,
    #[error("record {index}: {fault}")]
    BadRecord { index: i32, fault: RecordFault },
    #[error("{bytes} bytes follow the last of {count} records")]
    BytesAfterRecords { bytes: usize, count: i32 },
    #[error("{} records refused, the first ones: {}", .0.count, .0)]
    Refused(Box<RefusedRecords>),
    #[error("the {codec} data of the batch is corrupt: {what}")]
    BadCompression { codec: Codec, what: &'static str },
    #[error("the records take more than the {max} bytes allowed when decompressed")]
    DecompressedTooLarge { max: usize },
    #[error("there is no memory for the decompressed records")]
    NoMemory,
    #[error("the control record is malformed: {what}")]
    BadControl { what: &'static str },
    #[error("{what} takes {size} bytes, more than a record batch can hold")]
    TooLargeToBuild { what: &'static str, size: usize },
}

const UNKNOWN_SERVER_ERROR: i16 = -1;
const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_TIMESTAMP: i16 = 32;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

impl RecordsError {
    /// The protocol's error code (`Errors`) for a produce that failed with this error.
    ///
    /// Clients retry CORRUPT_MESSAGE, so it is used only for errors that a second transfer can fix.
    pub fn error_code(&self) -> i16 {
        match self {
            // Apache Kafka defines no code for these.
            Self::UnknownCompression { .. }
            | Self::NoMemory
            | Self::BadCompression { .. }
            | Self::BadRecord { fault: RecordFault::OverlongLength, .. } => UNKNOWN_SERVER_ERROR,
            Self::BadLength { .. } | Self::UnknownMagic { .. } | Self::BadCrc { .. } => CORRUPT_MESSAGE,
            // A producer that receives this splits its batch and retries.
            Self::BatchTooLarge { .. } | Self::DecompressedTooLarge { .. } | Self::TooLargeToBuild { .. } => {
                MESSAGE_TOO_LARGE
            }
            Self::ZstdTooEarly => UNSUPPORTED_COMPRESSION_TYPE,
            Self::LogAppendTimeFromProducer => INVALID_TIMESTAMP,
            Self::Refused(refused) if refused.any_timestamp() => INVALID_TIMESTAMP,
            Self::NoBatch
            | Self::Incomplete { .. }
            | Self::MoreThanOneBatch { .. }
            | Self::OldMagic { .. }
            | Self::ReservedAttributes { .. }
            | Self::BaseOffsetNotZero { .. }
            | Self::BadCount { .. }
            | Self::BadOffsetRange { .. }
            | Self::ControlFromClient
            | Self::BadProducer { .. }
            | Self::TransactionalWithoutProducer
            | Self::BadRecord { .. }
            | Self::BytesAfterRecords { .. }
            | Self::Refused(_)
            | Self::BadControl { .. } => INVALID_RECORD,
        }
    }

    /// The records that violate a rule of their topic, for the `RecordErrors` of a Produce response.
    pub fn refused_records(&self) -> &[RefusedRecord] {
        match self {
            Self::Refused(refused) => &refused.records,
            _ => &[],
        }
    }
}

/// What is wrong with the bytes of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    #[error("the bytes end inside it")]
    Cut,
    #[error("a varint is too long")]
    OverlongVarint,
    #[error("its length is a varint that is too long")]
    OverlongLength,
    #[error("a size or count is negative")]
    NegativeSize,
    #[error("its fields do not fill its size")]
    SizeMismatch,
    #[error("its timestamp is out of the range of 64 bits")]
    TimestampOverflow,
    #[error("its offset is out of the range of 64 bits")]
    OffsetOverflow,
}

/// Why a well-formed record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a compacted topic takes no record without a key")]
    KeyMissing,
    #[error("timestamp {timestamp} is outside [{earliest}, {latest}]")]
    TimestampOutOfRange { timestamp: i64, earliest: i64, latest: i64 },
}

/// A refused record, by its index in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    pub index: i32,
    pub refusal: Refusal,
}

/// The refused records of a batch: all are counted, the first [`KEPT`](Self::KEPT) are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedRecords {
    pub records: Vec<RefusedRecord>,
    pub count: usize,
    timestamps: usize,
}

impl RefusedRecords {
    /// The most records named in a response, so that it cannot outgrow the request.
    pub const KEPT: usize = 100;

    pub(crate) fn push(&mut self, index: i32, refusal: Refusal) {
        self.count += 1;
        self.timestamps += usize::from(matches!(refusal, Refusal::TimestampOutOfRange { .. }));
        if self.records.len() < Self::KEPT {
            self.records.push(RefusedRecord { index, refusal });
        }
    }

    fn any_timestamp(&self) -> bool {
        self.timestamps > 0
    }
}

impl std::fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, record) in self.records.iter().take(3).enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}record {}: {}", record.index, record.refusal)?;
        }
        Ok(())
    }
}
