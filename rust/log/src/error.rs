//! Errors of an append and their protocol error codes.

use klamm_base::{ErrorCode, LogError};

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("batches of {size} bytes exceed the segment size of {segment_bytes} bytes")]
    LargerThanSegment { size: usize, segment_bytes: u32 },
    #[error("batch at offset {offset}, but the log ends at {end}")]
    UnexpectedOffset { offset: i64, end: i64 },
    #[error("byte {position} of {len} is not the start of a complete batch")]
    Malformed { position: usize, len: usize },
    #[error("producer {producer_id} sent sequence {found} after {last}")]
    OutOfOrderSequence { producer_id: i64, found: i32, last: i32 },
    #[error("producer {producer_id} sent sequence {found} before {lowest}, which is not appended yet")]
    OvertakingSequence { producer_id: i64, found: i32, lowest: i32 },
    #[error("producer {producer_id} has epoch {found}, the current epoch is {current}")]
    InvalidProducerEpoch { producer_id: i64, found: i16, current: i16 },
    #[error("producer {producer_id} wrote outside of its open transaction")]
    InvalidTransactionState { producer_id: i64 },
    #[error("the transaction of producer {producer_id} was not verified, or ended meanwhile")]
    NotVerified { producer_id: i64 },
    #[error("marker for producer {producer_id} of coordinator epoch {found}, the current epoch is {current}")]
    CoordinatorFenced { producer_id: i64, found: i32, current: i32 },
}

impl AppendError {
    /// The error code of the answer to a client.
    pub fn code(&self) -> ErrorCode {
        match self {
            AppendError::Log(error) => error.code(),
            AppendError::LargerThanSegment { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
            AppendError::UnexpectedOffset { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
            AppendError::Malformed { .. } => ErrorCode::CORRUPT_MESSAGE,
            AppendError::OutOfOrderSequence { .. } | AppendError::OvertakingSequence { .. } => {
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            }
            AppendError::InvalidProducerEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
            AppendError::InvalidTransactionState { .. } | AppendError::NotVerified { .. } => {
                ErrorCode::INVALID_TXN_STATE
            }
            AppendError::CoordinatorFenced { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        }
    }
}
