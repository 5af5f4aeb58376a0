//! Checks log directories: their checkpoints, and their logs.

use std::fs;
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_log::check::DirCheck;
use klamm_log::checkpoint::{CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, PROVEN_END, RECOVERY_POINT};
use klamm_log::clean_stop::CLEAN_STOP;
use klamm_log::names::{DirStage, FileName, Kind as FileKind, parse_partition_dir};
use klamm_log::{METADATA_TOPIC, OpenAt};

use super::logs::{LogToCheck, check_logs};
use super::{Finding, Kind, LogCheck, Progress, note, unreadable};

/// Topics that are compacted whether or not the cleaner's checkpoint contains them.
const COMPACTED: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// The results for a log directory.
#[derive(Clone, Debug, Default)]
pub struct CheckedDirectory {
    pub path: PathBuf,
    /// The node stopped cleanly: a start does not verify data that is unchanged since then.
    pub is_clean: bool,
    pub logs: Vec<LogCheck>,
    /// Findings on files that belong to no log.
    pub findings: Vec<Finding>,
}

/// Checks log directories, or folders of single logs, with `threads` threads. Changes nothing and locks nothing.
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

fn list(path: &Path, is_deep: bool) -> (CheckedDirectory, Vec<LogToCheck>) {
    let mut directory = CheckedDirectory { path: path.to_owned(), ..CheckedDirectory::default() };
    let metadata = match of_folders(&mut directory) {
        Ok(Folders::OneLog) => {
            let is_metadata = path.file_name().and_then(|name| name.to_str()).is_some_and(is_metadata_folder);
            // Nothing is known about the last stop: torn data may have been acknowledged.
            let at = OpenAt { has_gaps: true, gaps_below: i64::MAX, clean: true, ..OpenAt::default() };
            return (directory, vec![LogToCheck { path: path.to_owned(), is_deep: true, is_metadata, at }]);
        }
        Ok(Folders::Directory { metadata }) => metadata,
        Err(error) => {
            directory
                .findings
                .push(Finding { action: "a start refuses the directory".to_owned(), ..unreadable(path, &error) });
            return (directory, Vec::new());
        }
    };
    let known = match DirCheck::read(path) {
        Ok(known) => known,
        Err(error) => {
            directory.findings.push(unreadable(path, &error));
            return (directory, Vec::new());
        }
    };
    directory.is_clean = known.is_clean();
    of_checkpoints(&mut directory, &known);
    let of_metadata = metadata.into_iter().map(|path| {
        let at = OpenAt { clean: known.is_clean(), ..OpenAt::default() };
        LogToCheck { path, is_deep, is_metadata: true, at }
    });
    let partitions = known.logs().map(|found| {
        let mut at = known.open_at(found);
        at.has_gaps |= COMPACTED.contains(&found.topic.as_str());
        LogToCheck { path: found.path.clone(), is_deep, is_metadata: false, at }
    });
    let logs = of_metadata.chain(partitions).collect();
    (directory, logs)
}

/// The kind of a path.
enum Folders {
    /// The folder of a single log.
    OneLog,
    /// A log directory, possibly with the metadata log.
    Directory { metadata: Option<PathBuf> },
}

fn of_folders(directory: &mut CheckedDirectory) -> Result<Folders, LogError> {
    let path = directory.path.clone();
    let mut metadata = None;
    for entry in fs::read_dir(&path).map_err(LogError::io("cannot list", &path))? {
        let entry = entry.map_err(LogError::io("cannot list", &path))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if FileName::parse(name).is_some_and(|name| name.kind == FileKind::Log) {
            return Ok(Folders::OneLog);
        }
        let Some((_, _, stage)) = parse_partition_dir(name).filter(|_| entry.path().is_dir()) else { continue };
        match stage {
            DirStage::Live if is_metadata_folder(name) => metadata = Some(entry.path()),
            DirStage::Live => {}
            DirStage::Delete => {
                directory.findings.push(note(&entry.path(), "is about to be removed", "a start removes it"));
            }
            _ => directory.findings.push(note(&entry.path(), "is set aside", "a start leaves it where it is")),
        }
    }
    Ok(Folders::Directory { metadata })
}

fn is_metadata_folder(name: &str) -> bool {
    parse_partition_dir(name).is_some_and(|(topic, _, _)| topic == METADATA_TOPIC)
}

/// What a start does without one of the directory's files.
fn without(name: &str) -> &'static str {
    match name {
        RECOVERY_POINT => "it counts as empty: after a crash a start reads every log whole",
        LOG_START_OFFSET => "it counts as empty: without the clean-stop record, logs start with their first segment",
        HIGH_WATERMARK => "it counts as empty: a start takes the high watermark from the log",
        PROVEN_END => "it counts as empty: after a power cut a log may end where it is damaged",
        CLEANER_OFFSET => "it counts as empty: compaction begins at the start of each log",
        _ => "the logs are compared with the checkpoints only",
    }
}

fn of_checkpoints(directory: &mut CheckedDirectory, known: &DirCheck) {
    for (file, reason) in &known.damaged {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = if name == CLEAN_STOP && !file.exists() { Kind::Missing } else { Kind::Damaged };
        let reason = reason.trim_start_matches(&*file.display().to_string()).trim_start();
        directory.findings.push(Finding::new(kind, file, reason, without(name)));
    }
    if known.logs().next().is_none() {
        return;
    }
    for name in [RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK, CLEANER_OFFSET] {
        let file = directory.path.join(name);
        match fs::metadata(&file) {
            Ok(metadata) if metadata.len() == 0 && known.damaged.iter().all(|(damaged, _)| *damaged != file) => {
                directory.findings.push(Finding::damaged(&file, "it is empty", without(name)));
            }
            Ok(_) => {}
            // Apache Kafka writes the cleaner's checkpoint after the first cleaning, and the others some time after a
            // start.
            Err(_) if name != CLEANER_OFFSET => {
                let kind = if directory.is_clean { Kind::Missing } else { Kind::Note };
                directory.findings.push(Finding::new(kind, &file, "the directory has logs", without(name)));
            }
            Err(_) => {}
        }
    }
    for (topic, partition, closed) in known.missing() {
        let folder = directory.path.join(format!("{topic}-{partition}"));
        let reason = "it was there when the node stopped cleanly";
        let finding = Finding::missing(&folder, reason, "a start makes an empty log; its records are lost here");
        directory.findings.push(finding.of(closed.log_start_offset, closed.log_end_offset));
    }
}
