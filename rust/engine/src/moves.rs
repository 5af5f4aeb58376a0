//! Carries out moves between log directories, on threads that exist only while there are moves
//! (`num.replica.alter.log.dirs.threads`).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use klamm_base::rate::{Rate, Windows};
use klamm_replica::{MoveStep, Partition, Replicas};
use parking_lot::{Condvar, Mutex};

/// Bytes that a step copies.
const STEP_BYTES: usize = 1 << 20;
/// The pause of a move that waits for records or for the controller.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause after an error.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause of a throttled move, so that it sees a new limit.
const THROTTLE_MAX: Duration = Duration::from_secs(1);

struct Waiting {
    partition: Arc<Partition>,
    due: Instant,
    has_reported: bool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Moves in a step now.
    stepping: usize,
    threads: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

/// The moves of a node.
pub struct Moves {
    own: Weak<Moves>,
    replicas: Arc<Replicas>,
    report: Box<dyn Fn(String) + Send + Sync>,
    state: Mutex<State>,
    wake: Condvar,
    rate: Mutex<Rate>,
    begun: Instant,
}

impl Moves {
    pub fn new(replicas: &Arc<Replicas>, report: impl Fn(String) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            replicas: replicas.clone(),
            report: Box::new(report),
            state: Mutex::default(),
            wake: Condvar::new(),
            rate: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Carries out moves from now on, and those that were begun before.
    pub fn start(&self) {
        let own = self.own.clone();
        self.replicas.changes().moves.notify(move || {
            if let Some(moves) = own.upgrade() {
                moves.add(moves.replicas.changes().moves.take());
            }
        });
        self.add(self.replicas.moving());
    }

    /// Ends the threads after their current steps. The next start continues what is left.
    pub fn stop(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            state.waiting.clear();
            std::mem::take(&mut state.threads)
        };
        self.wake.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn add(&self, partitions: Vec<Arc<Partition>>) {
        let due = Instant::now();
        let mut state = self.state.lock();
        if state.is_stopped || partitions.is_empty() {
            return;
        }
        let new = partitions.into_iter().map(|partition| Waiting { partition, due, has_reported: false });
        state.waiting.extend(new);
        state.threads.retain(|thread| !thread.is_finished());
        let wanted = self.threads_max().min(state.waiting.len() + state.stepping);
        while state.threads.len() < wanted {
            let own = self.own.clone();
            let name = format!("klamm-move-logs-{}", state.threads.len());
            let thread = thread::Builder::new().name(name).spawn(move || {
                if let Some(moves) = own.upgrade() {
                    moves.work();
                }
            });
            match thread {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    (self.report)(format!("no thread for moves between log directories: {error}"));
                    break;
                }
                Err(_) => break,
            }
        }
        drop(state);
        self.wake.notify_all();
    }

    fn threads_max(&self) -> usize {
        let set = self.replicas.settings().text("num.replica.alter.log.dirs.threads").parse().ok();
        set.unwrap_or(self.replicas.logs().dirs().len()).max(1)
    }

    fn work(&self) {
        while let Some(mut taken) = self.next() {
            let pause = self.step(&mut taken);
            let mut state = self.state.lock();
            state.stepping -= 1;
            if let Some(pause) = pause.filter(|_| !state.is_stopped) {
                taken.due = Instant::now() + pause;
                state.waiting.push_back(taken);
            }
            drop(state);
            self.wake.notify_all();
        }
    }

    /// The next move that is due; `None` if there is nothing more to do.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped || (state.waiting.is_empty() && state.stepping == 0) {
                return None;
            }
            let now = Instant::now();
            if let Some(at) = state.waiting.iter().position(|waiting| waiting.due <= now) {
                state.stepping += 1;
                return state.waiting.remove(at);
            }
            match state.waiting.iter().map(|waiting| waiting.due).min() {
                Some(due) => drop(self.wake.wait_until(&mut state, due)),
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// A step of one move; the pause before its next one, `None` if it has ended.
    fn step(&self, taken: &mut Waiting) -> Option<Duration> {
        if self.is_throttled() {
            return Some(THROTTLE_MAX / 10);
        }
        match self.replicas.step_move(&taken.partition, STEP_BYTES) {
            MoveStep::Copied(bytes) => {
                self.count(bytes);
                Some(Duration::ZERO)
            }
            MoveStep::Waiting => Some(PAUSE),
            MoveStep::Failed(error) => {
                if !std::mem::replace(&mut taken.has_reported, true) {
                    let id = &taken.partition.id;
                    let (topic, index) = (&id.topic, id.index);
                    (self.report)(format!(
                        "{topic}-{index} cannot be moved to another log directory, and is tried again: {error}"
                    ));
                }
                Some(LONG_PAUSE)
            }
            MoveStep::Ended => None,
        }
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn windows(&self) -> Windows {
        let settings = self.replicas.settings();
        Windows {
            count: usize::try_from(settings.number("alter.log.dirs.replication.quota.window.num")).unwrap_or(1).max(1),
            window_ms: 1000 * settings.number("alter.log.dirs.replication.quota.window.size.seconds").max(1),
        }
    }

    fn count(&self, bytes: usize) {
        self.replicas.changes().counters.moved_bytes.add(bytes as u64);
        self.rate.lock().add(self.now_ms(), bytes as f64, self.windows());
    }

    /// Whether `replica.alter.log.dirs.io.max.bytes.per.second` is exceeded.
    fn is_throttled(&self) -> bool {
        let limit = self.replicas.settings().number("replica.alter.log.dirs.io.max.bytes.per.second");
        self.rate.lock().per_second(self.now_ms(), self.windows()) > limit as f64
    }
}
