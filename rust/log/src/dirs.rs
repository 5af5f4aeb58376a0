//! One entry of `log.dirs`, locked against other users.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use klamm_base::LogError;
use klamm_base::{Uuid, os};
use parking_lot::Mutex;

pub const LOCK: &str = ".lock";

/// The directories that this process has locked: file locks do not exclude two users in one process.
static HELD: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// A directory that is locked until this value is dropped.
pub struct LockedDir {
    path: PathBuf,
    id: Uuid,
    /// The open file that carries the lock; `None` after the release.
    lock: Mutex<Option<File>>,
    /// Device and inode.
    identity: (u64, u64),
}

impl LockedDir {
    /// Locks the directory and checks its `directory.id`; creates the directory if it does not exist. Changes nothing
    /// else.
    pub fn open(path: &Path, id: Uuid) -> Result<Self, LogError> {
        fs::create_dir_all(path).map_err(LogError::io("cannot create", path))?;
        let path = fs::canonicalize(path).map_err(LogError::io("cannot find", path))?;
        let used = |by: &str| LogError::Directory {
            path: path.clone(),
            reason: format!(
                "another {by} uses this directory: stop it first, or give this node a directory of its own"
            ),
        };
        if !HELD.lock().insert(path.clone()) {
            return Err(used("node in this process"));
        }
        // From here on, dropping the guard releases the directory.
        let held = Held(path.clone());
        let file = path.join(LOCK);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let lock = lock.map_err(LogError::io("cannot open", &file))?;
        if !os::try_lock(&lock).map_err(LogError::io("cannot lock", &file))? {
            return Err(used("process"));
        }
        let identity = identity_of(&path)?;
        std::mem::forget(held);
        Ok(Self { path, id, lock: Mutex::new(Some(lock)), identity })
    }

    /// Fails if the directory was removed or replaced by another one.
    pub fn check_there(&self) -> Result<(), LogError> {
        if identity_of(&self.path)? == self.identity {
            return Ok(());
        }
        let reason = "another directory took its place while the node ran";
        Err(LogError::io("cannot find", &self.path)(std::io::Error::new(std::io::ErrorKind::NotFound, reason)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases the directory before this is dropped: none of its files is used any more.
    pub fn release(&self) {
        // Closing any descriptor of the file releases the lock of the process, so close it before the next user may
        // open it.
        if self.lock.lock().take().is_some() {
            HELD.lock().remove(&self.path);
        }
    }

    /// `directory.id`.
    pub fn id(&self) -> Uuid {
        self.id
    }
}

fn identity_of(path: &Path) -> Result<(u64, u64), LogError> {
    let metadata = fs::metadata(path).map_err(LogError::io("cannot find", path))?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for LockedDir {
    fn drop(&mut self) {
        self.release();
    }
}

struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        HELD.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    const ID: Uuid = Uuid([7; 16]);

    #[test]
    fn a_directory_has_one_user() {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("data");
        let first = LockedDir::open(&path, ID).expect("free");
        let error = LockedDir::open(&path, ID).err().expect("taken").to_string();
        assert!(error.contains("data") && error.contains("another node in this process"), "{error}");
        assert_eq!(first.id(), ID);
        drop(first);
        LockedDir::open(&path, ID).expect("free again");
    }
}
