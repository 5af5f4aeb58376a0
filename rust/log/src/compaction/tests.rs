//! Cleaning compared with a model: the newest record of each key, in order, with its offset unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use klamm_records::control::end_transaction_marker;
use klamm_records::{BatchBuilder, BatchFields, Codec, Compression, batches, records};
use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::testing::{config, create, open, read_all};
use crate::{Log, LogConfig, LogContext, OpenAt, Origin};

type Row = (i64, Vec<u8>, Option<Vec<u8>>);

fn settings() -> LogConfig {
    LogConfig { compact: true, segment_bytes: 600, index_interval_bytes: 100, delete_retention_ms: 1000, ..config() }
}

fn append(log: &mut Log, codec: Codec, timestamp: i64, fields: BatchFields, rows: &[(&[u8], Option<&[u8]>)]) -> i64 {
    let mut builder = BatchBuilder::new(fields, Compression::of(codec));
    for (key, value) in rows {
        builder.append(timestamp, Some(key), *value, &[]).expect("small");
    }
    let mut bytes = builder.finish().expect("small");
    log.append_as_leader(&mut bytes, 0, timestamp, Origin::Client).expect("append").base_offset
}

fn put(log: &mut Log, key: &str, value: Option<&str>) {
    append(log, Codec::None, 0, BatchFields::default(), &[(key.as_bytes(), value.map(str::as_bytes))]);
}

/// Records of the log without markers.
fn rows(log: &mut Log) -> Vec<Row> {
    let bytes = read_all(log, log.log_start_offset());
    let mut rows = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.expect("whole");
        batch.check().expect("valid");
        if batch.header().is_control() {
            continue;
        }
        for record in records(batch, &mut Vec::new(), 1 << 20).expect("readable") {
            let record = record.expect("valid");
            rows.push((record.offset, record.key.expect("keyed").to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    rows
}

/// Runs a whole round; returns the offset up to which the log is clean.
fn clean(log: &mut Log, checkpoint: i64, now_ms: i64) -> i64 {
    log.flush().expect("flush");
    let end = log.log_end_offset();
    let plan = log.clean_plan(Some(checkpoint), end, now_ms).expect("plan");
    let job = log.begin_clean(&plan, now_ms).expect("begin");
    let mut map = OffsetMap::new(1 << 20, 0.9);
    let end_offset = job.map_keys(&mut map, &mut |_| true).expect("map");
    let mut cleaning = job.cleaning(&map);
    for group in job.groups(end_offset) {
        let cleaned = cleaning.clean(group, &mut |_| true).expect("clean");
        job.sync(std::slice::from_ref(&cleaned)).expect("sync");
        assert!(log.replace_segments(cleaned, now_ms).expect("replace"));
    }
    end_offset
}

/// What the model retains: everything from `clean_to` on, and the newest record of each key below it.
fn model(all: &[Row], clean_to: i64) -> Vec<Row> {
    let newest: BTreeMap<&[u8], i64> =
        all.iter().filter(|row| row.0 < clean_to).map(|row| (row.1.as_slice(), row.0)).collect();
    all.iter().filter(|row| row.0 >= clean_to || newest[row.1.as_slice()] == row.0).cloned().collect()
}

fn check_every_offset(log: &mut Log, expected: &[Row]) {
    for offset in log.log_start_offset()..log.log_end_offset() {
        let slice = log.read(offset, 1 << 20, i64::MAX, true).expect("read");
        let next = expected.iter().find(|row| row.0 >= offset);
        let bytes = slice.read().expect("read");
        let first = batches(&bytes).flatten().find(|batch| batch.header().last_offset() >= offset);
        if let (Some(next), Some(first)) = (next, first) {
            assert!(first.header().base_offset() <= next.0, "offset {offset}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_newest_record_of_each_key_is_retained(
        appends in proptest::collection::vec((proptest::collection::vec((0u8..12, any::<bool>()), 1..6), 0usize..5), 1..120),
        rounds in 1usize..4,
    ) {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let mut log = create(&path, settings());
        let (mut checkpoint, mut now_ms) = (0, 0);
        let mut all = Vec::new();
        for chunk in appends.chunks(appends.len().div_ceil(rounds)) {
            for (keys, codec) in chunk {
                let rows: Vec<(Vec<u8>, Option<&[u8]>)> =
                    keys.iter().map(|(key, tombstone)| (vec![*key], (!tombstone).then_some(&b"value"[..]))).collect();
                let rows: Vec<(&[u8], Option<&[u8]>)> = rows.iter().map(|(key, value)| (&key[..], *value)).collect();
                let base = append(&mut log, Codec::ALL[*codec], now_ms, BatchFields::default(), &rows);
                all.extend(rows.iter().zip(base..).map(|((key, value), at)| (at, key.to_vec(), value.map(<[u8]>::to_vec))));
            }
            let end = log.log_end_offset();
            checkpoint = clean(&mut log, checkpoint, now_ms);
            prop_assert_eq!(log.log_end_offset(), end);
            all = model(&all, checkpoint);
            prop_assert_eq!(&rows(&mut log), &all);
            now_ms += 1;
        }
        check_every_offset(&mut log, &all);
        // Cleaning again changes nothing, and neither does a restart.
        clean(&mut log, checkpoint, now_ms);
        prop_assert_eq!(&rows(&mut log), &all);
        log.close().expect("close");
        let (mut log, recovery) = open(&path, settings(), true, 0);
        prop_assert_eq!(recovery.warnings, Vec::<String>::new());
        prop_assert_eq!(&rows(&mut log), &all);
        drop(log);
        let at = OpenAt { gaps_below: checkpoint, ..OpenAt::default() };
        let (mut log, recovery) =
            Log::open(&path, "t", 0, settings().into(), &LogContext::new(64), at, 0).expect("open");
        prop_assert_eq!(recovery.warnings, Vec::<String>::new());
        prop_assert_eq!(&rows(&mut log), &all);
    }
}

#[test]
fn a_tombstone_stays_for_delete_retention_after_it_was_first_cleaned() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), settings());
    put(&mut log, "a", Some("1"));
    put(&mut log, "a", None);
    put(&mut log, "b", Some("1"));
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    clean(&mut log, 0, 100);
    let keys = |log: &mut Log| rows(log).into_iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!(keys(&mut log), [1, 2]);
    clean(&mut log, 0, 1099);
    assert_eq!(keys(&mut log), [1, 2]);
    clean(&mut log, 0, 1100);
    assert_eq!(keys(&mut log), [2]);
}

#[test]
fn case_59_aborted_records_are_removed_and_later_their_marker() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), settings());
    let txn = |producer_id| BatchFields {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchFields::default()
    };
    for (producer_id, commit) in [(7, false), (8, true)] {
        append(&mut log, Codec::None, 0, txn(producer_id), &[(b"a", Some(b"1"))]);
        let mut marker = end_transaction_marker(producer_id, 0, 0, commit, 0).expect("small");
        log.append_as_leader(&mut marker, 0, 0, Origin::Coordinator).expect("append");
    }
    append(&mut log, Codec::None, 0, BatchFields::default(), &[(b"z", Some(b"1"))]);
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    assert_eq!(log.aborted_between(0, end).expect("read").len(), 1);
    clean(&mut log, 0, 100);
    assert_eq!(rows(&mut log).iter().map(|row| row.0).collect::<Vec<_>>(), [2, 4]);
    // The aborted batch is retained without records, because it carries its producer's sequence number. So is the
    // index entry.
    assert_eq!(log.aborted_between(0, end).expect("read").len(), 1);
    let offsets = |log: &mut Log| {
        let bytes = read_all(log, 0);
        batches(&bytes).map(|batch| batch.expect("whole").header().base_offset()).collect::<Vec<_>>()
    };
    assert_eq!(offsets(&mut log), [0, 1, 2, 3, 4]);
    log.expire_producers(i64::MAX);
    clean(&mut log, 0, 200);
    // The empty batch is no longer needed; the marker's delete horizon starts when cleaning first finds it alone.
    clean(&mut log, 0, 300);
    assert_eq!(offsets(&mut log), [1, 2, 3, 4]);
    clean(&mut log, 0, 1299);
    assert_eq!(offsets(&mut log), [1, 2, 3, 4]);
    clean(&mut log, 0, 1300);
    assert_eq!(offsets(&mut log), [2, 3, 4]);
    assert_eq!(log.aborted_between(0, end).expect("read").len(), 0);
}

#[test]
fn case_60_nothing_of_an_open_transaction_is_cleaned() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), settings());
    let txn = BatchFields {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchFields::default()
    };
    put(&mut log, "a", Some("1"));
    append(&mut log, Codec::None, 0, txn, &[(b"a", Some(b"2"))]);
    put(&mut log, "a", Some("3"));
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    log.flush().expect("flush");
    let plan = log.clean_plan(None, end, 0).expect("plan");
    assert_eq!(plan.first_uncleanable_offset, 0, "whole segments are cleaned, and this one has an open transaction");
    let mut marker = end_transaction_marker(7, 0, 0, true, 0).expect("small");
    log.append_as_leader(&mut marker, 0, 0, Origin::Coordinator).expect("append");
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    log.flush().expect("flush");
    let plan = log.clean_plan(None, end - 1, 0).expect("plan");
    assert_eq!(plan.first_uncleanable_offset, 0, "the marker is not committed");
    clean(&mut log, 0, 0);
    assert_eq!(rows(&mut log).iter().map(|row| row.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn case_60_keys_like_those_of_markers_keep_their_records() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), settings());
    let txn = BatchFields {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchFields::default()
    };
    // A marker's key: version 0, and the type of an abort or a commit.
    append(&mut log, Codec::None, 0, BatchFields::default(), &[(b"\0\0\0\0", Some(b"1")), (b"\0\0\0\x01", Some(b"1"))]);
    append(&mut log, Codec::None, 0, txn, &[(b"a", Some(b"1"))]);
    let mut marker = end_transaction_marker(7, 0, 0, true, 0).expect("small");
    log.append_as_leader(&mut marker, 0, 0, Origin::Coordinator).expect("append");
    put(&mut log, "z", Some("1"));
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    clean(&mut log, 0, 0);
    assert_eq!(rows(&mut log).iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 2, 4]);
}

#[test]
fn the_last_batch_of_a_producer_stays_without_its_records() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    let fields =
        |base_sequence| BatchFields { producer_id: 7, producer_epoch: 0, base_sequence, ..BatchFields::default() };
    append(&mut log, Codec::Zstd, 0, fields(0), &[(b"a", Some(b"1"))]);
    append(&mut log, Codec::Zstd, 0, fields(1), &[(b"a", Some(b"2"))]);
    put(&mut log, "a", Some("3"));
    let end = log.log_end_offset();
    log.roll(end, 0).expect("roll");
    clean(&mut log, 0, 0);
    assert_eq!(rows(&mut log).iter().map(|row| row.0).collect::<Vec<_>>(), [2]);
    drop(log);
    let (mut log, _) = open(&path, settings(), false, 0);
    assert_eq!(append(&mut log, Codec::None, 0, fields(2), &[(b"b", Some(b"1"))]), 3);
}

#[test]
fn recent_and_undecided_records_are_not_cleaned() {
    let dir = tempdir().expect("temporary directory");
    let settings = LogConfig { min_compaction_lag_ms: 1000, max_compaction_lag_ms: 5000, ..settings() };
    let mut log = create(&dir.path().join("t-0"), settings);
    for timestamp in [0, 500, 1000] {
        append(&mut log, Codec::None, timestamp, BatchFields::default(), &[(b"a", Some(b"1"))]);
        let end = log.log_end_offset();
        log.roll(end, timestamp).expect("roll");
    }
    let bound = |log: &mut Log, hw, now_ms| log.clean_plan(None, hw, now_ms).expect("plan").first_uncleanable_offset;
    assert_eq!(bound(&mut log, 3, 9999), 0, "nothing is flushed");
    log.flush().expect("flush");
    assert_eq!(bound(&mut log, 3, 1500), 2);
    assert_eq!(bound(&mut log, 3, 1499), 1);
    assert_eq!(bound(&mut log, 3, 9999), 3);
    assert_eq!(bound(&mut log, 1, 9999), 1);
    assert!(!log.clean_plan(None, 3, 5000).expect("plan").overdue);
    assert!(log.clean_plan(None, 3, 5501).expect("plan").overdue);
    let plan = log.clean_plan(Some(2), 3, 9999).expect("plan");
    assert_eq!((plan.first_dirty_offset, plan.reset_checkpoint), (2, false));
    assert!((plan.ratio() - 1.0 / 3.0).abs() < 0.01);
    assert!(log.clean_plan(Some(4), 3, 9999).expect("plan").reset_checkpoint);
}

/// A round with its keys mapped, over fifty records of one key, and the offset up to which it cleans.
fn begun(log: &mut Log) -> (CleanJob, OffsetMap, i64) {
    for _ in 0..50 {
        put(log, "a", Some("some value"));
    }
    log.flush().expect("flush");
    let plan = log.clean_plan(None, 50, 0).expect("plan");
    let job = log.begin_clean(&plan, 0).expect("begin");
    let mut map = OffsetMap::new(1 << 20, 0.9);
    let end_offset = job.map_keys(&mut map, &mut |_| true).expect("map");
    (job, map, end_offset)
}

#[test]
fn a_log_truncated_meanwhile_is_not_changed() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    let (job, map, end_offset) = begun(&mut log);
    let mut cleaning = job.cleaning(&map);
    let cleaned = cleaning.clean(job.groups(end_offset)[0].clone(), &mut |_| true).expect("clean");
    log.truncate_to(2, 0).expect("truncate");
    assert!(!log.replace_segments(cleaned, 0).expect("replace"));
    assert_eq!(rows(&mut log).len(), 2);
    assert!(!names(&path).iter().any(|name| name.ends_with(".cleaned") || name.ends_with(".swap")));
}

#[test]
fn a_log_closed_meanwhile_is_left_alone() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), settings());
    let (job, map, end_offset) = begun(&mut log);
    let away = dir.path().join("t-0.0-delete");
    log.move_away(&away).expect("put away");
    let cleaned = job.cleaning(&map).clean(job.groups(end_offset)[0].clone(), &mut |_| true).expect("clean");
    assert!(!log.replace_segments(cleaned, 0).expect("replace"));
    assert!(!names(&away).iter().any(|name| name.ends_with(".cleaned") || name.ends_with(".deleted")));
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("list");
    entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text")).collect()
}

#[test]
fn a_stopped_round_leaves_no_files() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    let (job, map, end_offset) = begun(&mut log);
    let mut left = 3;
    let mut pace = |_| {
        left -= 1;
        left > 0
    };
    let stopped = job.cleaning(&map).clean(job.groups(end_offset)[0].clone(), &mut pace);
    assert!(matches!(stopped, Err(CleanError::Stopped)));
    assert!(!names(&path).iter().any(|name| name.ends_with(".cleaned")));
    assert_eq!(rows(&mut log).len(), 50);
}
