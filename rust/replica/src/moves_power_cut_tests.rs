//! Power cuts and kills at any change of the files of a partition that moves between two log directories.
//!
//! Flushed records are not lost, no unknown record appears, and one log remains. `KLAMM_CRASH_SEED` replays one seed,
//! `KLAMM_CRASH_SEEDS` and `KLAMM_CRASH_CUTS` run more.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_base::clock::SystemClock;
use klamm_config::Settings;
use klamm_log::crash::{Disk, Rng};
use klamm_log::files::FileCache;
use klamm_log::recorder::{Change, Recorder};
use klamm_log::testing::{BatchSpec, batch, read_all};
use klamm_log::{BOOT_ID, LockedDir, LogContext, LogManager, ManagerConfig, Origin};
use klamm_metadata::MetadataImage;
use tempfile::tempdir;

use super::moves::MoveStep;
use super::moves_tests::{IDS, TOPIC, image_of, with_directory, with_leader};
use super::{Durability, Partition, Replicas, ReplicasOptions};

const DIRS: [&str; 2] = ["one", "two"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// What a node guarantees from a number of changes on.
#[derive(Clone)]
struct Promise {
    from: usize,
    flushed: i64,
    image: Arc<MetadataImage>,
}

struct Node {
    replicas: Replicas,
    partition: Arc<Partition>,
    recorder: Arc<Recorder>,
    image: Arc<MetadataImage>,
}

impl Node {
    fn start(root: &Path, image: &Arc<MetadataImage>) -> Self {
        let recorder = Arc::new(Recorder::default());
        let context = LogContext::over(FileCache::with_recorder(64, Some(recorder.clone())));
        let config = ManagerConfig {
            flush_threads: 0,
            recovery_threads: 1,
            intervals: None,
            cleaner: None,
            file_delete_delay_ms: i64::MAX,
        };
        let locked = DIRS.iter().zip(IDS).map(|(dir, id)| LockedDir::open(&root.join(dir), id).expect("free"));
        let logs = LogManager::start(locked.collect(), config, context, 0, Arc::new(drop)).expect("start");
        let settings = [("log.segment.bytes".to_owned(), "1048576".to_owned())].into();
        let replicas = Replicas::new(ReplicasOptions {
            node_id: 1,
            durability: Durability::Flushed,
            settings: Settings::new(settings).expect("valid"),
            logs,
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        });
        replicas.changes().moves.notify(|| {});
        replicas.changes().directories.notify(|| {});
        assert!(replicas.publish(image.clone()).errors.is_empty());
        assert!(replicas.open_the_rest().is_empty());
        let partition = replicas.get(TOPIC, 0).expect("led");
        Self { replicas, partition, recorder, image: image.clone() }
    }

    fn flush(&self) -> i64 {
        for dir in self.replicas.logs().dirs() {
            while let Some(flush) = dir.flusher().begin_one() {
                dir.flusher().end_one(flush);
            }
        }
        self.partition.with(|log| log.flushed_offset())
    }

    fn append(&self, all: &mut Vec<Vec<u8>>, bytes_max: u64, rng: &mut Rng) {
        let records = 1 + rng.below(3) as i32;
        let spec = BatchSpec { records, value_bytes: rng.below(bytes_max) as usize, ..BatchSpec::default() };
        let mut bytes = batch(&spec);
        let appended = self.partition.append(&mut bytes, -1, Origin::Client, 0).expect("appended");
        klamm_records::header::set_position(&mut bytes, appended.base_offset, 0);
        all.push(bytes);
    }

    /// A step of a move, if there is one; the controller sometimes responds.
    fn step(&mut self, rng: &mut Rng) -> bool {
        match self.replicas.step_move(&self.partition, 1 + rng.below(6000) as usize) {
            MoveStep::Ended => return true,
            MoveStep::Failed(error) => panic!("{error}"),
            MoveStep::Copied(_) => {}
            MoveStep::Waiting if rng.one_in(2) => self.answer(),
            MoveStep::Waiting => {}
        }
        false
    }

    fn answer(&mut self) {
        let told = self.replicas.changes().directories.take();
        for one in &told {
            self.image = with_directory(&self.image, one.directory_id);
        }
        self.replicas.publish(self.image.clone());
        self.replicas.on_directories_assigned(&told);
    }
}

/// A history of one partition: appends, flushes, checkpoints and moves in both directions.
fn history(root: &Path, rng: &mut Rng) -> (Vec<Change>, Vec<Promise>, Vec<Vec<u8>>) {
    let image = image_of(1);
    let mut node = Node::start(root, &image);
    let (mut all, mut promises) = (Vec::new(), Vec::new());
    let mut flushed = 0;
    for _ in 0..40 + rng.below(60) {
        match rng.below(12) {
            0..4 => node.append(&mut all, 20_000, rng),
            4..6 => flushed = node.flush(),
            6 => node.replicas.logs().checkpoint(),
            7 => {
                let code = node.replicas.alter_dir("t", 0, rng.below(2) as usize);
                assert_eq!(code, ErrorCode::NONE);
            }
            _ => drop(node.step(rng)),
        }
        flushed = flushed.max(node.partition.with(|log| log.flushed_offset()));
        promises.push(Promise { from: node.recorder.len(), flushed, image: node.image.clone() });
    }
    let changes = node.recorder.take();
    let logs = node.replicas.logs().clone();
    drop(node);
    logs.abandon();
    (changes, promises, all)
}

fn check(root: &Path, promise: &Promise, all: &[Vec<u8>], rng: &mut Rng) {
    // A restarted broker leads in a new epoch.
    let mut node = Node::start(root, &with_leader(&promise.image, 1));
    let whole = all.concat();
    let found = |node: &Node| node.partition.with(|log| read_all(log, 0));
    let bytes = found(&node);
    assert!(whole.starts_with(&bytes), "it holds what was never appended");
    let end = node.partition.with(|log| log.log_end_offset());
    assert!(end >= promise.flushed, "it ends at {end}, and was flushed up to {}", promise.flushed);
    let mut appended = Vec::new();
    node.append(&mut appended, 2000, rng);
    let bytes = found(&node);
    // A move that was started completes.
    for _ in 0..100_000 {
        if node.partition.moves_to().is_none() {
            break;
        }
        node.step(rng);
        node.flush();
    }
    assert_eq!(node.partition.moves_to(), None);
    assert!(found(&node) == bytes, "the move has changed the log");
    node.flush();
    let live = DIRS.iter().filter(|dir| root.join(dir).join("t-0").exists());
    assert_eq!(live.count(), 1);
    node.replicas.shutdown(1);
}

#[test]
fn a_power_cut_or_a_kill_in_a_move_loses_nothing_and_leaves_one_log() {
    let first = number("KLAMM_CRASH_SEED", 1);
    let cuts = number("KLAMM_CRASH_CUTS", 12);
    for seed in first..first + number("KLAMM_CRASH_SEEDS", 12) {
        eprintln!(
            "KLAMM_CRASH_SEED={seed} KLAMM_CRASH_SEEDS=1 KLAMM_CRASH_CUTS={cuts} cargo test -p klamm-replica --lib \
             a_power_cut_or_a_kill_in_a_move"
        );
        let rng = &mut Rng::new(seed);
        let dir = tempdir().expect("a folder");
        let root = fs::canonicalize(dir.path()).expect("a path");
        for name in DIRS {
            fs::create_dir(root.join(name)).expect("a folder");
        }
        let disk_before = Disk::of(&root);
        let (changes, promises, all) = history(&root, rng);
        let mut disk = disk_before;
        let mut at: Vec<usize> = (0..cuts).map(|_| rng.below(changes.len() as u64 + 1) as usize).collect();
        // Names change rarely, and are the most critical changes.
        let names = changes.iter().enumerate().filter(|(_, change)| {
            matches!(change, Change::Rename { from, .. } if from.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"t-0")))
        });
        at.extend(names.flat_map(|(number, _)| [number, number + 1, number + 2]).filter(|cut| *cut <= changes.len()));
        at.sort_unstable();
        at.dedup();
        for cut in at {
            while disk.played() < cut {
                disk.play(&changes[disk.played()], disk.played());
            }
            let known = promises.partition_point(|promise| promise.from <= cut);
            // A change of the image in progress may be durable or not.
            let before = known.checked_sub(1).map(|at| promises[at].clone());
            let before = before.unwrap_or(Promise { from: 0, flushed: 0, image: image_of(1) });
            let target = tempdir().expect("a folder");
            if rng.one_in(4) {
                eprintln!("  a kill after {cut} of {} changes", changes.len());
                disk.stop(&root, target.path());
            } else {
                eprintln!("  a power cut after {cut} of {} changes", changes.len());
                disk.lose_power(&root, target.path(), changes.get(cut), rng);
                for dir in DIRS {
                    let _ = fs::remove_file(target.path().join(dir).join(BOOT_ID));
                }
            }
            let image = match promises.get(known) {
                Some(next) if rng.one_in(2) => next.image.clone(),
                _ => before.image.clone(),
            };
            check(target.path(), &Promise { image, ..before }, &all, rng);
        }
    }
}
