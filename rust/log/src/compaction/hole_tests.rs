//! A hole in a compacted log is a loss, unless the cleaner or the leader's log left it.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_records::header::set_position;
use tempfile::tempdir;

use crate::testing::{BatchSpec, batch, config, create, read_all};
use crate::{Log, LogConfig, LogContext, OpenAt, Recovery};

/// Two batches of [`at`] fit into a segment.
fn settings() -> LogConfig {
    LogConfig { compact: true, segment_bytes: 1000, index_interval_bytes: 100, ..config() }
}

fn at(offset: i64) -> Vec<u8> {
    let mut bytes = batch(&BatchSpec { value_bytes: 400, ..BatchSpec::default() });
    set_position(&mut bytes, offset, 0);
    bytes
}

fn append(log: &mut Log, offsets: &[i64]) {
    for &offset in offsets {
        log.append_as_follower(&at(offset), 0, 0).expect("append");
    }
}

fn bases(log: &Log) -> Vec<i64> {
    log.segments.iter().map(|segment| segment.base_offset()).collect()
}

fn offsets(log: &mut Log) -> Vec<i64> {
    let all = read_all(log, log.log_start_offset());
    klamm_records::batches(&all).map(|batch| batch.expect("whole").header().base_offset()).collect()
}

fn open(path: &Path, at: OpenAt) -> (Log, Recovery) {
    Log::open(path, "t", 0, Arc::new(settings()), &LogContext::new(64), at, 0).expect("open")
}

/// A follower's log of a leader's compacted log, whose segment of offsets 7 and 8 has lost its second batch.
fn with_hole(path: &Path) {
    let mut log = create(path, settings());
    append(&mut log, &[0, 3, 7, 8, 20, 21]);
    assert_eq!(bases(&log), [0, 4, 9]);
    drop(log);
    let segment = OpenOptions::new().write(true).open(segment(path, 4)).expect("it is there");
    segment.set_len(at(7).len() as u64).expect("cut");
}

fn segment(path: &Path, base_offset: i64) -> PathBuf {
    path.join(format!("{base_offset:020}.log"))
}

#[test]
fn a_hole_above_the_recovery_point_ends_the_log() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    with_hole(&path);
    let (mut log, recovery) = open(&path, OpenAt { has_gaps: true, keeps_damage: true, ..OpenAt::default() });
    assert_eq!((recovery.segments_dropped, &recovery.lost[..]), (1, &[][..]), "{:?}", recovery.warnings);
    assert_eq!((log.log_end_offset(), offsets(&mut log)), (8, vec![0, 3, 7]));
}

#[test]
fn a_hole_in_what_was_committed_is_reported() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    with_hole(&path);
    let (mut log, recovery) =
        open(&path, OpenAt { has_gaps: true, keeps_damage: true, proven_end: 22, ..OpenAt::default() });
    assert_eq!((recovery.segments_dropped, &recovery.lost[..]), (0, &[(8, 9)][..]), "{:?}", recovery.warnings);
    assert_eq!((log.log_end_offset(), offsets(&mut log)), (22, vec![0, 3, 7, 20, 21]));
}

#[test]
fn a_missing_segment_above_the_recovery_point_ends_the_log() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    append(&mut log, &[0, 3, 7, 8, 20, 21]);
    drop(log);
    std::fs::remove_file(segment(&path, 4)).expect("it is there");
    let at = OpenAt { has_gaps: true, recovery_point: 4, gaps_below: 4, ..OpenAt::default() };
    let (mut log, recovery) = open(&path, at);
    assert_eq!((recovery.segments_dropped, log.log_end_offset(), offsets(&mut log)), (1, 4, vec![0, 3]));
}

#[test]
fn a_gap_below_the_recovery_point_or_of_another_writer_stays() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    with_hole(&path);
    for (recovery_point, gaps_below) in [(0, 9), (9, 9), (0, i64::MAX)] {
        let at = OpenAt { has_gaps: true, keeps_damage: true, recovery_point, gaps_below, ..OpenAt::default() };
        let (mut log, recovery) = open(&path, at);
        assert_eq!(recovery.warnings, Vec::<String>::new());
        assert_eq!((log.log_end_offset(), offsets(&mut log)), (22, vec![0, 3, 7, 20, 21]));
    }
}

#[test]
fn gaps_of_the_leader_are_no_holes() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    append(&mut log, &[0, 3, 7, 8, 20, 21, 90]);
    assert_eq!(bases(&log), [0, 4, 9, 22]);
    drop(log);
    let (mut log, recovery) = open(&path, OpenAt { keeps_damage: true, ..OpenAt::default() });
    assert_eq!(recovery.warnings, Vec::<String>::new());
    assert_eq!((log.log_end_offset(), offsets(&mut log)), (91, vec![0, 3, 7, 8, 20, 21, 90]));
}

#[test]
fn a_segment_begins_where_a_truncated_one_ends() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    append(&mut log, &[0, 3]);
    log.truncate_to(2, 0).expect("truncate");
    log.flush().expect("flush");
    assert_eq!((log.log_end_offset(), log.flushed_offset()), (2, 2));
    assert_eq!((log.recovery_point(), log.closed().map(|closed| closed.log_end_offset)), (1, Some(1)));
    let mut large = batch(&BatchSpec { value_bytes: 800, ..BatchSpec::default() });
    set_position(&mut large, 5, 0);
    log.append_as_follower(&large, 0, 0).expect("append");
    assert_eq!(bases(&log), [0, 1]);
    drop(log);
    let (mut log, recovery) = open(&path, OpenAt { keeps_damage: true, ..OpenAt::default() });
    assert_eq!(recovery.warnings, Vec::<String>::new());
    assert_eq!((log.log_end_offset(), offsets(&mut log)), (6, vec![0, 5]));
}

#[test]
fn a_gap_that_indexes_cannot_span_is_no_hole() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, settings());
    let far = i64::from(i32::MAX) + 2;
    append(&mut log, &[0, far, 2 * far]);
    assert_eq!(bases(&log), [0, far, 2 * far]);
    drop(log);
    let (mut log, recovery) = open(&path, OpenAt { keeps_damage: true, ..OpenAt::default() });
    assert_eq!(recovery.warnings, Vec::<String>::new());
    assert_eq!((log.log_end_offset(), offsets(&mut log)), (2 * far + 1, vec![0, far, 2 * far]));
}
