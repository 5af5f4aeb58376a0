//! Segment files of another log: exchanged with a sibling's while the node was stopped.
//!
//! Their batches are intact and their offsets may fit. Only the clean-stop record reveals them, because it contains
//! the checksum of each segment's first batch. Such a file is set aside, so that no later start takes its records for
//! this log's.

use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header};

use super::clean_stop::{ClosedLog, ClosedSegment};
use super::files::FileCache;
use super::names::{FileName, Kind, Stage};
use super::scan::Batches;

/// Apache Kafka and klamm ignore a file of this name.
const SUFFIX: &str = ".stray";

/// A segment file of another log.
pub struct StraySegment {
    pub base_offset: i64,
    pub reason: String,
}

impl StraySegment {
    fn log_name(&self) -> String {
        FileName::live(self.base_offset, Kind::Log).to_string()
    }

    /// The name that the file receives.
    pub fn new_name(&self) -> String {
        self.log_name() + SUFFIX
    }

    /// Renames the file and removes its indexes; returns the warning.
    pub fn set_aside(&self, cache: &Arc<FileCache>, folder: &Path) -> Result<String, LogError> {
        let (file, stray) = (folder.join(self.log_name()), folder.join(self.new_name()));
        cache.rename(&file, &stray)?;
        for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
            cache.remove(&folder.join(FileName::live(self.base_offset, kind).at(Stage::Live).to_string()))?;
        }
        cache.sync_dir(folder)?;
        let (file, stray) = (file.display(), stray.display());
        Ok(format!(
            "{file} is not this partition's: {}. It is renamed to {stray}, and its offsets cannot be read",
            self.reason
        ))
    }
}

/// The segment files of a folder whose first batch is intact but not the one of the closed log.
pub fn find_strays(cache: &Arc<FileCache>, folder: &Path, closed: &ClosedLog) -> Result<Vec<StraySegment>, LogError> {
    let mut strays = Vec::new();
    for segment in &closed.segments {
        if let Some(found) = other_first_crc(cache, folder, segment)? {
            let expected = segment.first_crc.unwrap_or_default();
            let reason = format!(
                "its first batch has checksum {found:08x}, and had {expected:08x} when the node stopped cleanly"
            );
            strays.push(StraySegment { base_offset: segment.base_offset, reason });
        }
    }
    Ok(strays)
}

/// The checksum of an intact first batch that differs from the expected one.
fn other_first_crc(cache: &Arc<FileCache>, folder: &Path, segment: &ClosedSegment) -> Result<Option<u32>, LogError> {
    let Some(expected) = segment.first_crc else { return Ok(None) };
    let file = match cache.open_read_only(&folder.join(FileName::live(segment.base_offset, Kind::Log).to_string())) {
        Err(LogError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let mut header = [0; HEADER_LEN];
    let read = file.read_up_to(&mut header, 0)?;
    let Some(found) = Header::at_start_of(&header[..read]).map(|header| header.crc()) else { return Ok(None) };
    if found == expected {
        return Ok(None);
    }
    let mut batches = Batches::new(&file, 0, file.size()?);
    match batches.check() {
        Ok(first) => Ok(first.map(|_| found)),
        Err(LogError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
