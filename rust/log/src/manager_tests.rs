//! The logs of a node across starts, stops and failures.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use klamm_base::Uuid;
use klamm_records::header::set_position;
use klamm_records::{BatchBuilder, BatchFields, Compression};
use parking_lot::Mutex;
use tempfile::tempdir;

use super::testing::{BatchSpec, batch, config, read_all};
use super::*;

pub(super) struct Owner {
    state: FlushState,
    log: Mutex<Option<Log>>,
    sender: Mutex<Sender<i64>>,
    /// The high watermark that the leader sent; `None` until then.
    high_watermark: Mutex<Option<i64>>,
}

impl Owner {
    pub(super) fn new(log: Log) -> (Arc<Self>, Receiver<i64>) {
        let (sender, flushed) = channel();
        (
            Arc::new(Self {
                state: FlushState::default(),
                log: Mutex::new(Some(log)),
                sender: Mutex::new(sender),
                high_watermark: Mutex::default(),
            }),
            flushed,
        )
    }

    fn append(&self) {
        let bytes = &mut batch(&BatchSpec { records: 2, ..BatchSpec::default() });
        with_log(self, |log| log.append_as_leader(bytes, 0, 0, Origin::Client).expect("append"));
    }
}

impl LogOwner for Owner {
    fn flush_state(&self) -> &FlushState {
        &self.state
    }
    fn begin_flush(&self) -> Option<FlushJob> {
        self.log.lock().as_mut()?.begin_flush()
    }
    fn complete_flush(&self, end: FlushEnd) {
        let flushed = self.log.lock().as_mut().map_or(-1, |log| log.complete_flush(end));
        let _ = self.sender.lock().send(flushed);
    }
    fn high_watermark(&self) -> i64 {
        self.high_watermark.lock().unwrap_or_else(|| self.log.lock().as_ref().map_or(0, Log::flushed_offset))
    }
    fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
        work(self.log.lock().as_mut().expect("online"));
    }
    fn go_offline(&self) {
        let _ = self.sender.lock().send(-1);
    }
}

fn start(paths: &[&Path]) -> (Arc<LogManager>, Receiver<Event>) {
    start_with(paths, ManagerConfig::default())
}

fn start_with(paths: &[&Path], config: ManagerConfig) -> (Arc<LogManager>, Receiver<Event>) {
    start_over(paths, config, LogContext::new(64))
}

pub(super) fn start_over(
    paths: &[&Path],
    config: ManagerConfig,
    context: LogContext,
) -> (Arc<LogManager>, Receiver<Event>) {
    let ids = (1..).map(|id| Uuid([id; 16]));
    let locked = paths.iter().zip(ids).map(|(path, id)| LockedDir::open(path, id).expect("free")).collect();
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let on_event: OnEvent = Arc::new(move |event| drop(sender.lock().send(event)));
    let manager = LogManager::start(locked, config, context, 0, on_event);
    (manager.expect("start"), events)
}

/// Ends the manager without a clean stop. Its threads end first: one of them may hold the manager for a checkpoint, and
/// would release the directories only after the next start.
pub(super) fn crash(manager: Arc<LogManager>) {
    manager.stop_threads();
    drop(manager);
}

fn create(manager: &LogManager, dir: usize, topic: &str) -> (Arc<Owner>, Receiver<i64>) {
    create_with(manager, dir, topic, config())
}

pub(super) fn create_with(
    manager: &LogManager,
    dir: usize,
    topic: &str,
    config: LogConfig,
) -> (Arc<Owner>, Receiver<i64>) {
    let log = manager.plan(dir, topic, 0, Uuid([7; 16]), Arc::new(config)).expect("plan");
    let (owner, flushed) = Owner::new(log);
    manager.adopt(dir, topic, 0, owner.clone());
    (owner, flushed)
}

#[test]
fn a_clean_shutdown_writes_kafkas_checkpoints_and_needs_no_recovery() {
    let dir = tempdir().expect("temporary directory");
    let path = fs::canonicalize(dir.path()).expect("there");
    let (manager, _events) = start(&[&path]);
    assert_eq!(manager.previous_broker_epoch(), -1);
    for topic in ["a", "b"] {
        let (owner, _) = create(&manager, 0, topic);
        owner.append();
        owner.append();
        with_log(&*owner, |log| log.advance_log_start(i64::from(topic == "b")));
    }
    manager.shutdown(42);
    crash(manager);
    let read = |name: &str| fs::read_to_string(path.join(name)).expect("written");
    assert_eq!(read("recovery-point-offset-checkpoint"), "0\n2\na 0 4\nb 0 4\n");
    assert_eq!(read("log-start-offset-checkpoint"), "0\n1\nb 0 1\n");
    assert_eq!(read("replication-offset-checkpoint"), "0\n2\na 0 4\nb 0 4\n");
    assert_eq!(
        read(".kafka_cleanshutdown"),
        format!("{{\"version\":0,\"brokerEpoch\":42,\"klammCleanStop\":\"{}\"}}", &read("klamm-clean-stop")[19..27])
    );
    assert_eq!(read("a-0/partition.metadata"), "version: 0\ntopic_id: BwcHBwcHBwcHBwcHBwcHBw");
    assert_eq!(read("a-0/leader-epoch-checkpoint"), "0\n1\n0 0\n");
    assert!(path.join("a-0/00000000000000000004.snapshot").exists());

    let (manager, _events) = start(&[&path]);
    assert_eq!(manager.previous_broker_epoch(), 42);
    assert!(!path.join(".kafka_cleanshutdown").exists());
    let found = manager.found();
    assert_eq!(found.iter().map(|f| (f.topic.as_str(), f.partition)).collect::<Vec<_>>(), [("a", 0), ("b", 0)]);
    assert_eq!(manager.topic_id(&found[0]).expect("readable"), Some(Uuid([7; 16])));
    assert_eq!(manager.checkpointed_high_watermark(&found[0]), 4);
    let opened = Mutex::new(Vec::new());
    manager.open_all(
        &found,
        |_| Arc::new(config()),
        0,
        |found, result| {
            let (log, recovery) = result.expect("open");
            opened.lock().push((found.topic.clone(), log.log_start_offset(), log.log_end_offset(), recovery));
        },
    );
    let mut opened = opened.into_inner();
    opened.sort_by(|a, b| a.0.cmp(&b.0));
    let none = Recovery::default;
    assert_eq!(opened, [("a".to_owned(), 0, 4, none()), ("b".to_owned(), 1, 4, none())]);
}

#[test]
fn after_an_unclean_end_logs_are_recovered_from_the_recovery_point() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let (owner, flushed) = create(&manager, 0, "a");
    for _ in 0..3 {
        owner.append();
        let shared: Arc<dyn LogOwner> = owner.clone();
        manager.dirs()[0].flusher().mark_dirty(&shared);
        while flushed.recv().expect("the flusher lives") < with_log(&*owner, |log| log.log_end_offset()) {}
    }
    let expected = with_log(&*owner, |log| read_all(log, 0));
    assert_eq!(manager.context().counters.flushes.get(), 3);
    manager.checkpoint();
    crash(manager);
    let (manager, _events) = start(&[dir.path()]);
    let (mut log, recovery) = manager.open(&manager.found()[0], Arc::new(config()), 0).expect("open");
    assert_eq!(recovery.segments_checked, 1);
    assert_eq!((log.log_end_offset(), log.flushed_offset()), (6, 6));
    assert_eq!(read_all(&mut log, 0), expected);
}

#[test]
fn a_checkpointed_high_watermark_is_durable() {
    for flush_before_ack in [true, false] {
        let dir = tempdir().expect("temporary directory");
        let without_threads = ManagerConfig { flush_threads: 0, ..ManagerConfig::default() };
        let (manager, _events) = start_with(&[dir.path()], without_threads);
        let (owner, _flushed) = create_with(&manager, 0, "a", LogConfig { flush_before_ack, ..config() });
        owner.append();
        *owner.high_watermark.lock() = Some(2);
        let checkpointed = || {
            manager.checkpoint();
            fs::read_to_string(dir.path().join("replication-offset-checkpoint")).expect("written")
        };
        // After a power cut, recovery would continue at offset 2 without the records before it.
        assert_eq!(checkpointed(), "0\n1\na 0 0\n");
        with_log(&*owner, Log::flush).expect("flush");
        assert_eq!(checkpointed(), "0\n1\na 0 2\n");
    }
}

#[test]
fn records_flushed_at_a_roll_are_not_read_again_after_a_crash() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let settings = LogConfig { flush_before_ack: false, segment_bytes: 10 << 20, ..config() };
    let (owner, _flushed) = create_with(&manager, 0, "a", settings.clone());
    let spec = BatchSpec { value_bytes: 1 << 20, ..BatchSpec::default() };
    let shared: Arc<dyn LogOwner> = owner.clone();
    let append = || {
        let appended = with_log(&*owner, |log| log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client));
        appended.expect("append");
    };
    for _ in 0..100 {
        append();
        manager.dirs()[0].flusher().mark_dirty(&shared);
    }
    let checkpoint = dir.path().join("recovery-point-offset-checkpoint");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !checkpoint.exists() {
        assert!(Instant::now() < deadline, "no checkpoint");
        thread::sleep(Duration::from_millis(2));
    }
    // Rolled as well, but not flushed.
    (0..25).for_each(|_| append());
    crash(manager);
    let (manager, _events) = start(&[dir.path()]);
    let (mut log, recovery) = manager.open(&manager.found()[0], Arc::new(settings), 0).expect("open");
    assert_eq!(log.log_end_offset(), 125);
    assert!(recovery.bytes_checked < log.size() / 2, "{recovery:?}");
    log.flush().expect("flush");
    assert_eq!(log.flushed_offset(), 125);
    // The rebuilt indexes count once they are durable.
    assert!(log.recovery_point() < log.active_base_offset());
    let job = log.begin_mark().expect("mark").expect("indexes");
    job.sync().expect("sync");
    log.complete_mark(job.end()).expect("mark");
    assert_eq!(log.recovery_point(), 125);
    assert!(log.begin_mark().expect("mark").is_none());
}

#[test]
fn a_log_that_was_not_opened_after_a_crash_is_still_recovered() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let owners: Vec<_> = ["a", "b"].map(|topic| create(&manager, 0, topic)).into();
    owners.iter().for_each(|(owner, _)| owner.append());
    drop((owners, manager));
    let is_clean = || dir.path().join(".kafka_cleanshutdown").exists();
    for (opens, clean) in [(0, false), (1, false), (2, true), (0, true)] {
        let (manager, _events) = start(&[dir.path()]);
        for found in manager.found().iter().take(opens) {
            let (log, _) = manager.open(found, Arc::new(config()), 0).expect("open");
            assert_eq!(log.log_end_offset(), 2);
            manager.adopt(found.dir, &found.topic, found.partition, Owner::new(log).0);
        }
        manager.shutdown(1);
        assert_eq!(is_clean(), clean, "{opens} opened");
    }
}

#[test]
fn a_deleted_partition_is_renamed_at_once_and_removed_by_the_next_start() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let (owner, _) = create(&manager, 0, "a");
    create(&manager, 0, "b").0.append();
    owner.append();
    let slice = with_log(&*owner, |log| log.read(0, 1 << 20, i64::MAX, true).expect("read"));
    manager.delete("a", 0, 0).expect("delete");
    manager.delete("unknown", 0, 0).expect("nothing to do");
    let names = || {
        let entries = fs::read_dir(dir.path()).expect("list");
        let names = entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text"));
        names.filter(|name| name.starts_with("a-0")).collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 1);
    assert!(names()[0].ends_with("-delete"), "{:?}", names());
    assert!(!slice.read().expect("a reader goes on").is_empty());
    assert!(manager.place_of("a", 0).is_none() && manager.place_of("b", 0).is_some());
    // The name is free immediately.
    create(&manager, 0, "a").0.append();
    manager.shutdown(1);
    crash(manager);
    let (manager, _events) = start(&[dir.path()]);
    assert_eq!(manager.found().len(), 2);
    manager.context().trash.remove_due(&manager.context().cache, 0);
    assert_eq!(names(), ["a-0"]);
}

#[test]
fn a_log_is_deleted_during_a_flush_and_the_directory_stays_in_use() {
    let dir = tempdir().expect("temporary directory");
    let (manager, events) = start(&[dir.path()]);
    let cache = manager.context().cache.clone();
    let (renamed, _flushed) = create(&manager, 0, "a");
    let (removed, _flushed) = create(&manager, 0, "b");
    let jobs = [&renamed, &removed].map(|owner| {
        owner.append();
        owner.begin_flush().expect("there is something to flush")
    });
    manager.delete("b", 0, 0).expect("delete");
    manager.context().trash.remove_due(&cache, i64::MAX);
    jobs[1].run().expect("nothing of it is wanted");
    manager.delete("a", 0, 0).expect("delete");
    // The name is taken again: pending writes of the old log must not affect the new one.
    let (again, _flushed) = create(&manager, 0, "a");
    again.append();
    jobs[0].run().expect("it follows the directory");
    let in_new = manager.dirs()[0].path().join("a-0/leader-epoch-checkpoint");
    assert!(!in_new.exists());
    with_log(&*again, Log::flush).expect("flush");
    assert!(in_new.exists());
    assert!(manager.dirs()[0].offline_cause().is_none());
    assert!(!events.try_iter().any(|event| matches!(event, Event::DirFailed { .. })));
}

#[test]
fn one_directory_fails_and_the_others_stay_in_use() {
    let (one, two) = (tempdir().expect("temporary directory"), tempdir().expect("temporary directory"));
    let (manager, events) = start(&[one.path(), two.path()]);
    let (first, flushed_first) = create(&manager, 0, "a");
    let (second, flushed_second) = create(&manager, 1, "b");
    // A directory at the path of the epoch file makes the write fail.
    fs::create_dir_all(manager.dirs()[0].path().join("a-0/leader-epoch-checkpoint.tmp")).expect("create");
    for (dir, owner) in [(0, &first), (1, &second)] {
        owner.append();
        let shared: Arc<dyn LogOwner> = owner.clone();
        manager.dirs()[dir].flusher().mark_dirty(&shared);
    }
    assert_eq!(flushed_first.recv(), Ok(-1));
    assert_eq!(flushed_second.recv(), Ok(2));
    let Event::DirFailed { dir, cause, .. } = events.recv().expect("an event") else { panic!("another event") };
    assert_eq!(dir, manager.dirs()[0].path());
    assert!(cause.contains("leader-epoch-checkpoint"), "{cause}");
    let Err(error) = manager.plan(0, "c", 0, Uuid([7; 16]), Arc::new(config())) else { panic!("it is out of use") };
    assert_eq!(error.to_string(), cause, "the cause alone, whenever it is met");
    assert_eq!(manager.dir_for_new(|_| 0), Some(1));
    manager.shutdown(1);
    assert!(!one.path().join(".kafka_cleanshutdown").exists());
    assert!(two.path().join(".kafka_cleanshutdown").exists());
}

#[test]
fn thousands_of_partitions_need_few_files() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let owners: Vec<_> = (0..300).map(|at| create(&manager, 0, &format!("t{at}"))).collect();
    for (owner, _) in &owners {
        owner.append();
        let shared: Arc<dyn LogOwner> = owner.clone();
        manager.dirs()[0].flusher().mark_dirty(&shared);
    }
    for (owner, flushed) in &owners {
        while flushed.recv().expect("the flusher lives") < 2 {}
        assert!(!with_log(&**owner, |log| read_all(log, 0)).is_empty());
    }
    assert!(manager.context().cache.open_count() <= 64);
    manager.shutdown(1);
}

/// Fills three compacted logs with the same key repeatedly.
fn dirty_logs(manager: &LogManager, names: [&str; 3]) -> Vec<Arc<Owner>> {
    let settings = || LogConfig { compact: true, delete: false, segment_bytes: 200, ..config() };
    let owners = names.map(|name| create_with(manager, 0, name, settings()).0);
    for owner in &owners {
        for _ in 0..30 {
            let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
            builder.append(0, Some(b"key"), Some(b"value"), &[]).expect("small");
            let mut bytes = builder.finish().expect("small");
            with_log(&**owner, |log| log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append"));
        }
        with_log(&**owner, |log| log.flush().expect("flush"));
    }
    owners.to_vec()
}

fn wait_until_clean(owners: &[Arc<Owner>], events: &Receiver<Event>) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while owners.iter().any(|owner| with_log(&**owner, |log| log.size()) > 500) {
        assert!(std::time::Instant::now() < deadline, "it is not cleaned: {:?}", events.try_recv());
        std::thread::yield_now();
    }
}

#[test]
fn the_cleaner_has_threads_that_share_the_work_and_follows_new_settings() {
    let dir = tempdir().expect("temporary directory");
    let with_threads = |threads| ManagerConfig {
        cleaner: Some(CleanerConfig { threads, backoff_ms: 1, io_buffer_bytes: 0, ..CleanerConfig::default() }),
        ..ManagerConfig::default()
    };
    let (manager, events) = start_with(&[dir.path()], with_threads(3));
    wait_until_clean(&dirty_logs(&manager, ["a", "b", "c"]), &events);
    manager.reconfigure(ManagerConfig { cleaner: None, ..ManagerConfig::default() });
    let owners = dirty_logs(&manager, ["d", "e", "f"]);
    assert!(owners.iter().all(|owner| with_log(&**owner, |log| log.size()) > 500));
    manager.reconfigure(with_threads(1));
    wait_until_clean(&owners, &events);
    manager.shutdown(1);
    let counters = &manager.context().counters;
    // The last thread cleaned one log after the other, and was stopped at the last one at most.
    assert!(counters.cleanings.get() >= 2);
    assert!(counters.cleaner_read_bytes.get() > counters.cleaner_kept_bytes.get());
    assert!(counters.cleaner_kept_bytes.get() > 0);
}

fn cleaning() -> ManagerConfig {
    let cleaner = CleanerConfig { backoff_ms: 1, ..CleanerConfig::default() };
    ManagerConfig { cleaner: Some(cleaner), ..ManagerConfig::default() }
}

#[test]
fn a_log_that_was_compacted_keeps_its_records_after_a_crash_whatever_its_policy_is_by_then() {
    let dir = tempdir().expect("temporary directory");
    let (manager, events) = start_with(&[dir.path()], cleaning());
    let owners = dirty_logs(&manager, ["a", "b", "c"]);
    wait_until_clean(&owners, &events);
    // As after a crash: only the cleaner's checkpoint contains these logs.
    manager.reconfigure(ManagerConfig { cleaner: None, ..ManagerConfig::default() });
    crash(manager);
    let expected: Vec<Vec<u8>> = owners.iter().map(|owner| with_log(&**owner, |log| read_all(log, 0))).collect();
    let not_compacted = LogConfig { segment_bytes: 200, ..config() };
    for damage in [false, true] {
        if damage {
            fs::write(dir.path().join("cleaner-offset-checkpoint"), "?").expect("write");
        }
        let (manager, _events) = start(&[dir.path()]);
        for (found, expected) in manager.found().iter().zip(&expected) {
            let (mut log, recovery) = manager.open(found, Arc::new(not_compacted.clone()), 0).expect("open");
            assert_eq!((recovery.segments_dropped, log.log_end_offset()), (0, 30));
            assert_eq!(&read_all(&mut log, 0), expected);
        }
    }
}

/// Replaces the logs of `path` by a compacted one that a crash left with a gap between two segments.
fn leave_with_gap(path: &Path) {
    let _ = fs::remove_dir_all(path.join("t-0"));
    for name in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        fs::write(path.join(name), "0\n0\n").expect("write");
    }
    let mut log =
        super::testing::create(&path.join("t-0"), LogConfig { compact: true, segment_bytes: 1000, ..config() });
    for base_offset in [0, 1, 2] {
        let mut bytes = batch(&BatchSpec { value_bytes: 400, ..BatchSpec::default() });
        set_position(&mut bytes, base_offset, 0);
        log.append_as_follower(&bytes, 0, 0).expect("append");
    }
    drop(log);
    let first = fs::OpenOptions::new().write(true).open(path.join("t-0/00000000000000000000.log")).expect("there");
    first.set_len(first.metadata().expect("there").len() / 2).expect("cut");
}

#[test]
fn gaps_that_apache_kafka_may_have_left_stay() {
    let dir = tempdir().expect("temporary directory");
    let open = || {
        let (manager, _events) = start_with(&[dir.path()], ManagerConfig { intervals: None, ..cleaning() });
        let compacted = Arc::new(LogConfig { compact: true, ..config() });
        let (log, recovery) = manager.open(&manager.found()[0], compacted, 0).expect("open");
        crash(manager);
        (log.log_end_offset(), recovery.segments_dropped)
    };
    let stop = || {
        let (manager, _events) = start(&[dir.path()]);
        manager.recover_the_rest(|_| Arc::new(LogConfig { compact: true, ..config() }), 0);
        manager.shutdown(1);
        crash(manager);
    };
    let note = dir.path().join("klamm-sole-writer");
    let forget_boot = || drop(fs::remove_file(dir.path().join("klamm-boot-id")));
    // A directory that klamm has not stopped cleanly yet.
    leave_with_gap(dir.path());
    assert_eq!(open(), (3, 0));
    assert!(!note.exists());
    stop();
    assert!(!note.exists());
    stop();
    assert!(note.exists());
    // Apache Kafka starts, which removes the mark of the clean stop, and is killed.
    fs::remove_file(dir.path().join(".kafka_cleanshutdown")).expect("there");
    leave_with_gap(dir.path());
    forget_boot();
    assert_eq!(open(), (3, 0));
    assert_eq!(open(), (3, 0));
    // klamm starts after a clean stop, and loses power.
    stop();
    crash(start(&[dir.path()]).0);
    leave_with_gap(dir.path());
    forget_boot();
    assert_eq!(open(), (1, 1));
    // A checkpoint of the cleaner above the recovery point is not klamm's.
    leave_with_gap(dir.path());
    forget_boot();
    fs::write(dir.path().join("cleaner-offset-checkpoint"), "0\n1\nt 0 2\n").expect("write");
    assert_eq!(open(), (3, 0));
    // Where the recovery points are damaged, nothing shows what may have been cleaned.
    fs::write(dir.path().join("cleaner-offset-checkpoint"), "0\n0\n").expect("write");
    leave_with_gap(dir.path());
    fs::write(dir.path().join("recovery-point-offset-checkpoint"), "damaged").expect("write");
    assert_eq!(open(), (3, 0));
}

#[test]
fn records_without_a_topic_id_are_not_given_to_another_topic_after_a_power_cut() {
    let dir = tempdir().expect("temporary directory");
    let (file, boot) = (dir.path().join("a-0/partition.metadata"), dir.path().join("klamm-boot-id"));
    let leave = |has_records: bool, checkpoint: &str| {
        let (manager, _events) = start(&[dir.path()]);
        manager.delete("a", 0, 0).expect("delete");
        let (owner, _flushed) = create_with(&manager, 0, "a", LogConfig { flush_before_ack: false, ..config() });
        owner.append();
        crash(manager);
        drop(owner);
        if !has_records {
            fs::write(dir.path().join(format!("a-0/{:020}.log", 0)), "").expect("write");
        }
        fs::write(&file, "").expect("write");
        fs::write(dir.path().join("replication-offset-checkpoint"), checkpoint).expect("write");
    };
    let adopted = || {
        let (manager, _events) = start(&[dir.path()]);
        let found = manager.found().into_iter().find(|found| found.topic == "a").expect("there");
        let mismatch = manager.topic_mismatch(&found, Uuid([8; 16]), |_| false).expect("readable");
        crash(manager);
        mismatch.is_none()
    };
    crash(start(&[dir.path()]).0);
    leave(true, "0\n0\n");
    assert!(adopted(), "the process was killed, so that the file was not written yet");
    leave(true, "0\n0\n");
    fs::remove_file(&boot).expect("there");
    assert!(!adopted());
    // It holds until the log is opened, whatever the boot.
    assert!(!adopted());
    leave(true, "0\n1\na 0 1\n");
    drop(fs::remove_file(&boot));
    assert!(adopted(), "it was flushed, so that the file is damaged");
    leave(false, "0\n0\n");
    drop(fs::remove_file(&boot));
    assert!(adopted(), "it has no records");
    leave(true, "0\n0\n");
    drop(fs::remove_file(&boot));
    fs::remove_file(dir.path().join("klamm-sole-writer")).expect("there");
    assert!(adopted(), "Apache Kafka 2.7 and earlier wrote no such file");
}

#[test]
fn a_new_directory_has_one_writer() {
    let dir = tempdir().expect("temporary directory");
    crash(start(&[dir.path()]).0);
    leave_with_gap(dir.path());
    let (manager, _events) = start(&[dir.path()]);
    let (log, recovery) =
        manager.open(&manager.found()[0], Arc::new(LogConfig { compact: true, ..config() }), 0).expect("open");
    // The machine did not reboot, so it is damage.
    assert_eq!((log.log_end_offset(), recovery.lost), (3, vec![(1, 2)]));
}

#[test]
fn records_after_a_truncation_are_not_clean() {
    let dir = tempdir().expect("temporary directory");
    let (manager, _events) = start(&[dir.path()]);
    let (owner, _) = create(&manager, 0, "a");
    (0..3).for_each(|_| owner.append());
    with_log(&*owner, |log| log.flush().expect("flush"));
    drop((manager, owner));
    for (checkpoint, expected) in [(4, 4), (50, 6)] {
        fs::write(dir.path().join("cleaner-offset-checkpoint"), format!("0\n1\na 0 {checkpoint}\n")).expect("write");
        let (manager, _events) = start(&[dir.path()]);
        let [found] = &manager.found()[..] else { panic!("one log") };
        manager.open(found, Arc::new(config()), 0).expect("open");
        let text = fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).expect("there");
        assert_eq!(text, format!("0\n1\na 0 {expected}\n"));
    }
}

#[test]
fn the_cleaner_forgets_a_deleted_log() {
    let dir = tempdir().expect("temporary directory");
    let (manager, events) = start_with(&[dir.path()], cleaning());
    wait_until_clean(&dirty_logs(&manager, ["a", "b", "c"]), &events);
    let text = || fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).expect("written");
    let deadline = Instant::now() + Duration::from_secs(30);
    while text().lines().count() < 5 {
        assert!(Instant::now() < deadline, "{}", text());
        thread::sleep(Duration::from_millis(2));
    }
    manager.delete("b", 0, 0).expect("delete");
    let left: Vec<String> = text().lines().skip(2).map(|line| line[..3].to_owned()).collect();
    assert_eq!(left, ["a 0", "c 0"]);
    manager.shutdown(1);
}

#[test]
fn the_cleaner_deletes_old_segments_of_logs_with_both_policies() {
    let dir = tempdir().expect("temporary directory");
    let (manager, events) = start_with(&[dir.path()], cleaning());
    let settings = LogConfig { compact: true, delete: true, retention_ms: 1000, segment_bytes: 200, ..config() };
    let (owner, _) = create_with(&manager, 0, "a", settings);
    (0..10).for_each(|_| owner.append());
    with_log(&*owner, |log| log.flush().expect("flush"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while with_log(&*owner, |log| log.log_start_offset()) < 20 {
        assert!(Instant::now() < deadline, "{:?}", events.try_recv());
        thread::sleep(Duration::from_millis(2));
    }
    manager.shutdown(1);
}

#[test]
fn an_empty_checkpoint_has_no_entries() {
    let dir = tempdir().expect("temporary directory");
    fs::write(dir.path().join("cleaner-offset-checkpoint"), "").expect("write");
    let (manager, events) = start(&[dir.path()]);
    manager.shutdown(1);
    crash(manager);
    assert_eq!(events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn records_that_wait_too_long_are_flushed_by_the_periodic_check() {
    let dir = tempdir().expect("temporary directory");
    let intervals = Intervals { initial_delay_ms: 1, flush_check_ms: 1, ..Intervals::default() };
    let (manager, _events) =
        start_with(&[dir.path()], ManagerConfig { intervals: Some(intervals), ..ManagerConfig::default() });
    let settings = LogConfig { flush_before_ack: false, flush_ms: 1, ..config() };
    let (owner, flushed) = create_with(&manager, 0, "a", settings);
    owner.append();
    while flushed.recv().expect("the flusher lives") < 2 {}
    manager.shutdown(1);
}

#[test]
fn directories_that_are_offline_or_cordoned_are_shown() {
    let (one, two) = (tempdir().expect("a folder"), tempdir().expect("a folder"));
    let (manager, _events) = start(&[one.path(), two.path()]);
    let paths = [one.path().to_owned(), two.path().to_owned(), "/missing".into()];
    let configured: Vec<_> = paths.into_iter().zip((1..).map(|id| Uuid([id; 16]))).collect();
    let shown = || {
        let gauges = manager.dir_gauges(&configured);
        let set = gauges.into_iter().filter(|(_, value)| *value > 0);
        set.map(|(name, value)| format!("{} {value}", name.trim_start_matches("kafka.log:type=LogManager,name=")))
            .collect::<Vec<_>>()
    };
    let of = |name: &str, path: &Path| format!("{name},logDirectory=\"{}\" 1", path.display());
    let missing = of("LogDirectoryOffline", Path::new("/missing"));
    assert_eq!(shown(), [missing.clone(), "OfflineLogDirectoryCount 1".to_owned()]);
    manager.set_cordoned(&[Uuid([1; 16])]);
    manager.fail_dir(1, "a test");
    let expected = [
        of("LogDirectoryCordoned", one.path()),
        of("LogDirectoryOffline", two.path()),
        missing,
        "OfflineLogDirectoryCount 2".to_owned(),
        "CordonedLogDirectoryCount 1".to_owned(),
    ];
    assert_eq!(shown(), expected);
}
