use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::Uuid;
use klamm_log::checkpoint::PROVEN_END;
use klamm_log::names::{FileName, Kind as FileKind};
use klamm_log::testing::{BatchSpec, batch};
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig, OpenAt, SOLE_WRITER};
use klamm_records::header::{Header, set_position};
use proptest::prelude::*;
use tempfile::tempdir;

use super::*;

/// A segment with batches of the given record counts, and the position and offset at which each begins.
fn segment(counts: &[i32]) -> (Vec<u8>, Vec<(usize, i64)>) {
    let (mut bytes, mut places, mut offset) = (Vec::new(), Vec::new(), 0);
    for &records in counts {
        let mut one = batch(&BatchSpec { records, value_bytes: 40, ..BatchSpec::default() });
        set_position(&mut one, offset, 0);
        places.push((bytes.len(), offset));
        offset = Header::at_start_of(&one).expect("a header").next_offset();
        bytes.extend(one);
    }
    (bytes, places)
}

fn write(dir: &Path, base_offset: i64, bytes: &[u8]) {
    fs::write(dir.join(FileName::live(base_offset, FileKind::Log).to_string()), bytes).expect("write");
}

fn check(dir: &Path) -> LogCheck {
    let at = OpenAt { clean: true, ..OpenAt::default() };
    let log = LogToCheck { path: dir.to_owned(), is_deep: true, is_metadata: false, at };
    check_logs(&[log], 2, &Progress::default()).remove(0)
}

fn wrong(log: &LogCheck) -> Vec<&Finding> {
    let of_log = |one: &&Finding| one.kind != Kind::Note && one.file.extension().is_some_and(|suffix| suffix == "log");
    log.findings.iter().filter(of_log).collect()
}

proptest! {
    #[test]
    fn a_flipped_bit_is_found_and_damages_one_batch(
        counts in proptest::collection::vec(1..4i32, 2..6), at in any::<prop::sample::Index>(), bit in 0..8u8
    ) {
        let dir = tempdir().expect("temporary directory");
        let (mut bytes, places) = segment(&counts);
        let at = at.index(bytes.len());
        let hit = places.iter().rposition(|&(position, _)| position <= at).expect("a batch");
        // The segment does not show the epoch of its last batch, only the epoch checkpoint does.
        prop_assume!(!(hit == places.len() - 1 && (12..16).contains(&(at - places[hit].0))));
        bytes[at] ^= 1 << bit;
        write(dir.path(), 0, &bytes);
        let checked = check(dir.path());
        let found = wrong(&checked);
        prop_assert!(!found.is_empty(), "byte {} of batch {}", at, hit);
        prop_assert!(checked.batches + 1 >= counts.len() as u64, "{:?}", found);
        let (first, next) = found[0].offsets.expect("offsets");
        prop_assert!(first <= places[hit].1 && (next > places[hit].1 || next == first), "{:?}", found);
    }

    #[test]
    fn any_bytes_are_checked(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempdir().expect("temporary directory");
        write(dir.path(), 0, &bytes);
        let _ = check(dir.path());
        for kind in FileKind::ALL {
            fs::write(dir.path().join(FileName::live(0, kind).to_string()), &bytes).expect("write");
        }
        let _ = check(dir.path());
        let _ = check_directories(&[dir.path().to_owned()], true, 2, &Progress::default());
    }
}

#[test]
fn segments_begin_at_the_end_of_the_previous_one() {
    let dir = tempdir().expect("temporary directory");
    let (bytes, places) = segment(&[2, 3, 1]);
    write(dir.path(), 0, &bytes[..places[1].0]);
    write(dir.path(), 5, &bytes[places[2].0..]);
    let checked = check(dir.path());
    let found = wrong(&checked);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].kind, found[0].offsets), (Kind::Missing, Some((2, 5))));
    assert_eq!((checked.log_start_offset, checked.log_end_offset, checked.batches), (0, 6, 2));
    write(dir.path(), 2, &bytes[places[1].0..places[2].0]);
    assert!(wrong(&check(dir.path())).is_empty());
}

#[test]
fn a_cancelled_check_ends() {
    let dir = tempdir().expect("temporary directory");
    write(dir.path(), 0, &segment(&[1; 50]).0);
    let progress = Progress::default();
    progress.cancel();
    let log = LogToCheck { path: dir.path().to_owned(), is_deep: true, ..LogToCheck::default() };
    assert_eq!(check_logs(&[log], 2, &progress)[0].batches, 0);
}

/// A segment that is long enough for a thread that reads ahead.
#[test]
fn a_long_segment_is_checked_to_its_end() {
    let dir = tempdir().expect("temporary directory");
    let mut bytes = Vec::new();
    for offset in 0..40 {
        let mut one = batch(&BatchSpec { value_bytes: 500_000, ..BatchSpec::default() });
        set_position(&mut one, offset, 0);
        bytes.extend(one);
    }
    write(dir.path(), 0, &bytes);
    let checked = check(dir.path());
    assert_eq!((checked.batches, wrong(&checked).len()), (40, 0));

    let last = bytes.len() - 1;
    for at in [last / 2, last] {
        bytes[at] ^= 1;
        write(dir.path(), 0, &bytes);
        let checked = check(dir.path());
        assert_eq!((checked.batches, wrong(&checked).len()), (39, 1), "byte {at}");
        bytes[at] ^= 1;
    }

    write(dir.path(), 0, &bytes);
    let at = OpenAt { clean: true, ..OpenAt::default() };
    let log = LogToCheck { path: dir.path().to_owned(), is_deep: true, is_metadata: false, at };
    let progress = Progress::default();
    progress.cancel();
    check_logs(&[log], 2, &progress);
    assert_eq!(progress.bytes().1, bytes.len() as u64, "a check that is cancelled ends");
}

/// A directory after a power cut: a sector of the second batch of `a-0` is erased, and klamm had known that.
fn directory_with_damage(proven_ends: Option<&str>) -> tempfile::TempDir {
    let dir = tempdir().expect("temporary directory");
    let mut bytes = Vec::new();
    for offset in 0..3 {
        let mut one = batch(&BatchSpec { value_bytes: 2000, ..BatchSpec::default() });
        set_position(&mut one, offset, 0);
        bytes.extend(one);
    }
    bytes[3072..3584].fill(0);
    let log = dir.path().join("a-0");
    fs::create_dir(&log).expect("create");
    write(&log, 0, &bytes);
    fs::write(dir.path().join(SOLE_WRITER), "").expect("write");
    if let Some(proven_ends) = proven_ends {
        fs::write(dir.path().join(PROVEN_END), proven_ends).expect("write");
    }
    dir
}

#[test]
fn damage_below_the_proven_end_stays_as_a_start_leaves_it() {
    for (proven_ends, end, damaged_files) in
        [(Some("0\n1\na 0 3\n"), 3, 0), (None, 1, 0), (Some("0\n1\nb 0 3\n"), 1, 0), (Some("0\n1\na 0"), 1, 1)]
    {
        let dir = directory_with_damage(proven_ends);
        let checked = check_directories(&[dir.path().to_owned()], true, 1, &Progress::default()).remove(0);
        let [log] = &checked.logs[..] else { panic!("one log") };
        assert_eq!(log.log_end_offset, end, "{proven_ends:?}");
        let [damage] = &log.findings.iter().filter(|one| one.offsets == Some((1, 2))).collect::<Vec<_>>()[..] else {
            panic!("one damaged batch: {:?}", log.findings)
        };
        assert_eq!(damage.kind, if end == 3 { Kind::Damaged } else { Kind::Note });
        let file = dir.path().join(PROVEN_END);
        assert_eq!(checked.findings.iter().filter(|one| one.file == file).count(), damaged_files, "{proven_ends:?}");

        let locked = LockedDir::open(dir.path(), Uuid([1; 16])).expect("free");
        let config = ManagerConfig { intervals: None, cleaner: None, ..ManagerConfig::default() };
        let manager = LogManager::start(vec![locked], config, LogContext::new(16), 0, Arc::new(|_| {})).expect("start");
        let opened = manager.open(&manager.found()[0], Arc::default(), 0).expect("open").0;
        assert_eq!(opened.log_end_offset(), end, "{proven_ends:?}");
    }
}
