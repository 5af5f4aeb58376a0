//! Lists the files of a log, completes unfinished swaps, and creates the segments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;

use super::config::LogConfig;
use super::files::{FileCache, PartitionDir};
use super::names::{FileName, Kind, Stage};
use super::recovery::Recovery;
use super::scan::Headers;
use super::segment::Segment;

/// The segment files of a partition by base offset: the size of the log file and which other kinds exist.
pub(super) type Listing = BTreeMap<i64, SegmentFiles>;

#[derive(Default)]
pub(super) struct SegmentFiles {
    log_bytes: Option<u64>,
    modified_ms: i64,
    kinds: Vec<Kind>,
}

/// The names of the segment files in a directory.
pub(super) fn list_names(path: &Path) -> Result<Vec<FileName>, LogError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(LogError::io("cannot list", path))? {
        let entry = entry.map_err(LogError::io("cannot list", path))?;
        names.extend(entry.file_name().to_str().and_then(FileName::parse));
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes files that were being created or deleted when the process ended, and completes swaps that were ready, as
/// Apache Kafka's `LogLoader` does.
///
/// Returns the base offsets of segments whose log files were about to be removed.
pub(super) fn finish_swaps(cache: &Arc<FileCache>, path: &Path) -> Result<BTreeSet<i64>, LogError> {
    let names = list_names(path)?;
    let at = |stage| names.iter().copied().filter(move |name| name.stage == stage);
    let first_cleaned = at(Stage::Cleaned).map(|name| name.base_offset).min().unwrap_or(i64::MAX);
    // A swap file at or above a segment that is still being cleaned belongs to an unfinished split.
    let (swaps, unfinished): (Vec<_>, Vec<_>) = at(Stage::Swap).partition(|name| name.base_offset < first_cleaned);
    for name in at(Stage::Deleted).chain(unfinished).chain(at(Stage::Cleaned)) {
        cache.remove(&path.join(name.to_string()))?;
    }
    let (mut from, mut to) = (i64::MAX, i64::MIN);
    for name in swaps.iter().filter(|name| name.kind == Kind::Log) {
        from = from.min(name.base_offset);
        // An empty cleaned segment replaces at least its own: otherwise an index of aborted transactions would remain
        // there.
        to = to.max(next_offset_of(cache, path, *name)?).max(name.base_offset + 1);
    }
    for name in at(Stage::Live).filter(|name| (from..to).contains(&name.base_offset)) {
        cache.remove(&path.join(name.to_string()))?;
    }
    for name in &swaps {
        cache.rename(&path.join(name.to_string()), &path.join(name.at(Stage::Live).to_string()))?;
    }
    if !swaps.is_empty() {
        cache.sync_dir(path)?;
    }
    let dropped = names.iter().filter(|name| name.kind == Kind::Log && name.stage != Stage::Live);
    Ok(dropped.map(|name| name.base_offset).collect())
}

/// Reports missing log files whose indexes still exist: a segment's removal always renames its log file first.
pub(super) fn note_missing(path: &Path, listing: &Listing, dropped: &BTreeSet<i64>, recovery: &mut Recovery) {
    for (&base_offset, found) in listing {
        let has_index = found.kinds.contains(&Kind::OffsetIndex) || found.kinds.contains(&Kind::TimeIndex);
        if found.log_bytes.is_none() && has_index && !dropped.contains(&base_offset) {
            let file = path.join(FileName::live(base_offset, Kind::Log).to_string());
            recovery.warnings.push(format!(
                "{} is missing although its indexes exist: its records from offset {base_offset} on are lost",
                file.display()
            ));
        }
    }
}

/// The offset after the last batch of a log file without indexes.
fn next_offset_of(cache: &Arc<FileCache>, path: &Path, name: FileName) -> Result<i64, LogError> {
    let file = super::files::LogFile::new(&PartitionDir::new(path), name).open(cache)?;
    let mut headers = Headers::new(&file, 0, file.size()?, name.base_offset).skipping(i64::MAX);
    let mut next_offset = name.base_offset;
    while let Some(batch) = headers.next()? {
        next_offset = batch.header().next_offset();
    }
    Ok(next_offset)
}

pub(super) fn list(path: &Path) -> Result<Listing, LogError> {
    let mut listing = Listing::new();
    for name in list_names(path)?.into_iter().filter(|name| name.stage == Stage::Live) {
        let found = listing.entry(name.base_offset).or_default();
        found.kinds.push(name.kind);
        if name.kind == Kind::Log {
            let file = path.join(name.to_string());
            let metadata = fs::metadata(&file).map_err(LogError::io("cannot stat", &file))?;
            found.log_bytes = Some(metadata.len());
            found.modified_ms = metadata
                .modified()
                .ok()
                .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
                .map_or(0, |since| since.as_millis() as i64);
        }
    }
    Ok(listing)
}

pub(super) fn snapshots_of(listing: &Listing) -> BTreeSet<i64> {
    listing.iter().filter(|(_, found)| found.kinds.contains(&Kind::Snapshot)).map(|(&offset, _)| offset).collect()
}

/// Creates the segments of a listing. Indexes without a log file are removed; the offset index is rebuilt if it is
/// missing.
pub(super) fn load_segments(
    cache: &Arc<FileCache>,
    dir: &Arc<PartitionDir>,
    config: &LogConfig,
    listing: Listing,
) -> Result<Vec<Segment>, LogError> {
    let mut segments = Vec::new();
    for (base_offset, found) in listing {
        let Some(log_bytes) = found.log_bytes else {
            for kind in found.kinds.iter().filter(|&&kind| kind != Kind::Snapshot) {
                cache.remove(&dir.join(FileName::live(base_offset, *kind).to_string()))?;
            }
            continue;
        };
        if log_bytes > i32::MAX as u64 {
            return Err(LogError::Corrupt {
                path: dir.join(FileName::live(base_offset, Kind::Log).to_string()),
                position: 0,
                reason: format!("{log_bytes} bytes are more than a segment can have"),
            });
        }
        segments.push(Segment::existing(dir, base_offset, log_bytes, &found.kinds, config, found.modified_ms));
    }
    let next_bases: Vec<i64> = segments.iter().skip(1).map(Segment::base_offset).collect();
    segments.iter_mut().zip(next_bases).for_each(|(segment, next_base)| segment.set_limit(Some(next_base)));
    Ok(segments)
}
