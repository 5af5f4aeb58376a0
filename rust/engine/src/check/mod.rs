//! Looks at the files of stopped logs, klamm's or Apache Kafka's, without changing them.
//!
//! A finding names a file, where in it, which offsets, what is wrong, and what a start does about it. Reading is parallel by
//! segment, in large pieces, so that a check of every batch goes at the disk's rate.

mod directory;
mod indexes;
mod logs;
mod reader;
mod segment;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use directory::{CheckedDirectory, check_directories};
pub use logs::{CheckedLog, LogToCheck, check_logs, check_snapshot};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Damaged,
    Missing,
    /// Nothing is wrong, and a start changes it.
    Note,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Damaged => "damaged",
            Kind::Missing => "missing",
            Kind::Note => "note",
        }
    }
}

/// Something in a file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    pub path: PathBuf,
    pub position: Option<u64>,
    /// `[first, next)`.
    pub offsets: Option<(i64, i64)>,
    pub reason: String,
    /// What a start of klamm does about it.
    pub action: String,
}

impl Finding {
    fn damaged(path: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(Kind::Damaged, path, reason, action)
    }

    fn missing(path: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(Kind::Missing, path, reason, action)
    }

    fn new(kind: Kind, path: &Path, reason: impl Into<String>, action: impl Into<String>) -> Self {
        let path = path.to_owned();
        Self { kind, path, position: None, offsets: None, reason: reason.into(), action: action.into() }
    }

    fn at(self, position: u64) -> Self {
        Self { position: Some(position), ..self }
    }

    fn of(self, first: i64, next: i64) -> Self {
        Self { offsets: Some((first, next)), ..self }
    }
}

/// How far a check is, and whether it shall end.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of segments that are done.
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Progress {
    /// Bytes that are done, and all of them as far as they are known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// The check ends soon; what it has found then is not all.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}
