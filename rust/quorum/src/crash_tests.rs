//! Power cuts at any point of a follower's life with snapshots: what was flushed or installed survives, an install is
//! complete or not begun, and the log accepts appends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use klamm_log::LogContext;
use klamm_log::crash::{Disk, Rng};
use klamm_log::files::FileCache;
use klamm_log::recorder::{Change, Recorder};
use klamm_metadata::checkpoint::{CheckpointHeader, write_values};
use tempfile::{TempDir, tempdir};

use super::log::{QuorumLog, QuorumLogConfig};
use super::opening::OnLoss;
use super::recovery_point::LogEnd;
use super::snapshots::SnapshotId;

const DIR: &str = "__cluster_metadata-0";
const ALL: usize = 1 << 20;

/// A valid state of the disk.
#[derive(Clone, Default)]
struct State {
    snapshot: Option<(SnapshotId, Vec<u8>)>,
    /// The log start offset, and the durable part of the log.
    start: i64,
    flushed: i64,
    bytes: Vec<u8>,
}

/// From a number of changes on, the disk is in at least one of these states.
struct Promise {
    from_change: usize,
    states: Vec<State>,
}

struct Scene {
    _dir: TempDir,
    root: PathBuf,
    recorder: Arc<Recorder>,
    promises: Vec<Promise>,
}

fn open(root: &Path, recorder: Option<Arc<Recorder>>) -> QuorumLog {
    let cache = FileCache::with_recorder(16, recorder);
    let context = LogContext { cache, trash: Arc::default(), counters: Arc::default() };
    let config = QuorumLogConfig { segment_bytes: 2000, segment_ms: 1 << 40, advice: None };
    let log = QuorumLog::open(&root.join(DIR), &config, &context, OnLoss::Cut, 0).expect("open").0;
    let end = LogEnd { end_offset: log.end_offset(), epoch: log.last_epoch() };
    assert!(
        end.is_up_to_date_with(log.proven_end()),
        "{end:?}: no crash makes a log look damaged: {:?}",
        log.proven_end()
    );
    log
}

fn flush(log: &QuorumLog) {
    let (done, flushed) = channel();
    log.start_flush(Box::new(move |result| done.send(result).expect("the test waits")));
    flushed.recv().expect("an answer").expect("flushed");
}

/// A snapshot file as a leader serves it.
fn leaders_file(id: SnapshotId, rng: &mut Rng) -> Vec<u8> {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join(id.file_name());
    let values: Vec<Vec<u8>> = (0..rng.below(200)).map(|at| vec![at as u8; rng.below(60) as usize]).collect();
    let header = CheckpointHeader { epoch: id.epoch, last_contained_log_timestamp: 5, control_records: Vec::new() };
    write_values(&path, &values, &header, 0).expect("write");
    std::fs::read(path).expect("read")
}

struct Actor {
    log: Option<QuorumLog>,
    recorder: Arc<Recorder>,
    promises: Vec<Promise>,
    now: State,
    epoch: i32,
}

impl Actor {
    fn log(&self) -> &QuorumLog {
        self.log.as_ref().expect("open but for the moment of a restart")
    }

    fn promise(&mut self, states: Vec<State>) {
        self.promises.push(Promise { from_change: self.recorder.len(), states });
    }

    fn flush(&mut self) {
        flush(self.log());
        self.now.flushed = self.log().end_offset();
        self.now.bytes = match self.now.flushed > self.now.start {
            true => self.log().read(self.now.start, ALL).expect("read"),
            false => Vec::new(),
        };
    }

    /// Truncates the log before a batch, at a possible end of an epoch.
    fn truncate(&mut self, rng: &mut Rng) {
        let start = self.log().start_offset();
        if self.log().end_offset() == start {
            return;
        }
        let all = self.log().read(start, ALL).expect("read");
        let batches: Vec<_> = klamm_records::batches(&all).map(|batch| batch.expect("whole")).collect();
        let cut = batches[rng.below(batches.len() as u64) as usize];
        let to = cut.header().base_offset();
        let below = batches.iter().take_while(|batch| batch.header().base_offset() < to);
        let size = below.map(|batch| batch.bytes().len()).sum::<usize>();
        // Once the truncation starts, nothing above it must survive.
        if to < self.now.flushed {
            self.now = State { flushed: to, bytes: all[..size].to_vec(), ..self.now.clone() };
        }
        self.promise(vec![self.now.clone()]);
        self.log().truncate_to(to, 0).expect("truncate");
    }

    /// Receives all or part of a snapshot that is newer than the log.
    fn receive(&mut self, rng: &mut Rng) {
        self.epoch += 1;
        let end_offset = self.log().end_offset() + 5 - rng.below(10) as i64;
        let id = SnapshotId { end_offset: end_offset.max(self.log().start_offset() + 1), epoch: self.epoch };
        let file = leaders_file(id, rng);
        let (mut position, size) = (0, 1 + rng.below(file.len() as u64) as usize);
        let upto = if rng.one_in(3) { file.len() / 2 } else { file.len() };
        while position < upto {
            let end = upto.min(position + size);
            self.log().append_snapshot_slice(id, position as u64, &file[position..end]).expect("next");
            position = end;
        }
        let received = self.log().received_snapshot().expect("received");
        assert_eq!(received.check().is_ok(), upto == file.len());
        if upto < file.len() || rng.one_in(4) {
            return self.log().drop_received_snapshot();
        }
        self.install(id, file);
    }

    fn install(&mut self, id: SnapshotId, file: Vec<u8>) {
        let after =
            State { snapshot: Some((id, file)), start: id.end_offset, flushed: id.end_offset, bytes: Vec::new() };
        self.promise(vec![self.now.clone(), after.clone()]);
        self.log().install_received_snapshot(id, 0).expect("install");
        assert_eq!((self.log().start_offset(), self.log().end_offset()), (id.end_offset, id.end_offset));
        assert_eq!((self.log().flushed_offset(), self.log().last_epoch()), (id.end_offset, id.epoch));
        self.now = after;
    }
}

/// An actor with an empty log.
fn enter(root: &Path) -> Actor {
    let recorder = Arc::new(Recorder::default());
    let cache = FileCache::with_recorder(16, Some(recorder.clone()));
    cache.create_dir(&root.join(DIR)).expect("create");
    cache.sync_dir(root).expect("sync");
    let log = Some(open(root, Some(recorder.clone())));
    Actor { log, recorder, promises: Vec::new(), now: State::default(), epoch: 0 }
}

fn leave(dir: TempDir, actor: Actor) -> Scene {
    let Actor { recorder, promises, log, .. } = actor;
    drop(log);
    Scene { root: dir.path().to_owned(), _dir: dir, recorder, promises }
}

fn act(seed: u64) -> Scene {
    let rng = &mut Rng::new(seed);
    let dir = tempdir().expect("temporary directory");
    let root = dir.path().to_owned();
    let mut actor = enter(&root);
    for _ in 0..80 {
        match rng.below(20) {
            0..10 => {
                let values: Vec<Vec<u8>> = (0..1 + rng.below(3)).map(|_| vec![7; rng.below(300) as usize]).collect();
                actor.log().append(&values, actor.epoch, 0).expect("append");
            }
            10..14 => actor.flush(),
            14 => actor.epoch += 1,
            15..17 => actor.truncate(rng),
            17..19 => actor.receive(rng),
            _ => {
                drop(actor.log.take());
                actor.log = Some(open(&root, Some(actor.recorder.clone())));
                actor.flush();
            }
        }
        actor.promise(vec![actor.now.clone()]);
    }
    leave(dir, actor)
}

fn holds(log: &QuorumLog, state: &State) -> bool {
    let found = log.snapshots().last().map(|info| info.id);
    if found != state.snapshot.as_ref().map(|(id, _)| *id) || log.start_offset() != state.start {
        return false;
    }
    let is_there =
        |(id, file): &(SnapshotId, Vec<u8>)| log.read_snapshot(*id, 0, ALL).expect("read").as_ref() == Some(file);
    let bytes = match log.end_offset() > state.start {
        true => log.read(state.start, ALL).expect("read"),
        false => Vec::new(),
    };
    state.snapshot.as_ref().is_none_or(is_there) && log.end_offset() >= state.flushed && bytes.starts_with(&state.bytes)
}

fn check(scene: &Scene, changes: &[Change], cut: usize, disk: &Disk, rng: &mut Rng) {
    let target = tempdir().expect("temporary directory");
    disk.lose_power(&scene.root, target.path(), changes.get(cut), rng);
    let log = open(target.path(), None);
    let is_part = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("listed").file_name().to_string_lossy().ends_with(".part")
    };
    assert!(
        !std::fs::read_dir(target.path().join(DIR)).expect("list").any(is_part),
        "a start sweeps what is not whole"
    );
    if let Some(promise) = scene.promises.iter().rfind(|promise| promise.from_change <= cut) {
        let shown: Vec<_> = promise.states.iter().map(|state| (state.start, state.flushed)).collect();
        let found = (log.snapshots(), log.start_offset(), log.end_offset());
        assert!(promise.states.iter().any(|state| holds(&log, state)), "cut at {cut}: {found:?} is none of {shown:?}");
    }
    if log.start_offset() == log.end_offset() {
        assert_eq!(Some(log.last_epoch()), log.snapshots().last().map(|info| info.id.epoch).or(Some(0)));
    }
    let (start, end) = (log.start_offset(), log.end_offset());
    assert_eq!(log.append(&[b"on"], 999, 0).expect("append"), end);
    flush(&log);
    log.close().expect("close");
    let log = open(target.path(), None);
    assert_eq!((log.start_offset(), log.end_offset(), log.last_epoch()), (start, end + 1, 999));
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// As in the log's own test, `KLAMM_CRASH_SEED` replays one seed; `KLAMM_CRASH_SEEDS` and `KLAMM_CRASH_CUTS` run
/// more.
#[test]
fn a_power_cut_leaves_a_snapshot_installed_or_not_begun() {
    let (first, cuts) = (number("KLAMM_CRASH_SEED", 1), number("KLAMM_CRASH_CUTS", 8));
    for seed in first..first + number("KLAMM_CRASH_SEEDS", 4) {
        eprintln!("KLAMM_CRASH_SEED={seed} KLAMM_CRASH_SEEDS=1 KLAMM_CRASH_CUTS={cuts}");
        let scene = act(seed);
        let changes = scene.recorder.changes();
        let rng = &mut Rng::new(seed ^ 0xc0ffee);
        let mut at: Vec<usize> = (0..cuts).map(|_| rng.below(changes.len() as u64) as usize).collect();
        at.sort_unstable();
        let mut disk = Disk::default();
        for cut in at {
            for change in &changes[disk.played()..cut] {
                disk.play(change, disk.played());
            }
            check(&scene, &changes, cut, &disk, rng);
        }
    }
}

/// The follower's log is longer than the snapshot and differs from it. The install is cut at every change: no prefix
/// of the new names may look like a log that lost its snapshot.
#[test]
fn a_power_cut_in_an_install_over_a_longer_log_leaves_the_old_log_or_the_snapshot() {
    let rng = &mut Rng::new(1);
    let dir = tempdir().expect("temporary directory");
    let mut actor = enter(dir.path());
    for _ in 0..20 {
        actor.log().append(&[[7; 500]], 0, 0).expect("append");
    }
    actor.flush();
    actor.promise(vec![actor.now.clone()]);
    let id = SnapshotId { end_offset: 10, epoch: 1 };
    let file = leaders_file(id, rng);
    let from = actor.recorder.len();
    actor.log().append_snapshot_slice(id, 0, &file).expect("first");
    actor.log().received_snapshot().expect("received").check().expect("whole");
    actor.install(id, file);
    actor.promise(vec![actor.now.clone()]);
    let scene = leave(dir, actor);
    let changes = scene.recorder.changes();
    let mut disk = Disk::default();
    for cut in from..changes.len() {
        for change in &changes[disk.played()..cut] {
            disk.play(change, disk.played());
        }
        for _ in 0..4 {
            check(&scene, &changes, cut, &disk, rng);
        }
    }
}
