//! Checks the files of stopped logs, klamm's or Apache Kafka's, without changing them.
//!
//! [`klamm_log::check`] and [`klamm_quorum::Examination`] decide what a start does about damage, by the rules of
//! recovery. This crate walks over directories, runs the threads, and compares the other files of a segment with its
//! batches. Segments are read in parallel, and each is read ahead of its verification, so that a check of every batch runs at
//! the disk's speed.

#[cfg(test)]
mod aborted_tests;
mod directory;
#[cfg(test)]
mod examination_tests;
mod indexes;
mod logs;
mod metadata;
mod snapshot;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use directory::{CheckedDirectory, check_directories};
use klamm_base::LogError;
pub use klamm_log::finding::{Finding, FindingKind as Kind, LogCheck};
pub use logs::{LogToCheck, check_logs};
pub use snapshot::check_snapshot;

fn note(path: &Path, reason: &str, action: &str) -> Finding {
    Finding::new(Kind::Note, path, reason, action)
}

fn unreadable(path: &Path, error: &LogError) -> Finding {
    let path = match error {
        LogError::Io { path, .. } | LogError::Corrupt { path, .. } | LogError::OldFormat { path, .. } => path,
        _ => path,
    };
    Finding::damaged(path, format!("cannot be read: {error}"), "the log is not opened")
}

/// The reason without the file, which the finding contains.
fn reason_of(error: &LogError) -> String {
    match error {
        LogError::Corrupt { reason, .. } | LogError::Directory { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// The progress of a check, and whether it is cancelled.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of finished segments.
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Progress {
    /// Finished bytes, and total bytes as far as they are known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Ends the check soon; its findings are then incomplete.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn add_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}
