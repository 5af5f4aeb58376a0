//! One history for each fault that a power cut or a kill showed once.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tempfile::tempdir;

use super::history::History;
use super::{End, leave};
use crate::crash::{Disk, Rng};
use crate::log_dir::Key;
use crate::testing::{BatchSpec, batch, config, create};
use crate::{Log, LogContext, OpenAt, Origin, Recovery, with_log};

/// How many outcomes of one power cut are checked: what was not synced survives in part.
const OUTCOMES: u64 = 12;

fn key(topic: &str) -> Key {
    (topic.to_owned(), 0)
}

/// A node with one log.
fn with_log_of(topic: &str) -> (History, Key, Rng) {
    let (mut history, key, mut rng) = (History::new(), key(topic), Rng::new(1));
    history.create(key.clone(), &mut rng);
    (history, key, rng)
}

/// Cuts the power now, and checks what starts on each of many outcomes.
fn cut_power(history: &mut History) {
    history.promise();
    history.take_changes(false);
    let mut disk = history.disk.clone();
    history.changes.iter().for_each(|change| disk.play(change, disk.played()));
    (0..OUTCOMES).for_each(|outcome| check(history, &disk, outcome));
}

/// Cuts the power after every change so far, and checks what starts.
fn cut_power_at_each_change(history: &mut History) {
    history.promise();
    history.take_changes(false);
    let mut disk = history.disk.clone();
    for change in &history.changes {
        (0..OUTCOMES / 6).for_each(|outcome| check(history, &disk, outcome));
        disk.play(change, disk.played());
    }
}

fn check(history: &History, disk: &Disk, outcome: u64) {
    let (rng, target) = (&mut Rng::new(outcome), tempdir().expect("temporary directory"));
    leave(history, disk, End::PowerCut, target.path(), rng);
    History::after(target, history, disk, End::PowerCut, rng);
}

#[test]
fn what_a_killed_process_wrote_is_durable_once_the_next_one_has_flushed_it() {
    let (mut history, key, mut rng) = with_log_of("a");
    history.append_many(&key, 1, &mut rng);
    history.restart_unopened(false, false);
    history.open_and_flush(&key);
    cut_power(&mut history);
}

#[test]
fn a_log_goes_on_after_a_truncation_below_its_recovery_point() {
    let (mut history, key, mut rng) = with_log_of("a");
    history.append_many(&key, 12, &mut rng);
    history.flush(&key);
    history.checkpoint_all();
    history.truncate_at(&key, 4);
    cut_power_at_each_change(&mut history);
    history.append_many(&key, 6, &mut rng);
    cut_power(&mut history);
}

#[test]
fn epochs_of_truncated_records_do_not_outlive_them() {
    let (mut history, key, mut rng) = with_log_of("a");
    for _ in 0..4 {
        history.append_many(&key, 2, &mut rng);
        history.expected(&key).epoch += 2;
    }
    history.flush(&key);
    history.truncate_at(&key, 2);
    // Records of epochs between those of the file, which no flush has replaced.
    history.expected(&key).epoch = 1;
    history.append_many(&key, 3, &mut rng);
    history.expected(&key).epoch = 3;
    history.append_many(&key, 3, &mut rng);
    cut_power(&mut history);
}

#[test]
fn logs_that_waited_since_a_power_cut_are_not_damaged_after_another_start() {
    let (mut history, key, mut rng) = with_log_of("a");
    history.append_many(&key, 2, &mut rng);
    history.flush(&key);
    history.append_many(&key, 4, &mut rng);
    cut_power(&mut history);
}

#[test]
fn a_torn_header_says_nothing_about_the_batch_before_it() {
    // Headers begin at every place in a sector.
    for seed in 0..4 {
        let (mut history, key, mut rng) = with_log_of("a");
        history.expected(&key).epoch = 3 + seed;
        history.append_many(&key, 8, &mut rng);
        cut_power(&mut history);
    }
}

/// Opens a log of two batches after a power cut that took the last sector of the first one with these many bytes of
/// the second one's header.
fn open_without(lost: usize) -> (Log, Recovery) {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    let spec = |value_bytes| BatchSpec { value_bytes, ..BatchSpec::default() };
    let first = (1..512).map(|bytes| batch(&spec(bytes))).find(|batch| batch.len() == 512 - lost).expect("a size");
    for mut bytes in [first, batch(&spec(300))] {
        log.append_as_leader(&mut bytes, 7, 0, Origin::Client).expect("append");
    }
    log.flush().expect("flush");
    drop(log);
    let file = OpenOptions::new().write(true).open(path.join("00000000000000000000.log")).expect("there");
    file.write_all_at(&vec![0; lost], 512 - lost as u64).expect("write");
    let at = OpenAt { keeps_damage: true, ..OpenAt::default() };
    Log::open(&path, "t", 0, Arc::new(config()), &LogContext::new(16), at, 0).expect("open")
}

#[test]
fn a_batch_that_lost_the_first_sector_of_its_header_is_torn() {
    // Its base offset; its leader epoch too; its magic too.
    for lost in [10, 14, 16, 20] {
        let (log, recovery) = open_without(lost);
        assert_eq!((log.log_end_offset(), recovery.damage), (1, Vec::new()), "{lost} bytes");
    }
}

#[test]
fn a_write_that_stops_within_a_prepared_tail_is_no_damage() {
    let (mut history, key, mut rng) = with_log_of("preallocated");
    history.append_many(&key, 2, &mut rng);
    history.flush(&key);
    history.append_many(&key, 1, &mut rng);
    cut_power_at_each_change(&mut history);
}

#[test]
fn a_deleted_log_does_not_come_back_beside_a_new_one_of_its_name() {
    for seed in 0..6 {
        // In the same directory, or in the other one.
        let (mut history, key, rng) = (History::new(), key("a"), &mut Rng::new(seed));
        history.create(key.clone(), rng);
        history.append_many(&key, 2, rng);
        history.flush(&key);
        history.delete(&key, rng);
        history.create(key.clone(), rng);
        history.append_many(&key, 2, rng);
        history.flush(&key);
        cut_power(&mut history);
    }
}

#[test]
fn segments_that_a_truncation_removed_do_not_come_back() {
    let (mut history, key, mut rng) = with_log_of("a");
    history.append_many(&key, 30, &mut rng);
    history.flush(&key);
    history.truncate_at(&key, 3);
    // Of a newer epoch than the segments that would follow it.
    history.append_many(&key, 1, &mut rng);
    cut_power(&mut history);
}

#[test]
fn a_snapshot_of_a_killed_process_is_durable_once_the_next_one_has_flushed_it() {
    let (mut history, key, mut rng) = with_log_of("a");
    let segments = |history: &mut History| with_log(&*history.owner(&key), |log| log.segment_count());
    // The log rolls where its recovery point is.
    while segments(&mut history) < 2 {
        history.flush(&key);
        history.checkpoint_all();
        history.append_many(&key, 1, &mut rng);
    }
    history.restart_unopened(false, false);
    history.open_and_flush(&key);
    history.checkpoint_all();
    cut_power(&mut history);
}
