//! Checks log directories: what their checkpoints say, and the logs in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::logs::{CheckedLog, LogToCheck, check_logs, note, reason_of, unreadable};
use super::{Finding, Kind, Progress};
use crate::log::METADATA_TOPIC;
use crate::log::checkpoint::{
    CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, Offsets, RECOVERY_POINT, read_clean_shutdown, read_offsets,
};
use crate::log::clean_stop::{CLEAN_STOP, CleanStop};
use crate::log::names::{DirStage, FileName, Kind as FileKind, parse_partition_dir};

/// Topics that are compacted whatever the cleaner's checkpoint says.
const COMPACTED: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// What a log directory holds.
#[derive(Clone, Debug, Default)]
pub struct CheckedDirectory {
    pub path: PathBuf,
    /// The node stopped cleanly: a start verifies nothing that is as it was then.
    pub is_clean: bool,
    pub logs: Vec<CheckedLog>,
    /// Of files that are no log's.
    pub findings: Vec<Finding>,
}

/// Checks log directories, or folders of single logs, with so many threads. Changes nothing and locks nothing.
pub fn check_directories(
    paths: &[PathBuf],
    is_deep: bool,
    threads: usize,
    progress: &Progress,
) -> Vec<CheckedDirectory> {
    let mut directories = Vec::new();
    let mut logs = Vec::new();
    for path in paths {
        let (directory, own) = list(path, is_deep);
        logs.push(own.len());
        directories.push((directory, own));
    }
    let all: Vec<LogToCheck> = directories.iter().flat_map(|(_, own)| own.iter().cloned()).collect();
    let mut checked = check_logs(&all, threads, progress).into_iter();
    directories
        .into_iter()
        .zip(logs)
        .map(|((mut directory, _), count)| {
            directory.logs = checked.by_ref().take(count).collect();
            directory
        })
        .collect()
}

/// What the checkpoints of a directory say of its logs.
#[derive(Default)]
struct Known {
    checkpoints: BTreeMap<&'static str, Offsets>,
    clean_stop: Option<CleanStop>,
}

impl Known {
    fn of(&self, name: &str, key: &(String, i32)) -> Option<i64> {
        self.checkpoints.get(name)?.get(key).copied()
    }
}

fn list(path: &Path, is_deep: bool) -> (CheckedDirectory, Vec<LogToCheck>) {
    let mut directory = CheckedDirectory { path: path.to_owned(), ..CheckedDirectory::default() };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            directory.findings.push(unreadable(path, &error));
            return (directory, Vec::new());
        }
    };
    let mut folders = BTreeMap::new();
    let mut is_log = false;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        is_log |= FileName::parse(name).is_some_and(|name| name.kind == FileKind::Log);
        if let Some((topic, partition, stage)) = parse_partition_dir(name).filter(|_| entry.path().is_dir()) {
            match stage {
                DirStage::Live => {
                    folders.insert((topic.to_owned(), partition), entry.path());
                }
                DirStage::Delete => {
                    directory.findings.push(note(&entry.path(), "is about to be removed", "a start removes it"));
                }
                _ => directory.findings.push(note(&entry.path(), "is set aside", "a start leaves it where it is")),
            }
        }
    }
    if is_log {
        let is_metadata = path.file_name().is_some_and(|name| name.to_str().is_some_and(is_metadata_folder));
        let log =
            LogToCheck { path: path.to_owned(), is_deep, is_metadata, has_gaps: !is_metadata, ..LogToCheck::default() };
        return (directory, vec![log]);
    }
    let has_partitions = folders.keys().any(|(topic, _)| topic != METADATA_TOPIC);
    let known = read_known(&mut directory, has_partitions);
    let logs = folders.into_iter().map(|(key, path)| to_check(path, &key, &known, is_deep, directory.is_clean));
    let logs = logs.collect();
    (directory, logs)
}

fn is_metadata_folder(name: &str) -> bool {
    parse_partition_dir(name).is_some_and(|(topic, _, _)| topic == METADATA_TOPIC)
}

fn to_check(path: PathBuf, key: &(String, i32), known: &Known, is_deep: bool, is_clean: bool) -> LogToCheck {
    let is_metadata = key.0 == METADATA_TOPIC;
    let closed = known.clean_stop.as_ref().and_then(|stop| stop.logs.get(key));
    let recovery_point = known.of(RECOVERY_POINT, key);
    LogToCheck {
        path,
        is_deep,
        is_metadata,
        has_gaps: !is_metadata && (known.of(CLEANER_OFFSET, key).is_some() || COMPACTED.contains(&key.0.as_str())),
        is_clean,
        recovery_point,
        log_start_offset: known.of(LOG_START_OFFSET, key),
        high_watermark: known.of(HIGH_WATERMARK, key),
        closed_end: closed.map(|closed| closed.log_end_offset),
    }
}

fn read_known(directory: &mut CheckedDirectory, has_partitions: bool) -> Known {
    let mut known = Known::default();
    let path = directory.path.clone();
    let mark = match read_clean_shutdown(&path) {
        Ok(mark) => mark,
        Err(error) => {
            directory.findings.push(Finding::damaged(&path, error.to_string(), "a start refuses the directory"));
            None
        }
    };
    directory.is_clean = mark.is_some();
    let actions = [
        (RECOVERY_POINT, "after a crash a start reads every log whole"),
        (LOG_START_OFFSET, "logs start with their first segment: deleted records may come back"),
        (HIGH_WATERMARK, "a start takes the high watermark from the log"),
        (CLEANER_OFFSET, "compaction begins at the start of each log"),
    ];
    for (name, action) in actions {
        let file = path.join(name);
        match read_offsets(&file) {
            Err(error) => directory.findings.push(Finding::damaged(&file, reason_of(&error), action)),
            Ok(_) if !file.exists() => {
                // Apache Kafka writes the cleaner's when it has cleaned something, and the others some time after a start.
                if has_partitions && name != CLEANER_OFFSET {
                    let kind = if directory.is_clean { Kind::Missing } else { Kind::Note };
                    directory.findings.push(Finding::new(kind, &file, "the directory has logs", action));
                }
            }
            Ok(_) if has_partitions && fs::metadata(&file).is_ok_and(|file| file.len() == 0) => {
                directory.findings.push(Finding::damaged(&file, "it is empty", action));
            }
            Ok(offsets) => {
                known.checkpoints.insert(name, offsets);
            }
        }
    }
    let Some(expected) = mark.and_then(|mark| mark.clean_stop) else { return known };
    let file = path.join(CLEAN_STOP);
    let action = "a start recovers every log as after a crash";
    match CleanStop::read(&path) {
        Ok(Some((record, checksum))) if checksum == expected => known.clean_stop = Some(record),
        Ok(Some(_)) => {
            let reason = "it is not the record of the last clean stop";
            directory.findings.push(Finding::damaged(&file, reason, action));
        }
        Ok(None) => directory.findings.push(Finding::missing(&file, "the last stop was clean", action)),
        Err(error) => directory.findings.push(Finding::damaged(&file, reason_of(&error), action)),
    }
    known
}
