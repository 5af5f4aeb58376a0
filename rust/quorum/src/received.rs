//! A snapshot that is being received from the leader. Its file has a temporary name, which a start removes, until it
//! is complete, verified and durable (KIP-630).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use klamm_base::LogError;
use klamm_log::files::{FileCache, OpenFile};
use klamm_metadata::checkpoint;
use parking_lot::Mutex;

use super::snapshots::SnapshotId;

/// Why a slice was not stored, or a snapshot not installed.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("received a slice at byte {position} of snapshot {id}, expected {expected}")]
    NotNext { id: String, position: u64, expected: String },
    #[error("snapshot {0} was not received and checked")]
    NotChecked(String),
}

/// One attempt to receive a snapshot. Dropping it removes the file unless it was installed.
pub struct Received {
    id: SnapshotId,
    path: PathBuf,
    cache: Arc<FileCache>,
    file: OpenFile,
    size: Mutex<u64>,
    is_checked: AtomicBool,
    is_installed: AtomicBool,
}

impl Received {
    /// Creates an empty file; `serial` distinguishes attempts.
    pub fn create(cache: &Arc<FileCache>, dir: &Path, id: SnapshotId, serial: u64) -> Result<Arc<Self>, LogError> {
        let path = dir.join(id.part_name(serial));
        let file = cache.create_new(&path)?;
        let (is_checked, is_installed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Self { id, path, cache: cache.clone(), file, size: Mutex::new(0), is_checked, is_installed }))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a slice if it is the next one.
    pub fn append(&self, id: SnapshotId, position: u64, data: &[u8]) -> Result<(), ReceiveError> {
        let mut size = self.size.lock();
        if id != self.id || position != *size || self.is_checked() {
            let expected = format!("byte {} of {}", *size, self.id.file_name());
            return Err(ReceiveError::NotNext { id: id.file_name(), position, expected });
        }
        self.file.write_at(data, position)?;
        *size += data.len() as u64;
        Ok(())
    }

    /// Reads the whole file, verifies every batch from the header to the footer, and makes it durable. Blocks.
    pub fn check(&self) -> Result<(), LogError> {
        checkpoint::check(&self.path)?;
        let io = |action| LogError::io(action, &self.path);
        let mut permissions = self.file.file().metadata().map_err(io("cannot read"))?.permissions();
        permissions.set_readonly(true);
        self.file.file().set_permissions(permissions).map_err(io("cannot make read-only"))?;
        self.file.sync()?;
        self.is_checked.store(true, Ordering::Release);
        Ok(())
    }

    fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Acquire)
    }

    /// Renames the file to its final name, durably: from here on a start completes the install.
    pub fn finish(&self, id: SnapshotId, to: &Path) -> Result<(), ReceiveError> {
        if id != self.id || !self.is_checked() {
            return Err(ReceiveError::NotChecked(id.file_name()));
        }
        self.cache.rename(&self.path, to)?;
        self.is_installed.store(true, Ordering::Release);
        Ok(self.cache.sync_dir(to.parent().expect("it lies in the log's directory"))?)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.is_installed.load(Ordering::Acquire) {
            // A start removes the file if this fails.
            let _ = self.cache.remove(&self.path);
        }
    }
}
