//! A random history of a node's logs: what is done to them, every change of their files, and every promise.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::expected::{Expected, Promise};
use super::node::{DIRS, Node, Owner};
use crate::crash::{Disk, Rng};
use crate::log_dir::Key;
use crate::recorder::{Change, Recorder};
use crate::testing::config;
use crate::{LogConfig, LogOwner, with_log};

pub const NOW_MS: i64 = 1_000_000;

pub struct History {
    dir: TempDir,
    /// The files at the beginning, and the number of changes before it.
    pub disk: Disk,
    pub base: usize,
    /// All changes of files since then, except for those that the recorder still holds.
    pub changes: Vec<Change>,
    /// The number of changes before the first promise.
    pub first: usize,
    pub recorder: Arc<Recorder>,
    /// The log directory of each open file.
    files: HashMap<u64, usize>,
    /// `None` between an end and the next start.
    pub node: Option<Node>,
    /// What is promised now.
    pub now: Promise,
    /// What was promised from a number of changes on.
    pub promises: Vec<(usize, Promise)>,
}

/// The configuration of a log, which depends on its topic.
pub fn config_of(key: &Key) -> Arc<LogConfig> {
    let small = LogConfig {
        segment_bytes: 4000,
        index_interval_bytes: 300,
        prepare_bytes: 0,
        file_delete_delay_ms: i64::MAX,
        retention_ms: -1,
        ..config()
    };
    Arc::new(match key.0.as_str() {
        "prepared" => LogConfig { segment_bytes: 300_000, prepare_bytes: 200_000, ..small },
        "preallocated" => LogConfig { segment_bytes: 8000, preallocate: true, ..small },
        "limited" => LogConfig { retention_bytes: 9000, ..small },
        COMPACTED => LogConfig { compact: true, delete: false, min_cleanable_dirty_ratio: 0.0, ..small },
        _ => small,
    })
}

/// A topic whose logs are cleaned, and whose leaders' logs have gaps.
pub const COMPACTED: &str = "compacted";

pub const TOPICS: [&str; 6] = ["a", "b", "prepared", "preallocated", "limited", COMPACTED];

impl History {
    /// A node that starts for the first time.
    pub fn new() -> Self {
        let dir = TempDir::new().expect("temporary directory");
        let mut history = Self::of(dir);
        history.node = Some(Node::start(history.dir.path(), history.recorder.clone()));
        history
    }

    /// A history that begins with the files in a directory; its node is not started yet.
    pub fn of(dir: TempDir) -> Self {
        for name in DIRS {
            std::fs::create_dir_all(dir.path().join(name)).expect("create");
        }
        let disk = Disk::of(dir.path());
        Self::over(dir, disk)
    }

    /// The same, of which some may not be durable.
    pub fn over(dir: TempDir, disk: Disk) -> Self {
        let (changes, promises, files) = (Vec::new(), Vec::new(), HashMap::new());
        let (recorder, now, node) = (Arc::default(), Promise::default(), None);
        Self { dir, base: disk.played(), disk, changes, first: 0, recorder, files, node, now, promises }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("it runs")
    }

    pub fn run(&mut self, rng: &mut Rng) {
        for _ in 0..30 + rng.below(60) {
            self.step(rng);
            self.check_quiet();
            self.promise();
        }
        self.take_changes(false);
    }

    fn step(&mut self, rng: &mut Rng) {
        let keys: Vec<Key> = self.node().owners.keys().cloned().collect();
        if keys.len() < 2 {
            return self.open_or_create(rng);
        }
        let key = &keys[rng.below(keys.len() as u64) as usize];
        match rng.below(100) {
            0..25 => self.append_as_leader(key, rng),
            25..45 => self.append_as_follower(key, rng),
            45..56 => self.flush(key),
            56..62 => self.flush_meanwhile(key, rng),
            62..66 => self.begin_epoch(key, rng),
            66..72 => self.truncate(key, rng),
            72 => self.start_again_empty(key, rng),
            73..77 => self.delete_records(key, rng),
            77..84 => self.checkpoint(rng),
            84..88 => self.open_or_create(rng),
            88..90 => self.delete(key, rng),
            90..92 => self.node().empty_trash(),
            92..95 => self.restart(false, rng),
            95 => self.restart(true, rng),
            96..98 => self.advance_high_watermark(key, rng),
            98 => self.clean(key),
            _ => with_log(&*self.owner(key), |log| log.cut_idle_tail()).expect("cut"),
        }
    }

    /// The promises of now hold from here on.
    pub fn promise(&mut self) {
        self.promises.push((self.position(), self.now.clone()));
    }

    fn position(&self) -> usize {
        self.changes.len() + self.recorder.len()
    }

    pub fn owner(&mut self, key: &Key) -> Arc<Owner> {
        self.node().owners[key].clone()
    }

    pub fn expected(&mut self, key: &Key) -> &mut Expected {
        self.now.logs.get_mut(key).expect("it exists")
    }

    fn check_quiet(&mut self) {
        let warnings = self.node().take_warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    /// Takes the changes from the recorder. `parallel`: threads of both directories made them, and their order must
    /// not decide what a seed does.
    pub fn take_changes(&mut self, parallel: bool) {
        let mut taken = self.recorder.take();
        for change in &taken {
            if let Change::Create { id, path } | Change::Open { id, path } = change {
                let dir = self.dir_of(path);
                self.files.insert(*id, dir);
            }
        }
        if parallel {
            taken.sort_by_key(|change| match change {
                Change::Create { path, .. }
                | Change::Open { path, .. }
                | Change::Remove { path }
                | Change::CreateDir { path }
                | Change::SyncDir { path }
                | Change::Rename { from: path, .. } => self.dir_of(path),
                Change::Write { id, .. } | Change::SetLen { id, .. } | Change::Sync { id } => self.files[id],
                Change::SyncAll => 0,
            });
        }
        self.changes.append(&mut taken);
    }

    fn dir_of(&self, path: &Path) -> usize {
        usize::from(path.starts_with(self.root().join(DIRS[1])))
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill();
        }
    }
}

/// The log of an owner as it was flushed.
pub fn flushed_offset(owner: &Owner) -> i64 {
    with_log(owner as &dyn LogOwner, |log| log.flushed_offset())
}
