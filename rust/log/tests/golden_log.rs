//! Logs that Apache Kafka 4.3.1 wrote are read as its clients read them, and rewritten byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use klamm_log::{LockedDir, Log, LogConfig, LogContext, LogManager, LogOnDisk, ManagerConfig, OpenAt};
use klamm_records::{Batch, batches, records};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A fresh copy of a data directory of the corpus; `None`, with a message, if it cannot be unpacked.
fn unpack(name: &str) -> Option<(TempDir, PathBuf)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/kafka-4.3.1");
    let dir = tempfile::tempdir().expect("temporary directory");
    let archive = corpus.join(format!("{name}.tar.xz"));
    let unpacked = Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(dir.path()).status();
    if !unpacked.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "tar cannot unpack {}", archive.display());
        eprintln!("skipped: tar cannot unpack {}", archive.display());
        return None;
    }
    let path = dir.path().join(name);
    Some((dir, path))
}

fn expected() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/kafka-4.3.1/expected.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the corpus")).expect("JSON")
}

fn manage(path: &Path) -> Arc<LogManager> {
    let locked = vec![LockedDir::open(path, klamm_base::Uuid([9; 16])).expect("free")];
    let context = LogContext::new(64);
    LogManager::start(locked, ManagerConfig::default(), context, 0, Arc::new(|_| {})).expect("start")
}

/// The rows that a consumer receives: offset, timestamp, key, value.
fn rows(log: &mut Log, read_committed: bool) -> Vec<Value> {
    let end = log.log_end_offset();
    let upto = if read_committed { log.last_stable_offset(end) } else { end };
    let (mut rows, mut offset) = (Vec::new(), log.log_start_offset());
    loop {
        let slice = log.read(offset, 1 << 20, upto, true).expect("read");
        if slice.len == 0 {
            return rows;
        }
        let aborted = log.aborted_transactions(offset, &slice).expect("read");
        let bytes = slice.read().expect("read");
        for batch in batches(&bytes) {
            let batch = batch.expect("whole");
            batch.check().expect("valid");
            offset = batch.header().next_offset();
            let skipped = aborted.iter().any(|txn| {
                let header = batch.header();
                header.producer_id() == txn.producer_id
                    && header.base_offset() >= txn.first_offset
                    && header.base_offset() <= txn.last_offset
            });
            let hidden = read_committed && skipped && batch.header().is_transactional();
            if !batch.header().is_control() && !hidden {
                add_rows(batch, &mut rows);
            }
        }
    }
}

fn add_rows(batch: Batch<'_>, rows: &mut Vec<Value>) {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text"));
    for record in records(batch, &mut Vec::new(), 1 << 20).expect("readable") {
        let record = record.expect("valid");
        rows.push(json!([record.offset, record.timestamp, text(record.key), text(record.value)]));
    }
}

fn check_against_clients(name: &str) {
    let Some((_dir, path)) = unpack(name) else { return };
    let manager = manage(&path);
    let expected = expected();
    let mut seen = 0;
    for found in manager.found() {
        let (mut log, recovery) = manager.open(&found, Arc::new(LogConfig::default()), 0).expect("open");
        assert_eq!(recovery.warnings, Vec::<String>::new(), "{}", found.topic);
        assert_eq!(recovery.segments_checked == 0, name == "clean", "{}", found.topic);
        for (isolation, read_committed) in [("records", false), ("read_committed", true)] {
            if let (Some(wanted), 0) = (expected[isolation].get(&found.topic), found.partition) {
                assert_eq!(Value::from(rows(&mut log, read_committed)), *wanted, "{} {isolation}", found.topic);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 9);
}

#[test]
fn a_cleanly_shut_down_directory_is_read_as_kafkas_clients_read_it() {
    check_against_clients("clean");
}

#[test]
fn a_killed_brokers_directory_is_read_as_kafkas_clients_read_it() {
    check_against_clients("killed");
}

/// Names and contents of the files in which Apache Kafka and klamm must agree.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(path).expect("list").map(|entry| entry.expect("entry").path());
    // An epoch that starts at the log's end is removed at start, by Apache Kafka too.
    let mut contents: Vec<_> = entries
        .filter(|path| !path.ends_with("leader-epoch-checkpoint"))
        .map(|path| (path.file_name().expect("named").to_string_lossy().into_owned(), fs::read(path).expect("read")))
        .collect();
    contents.sort();
    contents
}

fn open_unclean(found: &LogOnDisk) -> Log {
    let at = OpenAt { recovery_point: 0, log_start_offset: 0, clean: false, has_gaps: false, ..OpenAt::default() };
    let context = LogContext::new(64);
    let config = Arc::new(LogConfig::default());
    Log::open(&found.path, &found.topic, found.partition, config, &context, at, 0).expect("open").0
}

#[test]
fn rebuilt_indexes_and_snapshots_are_kafkas_byte_for_byte() {
    let Some((_dir, path)) = unpack("clean") else { return };
    for found in manage(&path).found() {
        let kafkas = contents(&found.path);
        open_unclean(&found).close().expect("close");
        assert_eq!(contents(&found.path), kafkas, "{}-{}", found.topic, found.partition);
    }
}
