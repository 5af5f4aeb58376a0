//! Snapshot files, `<offset>-<epoch>.checkpoint` (KIP-630), and files in the same format such as
//! `bootstrap.checkpoint`.
//!
//! A file consists of batches whose offsets count from 0: a control batch that starts with a SnapshotHeader, batches
//! of metadata records, a control batch with a SnapshotFooter. A file without a footer at its end is not a snapshot.
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use klamm_base::LogError;
pub use reader::{check, first_words, header_records, load_snapshot, read_records, read_values};
pub use writer::{write_snapshot, write_values};

use crate::frame::RecordError;
use crate::image_records::UnwritableError;

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Storage(#[from] LogError),
    #[error("no snapshot can be written: {0}")]
    Unwritable(#[from] UnwritableError),
    #[error("no snapshot can be written: {0}")]
    Record(#[from] RecordError),
}

/// The header of a file.
#[derive(Clone, Debug)]
pub struct CheckpointHeader {
    /// Epoch of the last record in the snapshot.
    pub epoch: i32,
    /// Append time of that record in ms.
    pub last_contained_log_timestamp: i64,
    /// The control records of the quorum after the header: type and value.
    pub control_records: Vec<(i16, Vec<u8>)>,
}
