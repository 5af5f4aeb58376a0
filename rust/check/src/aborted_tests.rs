//! A damaged index of aborted transactions is rebuilt from the log, and an examination reports what a start does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_log::clean_stop::ClosedLog;
use klamm_log::index::AbortedTxn;
use klamm_log::testing::{BatchSpec, batch, config, create};
use klamm_log::{Log, LogConfig, LogContext, OpenAt, Origin, Recovery};
use klamm_records::control::end_transaction_marker;
use tempfile::tempdir;

use super::{LogToCheck, Progress, check_logs};

/// Size of an entry in bytes.
const ENTRY: usize = 34;

fn settings() -> LogConfig {
    LogConfig { segment_bytes: 1500, index_interval_bytes: 200, ..config() }
}

struct Scene {
    _dir: tempfile::TempDir,
    path: PathBuf,
    aborted: Vec<AbortedTxn>,
    closed: Arc<ClosedLog>,
    end: i64,
}

impl Scene {
    /// Aborted and committed transactions of two producers, in several segments, one of them across two segments.
    fn new() -> Self {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let mut log = create(&path, settings());
        for round in 0..12 {
            for id in [8, 9] {
                let producer = Some((id, 0, round));
                let spec = BatchSpec { producer, transactional: true, value_bytes: 60, ..BatchSpec::default() };
                log.append_as_leader(&mut batch(&spec), 1, 0, Origin::Client).expect("append");
            }
            for id in [9, 8] {
                // 8 commits sometimes; 9 always aborts.
                let mut marker = end_transaction_marker(id, 0, 2000, id == 8 && round % 3 == 0, 0).expect("small");
                log.append_as_leader(&mut marker, 1, 0, Origin::Coordinator).expect("append");
            }
        }
        log.close().expect("close");
        let end = log.log_end_offset();
        let aborted = log.aborted_between(0, end).expect("read");
        let closed = Arc::new(log.closed().expect("on disk"));
        Self { _dir: dir, path, aborted, closed, end }
    }

    fn at(&self, is_clean: bool) -> OpenAt {
        OpenAt {
            clean: is_clean,
            keeps_damage: true,
            kept_power: true,
            recovery_point: self.end,
            closed: is_clean.then(|| self.closed.clone()),
            ..OpenAt::default()
        }
    }

    fn open(&self, is_clean: bool) -> (Log, Recovery) {
        let context = LogContext::new(64);
        Log::open(&self.path, "t", 0, Arc::new(settings()), &context, self.at(is_clean), 0).expect("open")
    }

    fn indexes(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path).expect("list").map(|entry| entry.expect("entry").path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|found| found == "txnindex")).collect();
        files.sort();
        files
    }

    /// The examination's findings on indexes of aborted transactions, and the action of a start for each.
    fn examine(&self, is_clean: bool) -> Vec<(PathBuf, String)> {
        let log = LogToCheck { path: self.path.clone(), is_deep: true, is_metadata: false, at: self.at(is_clean) };
        let [checked] = &check_logs(&[log], 1, &Progress::default())[..] else { panic!("one log") };
        let of_index = |path: &Path| path.extension().is_some_and(|found| found == "txnindex");
        let findings = checked.findings.iter().filter(|finding| of_index(&finding.file));
        findings.map(|finding| (finding.file.clone(), finding.action.clone())).collect()
    }

    /// Damages the index, starts twice, and compares: everything is as before, and one warning was logged.
    fn check(&self, is_clean: bool, file: &Path, what: &str, damage: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
        let bytes = fs::read(file).expect("read");
        match damage(bytes.clone()) {
            Some(damaged) => fs::write(file, damaged).expect("write"),
            None => fs::remove_file(file).expect("remove"),
        }
        let found = self.examine(is_clean);
        let (mut log, recovery) = self.open(is_clean);
        let [warning] = &recovery.warnings[..] else { panic!("{what}: {:?}", recovery.warnings) };
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(warning.contains(name) && warning.contains("rebuilt from the log"), "{what}: {warning}");
        assert_eq!(found, [(file.to_owned(), "it is rebuilt from the log".to_owned())], "{what}");
        assert_eq!(log.aborted_between(0, self.end).expect("read"), self.aborted, "{what}");
        drop(log);
        assert_eq!(fs::read(file).expect("there again"), bytes, "{what}");
        let (_, again) = self.open(is_clean);
        assert_eq!(again.warnings, [""; 0], "{what}");
    }
}

type Damage = (&'static str, fn(Vec<u8>) -> Option<Vec<u8>>);

fn flip(mut bytes: Vec<u8>, at: usize) -> Option<Vec<u8>> {
    bytes[at] ^= 4;
    Some(bytes)
}

#[test]
fn intact_indexes_are_neither_reported_nor_changed() {
    let scene = Scene::new();
    assert!(scene.aborted.len() > 12 && scene.indexes().len() > 2, "{:?}", scene.indexes());
    assert!(scene.aborted.iter().any(|txn| {
        scene
            .closed
            .segments
            .iter()
            .any(|segment| (txn.first_offset + 1..=txn.last_offset).contains(&segment.base_offset))
    }));
    for is_clean in [true, false] {
        assert_eq!(scene.examine(is_clean), []);
        let (mut log, recovery) = scene.open(is_clean);
        assert_eq!(recovery.warnings, [""; 0]);
        assert_eq!(log.aborted_between(0, scene.end).expect("read"), scene.aborted);
    }
}

#[test]
fn after_a_clean_stop_every_change_is_found() {
    let damages: [Damage; 9] = [
        ("cut", |mut bytes| {
            bytes.truncate(bytes.len() - 5);
            Some(bytes)
        }),
        ("cut at an entry", |mut bytes| {
            bytes.truncate(bytes.len() - ENTRY);
            Some(bytes)
        }),
        ("emptied", |_| Some(Vec::new())),
        ("removed", |_| None),
        ("version", |bytes| flip(bytes, 1)),
        ("producer id", |bytes| flip(bytes, 9)),
        ("first offset", |bytes| flip(bytes, 17)),
        ("last offset", |bytes| flip(bytes, 25)),
        ("last stable offset", |bytes| flip(bytes, 33)),
    ];
    let scene = Scene::new();
    for file in scene.indexes() {
        for (what, damage) in damages {
            scene.check(true, &file, what, damage);
        }
    }
    let [first, second, ..] = &scene.indexes()[..] else { panic!("several") };
    let other = fs::read(second).expect("read");
    scene.check(true, first, "another segment's", |_| Some(other));
}

#[test]
fn after_a_kill_entries_are_compared_with_the_log() {
    let damages: [Damage; 4] = [
        ("cut", |mut bytes| {
            bytes.truncate(bytes.len() - 5);
            Some(bytes)
        }),
        ("version", |bytes| flip(bytes, 1)),
        ("producer id", |bytes| flip(bytes, 9)),
        ("last offset", |bytes| flip(bytes, 24)),
    ];
    let scene = Scene::new();
    for file in scene.indexes() {
        for (what, damage) in damages {
            scene.check(false, &file, what, damage);
        }
    }
}
