//! Every kind of damage to every file of a log: all intact records around it stay readable, and a warning names the
//! file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock};

use klamm_base::LogError;
use klamm_records::Header;
use parking_lot::Mutex;
use tempfile::{TempDir, tempdir};

use super::clean_stop::CLEAN_STOP;
use super::crash::Rng;
use super::manager_tests::{create_with, start_over};
use super::testing::{BatchSpec, batch, config};
use super::*;

/// Records in a batch.
const RECORDS: i64 = 5;

fn settings() -> LogConfig {
    LogConfig { segment_bytes: 4000, index_interval_bytes: 300, ..config() }
}

/// A directory with log `a-0`, whose batches are known, and its siblings: `b-0`, and `c-0` with segments of equal
/// sizes.
struct Scene {
    _dir: TempDir,
    root: PathBuf,
    batches: Vec<Vec<u8>>,
    end: i64,
}

/// The files after a node stopped, and the batches of `a-0`.
struct Left {
    files: Vec<(PathBuf, Vec<u8>)>,
    batches: Vec<Vec<u8>>,
}

impl Left {
    fn new(clean: bool) -> Self {
        let dir = tempdir().expect("temporary directory");
        let root = fs::canonicalize(dir.path()).expect("there");
        let mut batches = Vec::new();
        let (manager, _events) = start_over(&[&root], ManagerConfig::default(), LogContext::new(64));
        let mut owners = Vec::new();
        for (topic, value_bytes, base_timestamp) in [("a", 100, 0), ("b", 90, 0), ("c", 100, 5000)] {
            let (owner, _) = create_with(&manager, 0, topic, settings());
            for at in 0..40 {
                let value_bytes = value_bytes + at % 7;
                let records = RECORDS as i32;
                let timestamp = base_timestamp + at as i64;
                let mut bytes = batch(&BatchSpec { records, value_bytes, timestamp, ..BatchSpec::default() });
                let appended = with_log(&*owner, |log| log.append_as_leader(&mut bytes, 0, 0, Origin::Client));
                appended.expect("append");
                if topic == "a" {
                    batches.push(bytes);
                }
            }
            with_log(&*owner, |log| log.flush().expect("flush"));
            owners.push(owner);
        }
        if clean {
            manager.shutdown(1);
        } else {
            // The high watermark checkpoint is the only one that is written within seconds.
            manager.dirs()[0].checkpoint_high_watermarks(&manager.context().cache).expect("checkpoint");
        }
        let folders = [root.clone(), root.join("a-0"), root.join("b-0"), root.join("c-0")];
        let paths = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("list"));
        let paths = paths.map(|entry| entry.expect("entry").path()).filter(|path| path.is_file());
        let relative = |path: &Path| path.strip_prefix(&root).expect("below").to_owned();
        let files = paths.map(|path| (relative(&path), fs::read(&path).expect("read"))).collect();
        Self { files, batches }
    }
}

static STOPPED: LazyLock<Left> = LazyLock::new(|| Left::new(true));
static KILLED: LazyLock<Left> = LazyLock::new(|| Left::new(false));

impl Scene {
    /// `clean`: the node stopped cleanly, otherwise it was killed.
    fn new(clean: bool) -> Self {
        let dir = tempdir().expect("temporary directory");
        let root = fs::canonicalize(dir.path()).expect("there");
        let left = if clean { &*STOPPED } else { &*KILLED };
        for (path, bytes) in &left.files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("create");
            fs::write(path, bytes).expect("write");
        }
        Self { _dir: dir, root, batches: left.batches.clone(), end: 40 * RECORDS }
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join("a-0")).expect("list").map(|entry| entry.expect("entry").path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
        files.sort();
        files
    }

    fn start(&self) -> Opened {
        let (manager, events) = start_over(&[&self.root], ManagerConfig::default(), LogContext::new(64));
        let found = manager.found().into_iter().find(|found| found.topic == "a");
        let log = match found {
            Some(found) => manager.open(&found, Arc::new(settings()), 0).expect("open").0,
            None => manager.plan(0, "a", 0, klamm_base::Uuid([7; 16]), Arc::new(settings())).expect("plan"),
        };
        Opened { manager, log: Mutex::new(log), events }
    }
}

struct Opened {
    manager: Arc<LogManager>,
    log: Mutex<Log>,
    events: Receiver<Event>,
}

impl Opened {
    fn warnings(&self) -> Vec<String> {
        let line = |event| match event {
            Event::Warning(line) => line,
            Event::DirFailed { cause, .. } => panic!("{cause}"),
        };
        self.events.try_iter().map(line).collect()
    }

    /// Reads every offset like a consumer that skips what cannot be read; returns the batches.
    fn read(&self, end: i64) -> Vec<Vec<u8>> {
        let mut log = self.log.lock();
        let (mut found, mut offset) = (Vec::new(), log.log_start_offset());
        while offset < end.min(log.log_end_offset()) {
            let slice = match log.read(offset, usize::MAX >> 1, end, true) {
                Ok(Slice { unverified: Some(unverified), .. }) => {
                    let verified = unverified.check().expect("readable");
                    log.note_verified(verified);
                    continue;
                }
                Ok(slice) => slice,
                Err(error @ LogError::Corrupt { .. }) => {
                    assert_eq!(error.code(), klamm_base::ErrorCode::CORRUPT_MESSAGE);
                    self.manager.report_damage(&error);
                    offset += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            if slice.len == 0 {
                break;
            }
            let bytes = slice.read().expect("read");
            let mut at = 0;
            while let Some(header) = Header::at_start_of(&bytes[at..]) {
                let size = header.size().expect("a whole batch");
                offset = header.next_offset();
                found.push(bytes[at..at + size].to_vec());
                at += size;
            }
        }
        found
    }
}

/// Examines the log before the start; changes nothing.
fn examine(scene: &Scene) -> finding::LogCheck {
    examine_to(scene, true)
}

/// The same, and without `deep` only what a start reads.
fn examine_to(scene: &Scene, deep: bool) -> finding::LogCheck {
    let contents = || -> Vec<(PathBuf, Vec<u8>)> {
        let folders = [scene.root.clone(), scene.root.join("a-0")];
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("list"));
        let files = files.map(|entry| entry.expect("entry").path()).filter(|path| path.is_file());
        files.map(|path| (path.clone(), fs::read(path).expect("read"))).collect()
    };
    let before = contents();
    let dir = check::DirCheck::read(&scene.root).expect("read");
    let found = dir.logs().find(|found| found.topic == "a").expect("there").clone();
    let examination = check::Examination::new(&found.path, &dir.open_at(&found), deep).expect("examine");
    let walk = |(base_offset, _)| (base_offset, examination.walk(base_offset, &mut |_, _| true).expect("walk"));
    let walked = examination.segments().map(walk).collect();
    let checked = examination.finish(walked);
    assert_eq!(contents(), before);
    checked
}

/// `damaged`: the batches that the damage touched, which may be lost. Returns the warnings.
fn check(scene: &Scene, damaged: &[usize], file: &str, what: &str) -> Vec<String> {
    let checked = examine(scene);
    let shallow_end = examine_to(scene, false).log_end_offset;
    let opened = scene.start();
    let warnings = opened.warnings();
    let log_end_offset = opened.log.lock().log_end_offset();
    assert_eq!(checked.log_end_offset, log_end_offset, "{what}: {:?} {warnings:?}", checked.findings);
    assert_eq!(shallow_end, log_end_offset, "{what}: {warnings:?}");
    let found = opened.read(scene.end);
    for bytes in &found {
        assert!(scene.batches.contains(bytes), "{what}: wrong bytes are served: {warnings:?}");
    }
    let mut is_lost = false;
    for (at, bytes) in scene.batches.iter().enumerate() {
        let is_there = found.contains(bytes);
        is_lost |= !is_there;
        assert!(is_there || damaged.contains(&at), "{what}: batch {at} of {damaged:?} is lost: {warnings:?}");
    }
    let warnings = [warnings, opened.warnings()].concat();
    let is_found = checked.findings.iter().any(|finding| finding.file.display().to_string().contains(file));
    assert!(!is_lost || is_found, "{what}: {:?}", checked.findings);
    assert!(!is_lost || warnings.iter().any(|line| line.contains(file)), "{what}: {file} is not named: {warnings:?}");
    let mut bytes = batch(&BatchSpec::default());
    let appended = opened.log.lock().append_as_leader(&mut bytes, 1, 0, Origin::Client).expect("append");
    assert!(appended.base_offset >= scene.end, "{what}: offset {} is used again: {warnings:?}", appended.base_offset);
    warnings
}

/// The batches in segment file number `at`: number, position, size.
fn placed(scene: &Scene, at: usize) -> Vec<(usize, usize, usize)> {
    let file = &scene.files("log")[at];
    let (bytes, mut position, mut placed) = (fs::read(file).expect("read"), 0, Vec::new());
    while let Some(header) = Header::at_start_of(&bytes[position..]) {
        let size = header.size().expect("whole");
        placed.push(((header.base_offset() / RECORDS) as usize, position, size));
        position += size;
    }
    placed
}

fn name(path: &Path) -> String {
    path.file_name().expect("named").to_string_lossy().into_owned()
}

fn stops() -> [bool; 2] {
    [true, false]
}

#[test]
fn the_test_log_has_several_segments_and_is_intact() {
    for clean in stops() {
        let scene = Scene::new(clean);
        assert!(scene.files("log").len() >= 4);
        let checked = examine(&scene);
        assert_eq!(checked.findings, []);
        assert_eq!((checked.log_end_offset, checked.batches), (scene.end, scene.batches.len() as u64));
        let opened = scene.start();
        assert_eq!(opened.warnings(), Vec::<String>::new());
        assert_eq!(opened.read(scene.end), scene.batches);
        assert_eq!(opened.log.lock().log_end_offset(), scene.end);
    }
}

#[test]
fn an_emptied_truncated_or_removed_segment_loses_only_its_own_batches() {
    for clean in stops() {
        let count = Scene::new(clean).files("log").len();
        for at in 0..count {
            for damage in ["empty", "cut", "remove"] {
                let scene = Scene::new(clean);
                let (file, placed) = (scene.files("log")[at].clone(), placed(&scene, at));
                let half = placed[placed.len() / 2].1 + 30;
                let gone: Vec<usize> = match damage {
                    "cut" => placed.iter().filter(|batch| batch.1 + batch.2 > half).map(|batch| batch.0).collect(),
                    _ => placed.iter().map(|batch| batch.0).collect(),
                };
                match damage {
                    "cut" => fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(half as u64)),
                    "empty" => fs::write(&file, ""),
                    _ => fs::remove_file(&file),
                }
                .expect("damage");
                // If a first or an active segment is missing after a kill, only the folder's name is known.
                let file = if clean { name(&file) } else { "a-0".to_owned() };
                check(&scene, &gone, &file, &format!("{damage} segment {at} of {count}, clean {clean}"));
            }
        }
    }
}

#[test]
fn a_segment_of_a_sibling_is_not_served() {
    let count = Scene::new(true).files("log").len();
    for at in 0..count {
        let scene = Scene::new(true);
        let (file, placed) = (scene.files("log")[at].clone(), placed(&scene, at));
        let of_sibling = scene.root.join("c-0").join(name(&file));
        assert_eq!(fs::metadata(&file).expect("there").len(), fs::metadata(&of_sibling).expect("there").len());
        let (own, other) = (fs::read(&file).expect("read"), fs::read(&of_sibling).expect("read"));
        fs::write(&file, &other).expect("write");
        fs::write(&of_sibling, &own).expect("write");
        let gone: Vec<usize> = placed.iter().map(|batch| batch.0).collect();
        check(&scene, &gone, &name(&file), &format!("exchange segment {at} of {count}"));
        // The clean-stop record was removed by now, and the next start does not serve the file either.
        let opened = scene.start();
        assert!(opened.read(scene.end).iter().all(|bytes| scene.batches.contains(bytes)));
    }
}

#[test]
fn damaged_bytes_lose_only_their_batch() {
    let rng = &mut Rng::new(7);
    for clean in stops() {
        for at in 0..40 {
            let scene = Scene::new(clean);
            let segment = rng.below(scene.files("log").len() as u64) as usize;
            let (file, placed) = (scene.files("log")[segment].clone(), placed(&scene, segment));
            let mut bytes = fs::read(&file).expect("read");
            // Half of the time in a header.
            let (number, position, size) = placed[rng.below(placed.len() as u64) as usize];
            let reach = if rng.one_in(2) { 61 } else { size };
            let hit = position + rng.below(reach as u64) as usize;
            bytes[hit] ^= 1 << rng.below(8);
            fs::write(&file, &bytes).expect("write");
            let what =
                format!("round {at}: byte {} of batch {number}, segment {segment}, clean {clean}", hit - position);
            check(&scene, &[number], &name(&file), &what);
        }
    }
}

#[test]
fn every_field_of_a_header_may_be_damaged() {
    for clean in stops() {
        for byte in 0..61 {
            for bit in [0, 6] {
                let scene = Scene::new(clean);
                let file = scene.files("log")[1].clone();
                let (number, position, _) = placed(&scene, 1)[2];
                let mut bytes = fs::read(&file).expect("read");
                bytes[position + byte] ^= 1 << bit;
                fs::write(&file, &bytes).expect("write");
                check(&scene, &[number], &name(&file), &format!("bit {bit} of byte {byte} of a header, clean {clean}"));
            }
        }
    }
}

#[test]
fn erased_bytes_lose_their_own_batches() {
    let rng = &mut Rng::new(11);
    for clean in stops() {
        for at in 0..12 {
            let scene = Scene::new(clean);
            let segment = rng.below(scene.files("log").len() as u64) as usize;
            let (file, placed) = (scene.files("log")[segment].clone(), placed(&scene, segment));
            let mut bytes = fs::read(&file).expect("read");
            let from = rng.below(bytes.len() as u64) as usize;
            let to = bytes.len().min(from + 1 + rng.below(1500) as usize);
            bytes[from..to].fill(0);
            fs::write(&file, &bytes).expect("write");
            let hit = placed.iter().filter(|batch| batch.1 < to && batch.1 + batch.2 > from).map(|batch| batch.0);
            let hit: Vec<usize> = hit.collect();
            let what = format!("round {at}: bytes {from} to {to} of segment {segment}, clean {clean}");
            check(&scene, &hit, &name(&file), &what);
        }
    }
}

#[test]
fn every_other_file_may_be_damaged_without_a_loss() {
    let rng = &mut Rng::new(13);
    let folder = ["leader-epoch-checkpoint", "partition.metadata"];
    let root = [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
        CLEAN_STOP,
        "klamm-boot-id",
        "klamm-sole-writer",
    ];
    let indexes = ["index", "timeindex", "snapshot"];
    let kinds = folder.iter().chain(&root).chain(&indexes);
    for clean in stops() {
        for kind in kinds.clone() {
            for damage in ["flip", "cut", "erase", "empty", "remove", "swap"] {
                let scene = Scene::new(clean);
                let files = match () {
                    () if folder.contains(kind) => vec![scene.root.join("a-0").join(kind)],
                    () if root.contains(kind) => vec![scene.root.join(kind)],
                    () => scene.files(kind),
                };
                let files: Vec<_> = files.into_iter().filter(|file| file.exists()).collect();
                let Some(file) = files.get(rng.below(files.len() as u64) as usize) else { continue };
                let mut bytes = fs::read(file).expect("read");
                match damage {
                    "flip" if !bytes.is_empty() => {
                        let at = rng.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << rng.below(8);
                    }
                    "cut" => bytes.truncate(bytes.len() / 2),
                    "swap" => bytes = fs::read(sibling(&scene, file)).unwrap_or_default(),
                    "erase" => bytes.fill(0),
                    _ => bytes.clear(),
                }
                match damage {
                    "remove" => fs::remove_file(file),
                    _ => fs::write(file, &bytes),
                }
                .expect("damage");
                check(&scene, &[], &name(file), &format!("{damage} {}, clean {clean}", name(file)));
            }
        }
    }
}

/// A file of the same kind.
fn sibling(scene: &Scene, file: &Path) -> PathBuf {
    match name(file).as_str() {
        "recovery-point-offset-checkpoint" => scene.root.join("log-start-offset-checkpoint"),
        name if file.parent() == Some(&scene.root) => {
            scene.root.join(if name.starts_with('.') { CLEAN_STOP } else { "recovery-point-offset-checkpoint" })
        }
        name => scene.root.join("b-0").join(name),
    }
}

fn next_failure(events: &Receiver<Event>) -> String {
    loop {
        match events.recv_timeout(std::time::Duration::from_secs(60)).expect("the directory fails") {
            Event::DirFailed { cause, .. } => return cause,
            Event::Warning(_) => {}
        }
    }
}

#[test]
fn a_log_that_is_removed_while_the_node_runs_fails_its_directory_and_acknowledges_nothing() {
    for (what, is_moved) in [("a-0", false), ("", false), ("", true)] {
        let dir = tempdir().expect("temporary directory");
        let root = fs::canonicalize(dir.path()).expect("there").join("data");
        fs::create_dir(&root).expect("create");
        let (manager, events) = start_over(&[&root], ManagerConfig::default(), LogContext::new(64));
        let (owner, flushed) = create_with(&manager, 0, "a", settings());
        let append = || {
            let bytes = &mut batch(&BatchSpec::default());
            with_log(&*owner, |log| log.append_as_leader(bytes, 0, 0, Origin::Client)).map(drop)
        };
        let shared: Arc<dyn LogOwner> = owner.clone();
        append().expect("append");
        manager.dirs()[0].flusher().mark_dirty(&shared);
        assert_eq!(flushed.recv(), Ok(1));
        match is_moved {
            true => fs::rename(root.join(what), dir.path().join("elsewhere")),
            false => fs::remove_dir_all(root.join(what)),
        }
        .expect("away");
        let _ = append();
        manager.dirs()[0].flusher().mark_dirty(&shared);
        let cause = next_failure(&events);
        assert!(cause.contains("data"), "{cause}");
        // -1: the partition was notified that it is offline.
        assert!(flushed.try_iter().all(|offset| offset == -1), "{what} was removed, and records were acknowledged");
        assert!(events.try_iter().all(|event| !matches!(event, Event::DirFailed { .. })));
    }
}

#[test]
fn a_changed_topic_id_is_reported_and_hides_nothing() {
    let id = klamm_base::Uuid([7; 16]);
    let mut flipped = id;
    flipped.0[3] ^= 0x10;
    let other = klamm_base::Uuid([0x5a; 16]);
    for (stored, is_live, expected) in [(flipped, false, Some(true)), (other, true, None), (other, false, Some(false))]
    {
        let scene = Scene::new(false);
        let file = scene.root.join("a-0/partition.metadata");
        fs::write(&file, checkpoint::format_partition_metadata(stored)).expect("write");
        let (manager, events) = start_over(&[&scene.root], ManagerConfig::default(), LogContext::new(64));
        let found = manager.found().into_iter().find(|found| found.topic == "a").expect("there");
        for _ in 0..2 {
            let why_not = manager.topic_mismatch(&found, id, |_| is_live);
            assert_eq!(why_not.as_ref().map(Option::is_none).ok(), expected);
        }
        let kept = checkpoint::read_partition_metadata(&found.path).expect("readable");
        assert_eq!(kept, Some(if expected == Some(true) { id } else { stored }));
        if let Ok(Some(reason)) = manager.topic_mismatch(&found, id, |_| is_live) {
            manager.set_aside("a", 0, &reason).expect("set aside");
        }
        let lines: Vec<String> = events.try_iter().map(|event| format!("{event:?}")).collect();
        let naming = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
        assert_eq!(
            (naming("partition.metadata"), naming(&stored.to_string()), naming(&id.to_string())),
            (1, 1, 1),
            "{lines:?}"
        );
    }
}

#[test]
fn a_recreated_topic_has_lost_nothing() {
    let dir = tempdir().expect("temporary directory");
    {
        let (manager, _events) = start_over(&[dir.path()], ManagerConfig::default(), LogContext::new(64));
        let append = |count: usize| {
            let (owner, _) = create_with(&manager, 0, "a", settings());
            for _ in 0..count {
                let bytes = &mut batch(&BatchSpec::default());
                with_log(&*owner, |log| log.append_as_leader(bytes, 0, 0, Origin::Client)).expect("append");
            }
            with_log(&*owner, |log| log.flush()).expect("flush");
        };
        append(20);
        manager.checkpoint();
        manager.delete("a", 0, 0).expect("delete");
        append(3);
    }
    let (manager, events) = start_over(&[dir.path()], ManagerConfig::default(), LogContext::new(64));
    let (log, recovery) = manager.open(&manager.found()[0], Arc::new(settings()), 0).expect("open");
    assert_eq!((log.log_end_offset(), recovery.lost), (3, Vec::new()));
    assert_eq!(events.try_iter().count(), 0);
}

#[test]
fn a_record_of_an_earlier_stop_is_ignored() {
    let scene = Scene::new(true);
    let record = fs::read(scene.root.join(CLEAN_STOP)).expect("read");
    let append_and_stop = |count: usize| {
        let (manager, events) = start_over(&[&scene.root], ManagerConfig::default(), LogContext::new(64));
        assert!(!scene.root.join(CLEAN_STOP).exists(), "a start removes it");
        let found = manager.found().into_iter().find(|found| found.topic == "a").expect("there");
        let (mut log, _) = manager.open(&found, Arc::new(settings()), 0).expect("open");
        for _ in 0..count {
            log.append_as_leader(&mut batch(&BatchSpec::default()), 0, 0, Origin::Client).expect("append");
        }
        log.truncate_to(log.log_end_offset() - 1, 0).expect("truncate");
        log.close().expect("close");
        let end = log.log_end_offset();
        assert_eq!(events.try_iter().count(), 0);
        end
    };
    // Killed after a clean stop and a start.
    let end = append_and_stop(30);
    let opened = scene.start();
    assert_eq!((opened.warnings(), opened.log.lock().log_end_offset()), (Vec::new(), end));
    drop(opened);
    // Apache Kafka ran in between; it neither reads the record nor preserves its checksum.
    let end = append_and_stop(30);
    fs::write(scene.root.join(CLEAN_STOP), record).expect("write");
    fs::write(scene.root.join(".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":1}").expect("write");
    let opened = scene.start();
    assert_eq!((opened.warnings(), opened.log.lock().log_end_offset()), (Vec::new(), end));
}

#[test]
fn every_field_of_the_last_header_may_be_damaged_after_a_kill() {
    for zeroes in [0, 5000] {
        // A later leader epoch in the last batch cannot be distinguished from a new leader's.
        for byte in (0..12).chain(16..61) {
            for bit in [0, 3, 6, 7] {
                let scene = Scene::new(false);
                fs::remove_file(scene.root.join("replication-offset-checkpoint")).expect("remove");
                let segment = scene.files("log").len() - 1;
                let file = scene.files("log")[segment].clone();
                let &(number, position, size) = placed(&scene, segment).last().expect("a batch");
                let mut bytes = fs::read(&file).expect("read");
                bytes.resize(position + size + zeroes, 0);
                bytes[position + byte] ^= 1 << bit;
                fs::write(&file, &bytes).expect("write");
                let what = format!("bit {bit} of byte {byte} of the last header, {zeroes} zeroes after it");
                check(&scene, &[number], &name(&file), &what);
            }
        }
    }
}

#[test]
fn damage_to_the_last_batch_below_the_recovery_point_is_reported_once_and_cuts_nothing() {
    for clean in stops() {
        for byte in (0..27).chain([57, 60, 90]) {
            for bit in [0, 6] {
                let scene = Scene::new(clean);
                let flushed = format!("0\n1\na 0 {}\n", scene.end);
                fs::write(scene.root.join("recovery-point-offset-checkpoint"), flushed).expect("write");
                let segment = scene.files("log").len() - 1;
                let file = scene.files("log")[segment].clone();
                let &(number, position, _) = placed(&scene, segment).last().expect("a batch");
                let mut bytes = fs::read(&file).expect("read");
                bytes[position + byte] ^= 1 << bit;
                fs::write(&file, &bytes).expect("write");
                let what = format!("bit {bit} of byte {byte} of the last batch, clean {clean}");
                let warnings = check(&scene, &[number], &name(&file), &what);
                assert_eq!(warnings.len(), 1, "{what}: {warnings:?}");
                let kept = fs::read(&file).expect("read");
                assert!(kept.starts_with(&bytes), "{what}: bytes are cut off: {warnings:?}");
            }
        }
    }
}

#[test]
fn a_killed_process_leaves_no_complete_batch_with_a_wrong_checksum() {
    for zeroes in [0, 5000] {
        for is_prefix in [false, true] {
            let scene = Scene::new(false);
            fs::remove_file(scene.root.join("replication-offset-checkpoint")).expect("remove");
            let segment = scene.files("log").len() - 1;
            let file = scene.files("log")[segment].clone();
            let &(number, position, size) = placed(&scene, segment).last().expect("a batch");
            let mut bytes = fs::read(&file).expect("read");
            bytes.resize(position + size + zeroes, 0);
            match is_prefix {
                true => bytes[(position / 512 + 1) * 512..].fill(0),
                false => bytes[position + size / 2] ^= 1,
            }
            fs::write(&file, &bytes).expect("write");
            let what = format!("batch {number} with {zeroes} zeroes after it");
            if !is_prefix {
                check(&scene, &[number], &name(&file), &what);
                continue;
            }
            // A write that a kill interrupted was not acknowledged, so its offsets may be reused.
            let (checked, opened) = (examine(&scene), scene.start());
            assert_eq!(opened.log.lock().log_end_offset(), scene.end - RECORDS, "{what}");
            assert_eq!(checked.log_end_offset, scene.end - RECORDS, "{what}: {:?}", checked.findings);
        }
    }
}

#[test]
fn a_log_that_lost_its_last_batch_does_not_use_its_offsets_again() {
    for clean in stops() {
        let scene = Scene::new(clean);
        fs::remove_file(scene.root.join("replication-offset-checkpoint")).expect("remove");
        if clean {
            fs::remove_file(scene.root.join("recovery-point-offset-checkpoint")).expect("remove");
        } else {
            let flushed = format!("0\n1\na 0 {}\n", scene.end);
            fs::write(scene.root.join("recovery-point-offset-checkpoint"), flushed).expect("write");
        }
        let segment = scene.files("log").len() - 1;
        let file = scene.files("log")[segment].clone();
        let &(number, position, _) = placed(&scene, segment).last().expect("a batch");
        let bytes = fs::read(&file).expect("read");
        fs::write(&file, &bytes[..position]).expect("write");
        check(&scene, &[number], &name(&file), &format!("clean: {clean}"));
    }
}
