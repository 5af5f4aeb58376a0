//! The findings of an examination of log files.

use std::path::{Path, PathBuf};

use klamm_base::Uuid;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Bytes that differ from what was written.
    Damaged,
    /// A file or offsets that existed once.
    Missing,
    /// Not an error, but a start changes it; for example the rest of an unacknowledged write after a kill or a power
    /// cut.
    Note,
}

impl FindingKind {
    pub const fn name(self) -> &'static str {
        match self {
            FindingKind::Damaged => "damaged",
            FindingKind::Missing => "missing",
            FindingKind::Note => "note",
        }
    }
}

/// One deviation from the expected state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub file: PathBuf,
    /// Where in the file it begins.
    pub position: Option<u64>,
    /// Offsets of records that cannot be read because of it, `[first, next)`; equal if their number is not known.
    pub offsets: Option<(i64, i64)>,
    pub reason: String,
    /// What a start does about it.
    pub action: String,
}

impl Finding {
    pub fn new(kind: FindingKind, file: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        let (file, reason, action) = (file.to_owned(), reason.into(), action.into());
        Self { kind, file, position: None, offsets: None, reason, action }
    }

    pub fn damaged(file: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(FindingKind::Damaged, file, reason, action)
    }

    pub fn missing(file: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(FindingKind::Missing, file, reason, action)
    }

    pub fn at(self, position: u64) -> Self {
        Self { position: Some(position), ..self }
    }

    pub fn of(self, first: i64, next: i64) -> Self {
        Self { offsets: Some((first, next)), ..self }
    }
}

/// The result for one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCheck {
    pub path: PathBuf,
    pub topic_id: Option<Uuid>,
    pub log_start_offset: i64,
    /// The log end offset.
    pub log_end_offset: i64,
    pub segments: usize,
    /// Bytes of the log files.
    pub bytes: u64,
    /// Intact batches, and the offsets in them.
    pub batches: u64,
    pub records: u64,
    pub findings: Vec<Finding>,
}

impl LogCheck {
    /// The result for a log of which nothing is known.
    pub fn empty(path: &Path) -> Self {
        let (path, findings) = (path.to_owned(), Vec::new());
        let (log_start_offset, log_end_offset, segments, bytes, batches, records) = (0, 0, 0, 0, 0, 0);
        Self { path, topic_id: None, log_start_offset, log_end_offset, segments, bytes, batches, records, findings }
    }
}
