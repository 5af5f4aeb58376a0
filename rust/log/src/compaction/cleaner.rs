//! The cleaner threads: each repeatedly takes the dirtiest log that no other thread is cleaning, across all
//! directories.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use klamm_base::LogError;
use parking_lot::{Condvar, Mutex};

use super::job::{CleanError, CleanJob, Stats};
use super::offset_map::OffsetMap;
use super::plan::CleanPlan;
use super::throttler::Throttler;
use crate::files::FileCache;
use crate::log_dir::{Key, LogDir};
use crate::manager::{Event, LogManager};
use crate::owner::{LogOwner, with_log};
use crate::tasks::delete_expired;

/// The cleaner's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.threads`.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`, shared by all threads.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.size`, shared by all threads.
    pub io_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
    /// `log.cleaner.io.max.bytes.per.second`.
    pub io_bytes_per_second_max: f64,
    /// `log.cleaner.backoff.ms`.
    pub backoff_ms: u64,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        Self {
            threads: 1,
            dedupe_buffer_bytes: 128 << 20,
            io_buffer_bytes: 512 << 10,
            load_factor: 0.9,
            io_bytes_per_second_max: f64::MAX,
            backoff_ms: 15_000,
        }
    }
}

impl CleanerConfig {
    /// Memory for the offset map of one thread, in bytes.
    fn map_bytes(&self) -> usize {
        self.dedupe_buffer_bytes / self.threads.max(1)
    }

    /// Size of one thread's read buffer and write buffer, in bytes.
    fn buffer_bytes(&self) -> usize {
        self.io_buffer_bytes / self.threads.max(1) / 2
    }
}

/// A log that was selected for cleaning.
struct LogToClean {
    at: usize,
    dir: Arc<LogDir>,
    key: Key,
    owner: Arc<dyn LogOwner>,
    plan: CleanPlan,
}

/// State shared by the threads.
struct Shared {
    config: CleanerConfig,
    stop: Stop,
    claims: Mutex<Claims>,
    throttler: Mutex<Throttler>,
}

/// Logs that must not be selected. Its lock is acquired before any other lock.
#[derive(Default)]
struct Claims {
    /// Logs that a thread is cleaning.
    cleaning: HashSet<Key>,
    /// Logs whose cleaning failed; they are not retried until the cleaner restarts.
    uncleanable: HashSet<Key>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    /// Sleeps for `duration`; `false` if the cleaner was stopped.
    fn sleep(&self, duration: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, duration);
        }
        !*stopped
    }
}

/// The running cleaner threads.
pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Cleaner {
    pub(crate) fn start(manager: &Arc<LogManager>, config: CleanerConfig) -> Self {
        let throttler = Mutex::new(Throttler::new(config.io_bytes_per_second_max));
        let shared = Arc::new(Shared { config, stop: Stop::default(), claims: Mutex::default(), throttler });
        if let Some(conditions) = manager.context.cache.conditions() {
            let woken = Arc::downgrade(&shared);
            conditions.on_advanced(move || woken.upgrade().map(|shared| shared.stop.wake.notify_all()).is_some());
        }
        let start = |at| {
            let (manager, shared) = (Arc::downgrade(manager), shared.clone());
            let thread = thread::Builder::new().name(format!("klamm-cleaner-{at}"));
            thread.spawn(move || shared.run(&manager)).expect("the system has a thread for the cleaner")
        };
        let threads = (0..shared.config.threads).map(start).collect();
        Self { shared, threads }
    }

    pub(crate) fn config(&self) -> &CleanerConfig {
        &self.shared.config
    }

    pub(crate) fn stop(self) {
        *self.shared.stop.stopped.lock() = true;
        self.shared.stop.wake.notify_all();
        for thread in self.threads {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn run(&self, manager: &Weak<LogManager>) {
        while self.stop.sleep(Duration::from_millis(self.config.backoff_ms.max(1))) {
            let Some(manager) = manager.upgrade() else { return };
            while let Some(chosen) = self.claim(&manager) {
                let cache = &manager.context.cache;
                let cleaned = clean(cache, &chosen, &self.config, cache.now_ms(), &mut |bytes| self.throttle(bytes));
                self.claims.lock().cleaning.remove(&chosen.key);
                match cleaned {
                    Ok(stats) => {
                        let counters = &manager.context.counters;
                        counters.cleanings.add(1);
                        counters.cleaner_read_bytes.add(stats.bytes_read);
                        counters.cleaner_kept_bytes.add(stats.bytes_kept);
                    }
                    Err(CleanError::Stopped) => return,
                    // The next check may succeed.
                    Err(CleanError::Log(error)) if error.is_limit() => break,
                    Err(CleanError::Log(error)) => self.give_up(&manager, &chosen, error),
                }
                self.expire(&manager);
            }
            self.expire(&manager);
        }
    }

    /// Applies retention to the compacted logs that no thread is cleaning: deleting segments during a round would
    /// waste the round.
    fn expire(&self, manager: &LogManager) {
        let cleaning = self.claims.lock().cleaning.clone();
        delete_expired(manager, |key, log| log.config().compact && !cleaning.contains(key));
    }

    /// Claims the dirtiest log that is due for cleaning for this thread.
    fn claim(&self, manager: &LogManager) -> Option<LogToClean> {
        let mut claims = self.claims.lock();
        let chosen = choose(manager, &mut claims)?;
        claims.cleaning.insert(chosen.key.clone());
        Some(chosen)
    }

    /// Waits until `bytes` more bytes are allowed; `false` if the cleaner was stopped.
    fn throttle(&self, bytes: u64) -> bool {
        let wait = self.throttler.lock().take(bytes);
        match wait {
            Some(wait) => self.stop.sleep(wait),
            None => !*self.stop.stopped.lock(),
        }
    }

    fn give_up(&self, manager: &LogManager, chosen: &LogToClean, error: LogError) {
        if has_failed(manager, chosen.at, &chosen.key, &*chosen.owner, error) {
            self.claims.lock().uncleanable.insert(chosen.key.clone());
        }
    }
}

/// Selects the dirtiest log that is due and that no thread is cleaning.
fn choose(manager: &LogManager, claims: &mut Claims) -> Option<LogToClean> {
    let mut best: Option<LogToClean> = None;
    // A log with the name of a deleted one is a different log.
    claims.uncleanable.retain(|(topic, partition)| manager.place_of(topic, *partition).is_some());
    for (at, dir) in manager.online() {
        for (key, owner) in dir.owners() {
            if claims.uncleanable.contains(&key) || claims.cleaning.contains(&key) {
                continue;
            }
            let cache = &manager.context.cache;
            match plan(cache, dir, (&key, &owner), owner.high_watermark(), cache.now_ms()) {
                Ok(Some(plan)) if best.as_ref().is_none_or(|best| plan.ratio() > best.plan.ratio()) => {
                    best = Some(LogToClean { at, dir: dir.clone(), key, owner, plan });
                }
                Ok(_) => {}
                Err(error) if error.is_limit() => {}
                Err(error) => {
                    if has_failed(manager, at, &key, &*owner, error) {
                        claims.uncleanable.insert(key);
                    }
                }
            }
        }
    }
    best
}

/// What to clean of a log; `None` if it is not due.
fn plan(
    cache: &Arc<FileCache>,
    dir: &LogDir,
    (key, owner): (&Key, &Arc<dyn LogOwner>),
    high_watermark: i64,
    now_ms: i64,
) -> Result<Option<CleanPlan>, LogError> {
    let checkpoint = dir.cleaner_checkpoint(key);
    let planned: Result<_, LogError> = with_log(&**owner, |log| {
        let config = log.config().clone();
        if !config.compact || log.is_moving() {
            return Ok(None);
        }
        let plan = log.clean_plan(checkpoint, high_watermark, now_ms)?;
        let due = plan.overdue && plan.cleanable_bytes > 0 || plan.ratio() > config.min_cleanable_dirty_ratio;
        Ok(Some((plan, due)))
    });
    let Some((plan, due)) = planned? else { return Ok(None) };
    if plan.reset_checkpoint {
        dir.set_cleaner_checkpoint(cache, key, owner, plan.first_dirty_offset)?;
    }
    Ok(due.then_some(plan))
}

impl LogManager {
    /// Cleans one log up to its high watermark if it is due, on this thread: for a simulation, which has no cleaner threads. Whether
    /// the log was cleaned.
    pub fn clean_one(
        &self,
        key: &Key,
        config: &CleanerConfig,
        high_watermark: i64,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let cache = &self.context.cache;
        for (at, dir) in self.online() {
            let Some((key, owner)) = dir.owners().into_iter().find(|(found, _)| found == key) else { continue };
            let Some(plan) = plan(cache, dir, (&key, &owner), high_watermark, now_ms)? else { continue };
            let chosen = LogToClean { at, dir: dir.clone(), key, owner, plan };
            return match clean(cache, &chosen, config, now_ms, &mut |_| true) {
                Ok(_) => Ok(true),
                Err(CleanError::Log(error)) => Err(error),
                Err(CleanError::Stopped) => Ok(false),
            };
        }
        Ok(false)
    }
}

/// Handles an error of cleaning; `false` if the log was deleted meanwhile, which is not a failure.
fn has_failed(manager: &LogManager, at: usize, key: &Key, owner: &dyn LogOwner, error: LogError) -> bool {
    if with_log(owner, |log| log.is_away()) {
        return false;
    }
    let warning = format!("{}-{} is not cleaned any more: {error}", key.0, key.1);
    let _ = manager.fail_dir_unless_away(at, owner, Err::<(), _>(error));
    (manager.on_event)(Event::Warning(warning));
    true
}

/// Runs one round of cleaning over one log.
fn clean(
    cache: &Arc<FileCache>,
    chosen: &LogToClean,
    config: &CleanerConfig,
    now_ms: i64,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<Stats, CleanError> {
    let job = with_log(&*chosen.owner, |log| log.begin_clean(&chosen.plan, now_ms))?;
    let job = CleanJob { buffer_bytes: config.buffer_bytes(), ..job };
    let mut map = OffsetMap::new(config.map_bytes(), config.load_factor);
    let end_offset = job.map_keys(&mut map, pace)?;
    if !chosen.dir.ensure_recovery_point(cache, &chosen.key, job.end_offset)? {
        // It is being truncated.
        return Ok(Stats::default());
    }
    let note = |offset| chosen.dir.set_cleaner_checkpoint(cache, &chosen.key, &chosen.owner, offset);
    let mut cleaning = job.cleaning(&map);
    if chosen.dir.cleaner_checkpoint(&chosen.key).is_none() {
        // The first offset gaps are about to appear: recovery after a crash must expect them, even if the policy
        // changes.
        note(chosen.plan.first_dirty_offset)?;
    }
    let mut groups = job.groups(end_offset).into_iter();
    while groups.len() > 0 {
        if with_log(&*chosen.owner, |log| log.is_away()) {
            return Ok(cleaning.stats);
        }
        // Replace the lowest segments first: after a crash, recovery completes those below an incomplete one.
        let mut cleaned = cleaning.clean_some(&mut groups, pace)?.into_iter();
        while let Some(one) = cleaned.next() {
            let replaced = with_log(&*chosen.owner, |log| log.replace_segments(one, now_ms));
            if !matches!(replaced, Ok(true)) {
                job.discard(cleaned)?;
                replaced?;
                return Ok(cleaning.stats);
            }
        }
    }
    let mut stats = cleaning.stats;
    stats.keys = map.len();
    // If the checkpoint were durable before the renames, a crash could bring back old values whose tombstones are
    // removed later.
    job.sync_names()?;
    note(end_offset.max(chosen.plan.first_dirty_offset))?;
    Ok(stats)
}
