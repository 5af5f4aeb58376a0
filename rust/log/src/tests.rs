//! The log from its users' point of view.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::Header;
use tempfile::tempdir;

use super::testing::{BatchSpec, batch, config, create, open, read_all};
use super::*;

fn append(log: &mut Log, spec: &BatchSpec) -> Appended {
    log.append_as_leader(&mut batch(spec), 0, 0, Origin::Client).expect("append")
}

fn fill(log: &mut Log, count: usize) {
    for _ in 0..count {
        append(log, &BatchSpec { records: 3, ..BatchSpec::default() });
    }
}

#[test]
fn records_are_read_as_they_were_appended() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    let mut expected = Vec::new();
    for at in 0..10 {
        let mut bytes = batch(&BatchSpec { records: 2, timestamp: at, ..BatchSpec::default() });
        let appended = log.append_as_leader(&mut bytes, 7, 0, Origin::Client).expect("append");
        assert_eq!((appended.base_offset, appended.last_offset), (2 * at, 2 * at + 1));
        expected.extend(bytes);
    }
    assert_eq!(log.log_end_offset(), 20);
    assert_eq!(read_all(&mut log, 0), expected);
    assert_eq!(log.latest_epoch(), Some(7));
    let header = Header::at_start_of(&expected).expect("a batch");
    assert_eq!((header.base_offset(), header.leader_epoch()), (0, 7));
}

#[test]
fn a_read_begins_with_the_batch_that_contains_the_offset() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    fill(&mut log, 200);
    for offset in [0, 1, 2, 3, 298, 299, 597, 599] {
        let slice = log.read(offset, 1 << 20, i64::MAX, true).expect("read");
        assert_eq!(slice.first_batch_offset, offset / 3 * 3, "offset {offset}");
    }
    assert_eq!(log.read(600, 1 << 20, i64::MAX, true).expect("read").len, 0);
    assert!(matches!(log.read(601, 1, i64::MAX, true), Err(LogError::OffsetOutOfRange { .. })));
}

#[test]
fn a_read_ends_at_its_bounds() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    fill(&mut log, 10);
    let size = batch(&BatchSpec { records: 3, ..BatchSpec::default() }).len();
    assert_eq!(log.read(0, 1 << 20, 9, true).expect("read").len, 3 * size);
    assert_eq!(log.read(0, 1 << 20, 10, true).expect("read").len, 3 * size, "a batch is not split at the bound");
    assert_eq!(log.read(9, 1 << 20, 9, true).expect("read").len, 0);
    assert_eq!(log.read(0, 10, 30, true).expect("read").len, size);
    assert_eq!(log.read(0, 10, 30, false).expect("read").len, 10);
    assert!(log.read(0, 10, 30, false).expect("read").first_batch_cut);
    assert_eq!(log.read(0, size + 1, 30, false).expect("read").len, size + 1);
}

#[test]
fn a_log_survives_a_clean_and_an_unclean_end() {
    for clean in [true, false] {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let settings = LogConfig { segment_bytes: 4000, index_interval_bytes: 100, ..config() };
        let mut log = create(&path, settings.clone());
        fill(&mut log, 200);
        assert!(log.segment_count() > 3);
        let expected = read_all(&mut log, 0);
        if clean {
            log.close().expect("close");
        }
        drop(log);
        let (mut log, recovery) = open(&path, settings, clean, 0);
        assert_eq!(log.log_end_offset(), 600);
        assert_eq!(read_all(&mut log, 0), expected);
        assert_eq!(recovery.segments_checked, if clean { 0 } else { log.segment_count() });
        assert_eq!(recovery.warnings, Vec::<String>::new());
        assert_eq!(append(&mut log, &BatchSpec::default()).base_offset, 600);
    }
}

#[test]
fn a_torn_end_is_truncated_wherever_it_is_torn() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    fill(&mut log, 3);
    let all = read_all(&mut log, 0);
    log.flush().expect("flush");
    drop(log);
    let file = path.join("00000000000000000000.log");
    let size = all.len() / 3;
    for cut in 0..=all.len() {
        fs::write(&file, &all[..cut]).expect("write");
        let (mut log, recovery) = open(&path, config(), false, 0);
        let whole = cut / size;
        assert_eq!(log.log_end_offset(), 3 * whole as i64, "cut at {cut}");
        assert_eq!(read_all(&mut log, 0), all[..whole * size]);
        assert_eq!(recovery.bytes_truncated + recovery.zeroes_cut, (cut - whole * size) as u64);
        assert_eq!(fs::metadata(&file).expect("stat").len(), (whole * size) as u64);
    }
}

#[test]
fn a_flipped_bit_ends_the_log() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    fill(&mut log, 3);
    let all = read_all(&mut log, 0);
    drop(log);
    let file = path.join("00000000000000000000.log");
    let size = all.len() / 3;
    for bit in 8 * size..16 * size {
        let mut bytes = all.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, &bytes).expect("write");
        let (log, _) = open(&path, config(), false, 0);
        // The base offset and the leader epoch are outside of the checksum, as in Apache Kafka.
        let unchecked = bit / 8 - size < 8 || (12..16).contains(&(bit / 8 - size));
        assert!(unchecked || log.log_end_offset() == 3, "bit {bit}: {}", log.log_end_offset());
    }
}

#[test]
fn preallocated_zeroes_are_no_damage() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    fill(&mut log, 3);
    let expected = read_all(&mut log, 0);
    drop(log);
    let file = OpenOptions::new().write(true).open(path.join("00000000000000000000.log")).expect("open");
    file.set_len(100_000).expect("extend");
    let (mut log, recovery) = open(&path, config(), false, 0);
    assert_eq!(recovery.zeroes_cut, 100_000 - expected.len() as u64);
    assert_eq!((recovery.bytes_truncated, recovery.warnings.len()), (0, 0));
    assert_eq!(read_all(&mut log, 0), expected);
}

#[test]
fn old_message_formats_are_refused_by_name() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    drop(create(&path, config()));
    let mut message = vec![0u8; 80];
    message[8..12].copy_from_slice(&68i32.to_be_bytes());
    message[16] = 1;
    // CRC-32 of magic 1 and 63 zeroes.
    message[12..16].copy_from_slice(&0xfab84ea3u32.to_be_bytes());
    fs::write(path.join("00000000000000000000.log"), message).expect("write");
    let at = OpenAt { recovery_point: 0, log_start_offset: 0, clean: false, has_gaps: false, ..OpenAt::default() };
    let error = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), at, 0).err().expect("refused");
    assert!(matches!(error, LogError::OldFormat { magic: 1, .. }), "{error}");
    assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
}

#[test]
fn flushing_preallocates_the_tail_and_roll_and_close_remove_it() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = LogConfig { segment_bytes: 2 << 20, prepare_bytes: 1 << 20, ..config() };
    let mut log = create(&path, settings.clone());
    let spec = BatchSpec { value_bytes: 100_000, ..BatchSpec::default() };
    let first = path.join("00000000000000000000.log");
    for _ in 0..10 {
        append(&mut log, &spec);
        log.flush().expect("flush");
    }
    assert_eq!(log.flushed_offset(), 10);
    assert!(fs::metadata(&first).expect("stat").len() > log.size());
    let expected = read_all(&mut log, 0);
    while log.segment_count() == 1 {
        append(&mut log, &spec);
        log.flush().expect("flush");
    }
    assert!(read_all(&mut log, 0).starts_with(&expected));
    assert_eq!(fs::metadata(&first).expect("stat").len() + log.segments_mut()[1].size(), log.size());
    let expected = read_all(&mut log, 0);
    log.close().expect("close");
    let (mut log, recovery) = open(&path, settings, true, 0);
    assert_eq!(recovery, Recovery::default());
    assert_eq!(read_all(&mut log, 0), expected);
}

#[test]
fn a_damaged_index_is_rebuilt() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = LogConfig { index_interval_bytes: 100, ..config() };
    let mut log = create(&path, settings.clone());
    fill(&mut log, 100);
    log.close().expect("close");
    drop(log);
    let index = path.join("00000000000000000000.index");
    let good = fs::read(&index).expect("read");
    assert!(good.len() > 100);
    for damage in 0..4 {
        let file = OpenOptions::new().write(true).open(&index).expect("open");
        match damage {
            0 => file.set_len(good.len() as u64 - 3).expect("cut"),
            1 => file.set_len(good.len() as u64 + 80).expect("zeroes"),
            2 => file.write_all_at(&[0x7f], good.len() as u64 - 4).expect("flip"),
            _ => fs::remove_file(&index).expect("remove"),
        }
        let (mut log, _) = open(&path, settings.clone(), true, 300);
        for offset in 0..300 {
            let slice = log.read(offset, 1000, i64::MAX, true).expect("read");
            assert_eq!(slice.first_batch_offset, offset / 3 * 3, "damage {damage}, offset {offset}");
        }
        log.close().expect("close");
        assert_eq!(fs::read(&index).expect("read"), good, "damage {damage}");
    }
}

#[test]
fn a_batch_after_a_large_one_is_found_even_with_a_wrong_index_entry() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    let mut firsts = Vec::new();
    for number in 0..100 {
        let value_bytes = if number % 3 == 0 { 10 } else { 5000 };
        let spec = BatchSpec { records: 3, value_bytes, ..BatchSpec::default() };
        firsts.extend([append(&mut log, &spec).base_offset; 3]);
    }
    log.close().expect("close");
    drop(log);
    let index = path.join("00000000000000000000.index");
    let good = fs::read(&index).expect("read");
    let middle = good.len() / 16 * 8;
    assert!(good.len() >= 50 * 8, "every large batch has an entry after it");
    // No damage; a position within a batch; another batch's position; the offset.
    for damage in 0..4 {
        let mut bytes = good.clone();
        match damage {
            0 => {}
            1 => bytes[middle + 7] ^= 1,
            2 => bytes.copy_within(middle + 12..middle + 16, middle + 4),
            _ => bytes[middle + 3] ^= 1,
        }
        fs::write(&index, &bytes).expect("write");
        let (mut log, _) = open(&path, config(), true, 300);
        for (offset, first) in firsts.iter().enumerate() {
            let slice = log.read(offset as i64, 1000, i64::MAX, true).expect("read");
            assert_eq!(slice.first_batch_offset, *first, "damage {damage}, offset {offset}");
        }
    }
}

#[test]
fn offsets_are_found_by_time() {
    let dir = tempdir().expect("temporary directory");
    let settings = LogConfig { segment_bytes: 2000, index_interval_bytes: 100, ..config() };
    let mut log = create(&dir.path().join("t-0"), settings);
    assert_eq!(log.offset_of_max_timestamp().expect("search"), None);
    for at in 0..100 {
        append(&mut log, &BatchSpec { records: 3, timestamp: 1000 * at, ..BatchSpec::default() });
    }
    append(&mut log, &BatchSpec { records: 3, timestamp: 5000, ..BatchSpec::default() });
    let mut find = |timestamp| log.offset_for_timestamp(timestamp).expect("search").map(|f| (f.timestamp, f.offset));
    assert_eq!(find(0), Some((0, 0)));
    assert_eq!(find(1), Some((1, 1)));
    assert_eq!(find(3), Some((1000, 3)));
    assert_eq!(find(50_002), Some((50_002, 152)));
    assert_eq!(find(99_003), None);
    let largest = log.offset_of_max_timestamp().expect("search").expect("there are records");
    assert_eq!((largest.timestamp, largest.offset), (99_002, 299));
    log.advance_log_start(200);
    let found = log.offset_for_timestamp(0).expect("search").expect("found");
    assert_eq!((found.timestamp, found.offset), (66_002, 200));
}

#[test]
fn a_failed_flush_is_not_retried() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    fill(&mut log, 3);
    // A directory at the path of the epoch file makes the flush fail.
    fs::create_dir(path.join("leader-epoch-checkpoint.tmp")).expect("create");
    assert!(log.flush().is_err());
    fs::remove_dir(path.join("leader-epoch-checkpoint.tmp")).expect("remove");
    fill(&mut log, 3);
    assert!(log.begin_flush().is_none());
    assert_eq!(log.flushed_offset(), 0);
    assert!(log.close().is_err());
}

#[test]
fn only_batches_after_the_recovery_point_are_read() {
    for (prepare_bytes, mark) in [(0, true), (1 << 20, true), (0, false)] {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let settings = LogConfig { index_interval_bytes: 1000, prepare_bytes, ..config() };
        let mut log = create(&path, settings.clone());
        let append = |log: &mut Log, sequence: i32| {
            let spec = BatchSpec {
                producer: Some((7, 0, sequence)),
                value_bytes: 300,
                timestamp: i64::from(sequence),
                ..BatchSpec::default()
            };
            super::tests::append(log, &spec)
        };
        for sequence in 0..500 {
            append(&mut log, sequence);
        }
        log.flush().expect("flush");
        if mark {
            let job = log.begin_mark().expect("mark").expect("something to mark");
            job.sync().expect("sync");
            log.complete_mark(job.end()).expect("mark");
            assert!(log.begin_mark().expect("mark").is_none());
        }
        let (size, recovery_point) = (log.size(), log.recovery_point());
        assert_eq!(recovery_point, 500);
        for sequence in 500..520 {
            append(&mut log, sequence);
        }
        let (expected, new) = (read_all(&mut log, 0), log.size() - size);
        log.flush().expect("flush");
        drop(log);
        let (mut log, recovery) = open(&path, settings.clone(), false, recovery_point);
        assert_eq!(recovery.warnings, Vec::<String>::new());
        // Without a mark the indexes were only in memory: they are rebuilt from the whole segment.
        let checked = if mark { new } else { size + new };
        assert_eq!(recovery.bytes_checked - recovery.zeroes_cut, checked, "prepared {prepare_bytes}, marked {mark}");
        assert_eq!(read_all(&mut log, 0), expected);
        assert_eq!(log.offset_for_timestamp(321).expect("search").expect("found").offset, 321);
        assert_eq!(log.offset_of_max_timestamp().expect("search").expect("found").offset, 519);
        assert_eq!(append(&mut log, 520).base_offset, 520);
        log.close().expect("close");
        let read = |name: &str| fs::read(path.join(name)).expect("read");
        let (index, times) = (read("00000000000000000000.index"), read("00000000000000000000.timeindex"));
        // As if there had been no crash.
        let (mut log, _) = open(&path, settings, false, 0);
        log.close().expect("close");
        assert_eq!(read("00000000000000000000.index"), index);
        assert_eq!(read("00000000000000000000.timeindex"), times);
    }
}

#[test]
fn a_log_without_waiting_acks_is_flushed_when_it_rolls() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = LogConfig { flush_before_ack: false, segment_bytes: 10 << 20, ..config() };
    let mut log = create(&path, settings);
    // The new directory is made durable immediately, the records in it are not.
    let job = log.begin_flush().expect("a new directory");
    job.run().expect("flush");
    assert_eq!(log.complete_flush(job.end()), 0);
    let spec = BatchSpec { value_bytes: 1 << 20, ..BatchSpec::default() };
    let append_at = |log: &mut Log, now_ms| {
        log.append_as_leader(&mut batch(&spec), 0, now_ms, Origin::Client).expect("append");
    };
    for _ in 0..7 {
        append_at(&mut log, 0);
        assert!(!log.wants_flush(), "a burst stays in the page cache");
    }
    append_at(&mut log, 100);
    append_at(&mut log, 1_100);
    assert!(log.wants_flush(), "half a segment for a second is written back");
    let job = log.begin_flush().expect("something to write back");
    assert_eq!(job.file_count(), 0);
    job.run().expect("flush");
    assert_eq!(log.complete_flush(job.end()), 0);
    assert!(!log.wants_flush());
    append_at(&mut log, 1_100);
    assert_eq!(log.segment_count(), 2);
    assert!(log.wants_flush());
    let job = log.begin_flush().expect("a rolled segment");
    job.run().expect("flush");
    assert_eq!(log.complete_flush(job.end()), log.active_base_offset());
    assert_eq!(log.recovery_point(), log.active_base_offset());
    log.set_config(LogConfig { flush_messages: 1, ..(**log.config()).clone() }.into());
    assert!(log.wants_flush());
    let job = log.begin_flush().expect("too many messages");
    job.run().expect("flush");
    assert_eq!(log.complete_flush(job.end()), log.log_end_offset());
}

#[test]
fn a_damaged_time_index_is_rebuilt() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = LogConfig { index_interval_bytes: 100, ..config() };
    let mut log = create(&path, settings.clone());
    for at in 0..60 {
        append(&mut log, &BatchSpec { records: 3, timestamp: 1000 * at, ..BatchSpec::default() });
    }
    log.close().expect("close");
    drop(log);
    let index = path.join("00000000000000000000.timeindex");
    let good = fs::read(&index).expect("read");
    for byte in 0..good.len() {
        let mut damaged = good.clone();
        damaged[byte] ^= 0x10;
        fs::write(&index, &damaged).expect("write");
        let (mut log, _) = open(&path, settings.clone(), true, 180);
        for timestamp in (0..61_000).step_by(997) {
            let found = log.offset_for_timestamp(timestamp).expect("search").map(|found| found.offset);
            let wanted = (0..180).find(|offset| 1000 * (offset / 3) + offset % 3 >= timestamp);
            assert_eq!(found, wanted, "byte {byte}, timestamp {timestamp}");
        }
        fs::write(&index, &damaged).expect("write");
        let (mut log, _) = open(&path, settings.clone(), true, 180);
        let largest = log.offset_of_max_timestamp().expect("search").expect("there are records");
        assert_eq!(largest.timestamp, 59_002, "byte {byte}");
    }
}

#[test]
fn another_segments_file_is_refused() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = LogConfig { segment_bytes: 2000, index_interval_bytes: 100, ..config() };
    let mut log = create(&path, settings.clone());
    fill(&mut log, 60);
    let (first, second) = (log.segments_mut()[0].log_file().path(), log.segments_mut()[1].log_file().path());
    let base_offset = log.segments_mut()[1].base_offset();
    log.close().expect("close");
    drop(log);
    fs::copy(&first, &second).expect("copy");
    let (mut log, _) = open(&path, settings, true, 180);
    let error = log.read(base_offset, 1000, i64::MAX, true).err().expect("refused");
    assert!(error.to_string().contains(&format!("{base_offset:020}.log")), "{error}");
    assert_eq!(log.read(0, 1000, i64::MAX, true).expect("the others are served").first_batch_offset, 0);
}

#[test]
fn a_planned_log_is_on_disk_from_its_first_write_on() {
    let dir = tempdir().expect("temporary directory");
    let (path, context) = (dir.path().join("t-0"), LogContext::new(16));
    let plan = || Log::plan(&path, "t", 0, klamm_base::Uuid([7; 16]), config().into(), &context);
    let mut log = plan();
    log.assign_epoch(3, 0);
    assert_eq!(log.read(0, 1 << 20, i64::MAX, true).expect("read").len, 0);
    assert_eq!(log.offset_for_timestamp(0).expect("a search").map(|found| found.offset), None);
    assert_eq!((log.delete_expired(0, i64::MAX).expect("retention").segments, log.size()), (0, 0));
    assert!(!log.is_dirty() && log.begin_flush().is_none() && log.begin_mark().expect("a mark").is_none());
    log.cut_idle_tail().expect("nothing to cut");
    assert!(!log.move_away(&dir.path().join("gone")).expect("nothing to rename"));
    log.close().expect("nothing to close");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);

    let mut log = plan();
    log.assign_epoch(3, 0);
    append(&mut log, &BatchSpec::default());
    assert!(!log.is_planned() && log.is_dirty());
    log.flush().expect("flush");
    let read = |name: &str| fs::read_to_string(path.join(name)).expect("written");
    assert_eq!(read("partition.metadata"), "version: 0\ntopic_id: BwcHBwcHBwcHBwcHBwcHBw");
    assert!(read("leader-epoch-checkpoint").starts_with("0\n"));
    assert_eq!(read_all(&mut log, 0).len() as u64, log.size());
}

#[test]
fn a_planned_log_with_another_start_offset_is_created() {
    let dir = tempdir().expect("temporary directory");
    let (path, context) = (dir.path().join("t-0"), LogContext::new(16));
    let mut log = Log::plan(&path, "t", 0, klamm_base::Uuid([7; 16]), config().into(), &context);
    log.truncate_fully_and_start_at(40, 0).expect("begin at 40");
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (40, 40));
    assert!(path.join("00000000000000000040.log").exists());
}

#[test]
fn a_bound_on_the_compaction_lag_ends_segments_of_compacted_logs() {
    let dir = tempdir().expect("temporary directory");
    let settings = LogConfig { max_compaction_lag_ms: 100, ..config() };
    for (compact, segments) in [(false, 1), (true, 2)] {
        let mut log = create(&dir.path().join(format!("t-{compact}")), LogConfig { compact, ..settings.clone() });
        for timestamp in [1000, 1100, 1101] {
            let bytes = &mut batch(&BatchSpec { timestamp, ..BatchSpec::default() });
            log.append_as_leader(bytes, 0, timestamp, Origin::Client).expect("append");
        }
        assert_eq!(log.segment_count(), segments);
    }
}

#[test]
fn a_preallocated_segment_has_its_full_size_until_it_rolls_or_closes() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let settings = || LogConfig { preallocate: true, segment_bytes: 4096, ..config() };
    let mut log = create(&path, settings());
    let bytes = |offset: i64| fs::metadata(path.join(format!("{offset:020}.log"))).expect("there").len();
    assert_eq!((bytes(0), log.size()), (4096, 0));
    fill(&mut log, 3);
    for _ in 0..2 {
        log.cut_idle_tail().expect("nothing to cut");
    }
    assert_eq!(bytes(0), 4096);
    let first = log.size();
    log.roll(9, 0).expect("roll");
    assert_eq!((bytes(0), bytes(9)), (first, 4096));
    fill(&mut log, 1);
    let expected = read_all(&mut log, 0);
    log.close().expect("close");
    assert_eq!(bytes(9), log.size() - first);

    let mut log = create(&dir.path().join("t-1"), settings());
    append(&mut log, &BatchSpec::default());
    let size = log.size();
    log.flush().expect("flush");
    drop(log);
    let (mut log, recovery) = open(&dir.path().join("t-1"), settings(), false, 0);
    assert_eq!((log.size(), recovery.zeroes_cut, recovery.bytes_truncated), (size, 4096 - size, 0));
    append(&mut log, &BatchSpec::default());
    assert!(!expected.is_empty());
}

#[test]
fn records_that_wait_too_long_are_flushed() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), LogConfig { flush_before_ack: false, flush_ms: 100, ..config() });
    append(&mut log, &BatchSpec::default());
    assert!(!log.request_overdue_flush(99) && log.request_overdue_flush(100));
    let job = log.begin_flush().expect("everything");
    job.run().expect("flush");
    assert_eq!(log.complete_flush(job.end()), 1);
    assert!(!log.request_overdue_flush(500), "nothing waits");
    append(&mut log, &BatchSpec::default());
    assert!(!log.request_overdue_flush(599) && log.request_overdue_flush(600) && !log.request_overdue_flush(601));
}

#[test]
fn too_many_open_files_make_a_truncation_complete_or_fail() {
    const FILES_MAX: usize = 6;
    let dir = tempdir().expect("temporary directory");
    let context = LogContext::new(FILES_MAX);
    let small = || LogConfig { segment_bytes: 500, index_interval_bytes: 100, prepare_bytes: 0, ..config() };
    let make =
        |name: &str| Log::create(&dir.path().join(name), "t", 0, small().into(), &context, 0, 0).expect("create");
    let mut log = make("t-0");
    fill(&mut log, 20);
    log.flush().expect("flush");
    let (all, end) = (read_all(&mut log, 0), log.log_end_offset());
    let mut others: Vec<Log> = (1..=FILES_MAX).map(|at| make(&format!("t-{at}"))).collect();
    let mut held = Vec::new();
    for other in &mut others {
        append(other, &BatchSpec::default());
        held.push(other.read(0, 100, 1, true).expect("read"));
    }
    let mut refused = 0;
    loop {
        match log.truncate_to(30, 0) {
            Ok(_) => break,
            Err(error) => assert!(error.is_limit(), "{error}"),
        }
        refused += 1;
        assert_eq!(log.log_end_offset(), end);
        let taken = held.pop().expect("it works when nothing is held");
        if held.len() < FILES_MAX - 1 {
            assert_eq!(read_all(&mut log, 0), all);
        }
        drop(taken);
    }
    assert!(refused > 1, "several files are needed at once");
    assert_eq!(log.log_end_offset(), 30);
    assert!(all.starts_with(&read_all(&mut log, 0)));
    assert_eq!(append(&mut log, &BatchSpec::default()).base_offset, 30);
}

#[test]
fn a_batch_repeated_after_a_start_is_recognized_beyond_the_snapshot() {
    for rolls in [false, true] {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let settings = LogConfig { segment_bytes: if rolls { 200 } else { 1 << 20 }, ..config() };
        let mut log = create(&path, settings.clone());
        let of =
            |id: i64, sequence: i32| BatchSpec { records: 2, producer: Some((id, 0, sequence)), ..Default::default() };
        let offsets: Vec<_> = (0..8)
            .map(|at| {
                append(&mut log, &of(8, 2 * at));
                append(&mut log, &of(7, 2 * at)).base_offset
            })
            .collect();
        assert_eq!(log.segment_count() > 4, rolls);
        log.close().expect("close");
        drop(log);

        let (mut log, _) = open(&path, settings, true, 32);
        let last_sequence = |log: &Log| log.producers.get(7).last_sequence();
        assert_eq!(log.producers.get(7).batches().len(), 1, "all that a snapshot holds");
        let repeat = |log: &mut Log, sequence| log.append_as_leader(&mut batch(&of(7, sequence)), 0, 0, Origin::Client);
        for at in [3, 7, 5, 4] {
            let appended = repeat(&mut log, 2 * at).expect("a duplicate");
            assert!(appended.duplicate);
            assert_eq!(appended.base_offset, offsets[at as usize]);
        }
        for sequence in [4, 18, 1] {
            assert!(matches!(repeat(&mut log, sequence), Err(AppendError::OutOfOrderSequence { .. })), "{sequence}");
        }
        assert_eq!((log.log_end_offset(), last_sequence(&log)), (32, 15));
        assert_eq!(repeat(&mut log, 16).expect("the next").base_offset, 32);
        assert_eq!(log.producers.get(7).batches().len(), 5);
    }
}

#[test]
fn a_truncation_removes_epochs_and_lowers_a_higher_log_start() {
    for (start, epochs) in [(0, vec![(0, 0), (1, 1)]), (3, Vec::new())] {
        let dir = tempdir().expect("temporary directory");
        let mut log = create(&dir.path().join("t-0"), config());
        for epoch in 0..4 {
            log.append_as_leader(&mut batch(&BatchSpec::default()), epoch, 0, Origin::Client).expect("append");
        }
        log.advance_log_start(start);
        assert!(log.truncate_to(2, 0).expect("truncate"));
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (start.min(2), 2));
        assert_eq!(log.epochs(), epochs);
    }
}

#[test]
fn after_a_crash_epochs_are_known_from_the_log_start_on() {
    // The second log begins with batches that were written before there were epochs.
    for (epochs, delete_to, known) in
        [([0, 1, 2, 2], 2, vec![(0, 0), (1, 1), (2, 2)]), ([-1, -1, 4, 4], 0, vec![(4, 2)])]
    {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let mut log = create(&path, config());
        for epoch in epochs {
            log.append_as_leader(&mut batch(&BatchSpec::default()), epoch, 0, Origin::Client).expect("append");
        }
        log.advance_log_start(delete_to);
        log.flush().expect("flush");
        assert_eq!(log.epochs()[0].1, 2);
        drop(log);
        // The checkpoint of log starts is older than the file of epochs.
        let at = OpenAt { log_start_offset: 0, recovery_point: 4, ..OpenAt::default() };
        let (log, _) = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), at, 0).expect("open");
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 4));
        assert_eq!(log.epochs(), known);
    }
}

#[test]
fn a_flush_that_began_before_a_truncation_does_not_cover_later_records() {
    for whole in [false, true] {
        let dir = tempdir().expect("temporary directory");
        let mut log = create(&dir.path().join("t-0"), config());
        fill(&mut log, 2);
        log.flush().expect("flush");
        fill(&mut log, 2);
        let job = log.begin_flush().expect("something to flush");
        job.run().expect("sync");
        if whole {
            log.truncate_fully_and_start_at(3, 0).expect("truncate");
        } else {
            log.truncate_to(3, 0).expect("truncate");
        }
        fill(&mut log, 2);
        assert_eq!(log.complete_flush(job.end()), 3, "{whole}: the batches from 3 on were never synced");
        assert_eq!(log.flush().expect("flush"), 9);
    }
}

#[test]
fn a_recovery_point_between_two_checkpoints_marks_the_logs_content() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    let mark = |log: &mut Log| {
        let job = log.begin_mark().expect("written").expect("the end has no mark");
        job.sync().expect("sync");
        job.end()
    };
    fill(&mut log, 2);
    log.flush().expect("flush");
    assert_eq!(log.rolled_recovery_point(), 0, "the indexes of the active segment may be lost");
    let end = mark(&mut log);
    assert_eq!(log.rolled_recovery_point(), 0, "the mark is not complete");
    log.complete_mark(end).expect("complete");
    fill(&mut log, 1);
    let end = mark(&mut log);
    log.complete_mark(end).expect("complete");
    assert_eq!(
        (log.rolled_recovery_point(), log.recovery_point()),
        (6, 6),
        "the records up to the mark are not flushed"
    );
    log.flush().expect("flush");
    assert_eq!((log.rolled_recovery_point(), log.recovery_point()), (9, 9));
    log.begin_truncation(4);
    assert_eq!((log.rolled_recovery_point(), log.recovery_point()), (3, 3), "the log will end before the batch with 4");
    log.end_truncation();

    log.truncate_to(3, 0).expect("truncate");
    fill(&mut log, 1);
    log.flush().expect("flush");
    assert_eq!((log.log_end_offset(), log.rolled_recovery_point()), (6, 0), "the mark at 6 was of other batches");
    let end = mark(&mut log);
    log.truncate_to(3, 0).expect("truncate");
    fill(&mut log, 1);
    log.flush().expect("flush");
    log.complete_mark(end).expect("complete");
    assert_eq!(log.rolled_recovery_point(), 0, "the mark was begun before the truncation");
    let end = mark(&mut log);
    log.complete_mark(end).expect("complete");
    assert_eq!(log.rolled_recovery_point(), 6);

    log.roll(6, 0).expect("roll");
    fill(&mut log, 1);
    assert_eq!(log.rolled_recovery_point(), 0, "no flush has included the indexes of the rolled segment");
    log.flush().expect("flush");
    assert_eq!(log.rolled_recovery_point(), 6);
}

/// The file changes of the log's one segment, as words.
fn words(changes: &[recorder::Change]) -> Vec<&'static str> {
    let word = |change: &recorder::Change| match change {
        recorder::Change::Write { .. } => Some("write"),
        recorder::Change::SetLen { .. } => Some("cut"),
        recorder::Change::Sync { .. } => Some("sync"),
        _ => None,
    };
    changes.iter().filter_map(word).collect()
}

#[test]
fn a_truncation_is_durable_with_the_next_flush_or_before_the_next_append() {
    let dir = tempdir().expect("temporary directory");
    let recorder = Arc::new(recorder::Recorder::default());
    let context = LogContext::over(files::FileCache::with_recorder(8, Some(recorder.clone())));
    let mut log = Log::create(&dir.path().join("t-0"), "t", 0, Arc::new(config()), &context, 0, 0).expect("create");
    fill(&mut log, 4);
    log.flush().expect("flush");
    recorder.take();

    log.truncate_to(9, 0).expect("truncate");
    assert!(log.has_unsynced_cut());
    assert_eq!(words(&recorder.take()), ["cut"]);
    let mut bytes = batch(&BatchSpec::default());
    log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append");
    assert_eq!(words(&recorder.take()), ["sync", "write"]);
    assert!(!log.has_unsynced_cut());

    log.truncate_to(6, 0).expect("truncate");
    recorder.take();
    let job = log.begin_flush().expect("something to flush");
    job.sync().expect("sync");
    assert_eq!(words(&recorder.take()), ["sync"]);
    log.truncate_to(3, 0).expect("truncate");
    log.complete_flush(job.end());
    assert!(log.has_unsynced_cut(), "the flush began before the second truncation");
    let job = log.begin_flush().expect("something to flush");
    job.run().expect("sync");
    log.complete_flush(job.end());
    assert!(!log.has_unsynced_cut());

    log.truncate_to(0, 0).expect("truncate");
    recorder.take();
    log.roll(1, 0).expect("roll");
    assert_eq!(words(&recorder.take())[0], "sync", "a new segment is a change, too");
}

#[test]
fn a_truncation_is_flushed_with_any_acknowledgement_mode() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), LogConfig { flush_before_ack: false, ..config() });
    fill(&mut log, 2);
    log.flush().expect("flush");
    log.truncate_to(3, 0).expect("truncate");
    let job = log.begin_flush().expect("the truncation");
    job.run().expect("sync");
    log.complete_flush(job.end());
    assert!(!log.has_unsynced_cut());
}

#[test]
fn a_truncation_without_effect_needs_no_flush() {
    let dir = tempdir().expect("temporary directory");
    let mut log = create(&dir.path().join("t-0"), config());
    fill(&mut log, 3);
    log.flush().expect("flush");
    // It is within a batch, so that the log ends above its last batch afterwards.
    log.truncate_to(7, 0).expect("truncate");
    log.flush().expect("flush");
    log.truncate_to(6, 0).expect("truncate");
    assert!(!log.has_unsynced_cut());

    log.truncate_to(4, 0).expect("truncate");
    let job = log.begin_flush().expect("the truncation");
    log.truncate_to(3, 0).expect("truncate");
    job.run().expect("sync");
    log.complete_flush(job.end());
    assert!(!log.has_unsynced_cut());
}
