//! The periodic tasks of the logs, on one thread.

use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use klamm_base::conditions::Conditions;
use parking_lot::{Condvar, Mutex};

use super::log_dir::Key;
use super::manager::{Event, LogManager};
use super::owner::with_log;
use super::partition_log::Log;

/// The intervals of the tasks, in ms.
#[derive(Clone, Debug)]
pub struct Intervals {
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub log_start_checkpoint_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_checkpoint_ms: i64,
    /// `log.retention.check.interval.ms`
    pub retention_check_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_expiration_check_ms: i64,
    /// `log.flush.scheduler.interval.ms`
    pub flush_check_ms: i64,
    /// `log.initial.task.delay.ms`: the delay before the first retention, flush check and recovery point and log
    /// start checkpoints.
    pub initial_delay_ms: i64,
    /// How long a log must be idle before its prepared tail is truncated (klamm's own).
    pub idle_tail_ms: i64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            recovery_point_checkpoint_ms: 60_000,
            log_start_checkpoint_ms: 60_000,
            high_watermark_checkpoint_ms: 5_000,
            retention_check_ms: 300_000,
            producer_expiration_check_ms: 600_000,
            flush_check_ms: i64::MAX,
            initial_delay_ms: 30_000,
            idle_tail_ms: 10_000,
        }
    }
}

/// How often files that are due are removed, in ms.
const TRASH_INTERVAL_MS: i64 = 1000;
/// How often the directories are checked for existence, in ms.
const DIR_CHECK_INTERVAL_MS: i64 = 1000;
/// Longer than the life of any node.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

type Task = fn(&LogManager);

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// The thread.
pub(super) struct Tasks {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

impl Tasks {
    pub(super) fn start(manager: &Arc<LogManager>, intervals: Intervals) -> Self {
        let stop = Arc::new(Stop::default());
        let conditions = manager.context.cache.conditions().cloned();
        if let Some(conditions) = &conditions {
            let woken = Arc::downgrade(&stop);
            conditions.on_advanced(move || {
                let Some(stop) = woken.upgrade() else { return false };
                // The thread looks at the clock under this lock.
                let _stopped = stop.stopped.lock();
                stop.wake.notify_all();
                true
            });
        }
        let (manager, stopped) = (Arc::downgrade(manager), stop.clone());
        let thread = thread::Builder::new().name("klamm-log-tasks".into());
        let thread = thread.spawn(move || run(&manager, &intervals, &stopped, conditions.as_deref()));
        Self { stop, thread: thread.expect("the system has a thread for the log's tasks") }
    }

    pub(super) fn stop(self) {
        *self.stop.stopped.lock() = true;
        self.stop.wake.notify_all();
        if self.thread.thread().id() != thread::current().id() {
            let _ = self.thread.join();
        }
    }
}

fn run(manager: &Weak<LogManager>, intervals: &Intervals, stop: &Stop, conditions: Option<&Conditions>) {
    let initial_ms = intervals.initial_delay_ms;
    let tasks: [(i64, i64, Task); 9] = [
        (initial_ms, intervals.recovery_point_checkpoint_ms, checkpoint_recovery_points),
        (initial_ms, intervals.log_start_checkpoint_ms, checkpoint_log_starts),
        (initial_ms, intervals.retention_check_ms, delete_expired_uncompacted),
        (initial_ms, intervals.flush_check_ms, flush_overdue),
        (intervals.high_watermark_checkpoint_ms, intervals.high_watermark_checkpoint_ms, checkpoint_high_watermarks),
        (intervals.producer_expiration_check_ms, intervals.producer_expiration_check_ms, expire_producers),
        (intervals.idle_tail_ms, intervals.idle_tail_ms, cut_idle_tails),
        (TRASH_INTERVAL_MS, TRASH_INTERVAL_MS, empty_trash),
        (DIR_CHECK_INTERVAL_MS, DIR_CHECK_INTERVAL_MS, check_dirs),
    ];
    let every = |interval_ms: i64| Duration::from_millis(interval_ms.max(1) as u64).min(NEVER);
    let ahead = || Duration::from_millis(conditions.map_or(0, |found| u64::try_from(found.wall_ms()).unwrap_or(0)));
    let now = || Instant::now() + ahead();
    let mut due = tasks.map(|(first_ms, _, _)| now() + every(first_ms));
    loop {
        let next = due.iter().min().copied().expect("there are tasks");
        let mut stopped = stop.stopped.lock();
        if !*stopped {
            stop.wake.wait_until(&mut stopped, next.checked_sub(ahead()).unwrap_or_else(Instant::now));
        }
        if *stopped {
            return;
        }
        drop(stopped);
        for (at, (_, interval_ms, task)) in tasks.iter().enumerate() {
            if due[at] <= now() {
                let Some(manager) = manager.upgrade() else { return };
                task(&manager);
                due[at] = now() + every(*interval_ms);
            }
        }
    }
}

fn checkpoint_recovery_points(manager: &LogManager) {
    for (at, dir) in manager.online() {
        let marked = dir.mark();
        let _ =
            manager.fail_dir_on_error(at, marked.and_then(|()| dir.checkpoint_recovery_points(&manager.context.cache)));
    }
}

fn checkpoint_log_starts(manager: &LogManager) {
    for (at, dir) in manager.online() {
        let _ = manager.fail_dir_on_error(at, dir.checkpoint_log_starts(&manager.context.cache));
    }
}

fn checkpoint_high_watermarks(manager: &LogManager) {
    for (at, dir) in manager.online() {
        let _ = manager.fail_dir_on_error(at, dir.checkpoint_high_watermarks(&manager.context.cache));
    }
}

/// Applies retention to uncompacted logs; the cleaner, if there is one, does so for compacted logs.
fn delete_expired_uncompacted(manager: &LogManager) {
    let has_cleaner = manager.has_cleaner();
    delete_expired(manager, |_, log| !(has_cleaner && log.config().compact));
}

/// Applies retention to the logs that are `wanted`.
pub(super) fn delete_expired(manager: &LogManager, wanted: impl Fn(&Key, &Log) -> bool) {
    for (at, dir) in manager.online() {
        for (key, owner) in dir.owners() {
            let high_watermark = owner.high_watermark();
            let expired = with_log(&*owner, |log| {
                if wanted(&key, log) {
                    log.delete_expired(high_watermark, manager.context.cache.now_ms()).map(|_| ())
                } else {
                    Ok(())
                }
            });
            if let Err(error) = manager.fail_dir_unless_away(at, &*owner, expired) {
                let warning = format!("retention of {}-{}: {error}", key.0, key.1);
                (manager.on_event)(Event::Warning(warning));
            }
        }
    }
}

fn flush_overdue(manager: &LogManager) {
    for (_, dir) in manager.online() {
        for (_, owner) in dir.owners() {
            if with_log(&*owner, |log| log.request_overdue_flush(manager.context.cache.now_ms())) {
                dir.flusher().mark_dirty(&owner);
            }
        }
    }
}

fn expire_producers(manager: &LogManager) {
    for (_, dir) in manager.online() {
        for (_, owner) in dir.owners() {
            with_log(&*owner, |log| log.expire_producers(manager.context.cache.now_ms()));
        }
    }
}

fn cut_idle_tails(manager: &LogManager) {
    for (at, dir) in manager.online() {
        for (_, owner) in dir.owners() {
            let cut = with_log(&*owner, super::Log::cut_idle_tail);
            let _ = manager.fail_dir_unless_away(at, &*owner, cut);
        }
    }
}

fn check_dirs(manager: &LogManager) {
    for (at, dir) in manager.online() {
        let _ = manager.fail_dir_on_error(at, dir.check_there());
    }
}

fn empty_trash(manager: &LogManager) {
    for error in manager.context.trash.remove_due(&manager.context.cache, manager.context.cache.now_ms()) {
        (manager.on_event)(Event::Warning(error.to_string()));
    }
}
