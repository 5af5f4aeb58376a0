//! A record of every change to the files of the logs, for tests that cut the power at any point of it.

use std::path::PathBuf;

use parking_lot::Mutex;

/// One change, in the order the changes were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file at a path was opened, and created when it was not there; `id` names it in what follows, wherever it is
    /// renamed to. Two ids may name one file.
    Create {
        id: u64,
        path: PathBuf,
    },
    /// A file that is at a path was opened.
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

    /// How many changes were recorded so far: the moment of an acknowledgement.
    pub fn len(&self) -> usize {
        self.changes.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All changes so far.
    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().clone()
    }
}
