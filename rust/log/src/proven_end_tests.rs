//! Damage that was kept once is kept after a power cut, which makes it look like a torn write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use klamm_base::Uuid;
use tempfile::{TempDir, tempdir};

use super::checkpoint::PROVEN_END;
use super::manager_tests::{Owner, crash, create_with, start_over};
use super::testing::{BatchSpec, batch, config};
use super::*;

/// Bytes of a sector that a power cut may lose.
const SECTOR: usize = 512;
const BATCH_BYTES: usize = 4 * SECTOR;

fn start(root: &Path) -> (Arc<LogManager>, Receiver<Event>) {
    let config = ManagerConfig { intervals: None, cleaner: None, ..ManagerConfig::default() };
    start_over(&[root], config, LogContext::new(64))
}

fn append(owner: &Owner) -> Vec<u8> {
    let mut bytes = batch(&BatchSpec { value_bytes: BATCH_BYTES, ..BatchSpec::default() });
    with_log(owner, |log| log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append"));
    bytes
}

fn open(manager: &LogManager) -> Log {
    let found = manager.found();
    manager.open(&found[0], Arc::new(config()), 0).expect("open").0
}

/// A directory with log `a-0` of three flushed batches. A sector of the second one is erased, and no checkpoint contains it.
struct Scene {
    _dir: TempDir,
    root: PathBuf,
    second: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let dir = tempdir().expect("temporary directory");
        let root = fs::canonicalize(dir.path()).expect("there");
        let (manager, _events) = start(&root);
        let (owner, _) = create_with(&manager, 0, "a", config());
        let batches = [append(&owner), append(&owner), append(&owner)];
        with_log(&*owner, |log| log.flush().expect("flush"));
        crash(manager);
        let scene = Self { _dir: dir, root, second: batches[1].clone() };
        scene.erase(batches[0].len());
        scene
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Erases a sector of the batch that begins at `position`.
    fn erase(&self, position: usize) {
        let file = self.file("a-0/00000000000000000000.log");
        let mut bytes = fs::read(&file).expect("read");
        let sector = (position / SECTOR + 2) * SECTOR;
        bytes[sector..sector + SECTOR].fill(0);
        fs::write(&file, bytes).expect("write");
    }

    /// A start after a kill, which keeps the damage.
    fn start(&self) -> (Arc<LogManager>, Arc<Owner>) {
        let (manager, _events) = start(&self.root);
        let mut log = open(&manager);
        assert_eq!((log.damaged().len(), log.log_end_offset()), (1, 3));
        log.flush().expect("flush");
        let (owner, _) = Owner::new(log);
        manager.adopt(0, "a", 0, owner.clone());
        manager.checkpoint_proven_ends(0).expect("checkpoint");
        (manager, owner)
    }

    fn lose_power(&self) {
        // A start in which no log was opened has not written it.
        drop(fs::remove_file(self.file(BOOT_ID)));
    }

    /// Where the log ends after a power cut, how much of it is damaged, and the warnings.
    fn end_after_power_cut(&self) -> (i64, usize, Vec<String>) {
        self.lose_power();
        let (manager, events) = start(&self.root);
        let log = open(&manager);
        crash(manager);
        let warnings = events.try_iter().map(|event| match event {
            Event::Warning(warning) => warning,
            failed => panic!("{failed:?}"),
        });
        (log.log_end_offset(), log.damaged().len(), warnings.collect())
    }

    fn proven_ends(&self) -> String {
        fs::read_to_string(self.file(PROVEN_END)).expect("written")
    }
}

#[test]
fn known_damage_is_not_taken_for_a_torn_write() {
    let scene = Scene::new();
    crash(scene.start().0);
    assert_eq!(scene.proven_ends(), "0\n1\na 0 3\n");
    let (end, damaged, warnings) = scene.end_after_power_cut();
    assert_eq!((end, damaged, warnings.len()), (3, 1, 1), "{warnings:?}");
    // The log was not opened, so that its entry stays.
    let (manager, _events) = start(&scene.root);
    manager.dirs()[0].checkpoint_all(&manager.context().cache).expect("checkpoint");
    crash(manager);
    assert_eq!(scene.end_after_power_cut().0, 3);
}

#[test]
fn without_the_file_damage_may_be_a_torn_write() {
    let scene = Scene::new();
    crash(scene.start().0);
    fs::remove_file(scene.file(PROVEN_END)).expect("there");
    let (end, damaged, _) = scene.end_after_power_cut();
    assert_eq!((end, damaged), (1, 0));
}

#[test]
fn a_damaged_file_counts_as_empty_and_is_replaced() {
    let scene = Scene::new();
    crash(scene.start().0);
    fs::write(scene.file(PROVEN_END), "0\n1\na 0 3\nb").expect("write");
    let (end, _, warnings) = scene.end_after_power_cut();
    assert_eq!(end, 1);
    assert!(warnings[0].contains(&scene.file(PROVEN_END).display().to_string()), "{warnings:?}");
    let (manager, _events) = start(&scene.root);
    manager.dirs()[0].checkpoint_all(&manager.context().cache).expect("checkpoint");
    crash(manager);
    assert_eq!(scene.proven_ends(), "0\n0\n");
}

#[test]
fn what_apache_kafka_may_have_truncated_is_not_proven() {
    let scene = Scene::new();
    crash(scene.start().0);
    fs::remove_file(scene.file(SOLE_WRITER)).expect("there");
    let (end, damaged, warnings) = scene.end_after_power_cut();
    assert_eq!((end, damaged, warnings.len()), (1, 0, 1), "the log is cut: {warnings:?}");
}

#[test]
fn a_repair_ends_it() {
    let scene = Scene::new();
    let (manager, owner) = scene.start();
    with_log(&*owner, |log| {
        let damaged = log.damaged();
        assert!(log.repair(&damaged[0], &scene.second).expect("written"));
    });
    manager.checkpoint_proven_ends(0).expect("checkpoint");
    assert_eq!(scene.proven_ends(), "0\n0\n");
}

#[test]
fn a_truncation_lowers_it_first() {
    let scene = Scene::new();
    let (manager, owner) = scene.start();
    let truncation = [(("a".to_owned(), 0), 1)];
    manager.begin_truncation(0, &truncation).expect("checkpoint");
    assert_eq!(scene.proven_ends(), "0\n1\na 0 1\n");
    with_log(&*owner, |log| log.truncate_to(1, 0).expect("truncated"));
    manager.end_truncation(&truncation).expect("checkpoint");
    // What is appended now is torn.
    let position = with_log(&*owner, |log| log.size());
    append(&owner);
    crash(manager);
    drop(owner);
    scene.erase(usize::try_from(position).expect("small"));
    let (end, damaged, _) = scene.end_after_power_cut();
    assert_eq!((end, damaged), (1, 0));
}

#[test]
fn a_new_topic_of_that_name_does_not_inherit_it() {
    let scene = Scene::new();
    let (manager, owner) = scene.start();
    drop(owner);
    manager.delete("a", 0, 0).expect("delete");
    manager.plan(0, "a", 0, Uuid([8; 16]), Arc::new(config())).expect("plan");
    assert_eq!(scene.proven_ends(), "0\n0\n");
    crash(manager);
}

#[test]
fn a_directory_without_damage_has_no_such_file() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(dir.path());
    let (owner, _) = create_with(&manager, 0, "a", config());
    append(&owner);
    manager.dirs()[0].checkpoint_all(&manager.context().cache).expect("checkpoint");
    manager.shutdown(1);
    assert!(!dir.path().join(PROVEN_END).exists());
}
