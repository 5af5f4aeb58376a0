//! Crashes at every file change while cleaned segments replace others: each old segment's range contains either the
//! old batches or the new ones, and the checkpoint claims no more than the log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use klamm_records::control::end_transaction_marker;
use klamm_records::{BatchBuilder, BatchFields, Compression, Header, batches, records};
use tempfile::{TempDir, tempdir, tempdir_in};

use super::*;
use crate::checkpoint::{CLEANER_OFFSET, RECOVERY_POINT, read_offsets};
use crate::crash::{Disk, Rng};
use crate::files::FileCache;
use crate::manager_tests::{create_with, start_over};
use crate::recorder::{Change, Recorder};
use crate::testing::{config, read_all};
use crate::{Log, LogConfig, LogContext, ManagerConfig, OpenAt, Origin, with_log};

const LONG_MS: i64 = 1 << 40;

fn settings() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        segment_bytes: 700,
        index_interval_bytes: 100,
        delete_retention_ms: LONG_MS,
        file_delete_delay_ms: 0,
        ..config()
    }
}

/// In a memory file system where one exists: hundreds of logs are created and removed.
fn folder() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).expect("temporary directory")
}

fn context(recorder: &Arc<Recorder>) -> LogContext {
    LogContext::over(FileCache::with_recorder(8, Some(recorder.clone())))
}

/// A compacted log, the changes to its files, and its contents before and after its last round.
struct Scene {
    root: TempDir,
    changes: Vec<Change>,
    /// Number of changes before the round.
    first: usize,
    /// The base offsets of the old segments, and the log's end offset.
    bounds: Vec<i64>,
    recovery_point: i64,
    old: Vec<u8>,
    new: Vec<u8>,
    clean_to: i64,
}

fn key() -> crate::log_dir::Key {
    ("t".to_owned(), 0)
}

fn checkpoint(root: &Path) -> Option<i64> {
    read_offsets(&root.join(CLEANER_OFFSET)).expect("whole").get(&key()).copied()
}

fn put(log: &mut Log, fields: BatchFields, timestamp: i64, key: &str, value: Option<&str>) {
    let mut builder = BatchBuilder::new(fields, Compression::NONE);
    builder.append(timestamp, Some(key.as_bytes()), value.map(str::as_bytes), &[]).expect("small");
    let mut bytes = builder.finish().expect("small");
    log.append_as_leader(&mut bytes, 0, timestamp, Origin::Client).expect("append");
}

/// Writes the cases that a round treats differently: short and long segments of which all, some or no records are
/// retained, tombstones, an idempotent producer, committed and aborted transactions. `salt` makes the rounds differ.
fn write_round(log: &mut Log, salt: i64) {
    let plain = BatchFields::default();
    let producer = |producer_id, transactional| BatchFields {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        transactional,
        ..BatchFields::default()
    };
    let mut timestamp = 1000 * salt;
    let mut put = |log: &mut Log, fields, key: &str, value| {
        timestamp += 7;
        put(log, fields, timestamp, key, value);
    };
    for number in 0..4 {
        put(log, plain, &format!("stays {salt} {number}"), Some("value"));
        put(log, plain, "often", Some("of no use"));
        log.roll(log.log_end_offset(), 0).expect("roll");
    }
    for (producer_id, commit) in [(100 + salt, false), (200 + salt, true)] {
        put(log, producer(producer_id, true), "in a transaction", Some("value"));
        put(log, plain, "often", Some("of no use"));
        let mut marker = end_transaction_marker(producer_id, 0, 0, commit, 0).expect("small");
        log.append_as_leader(&mut marker, 0, 0, Origin::Coordinator).expect("append");
    }
    put(log, producer(300 + salt, false), "often", Some("the producer's last"));
    put(log, plain, &format!("deleted {salt}"), Some("value"));
    put(log, plain, &format!("deleted {salt}"), None);
    // Whole segments of it are removed: short ones that are merged, and long ones.
    for number in 0..18 {
        put(log, plain, "often", Some("of no use, and rather long, so that a segment is full soon"));
        if number % 2 == 1 && number < 8 {
            log.roll(log.log_end_offset(), 0).expect("roll");
        }
    }
    put(log, plain, "often", Some("newest"));
    log.roll(log.log_end_offset(), 0).expect("roll");
}

fn act() -> Scene {
    let root = folder();
    let recorder = Arc::new(Recorder::default());
    let idle = ManagerConfig { cleaner: None, ..ManagerConfig::default() };
    let cleaner = CleanerConfig { backoff_ms: 1, ..CleanerConfig::default() };
    let busy = ManagerConfig { cleaner: Some(cleaner), ..ManagerConfig::default() };
    let (manager, events) = start_over(&[root.path()], idle.clone(), context(&recorder));
    let (owner, _flushed) = create_with(&manager, 0, "t", settings());
    let mut scene = None;
    for salt in 1..3 {
        let (first, bounds, old, recovery_point) = with_log(&*owner, |log| {
            write_round(log, salt);
            log.flush().expect("flush");
            let mut bounds: Vec<i64> = log.segments.iter().map(|segment| segment.base_offset()).collect();
            bounds.push(log.log_end_offset());
            (recorder.len(), bounds, read_all(log, 0), log.rolled_recovery_point())
        });
        let clean_to = with_log(&*owner, |log| log.active_base_offset());
        manager.reconfigure(busy.clone());
        let deadline = Instant::now() + Duration::from_secs(30);
        while manager.dirs()[0].cleaner_checkpoint(&key()) != Some(clean_to) {
            assert!(Instant::now() < deadline, "it is not cleaned: {:?}", events.try_recv());
            std::thread::sleep(Duration::from_millis(1));
        }
        manager.reconfigure(idle.clone());
        manager.context().trash.remove_due(&manager.context().cache, i64::MAX);
        let new = with_log(&*owner, |log| read_all(log, 0));
        let (changes, root) = (recorder.changes(), root.path().to_owned());
        assert_eq!(checkpoint(&root), Some(clean_to));
        scene = Some((changes, first, bounds, recovery_point, old, new, clean_to));
    }
    let (changes, first, bounds, recovery_point, old, new, clean_to) = scene.expect("two rounds");
    Scene { root, changes, first, bounds, recovery_point, old, new, clean_to }
}

/// The batches of `[from, to)`.
fn piece(all: &[u8], from: i64, to: i64) -> Vec<&[u8]> {
    let inside = |header: &Header<'_>| header.base_offset() >= from && header.base_offset() < to;
    batches(all).map(|batch| batch.expect("whole")).filter(|b| inside(&b.header())).map(|b| b.bytes()).collect()
}

/// (offset, key, value) of every record, including control records.
fn rows(all: &[u8]) -> Vec<(i64, Vec<u8>, Option<Vec<u8>>)> {
    let mut rows = Vec::new();
    for batch in batches(all) {
        for record in records(batch.expect("whole"), &mut Vec::new(), 1 << 20).expect("readable") {
            let record = record.expect("valid");
            rows.push((record.offset, record.key.expect("keyed").to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    rows
}

fn open(scene: &Scene, root: &Path, recovery_point: i64, context: &LogContext) -> Log {
    let gaps_below = read_offsets(&root.join(RECOVERY_POINT)).expect("whole").get(&key()).copied().unwrap_or(0);
    let at = OpenAt { recovery_point, has_gaps: true, gaps_below, ..OpenAt::default() };
    let (log, recovery) = Log::open(&root.join("t-0"), "t", 0, Arc::new(settings()), context, at, 0).expect("open");
    assert_eq!((recovery.segments_dropped, recovery.bytes_truncated), (0, 0), "{:?}", recovery.warnings);
    assert_eq!(log.log_end_offset(), *scene.bounds.last().expect("an end"));
    log
}

/// Every index lookup finds what a walk over the log finds.
fn check_indexes(log: &mut Log, all: &[u8]) {
    let (mut timestamps, mut largest) = (BTreeSet::new(), Vec::new());
    for batch in batches(all) {
        let header = batch.expect("whole").header();
        if header.record_count() > 0 {
            timestamps.insert(header.max_timestamp());
            largest.push((header.max_timestamp(), header.last_offset()));
        }
    }
    for offset in 0..log.log_end_offset() {
        let found = log.read(offset, 1, i64::MAX, true).expect("read").read().expect("read");
        let expected = batches(all).flatten().find(|batch| batch.header().last_offset() >= offset);
        assert_eq!(found, expected.map_or(&[][..], |batch| batch.bytes()), "offset {offset}");
    }
    for &timestamp in &timestamps {
        let found = log.offset_for_timestamp(timestamp).expect("lookup").expect("there");
        let expected = largest.iter().find(|(largest, _)| *largest >= timestamp).expect("there");
        assert_eq!((found.timestamp, found.offset), *expected);
    }
}

/// Every aborted transaction with records in the log is in the index.
fn check_aborted(log: &mut Log, all: &[u8]) {
    let end = log.log_end_offset();
    let known: BTreeSet<i64> = log.aborted_between(0, end).expect("read").iter().map(|txn| txn.producer_id).collect();
    let transactional = |header: &Header<'_>| header.is_transactional() && !header.is_control();
    let present: BTreeSet<i64> = batches(all)
        .map(|batch| batch.expect("whole").header())
        .filter(transactional)
        .map(|header| header.producer_id())
        .filter(|id| (100..200).contains(id))
        .collect();
    assert_eq!(known, present);
}

/// Runs the round again, as the cleaner does at its next check.
fn clean(log: &mut Log, checkpoint: Option<i64>) {
    log.flush().expect("flush");
    if let Some(job) = log.begin_mark().expect("mark") {
        job.sync().expect("sync");
        log.complete_mark(job.end()).expect("mark");
    }
    let plan = log.clean_plan(checkpoint, log.log_end_offset(), 0).expect("plan");
    let job = log.begin_clean(&plan, 0).expect("begin");
    let mut map = OffsetMap::new(1 << 16, 0.9);
    let end_offset = job.map_keys(&mut map, &mut |_| true).expect("map");
    let mut cleaning = job.cleaning(&map);
    for group in job.groups(end_offset) {
        let cleaned = cleaning.clean(group, &mut |_| true).expect("clean");
        job.sync(std::slice::from_ref(&cleaned)).expect("sync");
        assert!(log.replace_segments(cleaned, 0).expect("replace"));
    }
}

fn check(scene: &Scene, root: &Path, recovery_point: i64) {
    let context = LogContext::volatile(64);
    let mut log = open(scene, root, recovery_point, &context);
    let all = read_all(&mut log, 0);
    let mut is_new = true;
    for bounds in scene.bounds.windows(2) {
        let [old, new, found] = [&scene.old, &scene.new, &all].map(|all| piece(all, bounds[0], bounds[1]));
        assert!(found == old || found == new, "offsets {bounds:?} hold neither what they held nor what they should");
        is_new &= found == new;
    }
    check_indexes(&mut log, &all);
    check_aborted(&mut log, &all);
    let checkpoint = checkpoint(root);
    assert!(is_new || checkpoint < Some(scene.clean_to), "the checkpoint claims a round that is missing");
    if checkpoint < Some(scene.clean_to) {
        clean(&mut log, checkpoint);
    }
    let all = read_all(&mut log, 0);
    assert_eq!(rows(&all), rows(&scene.new));
    check_indexes(&mut log, &all);
    check_aborted(&mut log, &all);
}

/// Crashes before each change of the round to names or durability, and after the last; `look` checks each state.
fn at_every_change(scene: &Scene, mut look: impl FnMut(usize, &Disk)) {
    let mut disk = Disk::default();
    for (at, change) in scene.changes.iter().enumerate() {
        let is_small = matches!(change, Change::Open { .. } | Change::Write { .. } | Change::SetLen { .. });
        if at >= scene.first && !is_small {
            look(at, &disk);
        }
        disk.play(change, disk.played());
    }
    look(scene.changes.len(), &disk);
}

#[test]
fn a_kill_at_any_change_of_a_round_leaves_old_or_new_segments() {
    let scene = act();
    assert!(scene.old.len() > 2 * scene.new.len());
    let left: Vec<usize> = scene.bounds.windows(2).map(|at| piece(&scene.new, at[0], at[1]).len()).collect();
    assert!(left.windows(2).any(|pair| pair == [0, 0]), "segments are emptied: {left:?}");
    at_every_change(&scene, |at, disk| {
        let target = folder();
        disk.stop(scene.root.path(), target.path());
        eprintln!("killed before change {at}: {:?}", scene.changes.get(at).map(name));
        check(&scene, target.path(), [0, scene.recovery_point][at % 2]);
    });
}

#[test]
fn a_power_cut_at_any_change_of_a_round_leaves_old_or_new_segments() {
    let scene = act();
    let rng = &mut Rng::new(1);
    at_every_change(&scene, |at, disk| {
        for _ in 0..2 {
            let target = folder();
            disk.lose_power(scene.root.path(), target.path(), scene.changes.get(at), rng);
            eprintln!("cut before change {at}: {:?}", scene.changes.get(at).map(name));
            check(&scene, target.path(), [0, scene.recovery_point][at % 2]);
        }
    });
}

#[test]
fn many_new_segments_are_synced_together() {
    let (root, recorder) = (folder(), Arc::new(Recorder::default()));
    let (path, config) = (root.path().join("t-0"), Arc::new(settings()));
    let mut log = Log::create(&path, "t", 0, config, &context(&recorder), 0, 0).expect("create");
    for number in 0..200 {
        put(&mut log, BatchFields::default(), 0, &format!("key {number}"), Some("value"));
    }
    log.flush().expect("flush");
    let plan = log.clean_plan(None, log.log_end_offset(), 0).expect("plan");
    let job = log.begin_clean(&plan, 0).expect("begin");
    let mut map = OffsetMap::new(1 << 16, 0.9);
    let end_offset = job.map_keys(&mut map, &mut |_| true).expect("map");
    let before = recorder.len();
    let mut groups = job.groups(end_offset).into_iter();
    let count = groups.len();
    let cleaned = job.cleaning(&map).clean_some(&mut groups, &mut |_| true).expect("clean");
    let changes = &recorder.changes()[before..];
    let alone = changes.iter().filter(|change| matches!(change, Change::Sync { .. })).count();
    let together = changes.iter().filter(|change| matches!(change, Change::SyncAll)).count();
    assert_eq!(cleaned.len(), count);
    assert!(count > 20, "{count}");
    assert!((alone, together) == (0, 1) || (alone, together) == (3 * count, 0), "{alone} and {together}");
    job.discard(cleaned).expect("discard");
    let left = std::fs::read_dir(&path).expect("list").flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(".cleaned")));
}

/// The start after a crash is interrupted too, at some rename or removal.
#[test]
fn a_crash_while_a_swap_is_completed_leaves_old_or_new_segments() {
    let scene = act();
    let rng = &mut Rng::new(2);
    let log_path = scene.root.path().join("t-0");
    at_every_change(&scene, |at, disk| {
        if !matches!(scene.changes.get(at), Some(Change::Rename { to, .. }) if to.starts_with(&log_path)) {
            return;
        }
        let first = folder();
        disk.stop(scene.root.path(), first.path());
        let (recorder, mut disk) = (Arc::new(Recorder::default()), Disk::of(first.path()));
        drop(open(&scene, first.path(), 0, &context(&recorder)));
        let changes = recorder.changes();
        let names: Vec<usize> = (0..changes.len()).filter(|&number| is_naming(&changes[number])).collect();
        let cut = names.get(rng.below(names.len() as u64) as usize).map_or(0, |&number| number + 1);
        eprintln!("killed before change {at}: {:?}, again before {cut} of the start", scene.changes.get(at).map(name));
        changes[..cut].iter().for_each(|change| disk.play(change, disk.played()));
        for is_cut in [false, true] {
            let target = folder();
            match is_cut {
                true => disk.lose_power(first.path(), target.path(), changes.get(cut), rng),
                false => disk.stop(first.path(), target.path()),
            }
            check(&scene, target.path(), 0);
        }
    });
}

fn is_naming(change: &Change) -> bool {
    matches!(change, Change::Rename { .. } | Change::Remove { .. })
}

/// The name of a change, without its bytes.
fn name(change: &Change) -> String {
    match change {
        Change::Write { id, position, bytes } => format!("write {} to {id} at {position}", bytes.len()),
        change => format!("{change:?}"),
    }
}
