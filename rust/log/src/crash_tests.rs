//! Power cuts at any point: everything reported as flushed survives, everything that survives is intact, and the log
//! accepts appends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_records::control::end_transaction_marker;
use klamm_records::{Batch, BatchBuilder, BatchFields, Compression, Header, batches, records};
use tempfile::tempdir;

use super::checkpoint::read_partition_metadata;
use super::compaction::OffsetMap;
use super::crash::{Disk, Rng};
use super::files::FileCache;
use super::recorder::{Change, Recorder};
use super::testing::{BatchSpec, batch, config, read_all};
use super::*;

/// What must survive a power cut from a certain number of changes on.
#[derive(Clone)]
struct Promise {
    from_change: usize,
    /// All records below this offset are durable.
    flushed: i64,
    log_start: i64,
    recovery_point: i64,
    /// The current batches of the log.
    batches: Vec<Vec<u8>>,
}

struct Scene {
    _dir: tempfile::TempDir,
    root: PathBuf,
    recorder: Arc<Recorder>,
    promises: Vec<Promise>,
    settings: LogConfig,
}

fn context(recorder: Option<Arc<Recorder>>) -> LogContext {
    LogContext::over(FileCache::with_recorder(8, recorder))
}

fn offset_of(bytes: &[u8]) -> (i64, i64) {
    let header = Header::at_start_of(bytes).expect("a batch");
    (header.base_offset(), header.next_offset())
}

fn spec(rng: &mut Rng, sequences: &mut [i32; 3]) -> BatchSpec {
    let records = 1 + rng.below(4) as i32;
    let producer = rng.below(6) as usize;
    let sequence = sequences.get_mut(producer).map(|sequence| {
        *sequence += records;
        *sequence - records
    });
    let most = if rng.one_in(10) { 6_000 } else { 400 };
    BatchSpec {
        records,
        value_bytes: rng.below(most) as usize,
        timestamp: 1000 + rng.below(100_000) as i64,
        producer: sequence.map(|sequence| (producer as i64, 0, sequence)),
        transactional: producer == 2,
    }
}

/// The test's own state for a log that it changes.
struct Actor {
    path: PathBuf,
    recorder: Arc<Recorder>,
    settings: LogConfig,
    context: LogContext,
    promises: Vec<Promise>,
    now: Promise,
    epoch: i32,
    sequences: [i32; 3],
    in_transaction: bool,
}

impl Actor {
    /// Records what must survive from here on.
    fn promise(&mut self) {
        self.promises.push(Promise { from_change: self.recorder.len(), ..self.now.clone() });
    }

    fn append(&mut self, log: &mut Log, rng: &mut Rng) {
        let spec = spec(rng, &mut self.sequences);
        self.in_transaction |= spec.transactional;
        let mut bytes = batch(&spec);
        log.append_as_leader(&mut bytes, self.epoch, 0, Origin::Client).expect("append");
        self.now.batches.push(bytes);
    }

    fn end_transaction(&mut self, log: &mut Log, rng: &mut Rng) {
        let mut bytes = end_transaction_marker(2, 0, 5000, rng.one_in(2), 0).expect("small");
        log.append_as_leader(&mut bytes, self.epoch, 0, Origin::Coordinator).expect("append");
        self.now.batches.push(bytes);
        self.in_transaction = false;
    }

    fn mark(&mut self, log: &mut Log) {
        if let Some(job) = log.begin_mark().expect("mark") {
            job.sync().expect("sync");
            log.complete_mark(job.end()).expect("mark");
        }
        self.now.recovery_point = log.recovery_point();
    }

    /// Truncates like a follower whose new leader lacks some records.
    fn truncate(&mut self, log: &mut Log, rng: &mut Rng) {
        let at = rng.below(self.now.batches.len() as u64 + 1) as usize;
        let to = self.now.batches.get(at).map_or(log.log_end_offset(), |bytes| offset_of(bytes).0);
        if to <= self.now.log_start {
            return;
        }
        // Once the truncation starts, nothing above it must survive.
        self.now.flushed = self.now.flushed.min(to);
        self.now.recovery_point = self.now.recovery_point.min(to);
        self.promise();
        log.truncate_to(to, 0).expect("truncate");
        self.now.batches.retain(|bytes| offset_of(bytes).0 < to);
        self.sequences = [0, 1, 2].map(|id| log.producers.get(id).last_sequence() + 1);
        self.in_transaction = log.producers.has_ongoing(2, 0);
    }

    fn move_start(&mut self, log: &mut Log, rng: &mut Rng) {
        let high_watermark = self.now.flushed;
        let to = self.now.log_start + rng.below((high_watermark - self.now.log_start + 1) as u64) as i64;
        // Once the deletion starts, deleted records may be gone.
        self.now.log_start = to.max(self.now.log_start);
        self.promise();
        log.advance_log_start(to);
        log.delete_expired(high_watermark, 0).expect("retention");
        self.context.trash.remove_due(&self.context.cache, 0);
    }

    /// Killed and restarted: the files are unchanged.
    fn restarted(&mut self, log: Log) -> Log {
        let producers = sorted_producers(&log);
        drop(log);
        let config = Arc::new(self.settings.clone());
        let at = OpenAt {
            recovery_point: self.now.recovery_point,
            log_start_offset: self.now.log_start,
            clean: false,
            has_gaps: false,
            ..OpenAt::default()
        };
        let (mut log, recovery) = Log::open(&self.path, "t", 0, config, &self.context, at, 0).expect("open");
        assert_eq!(recovery.warnings, Vec::<String>::new());
        assert_eq!(sorted_producers(&log), producers);
        self.now.flushed = log.flush().expect("flush");
        // Nothing was written to any checkpoint, so its old content is valid.
        assert!(log.rolled_recovery_point() <= self.now.flushed);
        log
    }
}

/// Runs random operations on a log.
fn act(seed: u64) -> Scene {
    let rng = &mut Rng::new(seed);
    let dir = tempdir().expect("temporary directory");
    let root = dir.path().to_owned();
    let recorder = Arc::new(Recorder::default());
    let settings = LogConfig {
        segment_bytes: 30_000,
        index_interval_bytes: 500,
        prepare_bytes: if rng.one_in(2) { 100_000 } else { 0 },
        file_delete_delay_ms: 0,
        ..config()
    };
    let (path, context) = (root.join("t-0"), context(Some(recorder.clone())));
    let mut log = Log::create(&path, "t", 0, Arc::new(settings.clone()), &context, 0, 0).expect("create");
    context.cache.sync_dir(&root).expect("sync");
    log.flush().expect("flush");
    let now = Promise { from_change: 0, flushed: 0, log_start: 0, recovery_point: 0, batches: Vec::new() };
    let (promises, epoch, sequences, in_transaction) = (Vec::new(), 0, [0; 3], false);
    let mut actor = Actor { path, recorder, settings, context, promises, now, epoch, sequences, in_transaction };
    for _ in 0..150 {
        match rng.below(22) {
            0..12 => actor.append(&mut log, rng),
            12 if actor.in_transaction => actor.end_transaction(&mut log, rng),
            13..16 => actor.now.flushed = log.flush().expect("flush"),
            16 => actor.mark(&mut log),
            17 => actor.epoch += 1,
            18 if rng.one_in(3) => actor.truncate(&mut log, rng),
            19 => actor.move_start(&mut log, rng),
            20 => actor.now.recovery_point = log.rolled_recovery_point(),
            21 if rng.one_in(3) => log = actor.restarted(log),
            _ => {}
        }
        actor.promise();
    }
    let Actor { recorder, promises, settings, .. } = actor;
    Scene { _dir: dir, root, recorder, promises, settings }
}

fn check(scene: &Scene, changes: &[Change], cut: usize, disk: &Disk, rng: &mut Rng) {
    let target = tempdir().expect("temporary directory");
    disk.lose_power(&scene.root, target.path(), changes.get(cut), rng);
    let path = target.path().join("t-0");
    if !path.exists() {
        return;
    }
    let promised = scene.promises.iter().rfind(|promise| promise.from_change <= cut);
    // The log start offset is checkpointed only occasionally: a restart may find any earlier value.
    let at = OpenAt {
        recovery_point: promised.map_or(0, |promise| promise.recovery_point),
        log_start_offset: 0,
        clean: false,
        has_gaps: false,
        ..OpenAt::default()
    };
    let context = context(None);
    let (mut log, _) = Log::open(&path, "t", 0, Arc::new(scene.settings.clone()), &context, at, 0).expect("open");
    check_whole(&mut log);
    if let Some(promised) = promised {
        assert!(log.log_end_offset() >= promised.flushed, "{} < {}", log.log_end_offset(), promised.flushed);
        check_promise(&mut log, promised);
    }
    go_on(log, &path, &scene.settings);
}

/// Batches without a gap, each of a known epoch.
fn check_whole(log: &mut Log) {
    let all = read_all(log, log.log_start_offset());
    let mut next = log.log_start_offset();
    for batch in batches(&all) {
        let batch = batch.expect("whole");
        batch.check().expect("valid");
        assert!(batch.header().base_offset() <= next && batch.header().next_offset() > next, "a gap at {next}");
        next = batch.header().next_offset();
    }
    assert_eq!(next, log.log_end_offset());
    let first = log.epochs().first().copied();
    assert!(all.is_empty() || first.is_some_and(|(_, start)| start <= log.log_start_offset()), "{first:?}");
}

fn check_promise(log: &mut Log, promised: &Promise) {
    let wanted = |bytes: &&Vec<u8>| {
        let (base, next) = offset_of(bytes);
        base >= promised.log_start && next <= promised.flushed
    };
    for bytes in promised.batches.iter().filter(wanted) {
        let slice = log.read(offset_of(bytes).0, bytes.len(), i64::MAX, true).expect("read");
        let found = slice.read().expect("read");
        assert_eq!(Batch::at_start_of(&found).expect("whole").bytes(), &bytes[..], "offset {}", offset_of(bytes).0);
    }
}

fn go_on(mut log: Log, path: &Path, settings: &LogConfig) {
    let end = log.log_end_offset();
    let mut bytes = batch(&BatchSpec::default());
    let appended = log.append_as_leader(&mut bytes, 99, 0, Origin::Client).expect("append");
    assert_eq!(appended.base_offset, end);
    let start = log.log_start_offset();
    let all = read_all(&mut log, start);
    let producers: Vec<_> = sorted_producers(&log);
    log.close().expect("close");
    let at = OpenAt { recovery_point: 0, log_start_offset: 0, clean: true, has_gaps: false, ..OpenAt::default() };
    let (mut log, recovery) = Log::open(path, "t", 0, Arc::new(settings.clone()), &context(None), at, 0).expect("open");
    assert_eq!(recovery.warnings, Vec::<String>::new());
    assert_eq!(read_all(&mut log, start), all);
    assert_eq!(sorted_producers(&log).len(), producers.len());
}

fn sorted_producers(log: &Log) -> Vec<(i64, i32)> {
    let mut producers: Vec<_> = log.producers().map(|(id, entry)| (id, entry.last_sequence())).collect();
    producers.sort_unstable();
    producers
}

pub(super) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `KLAMM_CRASH_SEED` replays one seed; `KLAMM_CRASH_SEEDS` and `KLAMM_CRASH_CUTS` run more.
fn for_seeds(mut run: impl FnMut(u64, u64)) {
    let first = number("KLAMM_CRASH_SEED", 1);
    let cuts = number("KLAMM_CRASH_CUTS", 10);
    for seed in first..first + number("KLAMM_CRASH_SEEDS", 6) {
        eprintln!("KLAMM_CRASH_SEED={seed} KLAMM_CRASH_SEEDS=1 KLAMM_CRASH_CUTS={cuts}");
        run(seed, cuts);
    }
}

/// Cuts the power `cuts` times, in order of time, and checks each disk.
fn cut_power(changes: &[Change], seed: u64, cuts: u64, mut look: impl FnMut(usize, &Disk, &mut Rng)) {
    let rng = &mut Rng::new(seed ^ 0xc0ffee);
    let mut at: Vec<usize> = (0..cuts).map(|_| rng.below(changes.len() as u64) as usize).collect();
    at.sort_unstable();
    let (mut disk, mut played) = (Disk::default(), 0);
    for cut in at {
        for change in &changes[played..cut] {
            disk.play(change, disk.played());
        }
        played = cut;
        look(cut, &disk, rng);
    }
}

#[test]
fn a_power_cut_loses_nothing_flushed() {
    for_seeds(|seed, cuts| {
        let scene = act(seed);
        let changes = scene.recorder.changes();
        cut_power(&changes, seed, cuts, |cut, disk, rng| check(&scene, &changes, cut, disk, rng));
    });
}

/// The newest flushed offset of each key, from a number of changes on.
type Newest = (usize, BTreeMap<Vec<u8>, i64>, i64);

fn keyed(key: u8, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
    builder.append(1000, Some(&[key]), Some(&vec![key; value_bytes]), &[]).expect("small");
    builder.finish().expect("small")
}

/// Runs a compacted log: appends, flushes, checkpoints, rounds of cleaning.
fn act_compacted(seed: u64, recorder: &Arc<Recorder>, root: &Path, settings: &LogConfig) -> Vec<Newest> {
    let rng = &mut Rng::new(seed);
    let context = context(Some(recorder.clone()));
    let config = Arc::new(settings.clone());
    let mut log = Log::create(&root.join("t-0"), "t", 0, config, &context, 0, 0).expect("create");
    context.cache.sync_dir(root).expect("sync");
    let (mut promises, mut newest, mut flushed) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (mut recovery_point, mut cleaned) = (0, 0);
    for _ in 0..200 {
        match rng.below(16) {
            0..12 => {
                let key = rng.below(10) as u8;
                let mut bytes = keyed(key, rng.below(300) as usize);
                let appended = log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append");
                newest.insert(vec![key], appended.base_offset);
            }
            12 | 13 => {
                log.flush().expect("flush");
                flushed = newest.clone();
            }
            14 => recovery_point = log.recovery_point(),
            _ => {
                let high_watermark = log.flushed_offset();
                let plan = log.clean_plan(Some(cleaned), high_watermark, 0).expect("plan");
                let job = log.begin_clean(&plan, 0).expect("begin");
                let mut map = OffsetMap::new(1 << 16, 0.9);
                let end = job.map_keys(&mut map, &mut |_| true).expect("map");
                recovery_point = log.recovery_point();
                promises.push((recorder.len(), flushed.clone(), recovery_point));
                let mut cleaning = job.cleaning(&map);
                let mut groups = job.groups(end).into_iter();
                while groups.len() > 0 {
                    for one in cleaning.clean_some(&mut groups, &mut |_| true).expect("clean") {
                        assert!(log.replace_segments(one, 0).expect("replace"));
                    }
                }
                cleaned = end.max(cleaned);
                context.trash.remove_due(&context.cache, i64::MAX);
            }
        }
        promises.push((recorder.len(), flushed.clone(), recovery_point));
    }
    promises
}

#[test]
fn a_power_cut_while_cleaning_loses_no_newest_record() {
    let settings =
        LogConfig { compact: true, segment_bytes: 2000, index_interval_bytes: 200, prepare_bytes: 0, ..config() };
    for_seeds(|seed, cuts| {
        let (dir, recorder) = (tempdir().expect("temporary directory"), Arc::new(Recorder::default()));
        let promises = act_compacted(seed, &recorder, dir.path(), &settings);
        cut_power(&recorder.changes(), seed, cuts, |cut, disk, rng| {
            let target = tempdir().expect("temporary directory");
            disk.lose_power(dir.path(), target.path(), recorder.changes().get(cut), rng);
            let Some((_, newest, recovery_point)) = promises.iter().rfind(|promise| promise.0 <= cut) else { return };
            let at = OpenAt { recovery_point: *recovery_point, gaps_below: *recovery_point, ..OpenAt::default() };
            let (path, config) = (target.path().join("t-0"), Arc::new(settings.clone()));
            let (mut log, _) = Log::open(&path, "t", 0, config, &context(None), at, 0).expect("open");
            let all = read_all(&mut log, 0);
            let mut found = BTreeMap::new();
            let mut next = 0;
            for batch in batches(&all) {
                let batch = batch.expect("whole");
                batch.check().expect("valid");
                assert!(batch.header().base_offset() >= next);
                next = batch.header().next_offset();
                for record in records(batch, &mut Vec::new(), 1 << 20).expect("readable") {
                    let record = record.expect("valid");
                    found.insert(record.key.expect("keyed").to_vec(), record.offset);
                }
            }
            for (key, offset) in newest {
                assert!(found.get(key).is_some_and(|found| found >= offset), "key {key:?} at {offset}: {found:?}");
            }
            go_on(log, &path, &settings);
        });
    });
}

#[test]
fn a_log_that_no_flush_follows_has_its_topic_id_after_a_power_cut() {
    let dir = tempdir().expect("temporary directory");
    let (path, topic_id) = (dir.path().join("t-0"), klamm_base::Uuid([7; 16]));
    let recorder = Arc::new(Recorder::default());
    let settings = LogConfig { flush_before_ack: false, ..config() };
    let mut log = Log::plan(&path, "t", 0, topic_id, settings.into(), &context(Some(recorder.clone())));
    log.append_as_leader(&mut batch(&BatchSpec::default()), 0, 0, Origin::Client).expect("append");
    let mut disk = Disk::default();
    for (number, change) in recorder.take().iter().enumerate() {
        disk.play(change, number);
    }
    for seed in 0..50 {
        let target = tempdir().expect("temporary directory");
        disk.lose_power(dir.path(), target.path(), None, &mut Rng::new(seed));
        let left = target.path().join("t-0");
        // The folder itself may be lost, as with Apache Kafka.
        assert!(!left.exists() || read_partition_metadata(&left).expect("readable") == Some(topic_id), "seed {seed}");
    }
}
