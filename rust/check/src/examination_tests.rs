//! Damage to the files of a metadata log: losses are proven and reported, unacknowledged data is truncated.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use klamm_base::LogError;
use klamm_log::LogContext;
use klamm_metadata::checkpoint::{CheckpointHeader, write_values};
use klamm_quorum::{Examination, LogEnd, OnLoss, Proof, QuorumLog, QuorumLogConfig, SnapshotId};
use klamm_records::batches;
use tempfile::{TempDir, tempdir};

use super::{LogToCheck, Progress, check_logs};

/// The recovery point file in the folder of the segments.
const FILE_NAME: &str = "klamm-recovery-point";
const FIRST: &str = "00000000000000000000.log";
const CONFIG: QuorumLogConfig = QuorumLogConfig { segment_bytes: 1000, segment_ms: i64::MAX, advice: None };

fn open(dir: &Path, on_loss: OnLoss<'_>) -> Result<(QuorumLog, Vec<String>), LogError> {
    let (log, recovery) = QuorumLog::open(dir, &CONFIG, &LogContext::new(16), on_loss, 0)?;
    Ok((log, recovery.warnings))
}

fn flush(log: &QuorumLog) {
    let (sender, flushed) = channel();
    log.start_flush(Box::new(move |done| sender.send(done.map(drop)).expect("awaited")));
    flushed.recv().expect("an answer").expect("flush");
}

/// Forty records in batches of two, ten batches in each epoch, in several segments. `is_closed`: closed cleanly,
/// otherwise killed.
fn written(is_closed: bool) -> TempDir {
    let dir = tempdir().expect("a folder");
    let (log, _) = open(dir.path(), OnLoss::Refuse).expect("open");
    for at in 0..20 {
        log.append(&[[at as u8; 40], [0; 40]], at / 10, i64::from(at)).expect("append");
    }
    flush(&log);
    if is_closed {
        log.close().expect("close");
    } else {
        drop(log);
    }
    dir
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    found.sort();
    found
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").path());
    let mut found: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).expect("read"))).collect();
    found.sort();
    found
}

fn end(end_offset: i64, epoch: i32) -> LogEnd {
    LogEnd { end_offset, epoch }
}

type Damaging = fn(&Path);

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("read");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("write");
}

const DAMAGES: [(&str, Damaging); 9] = [
    ("a flipped bit in a closed segment", |dir| flip(&segments(dir)[1], 100)),
    ("a flipped base offset", |dir| flip(&segments(dir)[1], 7)),
    ("a flipped bit in the active segment", |dir| flip(segments(dir).last().expect("some"), 100)),
    ("a truncated active segment", |dir| {
        let last = segments(dir).pop().expect("some");
        let bytes = fs::read(&last).expect("read");
        fs::write(&last, &bytes[..100]).expect("write");
    }),
    ("an emptied active segment", |dir| fs::write(segments(dir).last().expect("some"), b"").expect("write")),
    ("a removed active segment", |dir| fs::remove_file(segments(dir).last().expect("some")).expect("remove")),
    ("a zeroed first segment", |dir| {
        let len = fs::read(dir.join(FIRST)).expect("read").len();
        fs::write(dir.join(FIRST), vec![0; len]).expect("write");
    }),
    ("a removed segment in the middle", |dir| fs::remove_file(&segments(dir)[1]).expect("remove")),
    ("two segments exchanged", |dir| {
        let paths = segments(dir);
        fs::rename(&paths[1], dir.join("aside")).expect("rename");
        fs::rename(&paths[2], &paths[1]).expect("rename");
        fs::rename(dir.join("aside"), &paths[2]).expect("rename");
    }),
];

#[test]
fn a_sole_voter_refuses_a_log_that_lost_records_and_changes_nothing() {
    for is_closed in [true, false] {
        for (name, damage) in DAMAGES {
            let dir = written(is_closed);
            damage(dir.path());
            let before = contents(dir.path());
            let error = open(dir.path(), OnLoss::Refuse).err().expect(name).to_string();
            assert!(error.contains(".log is damaged at byte"), "{name}: {error}");
            assert!(error.contains("up to offset 40 in epoch 1"), "{name}: {error}");
            assert!(error.contains("klamm quorum recover --accept-loss"), "{name}: {error}");
            assert_eq!(contents(dir.path()), before, "{name}");
        }
    }
}

#[test]
fn a_voter_with_peers_keeps_intact_records_and_knows_its_loss() {
    for (name, damage) in DAMAGES {
        let dir = written(true);
        damage(dir.path());
        let expected = Examination::of(dir.path()).expect("examined").end;
        for _ in 0..2 {
            let (log, warnings) = open(dir.path(), OnLoss::Cut).expect(name);
            assert_eq!(log.end_offset(), expected.end_offset, "{name}");
            assert_eq!(log.proven_end(), end(40, 1), "{name}");
            assert!(warnings.iter().any(|text| text.contains("does not vote")), "{name}: {warnings:?}");
            // Fetching the records again, or a new leader's records, restores the log's end; a start alone does not.
            drop(log);
        }
        let (log, _) = open(dir.path(), OnLoss::Cut).expect(name);
        log.append(&[b"of a later leader"], 7, 0).expect("append");
        flush(&log);
        drop(log);
        let (log, _) = open(dir.path(), OnLoss::Refuse).expect(name);
        assert_eq!((log.end_offset(), log.proven_end()), (expected.end_offset + 1, end(expected.end_offset + 1, 7)));
    }
}

#[test]
fn without_a_recovery_point_intact_batches_and_snapshots_prove_a_loss() {
    let dir = written(true);
    fs::remove_file(dir.path().join(FILE_NAME)).expect("remove");
    flip(&segments(dir.path())[1], 100);
    let loss = Examination::of(dir.path()).expect("examined").loss(true).expect("lost");
    assert_eq!((loss.proof, loss.proven, loss.position), (Proof::Batches, end(40, 1), 0));

    let dir = written(true);
    fs::remove_file(dir.path().join(FILE_NAME)).expect("remove");
    let id = SnapshotId { end_offset: 38, epoch: 1 };
    let header = CheckpointHeader { epoch: 1, last_contained_log_timestamp: 18, control_records: Vec::new() };
    write_values(&dir.path().join(id.file_name()), &[b"value"], &header, 0).expect("write");
    for segment in segments(dir.path()) {
        fs::remove_file(segment).expect("remove");
    }
    let examined = Examination::of(dir.path()).expect("examined");
    assert_eq!(examined.loss(true).expect("lost").proof, Proof::Snapshot(id));
    assert_eq!(examined.loss(false), None, "an install that was cut short looks like this");
}

#[test]
fn an_unacknowledged_torn_write_is_truncated() {
    let dir = written(false);
    let last = segments(dir.path()).pop().expect("some");
    let whole = fs::read(&last).expect("read");
    let used: usize = batches(&whole).map_while(Result::ok).map(|batch| batch.bytes().len()).sum();
    let batch = batches(&whole).next().expect("some").expect("whole").bytes().to_vec();
    let mut next = batch.clone();
    next[..8].copy_from_slice(&42i64.to_be_bytes());
    // The first of two batches is torn, or lost: above the recovery point a power cut may cause this.
    for torn in [batch[..50].to_vec(), [vec![0; batch.len()], next].concat()] {
        fs::write(&last, [&whole[..used], &torn].concat()).expect("write");
        assert_eq!(Examination::of(dir.path()).expect("examined").loss(true), None);
        let (log, _) = open(dir.path(), OnLoss::Refuse).expect("open");
        assert_eq!((log.end_offset(), log.proven_end()), (40, end(40, 1)));
    }
}

#[test]
fn records_appended_by_apache_kafka_may_be_damaged_too() {
    let dir = written(true);
    let point = fs::read(dir.path().join(FILE_NAME)).expect("read");
    let (log, _) = open(dir.path(), OnLoss::Refuse).expect("open");
    for _ in 0..3 {
        log.append(&[b"kafka's"], 5, 0).expect("append");
        flush(&log);
    }
    log.close().expect("close");
    // Kafka does not know the file: it contains the state at klamm's last write.
    fs::write(dir.path().join(FILE_NAME), point).expect("write");
    assert_eq!(Examination::of(dir.path()).expect("examined").loss(true), None);
    let last = segments(dir.path()).pop().expect("some");
    let bytes = fs::read(&last).expect("read");
    let sizes: Vec<usize> = batches(&bytes).map_while(Result::ok).map(|batch| batch.bytes().len()).collect();
    let of_last_two: usize = sizes.iter().rev().take(2).sum();
    flip(&last, sizes.iter().sum::<usize>() - of_last_two + 70);
    let loss = Examination::of(dir.path()).expect("examined").loss(true).expect("lost");
    assert_eq!((loss.proof, loss.end.end_offset, loss.proven), (Proof::Batches, 41, end(43, 5)));
}

#[test]
fn a_truncation_by_the_leader_is_no_loss() {
    let dir = written(true);
    let (log, _) = open(dir.path(), OnLoss::Refuse).expect("open");
    log.truncate_to(30, 0).expect("truncate");
    assert_eq!(log.proven_end(), end(30, 1));
    drop(log);
    assert_eq!(open(dir.path(), OnLoss::Refuse).expect("open").0.end_offset(), 30);
}

#[test]
fn a_log_emptied_by_its_leader_is_no_loss() {
    let dir = tempdir().expect("a folder");
    let (log, _) = open(dir.path(), OnLoss::Refuse).expect("open");
    log.append(&[[1; 40]], 3, 0).expect("append");
    flush(&log);
    log.truncate_to(0, 0).expect("truncate");
    assert_eq!(log.proven_end(), LogEnd::default(), "no record is left, and no epoch of one that is gone");
    drop(log);
    assert_eq!(open(dir.path(), OnLoss::Refuse).expect("open").0.end_offset(), 0);
}

#[test]
fn a_wrong_epoch_checkpoint_is_rebuilt() {
    for content in ["0\n2\n0 0\n9 20\n", "0\n1\n3 0\n", "0\n2\n0 0\n1 30\n", "garbage", ""] {
        let dir = written(true);
        fs::write(dir.path().join("leader-epoch-checkpoint"), content).expect("write");
        let (log, warnings) = open(dir.path(), OnLoss::Refuse).expect("open");
        assert_eq!((log.end_offset_for_epoch(0), log.end_offset_for_epoch(1)), ((20, 0), (40, 1)), "{content:?}");
        assert_eq!(warnings.iter().any(|text| text.contains("leader-epoch-checkpoint")), !content.is_empty());
    }
}

#[test]
fn a_damaged_recovery_point_is_a_warning() {
    let dir = written(true);
    fs::write(dir.path().join(FILE_NAME), "0\n").expect("write");
    let (log, warnings) = open(dir.path(), OnLoss::Refuse).expect("open");
    assert!(warnings[0].contains(FILE_NAME), "{warnings:?}");
    assert_eq!(log.proven_end(), end(40, 1));
}

#[test]
fn an_older_snapshot_that_is_damaged_is_a_warning_and_a_finding() {
    let dir = written(true);
    let header = CheckpointHeader { epoch: 0, last_contained_log_timestamp: 0, control_records: Vec::new() };
    let [older, newer] = [1, 2].map(|end_offset| dir.path().join(SnapshotId { end_offset, epoch: 0 }.file_name()));
    for file in [&older, &newer] {
        write_values(file, &[b"value"], &header, 0).expect("write");
    }
    let found = || {
        let log = LogToCheck { path: dir.path().to_owned(), is_metadata: true, ..LogToCheck::default() };
        let [checked] = &check_logs(&[log], 1, &Progress::default())[..] else { panic!("one log") };
        checked.findings.iter().map(|finding| (finding.file.clone(), finding.action.clone())).collect::<Vec<_>>()
    };
    assert_eq!(found(), []);
    assert_eq!(open(dir.path(), OnLoss::Refuse).expect("open").1, [""; 0]);
    let mut bytes = fs::read(&older).expect("read");
    fs::remove_file(&older).expect("it is read-only");
    bytes.extend_from_slice(b"garbage");
    fs::write(&older, bytes).expect("write");
    let action = "nothing reads it: a newer one is there";
    assert_eq!(found(), [(older.clone(), action.to_owned())]);
    let (_, warnings) = open(dir.path(), OnLoss::Refuse).expect("open");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains(&older.display().to_string()) && warning.contains(action), "{warning}");
}

#[test]
fn a_missing_first_segment_is_an_error_and_no_snapshot_is_deleted() {
    let dir = written(true);
    let id = SnapshotId { end_offset: 1, epoch: 0 };
    let header = CheckpointHeader { epoch: 0, last_contained_log_timestamp: 0, control_records: Vec::new() };
    write_values(&dir.path().join(id.file_name()), &[b"value"], &header, 0).expect("write");
    fs::remove_file(dir.path().join(FIRST)).expect("remove");
    for on_loss in [OnLoss::Refuse, OnLoss::Cut] {
        let error = open(dir.path(), on_loss).err().expect("refused").to_string();
        assert!(error.contains("the log begins at offset"), "{error}");
        assert!(dir.path().join(id.file_name()).exists());
    }
}
