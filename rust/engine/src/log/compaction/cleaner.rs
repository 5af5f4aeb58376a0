//! The thread that cleans: it takes the dirtiest log of all directories, again and again.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::job::{CleanError, Stats};
use super::offset_map::OffsetMap;
use super::plan::CleanPlan;
use crate::log::error::LogError;
use crate::log::files::FileCache;
use crate::log::log_dir::{Key, LogDir};
use crate::log::manager::{Event, LogManager};
use crate::log::owner::{LogOwner, with_log};
use crate::log::tasks::now_ms;

/// How logs are cleaned.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.dedupe.buffer.size`
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`
    pub load_factor: f64,
    /// `log.cleaner.io.max.bytes.per.second`
    pub io_bytes_per_second_max: f64,
    /// `log.cleaner.backoff.ms`
    pub backoff_ms: u64,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        Self { dedupe_buffer_bytes: 128 << 20, load_factor: 0.9, io_bytes_per_second_max: f64::MAX, backoff_ms: 15_000 }
    }
}

/// A log that was chosen.
struct Chosen {
    at: usize,
    dir: Arc<LogDir>,
    key: Key,
    owner: Arc<dyn LogOwner>,
    plan: CleanPlan,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    /// Sleeps for `duration`; `false` when it is over.
    fn sleep(&self, duration: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, duration);
        }
        !*stopped
    }
}

/// The thread.
pub(in crate::log) struct Cleaner {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

impl Cleaner {
    pub(in crate::log) fn start(manager: &Arc<LogManager>, config: CleanerConfig) -> Self {
        let (stop, manager) = (Arc::new(Stop::default()), Arc::downgrade(manager));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("klamm-log-cleaner".into());
        let thread = thread.spawn(move || run(&manager, &config, &stopped));
        Self { stop, thread: thread.expect("the system has a thread for the cleaner") }
    }

    pub(in crate::log) fn stop(self) {
        *self.stop.stopped.lock() = true;
        self.stop.wake.notify_all();
        if self.thread.thread().id() != thread::current().id() {
            let _ = self.thread.join();
        }
    }
}

fn run(manager: &Weak<LogManager>, config: &CleanerConfig, stop: &Stop) {
    // What failed once is not tried again before the next start.
    let mut uncleanable = HashSet::new();
    while stop.sleep(Duration::from_millis(config.backoff_ms.max(1))) {
        let Some(manager) = manager.upgrade() else { return };
        while let Some(chosen) = choose(&manager, &mut uncleanable) {
            let mut pace = Pacer::new(config.io_bytes_per_second_max, stop);
            match clean(&manager.context.cache, &chosen, config, &mut |bytes| pace.allows(bytes)) {
                Ok(_) => {}
                Err(CleanError::Stopped) => return,
                // Perhaps at the next look.
                Err(CleanError::Log(error)) if error.is_limit() => break,
                Err(CleanError::Log(error)) => give_up(&manager, &chosen, error, &mut uncleanable),
            }
        }
    }
}

fn give_up(manager: &LogManager, chosen: &Chosen, error: LogError, uncleanable: &mut HashSet<Key>) {
    let (topic, partition) = &chosen.key;
    let warning = format!("{topic}-{partition} is not cleaned any more: {error}");
    let _ = manager.judge(chosen.at, Err::<(), _>(error));
    (manager.on_event)(Event::Warning(warning));
    uncleanable.insert(chosen.key.clone());
}

/// The dirtiest log that is due.
fn choose(manager: &LogManager, uncleanable: &mut HashSet<Key>) -> Option<Chosen> {
    let mut best: Option<Chosen> = None;
    for (at, dir) in manager.online() {
        for (key, owner) in dir.owners() {
            if uncleanable.contains(&key) {
                continue;
            }
            let checkpoint = dir.cleaner_checkpoint(&key);
            let high_watermark = owner.high_watermark();
            let planned: Result<_, LogError> = with_log(&*owner, |log| {
                let config = log.config().clone();
                if !config.compact {
                    return Ok(None);
                }
                let plan = log.clean_plan(checkpoint, high_watermark, now_ms())?;
                if plan.reset_checkpoint {
                    dir.set_cleaner_checkpoint(&manager.context.cache, &key, plan.first_dirty_offset)?;
                }
                let due = plan.overdue && plan.cleanable_bytes > 0 || plan.ratio() > config.min_cleanable_dirty_ratio;
                Ok(due.then_some(plan))
            });
            match planned {
                Ok(Some(plan)) if best.as_ref().is_none_or(|best| plan.ratio() > best.plan.ratio()) => {
                    best = Some(Chosen { at, dir: dir.clone(), key, owner, plan });
                }
                Ok(_) => {}
                Err(error) if error.is_limit() => {}
                Err(error) => {
                    let warning = format!("{}-{} is not cleaned any more: {error}", key.0, key.1);
                    let _ = manager.judge(at, Err::<(), _>(error));
                    (manager.on_event)(Event::Warning(warning));
                    uncleanable.insert(key);
                }
            }
        }
    }
    best
}

/// One round over one log.
fn clean(
    cache: &Arc<FileCache>,
    chosen: &Chosen,
    config: &CleanerConfig,
    pace: &mut dyn FnMut(u64) -> bool,
) -> Result<Stats, CleanError> {
    let job = with_log(&*chosen.owner, |log| log.begin_clean(&chosen.plan, now_ms()))?;
    let mut map = OffsetMap::new(config.dedupe_buffer_bytes, config.load_factor);
    let end_offset = job.map_keys(&mut map, pace)?;
    let mut cleaning = job.cleaning(&map);
    for group in job.groups(end_offset) {
        let cleaned = cleaning.clean(group, pace)?;
        if !with_log(&*chosen.owner, |log| log.replace_segments(cleaned, now_ms()))? {
            return Ok(cleaning.stats);
        }
    }
    let mut stats = cleaning.stats;
    stats.keys = map.len();
    chosen.dir.set_cleaner_checkpoint(cache, &chosen.key, end_offset.max(chosen.plan.first_dirty_offset))?;
    Ok(stats)
}

/// Holds the cleaner to its bytes a second.
struct Pacer<'a> {
    per_second: f64,
    stop: &'a Stop,
    begun: Instant,
    bytes: f64,
}

impl<'a> Pacer<'a> {
    fn new(per_second: f64, stop: &'a Stop) -> Self {
        Self { per_second, stop, begun: Instant::now(), bytes: 0.0 }
    }

    fn allows(&mut self, bytes: u64) -> bool {
        self.bytes += bytes as f64;
        let ahead = self.bytes / self.per_second - self.begun.elapsed().as_secs_f64();
        if ahead > 0.01 {
            self.stop.sleep(Duration::from_secs_f64(ahead.min(60.0)))
        } else {
            !*self.stop.stopped.lock()
        }
    }
}
