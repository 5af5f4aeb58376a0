//! A repair restores the state of producers and transactions that the damaged batches contain.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_records::Header;
use klamm_records::control::end_transaction_marker;
use tempfile::{TempDir, tempdir};

use super::crash::{Disk, Rng};
use super::files::FileCache;
use super::index::AbortedTxn;
use super::recorder::{Change, Recorder};
use super::testing::{BatchSpec, batch, config, create};
use super::{Log, LogConfig, LogContext, OpenAt, Origin};

/// In order: producers 1 and 2 begin, 1 aborts and begins again, 2 commits, 2 begins and commits. Producer 1 stays open.
const BEGIN_1: usize = 0;
const ABORT_1: usize = 2;
const BEGIN_1_AGAIN: usize = 3;
const COMMIT_2: usize = 4;
const BATCHES: usize = 8;

fn data(log: &mut Log, producer: (i64, i16, i32)) -> Vec<u8> {
    let spec = BatchSpec { producer: Some(producer), transactional: true, ..BatchSpec::default() };
    let mut bytes = batch(&spec);
    log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append");
    bytes
}

fn marker(log: &mut Log, producer_id: i64, commits: bool) -> Vec<u8> {
    let mut bytes = end_transaction_marker(producer_id, 0, 0, commits, 0).expect("small");
    log.append_as_leader(&mut bytes, 0, 0, Origin::Markers { transaction_version: 1 }).expect("append");
    bytes
}

fn settings(segment_bytes: u32) -> LogConfig {
    LogConfig { segment_bytes, ..config() }
}

/// A log of transactions; `batches` is its content, with one offset each.
struct Scene {
    dir: TempDir,
    segment_bytes: u32,
    batches: Vec<Vec<u8>>,
}

/// The state of a log's transactions.
#[derive(Debug, PartialEq)]
struct Known {
    producers: Vec<(i64, i16, i32, i64, i32)>,
    last_stable_offset: i64,
    aborted: Vec<AbortedTxn>,
}

fn known(log: &mut Log) -> Known {
    let cache = log.context.cache.clone();
    let mut aborted = Vec::new();
    for segment in &mut log.segments {
        aborted.extend_from_slice(segment.txns().load(&cache).expect("readable"));
    }
    let of = |(id, entry): (i64, &super::producers::Entry)| {
        (id, entry.producer_epoch, entry.coordinator_epoch, entry.txn_first_offset, entry.last_sequence())
    };
    let mut producers: Vec<_> = log.producers().map(of).collect();
    producers.sort_unstable();
    Known { producers, last_stable_offset: log.last_stable_offset(BATCHES as i64), aborted }
}

impl Scene {
    fn new(segment_bytes: u32) -> (Self, Known) {
        let dir = tempdir().expect("temporary directory");
        let mut log = create(&dir.path().join("t-0"), settings(segment_bytes));
        let log = &mut log;
        let batches = vec![
            data(log, (1, 0, 0)),
            data(log, (2, 0, 0)),
            marker(log, 1, false),
            data(log, (1, 0, 1)),
            marker(log, 2, true),
            data(log, (2, 0, 1)),
            data(log, (1, 0, 2)),
            marker(log, 2, true),
        ];
        assert_eq!(batches.len(), BATCHES);
        log.close().expect("close");
        let intact = known(log);
        assert_eq!((intact.last_stable_offset, intact.aborted.len()), (BEGIN_1_AGAIN as i64, 1));
        (Self { dir, segment_bytes, batches }, intact)
    }

    /// Changes the last byte of a batch.
    fn damage(&self, at: usize) {
        for file in fs::read_dir(self.dir.path().join("t-0")).expect("there") {
            let path = file.expect("there").path();
            let mut bytes = fs::read(&path).expect("read");
            let batch = &self.batches[at];
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            if let Some(found) = bytes.windows(batch.len()).position(|window| window == batch).filter(|_| is_log) {
                bytes[found + batch.len() - 1] ^= 1;
                fs::write(&path, bytes).expect("write");
                return;
            }
        }
        panic!("batch {at} is not in the log");
    }

    fn open(&self, recovery_point: i64, clean: bool) -> Log {
        let at = OpenAt { recovery_point, clean, kept_power: true, ..OpenAt::default() };
        self.open_in(self.dir.path(), at, &LogContext::new(64))
    }

    /// Opens the log, or what a power cut has left of it. The checkpointed high watermark is its end.
    fn open_in(&self, folder: &Path, at: OpenAt, context: &LogContext) -> Log {
        let at = OpenAt { keeps_damage: true, proven_end: BATCHES as i64, ..at };
        let config = Arc::new(settings(self.segment_bytes));
        Log::open(&folder.join("t-0"), "t", 0, config, context, at, 0).expect("open").0
    }

    fn repair(&self, log: &mut Log, at: usize) {
        let ranges = log.damaged();
        let range = ranges.iter().find(|range| range.first_offset == at as i64).expect("it is known");
        assert!(log.repair(range, &self.batches[at]).expect("written"));
    }
}

/// One segment, and one for each batch or two.
const SIZES: [u32; 2] = [1 << 20, 160];

#[test]
fn a_repaired_batch_counts_for_producers_and_transactions() {
    for segment_bytes in SIZES {
        for at in 0..BATCHES {
            let (scene, intact) = Scene::new(segment_bytes);
            scene.damage(at);
            let mut log = scene.open(0, false);
            // A snapshot without the batch.
            log.roll(BATCHES as i64, 0).expect("a new segment");
            scene.repair(&mut log, at);
            assert_eq!(known(&mut log), intact, "batch {at}, segments of {segment_bytes} bytes");
            drop(log);
            assert_eq!(known(&mut scene.open(BATCHES as i64, false)), intact, "batch {at}, after a kill");
            let mut log = scene.open(0, false);
            log.close().expect("close");
            assert_eq!(known(&mut scene.open(BATCHES as i64, true)), intact, "batch {at}, after a clean stop");
        }
    }
}

#[test]
fn several_batches_are_repaired_in_any_order() {
    for segment_bytes in SIZES {
        for order in [[BEGIN_1, ABORT_1, COMMIT_2], [COMMIT_2, ABORT_1, BEGIN_1]] {
            let (scene, intact) = Scene::new(segment_bytes);
            // No two of them are adjacent, so that each is a range.
            order.iter().for_each(|&at| scene.damage(at));
            let mut log = scene.open(0, false);
            for at in order {
                scene.repair(&mut log, at);
            }
            assert_eq!(known(&mut log), intact, "{order:?}, segments of {segment_bytes} bytes");
        }
    }
}

#[test]
fn a_later_marker_does_not_decide_a_transaction_whose_marker_is_damaged() {
    for segment_bytes in SIZES {
        let (scene, intact) = Scene::new(segment_bytes);
        scene.damage(ABORT_1);
        let mut log = scene.open(0, false);
        let mut commit = end_transaction_marker(1, 0, 0, true, 0).expect("small");
        log.append_as_leader(&mut commit, 1, 0, Origin::Markers { transaction_version: 1 }).expect("append");
        let end = log.log_end_offset();
        assert_eq!(log.last_stable_offset(end), BEGIN_1 as i64, "its first transaction was aborted");
        log.close().expect("close");
        let mut log = scene.open(0, false);
        assert_eq!(log.last_stable_offset(end), BEGIN_1 as i64, "after a restart too");
        scene.repair(&mut log, ABORT_1);
        assert_eq!((log.last_stable_offset(end), known(&mut log).aborted), (end, intact.aborted));
    }
}

#[test]
fn a_start_that_reads_only_headers_knows_a_damaged_marker() {
    for segment_bytes in SIZES {
        let (scene, intact) = Scene::new(segment_bytes);
        scene.damage(ABORT_1);
        // While transaction 1 is in doubt, no snapshot is written.
        scene.open(0, false).close().expect("close");
        for clean in [false, true] {
            let mut log = scene.open(BATCHES as i64, clean);
            let ranges: Vec<_> = log.damaged().iter().map(|range| (range.first_offset, range.next_offset)).collect();
            assert_eq!(
                ranges,
                [(ABORT_1 as i64, ABORT_1 as i64 + 1)],
                "segments of {segment_bytes} bytes, clean {clean}"
            );
            assert_eq!(log.last_stable_offset(BATCHES as i64), BEGIN_1 as i64);
            if clean {
                scene.repair(&mut log, ABORT_1);
                assert_eq!(known(&mut log), intact);
            }
        }
    }
}

#[test]
fn a_leader_with_a_repaired_batch_rejects_contradicting_appends() {
    let (scene, _) = Scene::new(SIZES[0]);
    scene.damage(BATCHES - 2);
    let mut log = scene.open(0, false);
    scene.repair(&mut log, BATCHES - 2);
    let repeated = log.append_as_leader(&mut scene.batches[BATCHES - 2].clone(), 1, 0, Origin::Client);
    let header = Header::at_start_of(&scene.batches[BATCHES - 2]).expect("a batch");
    let repeated = repeated.expect("a duplicate is no error");
    assert_eq!((repeated.duplicate, repeated.base_offset), (true, header.base_offset()));
}

/// A repair of a batch, of which all changes are recorded: the disk before them.
struct RecordedRepair {
    scene: Scene,
    intact: Known,
    at: usize,
    root: PathBuf,
    disk: Disk,
    changes: Vec<Change>,
}

impl RecordedRepair {
    fn new(segment_bytes: u32, at: usize) -> Self {
        let (scene, intact) = Scene::new(segment_bytes);
        scene.damage(at);
        let root = fs::canonicalize(scene.dir.path()).expect("a path");
        let mut disk = Disk::of(&root);
        let recorder = Arc::new(Recorder::default());
        let context = LogContext::over(FileCache::with_recorder(64, Some(recorder.clone())));
        let mut log = scene.open_in(&root, OpenAt { kept_power: true, ..OpenAt::default() }, &context);
        recorder.take().iter().for_each(|change| disk.play(change, disk.played()));
        scene.repair(&mut log, at);
        Self { scene, intact, at, root, disk, changes: recorder.take() }
    }

    /// Cuts the power after so many changes of the repair, and looks at what a start finds.
    fn cut(&self, count: usize, seed: u64) {
        for recovery_point in [0, BATCHES as i64] {
            let target = tempdir().expect("temporary directory");
            let rng = &mut Rng::new(seed);
            self.disk.lose_power(&self.root, target.path(), self.changes.get(count), rng);
            let at = OpenAt { recovery_point, ..OpenAt::default() };
            self.check(target.path(), at);
        }
    }

    fn check(&self, folder: &Path, at: OpenAt) {
        let context = LogContext::new(64);
        let mut log = self.scene.open_in(folder, at, &context);
        assert_eq!(log.log_end_offset(), BATCHES as i64);
        assert!(known(&mut log).last_stable_offset <= self.intact.last_stable_offset, "what is in doubt is not stable");
        drop(log);
        let mut log = self.scene.open_in(folder, OpenAt::default(), &context);
        for range in log.damaged() {
            assert_eq!((range.first_offset, range.next_offset), (self.at as i64, self.at as i64 + 1));
            assert!(log.repair(&range, &self.scene.batches[self.at]).expect("written"));
        }
        assert_eq!(known(&mut log), self.intact);
        log.close().expect("close");
        drop(log);
        let at = OpenAt { recovery_point: BATCHES as i64, clean: true, ..OpenAt::default() };
        assert_eq!(known(&mut self.scene.open_in(folder, at, &context)), self.intact, "after a clean stop");
    }
}

#[test]
fn a_power_cut_between_any_two_steps_of_a_repair_leaves_a_log_that_can_be_repaired() {
    for segment_bytes in SIZES {
        for at in 0..BATCHES {
            let mut repair = RecordedRepair::new(segment_bytes, at);
            for count in 0..=repair.changes.len() {
                eprintln!("batch {at}, segments of {segment_bytes} bytes, {count} of {} changes", repair.changes.len());
                repair.cut(count, (at * 100 + count) as u64);
                if let Some(change) = repair.changes.get(count) {
                    repair.disk.play(change, repair.disk.played());
                }
            }
        }
    }
}
