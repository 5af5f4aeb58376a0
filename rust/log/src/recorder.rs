//! Records every change to the log files, for tests that simulate a power cut at any point.

use std::path::PathBuf;

use parking_lot::Mutex;

/// One change, in the order in which changes were requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was opened at a path, and created if it did not exist; `id` identifies it from here on, even after a
    /// rename. Two ids may identify one file.
    Create {
        id: u64,
        path: PathBuf,
    },
    /// An existing file was opened.
    Open {
        id: u64,
        path: PathBuf,
    },
    Write {
        id: u64,
        position: u64,
        bytes: Vec<u8>,
    },
    SetLen {
        id: u64,
        len: u64,
    },
    /// Everything written to the file so far is durable.
    Sync {
        id: u64,
    },
    /// Everything done so far is durable.
    SyncAll,
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    CreateDir {
        path: PathBuf,
    },
    /// Every name in the directory is durable.
    SyncDir {
        path: PathBuf,
    },
}

/// Collects changes.
#[derive(Default)]
pub struct Recorder {
    changes: Mutex<Vec<Change>>,
}

impl Recorder {
    pub(super) fn push(&self, change: Change) {
        self.changes.lock().push(change);
    }

    /// The number of changes so far; identifies the moment of an acknowledgement.
    pub fn len(&self) -> usize {
        self.changes.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all changes so far and returns them.
    pub fn take(&self) -> Vec<Change> {
        std::mem::take(&mut self.changes.lock())
    }

    /// All changes so far.
    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().clone()
    }
}
