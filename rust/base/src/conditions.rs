//! What a test does to a node while it runs: its network is cut, it is paused, its disk is slow, its clock is advanced.
//! Only nodes of an embedded cluster have conditions; without them nothing is wrapped or asked.
//!
//! A node is identified by its port: all nodes with conditions are on one host.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::TcpStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::clock::{Clock, SystemClock};

/// What is lost between a node and a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// What the node sends there.
    pub sends: bool,
    /// What it is sent from there.
    pub receives: bool,
}

/// The direction of bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Send,
    Receive,
    /// A handshake needs both directions.
    Both,
}

/// Notified that the clock was advanced; returns `false` to be removed.
type OnAdvanced = Box<dyn Fn() -> bool + Send + Sync>;

/// The conditions of one node, shared by all its connections and tasks.
#[derive(Default)]
pub struct Conditions {
    /// Whether there is a pause or a cut. Read first, so that nothing is locked in normal operation.
    is_disturbed: AtomicBool,
    state: Mutex<State>,
    /// Changes of `State::sync_takes`.
    disk: Condvar,
    /// How far the clock is ahead of the system's: of its time of day, and of its running time.
    wall_ms: AtomicI64,
    running_ms: AtomicI64,
    on_advanced: Mutex<Vec<OnAdvanced>>,
}

impl std::fmt::Debug for Conditions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Conditions").field("state", &self.state()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    is_paused: bool,
    sync_takes: Duration,
    cuts: HashMap<u16, Cut>,
    /// Connections that were closed while they were cut, by port: the other side must not learn of it before the end.
    closed: Vec<(u16, TcpStream)>,
    waiting: Vec<Waker>,
}

impl State {
    fn blocks(&self, port: u16, way: Way) -> bool {
        let cut = self.cuts.get(&port).copied().unwrap_or_default();
        match way {
            Way::Send => cut.sends,
            Way::Receive => cut.receives,
            Way::Both => cut != Cut::default(),
        }
    }

    fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}

impl Conditions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        self.is_disturbed.store(state.is_paused || !state.cuts.is_empty(), Ordering::Release);
        let (connected, closed) =
            std::mem::take(&mut state.closed).into_iter().partition(|(port, _)| !state.blocks(*port, Way::Both));
        state.closed = closed;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let connected: Vec<_> = connected;
        drop(connected);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Sets what is lost between the node and a port.
    pub fn cut(&self, port: u16, cut: Cut) {
        self.change(|state| match cut == Cut::default() {
            true => drop(state.cuts.remove(&port)),
            false => drop(state.cuts.insert(port, cut)),
        });
    }

    /// Whether something is lost between the node and a port.
    pub fn is_cut(&self, port: u16) -> bool {
        self.state().blocks(port, Way::Both)
    }

    /// Pauses or resumes the node.
    pub fn pause(&self, is_paused: bool) {
        self.change(|state| state.is_paused = is_paused);
    }

    /// Ready while bytes pass between the node and a port.
    pub fn poll_way(&self, port: u16, way: Way, cx: &Context<'_>) -> Poll<()> {
        self.poll_unless(|state| state.blocks(port, way), cx)
    }

    /// Keeps a connection until its port is reached again, if it is cut.
    pub fn on_closed(&self, port: u16, connection: TcpStream) {
        let mut state = self.state();
        if state.blocks(port, Way::Both) {
            state.closed.push((port, connection));
        }
    }

    /// Runs a task of the node, which is not polled while the node is paused.
    pub async fn hold<F: Future>(&self, task: F) -> F::Output {
        let mut task = pin!(task);
        poll_fn(|cx| match self.poll_unless(|state| state.is_paused, cx) {
            Poll::Ready(()) => task.as_mut().poll(cx),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Sets how long a flush takes at least.
    pub fn slow_disk(&self, sync_takes: Duration) {
        self.state().sync_takes = sync_takes;
        self.disk.notify_all();
    }

    /// Waits as long as a flush takes, or until the disk is fast again.
    pub fn wait_for_disk(&self) {
        let begun = Instant::now();
        let mut state = self.state();
        while let Some(left) = state.sync_takes.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            state = self.disk.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Advances the time of day, and the running time.
    pub fn advance(&self, wall_ms: i64, running_ms: i64) {
        self.wall_ms.fetch_add(wall_ms, Ordering::Relaxed);
        self.running_ms.fetch_add(running_ms, Ordering::Relaxed);
        self.change(|_| ());
        self.on_advanced.lock().unwrap_or_else(PoisonError::into_inner).retain(|told| told());
    }

    /// How far the time of day is ahead, in ms.
    pub fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    /// Calls `on_advance` after each advance, until it returns `false`.
    pub fn on_advanced(&self, on_advance: impl Fn() -> bool + Send + Sync + 'static) {
        self.on_advanced.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(on_advance));
    }

    /// How far the running time is ahead, in ms.
    pub fn running_ms(&self) -> i64 {
        self.running_ms.load(Ordering::Relaxed)
    }

    /// Returns when the running time is ahead by something else than `running_ms`.
    pub async fn advanced_from(&self, running_ms: i64) {
        poll_fn(|cx| {
            let mut state = self.state();
            if self.running_ms() != running_ms {
                return Poll::Ready(());
            }
            state.wait(cx.waker());
            Poll::Pending
        })
        .await;
    }

    fn poll_unless(&self, is_blocked: impl FnOnce(&State) -> bool, cx: &Context<'_>) -> Poll<()> {
        if !self.is_disturbed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut state = self.state();
        if !is_blocked(&state) {
            return Poll::Ready(());
        }
        state.wait(cx.waker());
        Poll::Pending
    }
}

/// The system's clock, as far ahead as the conditions say.
pub struct AdvancedClock {
    system: SystemClock,
    conditions: Arc<Conditions>,
}

impl AdvancedClock {
    pub fn new(conditions: Arc<Conditions>) -> Self {
        Self { system: SystemClock::default(), conditions }
    }
}

impl Clock for AdvancedClock {
    fn wall_ms(&self) -> i64 {
        self.system.wall_ms() + self.conditions.wall_ms()
    }

    fn monotonic_ms(&self) -> i64 {
        self.system.monotonic_ms() + self.conditions.running_ms()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ways(conditions: &Conditions, port: u16, cx: &Context<'_>) -> [bool; 3] {
        [Way::Send, Way::Receive, Way::Both].map(|way| conditions.poll_way(port, way, cx).is_ready())
    }

    #[test]
    fn a_cut_blocks_its_directions_to_its_port_until_it_heals() {
        let (conditions, count) = (Conditions::default(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        assert_eq!(ways(&conditions, 1, &cx), [true; 3]);
        conditions.cut(1, Cut { sends: true, receives: false });
        assert_eq!((ways(&conditions, 1, &cx), ways(&conditions, 2, &cx)), ([false, true, false], [true; 3]));
        conditions.cut(1, Cut { sends: true, receives: true });
        assert_eq!((ways(&conditions, 1, &cx), conditions.is_cut(1)), ([false; 3], true));
        let before = count.0.load(Ordering::Relaxed);
        conditions.cut(1, Cut::default());
        assert_eq!((ways(&conditions, 1, &cx), conditions.is_cut(1)), ([true; 3], false));
        assert_eq!(count.0.load(Ordering::Relaxed), before + 1, "one task waits once");
    }

    #[test]
    fn a_paused_task_is_not_polled() {
        let (conditions, count) = (Conditions::default(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        conditions.pause(true);
        let mut task = Box::pin(conditions.hold(async { 7 }));
        assert_eq!(task.as_mut().poll(&mut cx), Poll::Pending);
        conditions.pause(false);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(task.as_mut().poll(&mut cx), Poll::Ready(7));
    }

    #[test]
    fn a_flush_waits_until_the_disk_is_fast_again() {
        let conditions = Arc::new(Conditions::default());
        conditions.wait_for_disk();
        conditions.slow_disk(Duration::from_secs(3600));
        let waiting = conditions.clone();
        let flush = std::thread::spawn(move || waiting.wait_for_disk());
        conditions.slow_disk(Duration::ZERO);
        flush.join().expect("it does not panic");
        let begun = Instant::now();
        conditions.slow_disk(Duration::from_millis(20));
        conditions.wait_for_disk();
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn an_advance_moves_the_clock_and_wakes_waiters() {
        let (conditions, count) = (Arc::new(Conditions::default()), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let (clock, told) = (AdvancedClock::new(conditions.clone()), Arc::new(Count::default()));
        let before = (clock.wall_ms(), clock.monotonic_ms());
        let telling = told.clone();
        conditions.on_advanced(move || telling.0.fetch_add(1, Ordering::Relaxed) == 0);
        let mut advanced = Box::pin(conditions.advanced_from(0));
        assert!(advanced.as_mut().poll(&mut cx).is_pending());
        conditions.advance(90_000_000, 0);
        assert!(advanced.as_mut().poll(&mut cx).is_pending());
        conditions.advance(1_000, 1_000);
        assert!(advanced.as_mut().poll(&mut cx).is_ready());
        conditions.advance(1, 1);
        let counts = [count, told].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(counts, [2, 2], "woken while it waits; called until it returns false");
        assert!(clock.wall_ms() - before.0 >= 90_001_001);
        assert!((1_001..90_000_000).contains(&(clock.monotonic_ms() - before.1)));
    }

    #[test]
    fn a_close_reaches_the_other_side_when_the_cut_heals() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound");
        let connect = || (TcpStream::connect(address).expect("it listens"), listener.accept().expect("connected").0);
        let conditions = Conditions::default();
        conditions.cut(address.port(), Cut { sends: true, receives: true });
        let (near, mut far) = connect();
        conditions.on_closed(address.port(), near);
        far.set_nonblocking(true).expect("a socket");
        assert_eq!(far.read(&mut [0]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
        conditions.cut(address.port(), Cut::default());
        far.set_nonblocking(false).expect("a socket");
        assert_eq!(far.read(&mut [0]).expect("closed in good order"), 0);
    }
}
