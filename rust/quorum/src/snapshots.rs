//! The snapshot files of the metadata log: which exist, which a start removes, and how old ones are deleted.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_log::files::FileCache;
use klamm_metadata::checkpoint;
use klamm_records::control::ControlRecord;

const SUFFIX: &str = ".checkpoint";
const PART_SUFFIX: &str = ".checkpoint.part";
const DELETED_SUFFIX: &str = ".checkpoint.deleted";

/// The end offset (exclusive) of a snapshot, and the epoch of its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    pub end_offset: i64,
    pub epoch: i32,
}

impl SnapshotId {
    /// The file's name.
    pub fn file_name(self) -> String {
        format!("{:020}-{:010}{SUFFIX}", self.end_offset, self.epoch)
    }

    /// Parses the file name of a finished snapshot.
    pub fn of_file(name: &str) -> Option<Self> {
        Self::parse(name, SUFFIX)
    }

    /// The name of its unfinished file.
    pub fn part_name(self, serial: u64) -> String {
        format!("{:020}-{:010}-{serial}{PART_SUFFIX}", self.end_offset, self.epoch)
    }

    fn parse(name: &str, suffix: &str) -> Option<Self> {
        let (offset, epoch) = name.strip_suffix(suffix)?.split_once('-')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if offset.len() != 20 || epoch.len() != 10 || !digits(offset) || !digits(epoch) {
            return None;
        }
        Some(Self { end_offset: offset.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

/// A finished snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub size_bytes: u64,
    pub last_contained_log_timestamp_ms: i64,
}

/// The snapshots of a directory, oldest first.
pub struct Snapshots {
    dir: PathBuf,
    cache: Arc<FileCache>,
    list: Vec<SnapshotInfo>,
}

impl Snapshots {
    /// Lists the directory and removes unfinished files and those marked for deletion.
    pub fn open(dir: &Path, cache: &Arc<FileCache>) -> Result<Self, LogError> {
        let mut snapshots = Self { dir: dir.to_owned(), cache: cache.clone(), list: Vec::new() };
        for entry in fs::read_dir(dir).map_err(LogError::io("cannot list", dir))? {
            let path = entry.map_err(LogError::io("cannot list", dir))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(PART_SUFFIX) || name.ends_with(DELETED_SUFFIX) {
                cache.remove(&path)?;
            } else if let Some(id) = SnapshotId::parse(name, SUFFIX) {
                snapshots.add(id)?;
            }
        }
        Ok(snapshots)
    }

    /// The path of the snapshot with this id, existing or not.
    pub fn path(&self, id: SnapshotId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    /// Adds a finished snapshot to the list.
    pub fn add(&mut self, id: SnapshotId) -> Result<(), LogError> {
        let path = self.path(id);
        let size_bytes = fs::metadata(&path).map_err(LogError::io("cannot look at", &path))?.len();
        let last_contained_log_timestamp_ms = header_timestamp(&path)?;
        let info = SnapshotInfo { id, size_bytes, last_contained_log_timestamp_ms };
        match self.list.binary_search_by_key(&id, |info| info.id) {
            Ok(at) => self.list[at] = info,
            Err(at) => self.list.insert(at, info),
        }
        Ok(())
    }

    /// The finished snapshots, oldest first.
    pub fn list(&self) -> &[SnapshotInfo] {
        &self.list
    }

    /// The bytes of a finished snapshot from `position` on, `max_bytes` at most; `None` if it does not exist.
    pub fn read(&self, id: SnapshotId, position: u64, max_bytes: usize) -> Result<Option<Vec<u8>>, LogError> {
        let Some(info) = self.list.iter().find(|info| info.id == id) else { return Ok(None) };
        let path = self.path(id);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(LogError::io("cannot open", &path))?,
        };
        let left = info.size_bytes.saturating_sub(position);
        let mut bytes = vec![0; max_bytes.min(usize::try_from(left).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut bytes, position).map_err(LogError::io("cannot read", &path))?;
        Ok(Some(bytes))
    }

    /// Removes the snapshots that end before `offset`; true if there were any.
    pub fn remove_before(&mut self, offset: i64) -> Result<bool, LogError> {
        let count = self.list.partition_point(|info| info.id.end_offset < offset);
        for info in self.list.drain(..count) {
            self.cache.remove(&self.dir.join(info.id.file_name()))?;
        }
        Ok(count > 0)
    }
}

/// The append time of the last record that a snapshot contains, from its header.
fn header_timestamp(path: &Path) -> Result<i64, LogError> {
    let header = checkpoint::header_records(path)?;
    let [high, low] = ControlRecord::SnapshotHeader { last_contained_log_timestamp: 0 }.kind().to_be_bytes();
    let value = header.first().map(|(_, value)| &value[..]);
    match ControlRecord::parse(Some(&[0, 0, high, low]), value) {
        Ok(ControlRecord::SnapshotHeader { last_contained_log_timestamp }) => Ok(last_contained_log_timestamp),
        _ => {
            let reason = "it does not begin with a snapshot header".to_owned();
            Err(LogError::Corrupt { path: path.to_owned(), position: 0, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        let id = SnapshotId { end_offset: 179, epoch: 2 };
        assert_eq!(id.file_name(), "00000000000000000179-0000000002.checkpoint");
        assert_eq!(SnapshotId::parse(&id.file_name(), SUFFIX), Some(id));
        for other in ["bootstrap.checkpoint", "-1.checkpoint", "0000000000000000017x-0000000002.checkpoint"] {
            assert_eq!(SnapshotId::parse(other, SUFFIX), None, "{other}");
        }
    }
}
