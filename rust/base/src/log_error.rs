//! Errors of a log, and the protocol error of each.

use std::io;
use std::path::{Path, PathBuf};

use crate::ErrorCode;

/// The disk failed, its content is wrong, or the caller requested something that is not there.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged at byte {position}: {reason}", path.display())]
    Corrupt { path: PathBuf, position: u64, reason: String },
    #[error(
        "{} holds message format v{magic} at byte {position}: only v2 is supported. Let Apache Kafka 3.x rewrite it \
         (consume and produce again), or delete the topic",
        path.display()
    )]
    OldFormat { path: PathBuf, position: u64, magic: i8 },
    #[error("offset {offset} is not in [{start}, {end}]")]
    OffsetOutOfRange { offset: i64, start: i64, end: i64 },
    #[error("all {limit} files that may be open are in use: raise klamm.open.files.max or the descriptor limit")]
    TooManyOpenFiles { limit: usize },
    /// The directory stopped after an earlier error. The text is that error, which names the file, so that a message
    /// about the directory contains it once, whichever caller met it first.
    #[error("{cause}")]
    Offline { cause: String },
    #[error("{}: {reason}", path.display())]
    Directory { path: PathBuf, reason: String },
}

impl LogError {
    /// Wraps an I/O error with the action and the file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        move |source| LogError::Io { action, path: path.to_owned(), source }
    }

    /// The error code that a client receives.
    pub fn code(&self) -> ErrorCode {
        match self {
            LogError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            LogError::Corrupt { .. } | LogError::OldFormat { .. } => ErrorCode::CORRUPT_MESSAGE,
            LogError::TooManyOpenFiles { .. }
            | LogError::Io { .. }
            | LogError::Offline { .. }
            | LogError::Directory { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        }
    }

    /// Whether the limit of open files was reached: nothing is damaged, and a retry may succeed.
    pub fn is_limit(&self) -> bool {
        match self {
            LogError::TooManyOpenFiles { .. } => true,
            LogError::Io { source, .. } => matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
            _ => false,
        }
    }

    /// Whether the log directory can no longer be trusted.
    pub fn stops_directory(&self) -> bool {
        matches!(self, LogError::Io { .. }) && !self.is_limit()
    }
}
