//! Group commit of one log directory: records that are appended during a sync are part of the next one.
//!
//! Owners that need a flush wait in a queue, each at most once. A worker takes one and syncs its files. If many wait,
//! one worker takes them all and syncs the file system with one call. Until that call returns, no other flush begins:
//! the file system would queue it after that call, and the owners that wait meanwhile form the next group. There is
//! no linger time: the disk sets the pace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use klamm_base::LogError;
use klamm_base::os::request_short_time_slices;
use parking_lot::{Condvar, Mutex};

use super::counters::LogCounters;
use super::flush::FlushJob;
use super::owner::LogOwner;

/// From this number of waiting owners on, one call for the whole file system is cheaper than one for each: on ext4 it
/// takes as long for 64 files as single calls take for 8. It also waits for other processes' writes, so it is not
/// used for fewer.
pub(super) const TOGETHER_MIN: usize = 8;

/// How long to wait for a file to be closed if too many are open.
const LIMIT_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of inactive segments that may be flushed before the recovery points are checkpointed; recovery after a crash
/// reads them unnecessarily. A checkpoint for each such amount costs less than a hundredth of writing it.
const CHECKPOINT_BYTES: u64 = 64 << 20;

type OnError = Box<dyn Fn(&LogError) + Send + Sync>;
type OnRolled = Box<dyn Fn() + Send + Sync>;
/// Receives queued owners whose log has moved to another directory.
pub(super) type OnMoved = Box<dyn Fn(Vec<Arc<dyn LogOwner>>) + Send + Sync>;

/// The flushes of some owners; one that has nothing to flush is left out.
type Jobs = Vec<(Arc<dyn LogOwner>, FlushJob)>;

/// A flush that was begun by a caller without workers. If it is not ended, the process has crashed in it.
pub struct OneFlush {
    owners: Vec<Arc<dyn LogOwner>>,
    jobs: Jobs,
    written: Result<(), LogError>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// For workers that wait for a file to be closed.
    pause: Condvar,
    counters: Arc<LogCounters>,
    on_error: OnError,
    on_rolled: OnRolled,
    /// The index of the directory, and who receives owners that have left it.
    moved: Option<(usize, OnMoved)>,
    /// Bytes flushed since `on_rolled` was called.
    rolled_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<dyn LogOwner>>,
    sleeping: usize,
    /// Whether a worker is flushing a group.
    is_grouped: bool,
    stopped: bool,
}

/// The flusher of one log directory.
pub struct Flusher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Flusher {
    /// Starts `threads` workers; without any, the caller flushes with [`Flusher::begin_one`] and [`Flusher::end_one`].
    /// `on_error` receives the error that stops the directory; it is called once.
    /// `on_rolled` is called after enough bytes of inactive segments were flushed for a checkpoint to be worthwhile.
    pub fn start(
        threads: usize,
        counters: Arc<LogCounters>,
        on_error: impl Fn(&LogError) + Send + Sync + 'static,
        on_rolled: impl Fn() + Send + Sync + 'static,
        moved: Option<(usize, OnMoved)>,
    ) -> Self {
        let (on_error, on_rolled, rolled_bytes) = (Box::new(on_error), Box::new(on_rolled), AtomicU64::new(0));
        let (state, wake, pause) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state, wake, pause, counters, on_error, on_rolled, moved, rolled_bytes });
        let start = |at| {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(format!("klamm-flush-{at}"));
            thread.spawn(move || shared.work()).expect("the system has a thread for the flusher")
        };
        let threads = Mutex::new((0..threads).map(start).collect());
        Self { shared, threads }
    }

    /// Queues an owner that has appended something; cheap if it is queued already.
    pub fn mark_dirty(&self, owner: &Arc<dyn LogOwner>) {
        if owner.flush_state().mark() {
            self.shared.push_all(vec![owner.clone()]);
        }
    }

    /// Queues many owners at once, so that one worker takes all of them.
    pub fn mark_all_dirty(&self, owners: impl Iterator<Item = Arc<dyn LogOwner>>) {
        let marked: Vec<_> = owners.filter(|owner| owner.flush_state().mark()).collect();
        if !marked.is_empty() {
            self.shared.push_all(marked);
        }
    }

    /// Queues owners that were queued for the flusher of the directory in which their logs were before.
    pub(super) fn take_over(&self, owners: Vec<Arc<dyn LogOwner>>) {
        self.shared.push_all(owners);
    }

    /// Begins the next flush of a flusher without workers, and writes what must be written before its sync; `None` if
    /// nothing is queued.
    pub fn begin_one(&self) -> Option<OneFlush> {
        let owners = loop {
            let owner = self.shared.state.lock().queue.pop_front()?;
            let owners = self.shared.here(vec![owner]);
            if !owners.is_empty() {
                break owners;
            }
        };
        let jobs = begin_jobs(&owners);
        let written = self.shared.write(&jobs);
        Some(OneFlush { owners, jobs, written })
    }

    /// Syncs and completes a flush that was begun.
    pub fn end_one(&self, flush: OneFlush) {
        let OneFlush { owners, jobs, written } = flush;
        match written.and_then(|()| self.shared.sync_and_complete(&jobs)) {
            Ok(()) => self.shared.finish(owners, false, false),
            Err(error) => self.shared.fail(&error),
        }
    }

    /// Stops the workers after their current flush; queued owners are not flushed.
    pub fn stop(&self) {
        self.shared.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A failing directory calls this from a worker, which ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn push_all(&self, owners: Vec<Arc<dyn LogOwner>>) {
        let mut state = self.state.lock();
        if !state.stopped {
            state.queue.extend(owners);
            self.wake_for(&state, 0);
        }
    }

    /// Wakes workers for the flushes that may begin, except for `taken` of them.
    fn wake_for(&self, state: &State, taken: usize) {
        let flushes = match state.queue.len() {
            _ if state.is_grouped => 0,
            TOGETHER_MIN.. => 1,
            count => count,
        };
        for _ in 0..flushes.saturating_sub(taken).min(state.sleeping) {
            self.wake.notify_one();
        }
    }

    /// Returns `true` for the first caller.
    fn stop(&self) -> bool {
        let mut state = self.state.lock();
        state.queue.clear();
        self.wake.notify_all();
        self.pause.notify_all();
        !std::mem::replace(&mut state.stopped, true)
    }

    /// Takes one owner, or all if there are many; `None` after the stop.
    fn next(&self) -> Option<Vec<Arc<dyn LogOwner>>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if !state.is_grouped {
                if state.queue.len() >= TOGETHER_MIN {
                    state.is_grouped = true;
                    return Some(state.queue.drain(..).collect());
                }
                if let Some(owner) = state.queue.pop_front() {
                    return Some(vec![owner]);
                }
            }
            state.sleeping += 1;
            self.wake.wait(&mut state);
            state.sleeping -= 1;
        }
    }

    /// Queues owners again that were appended to during the flush, and lets the other workers continue after a group.
    /// This worker takes the next flush itself unless it is needed for a checkpoint (`is_kept`).
    fn finish(&self, owners: Vec<Arc<dyn LogOwner>>, was_group: bool, is_kept: bool) {
        let again: Vec<_> = owners.into_iter().filter(|owner| owner.flush_state().done()).collect();
        let again = self.here(again);
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        state.queue.extend(again);
        state.is_grouped &= !was_group;
        self.wake_for(&state, usize::from(!is_kept));
    }

    fn work(&self) {
        request_short_time_slices();
        while let Some(taken) = self.next() {
            let was_group = taken.len() >= TOGETHER_MIN;
            let owners = self.here(taken);
            let jobs = begin_jobs(&owners);
            if let Err(error) = self.write(&jobs).and_then(|()| self.sync_and_complete(&jobs)) {
                return self.fail(&error);
            }
            let is_checkpoint_due = self.rolled_bytes.load(Ordering::Relaxed) >= CHECKPOINT_BYTES
                && self.rolled_bytes.swap(0, Ordering::Relaxed) >= CHECKPOINT_BYTES;
            self.finish(owners, was_group, is_checkpoint_due);
            if is_checkpoint_due {
                (self.on_rolled)();
            }
        }
    }

    /// The owners whose logs are in this directory; the others are passed on.
    fn here(&self, owners: Vec<Arc<dyn LogOwner>>) -> Vec<Arc<dyn LogOwner>> {
        let Some((at, on_moved)) = &self.moved else { return owners };
        let is_here = |owner: &Arc<dyn LogOwner>| owner.place().is_none_or(|place| place == *at);
        if owners.iter().all(is_here) {
            return owners;
        }
        let (here, moved) = owners.into_iter().partition(is_here);
        on_moved(moved);
        here
    }

    fn fail(&self, error: &LogError) {
        if self.stop() {
            (self.on_error)(error);
        }
    }

    /// Writes what must be written before the sync.
    fn write(&self, jobs: &Jobs) -> Result<(), LogError> {
        jobs.iter().try_for_each(|(_, job)| self.retry_at_file_limit(|| job.write()))
    }

    fn sync_and_complete(&self, jobs: &Jobs) -> Result<(), LogError> {
        let begun = Instant::now();
        let synced = self.retry_at_file_limit(|| sync_together(jobs.iter().map(|(_, job)| job)))?;
        for (_, job) in jobs {
            if !synced {
                self.retry_at_file_limit(|| job.sync())?;
            }
            self.retry_at_file_limit(|| job.check_there())?;
        }
        // Complete all without a system call in between, so that waiting requests are notified immediately.
        for (owner, job) in jobs {
            self.counters.flushes.add(1);
            owner.complete_flush(job.end());
            self.rolled_bytes.fetch_add(job.rolled_bytes(), Ordering::Relaxed);
        }
        self.counters.flush_us.add_time(begun.elapsed());
        // No request waits any more.
        jobs.iter().filter(|_| !synced).try_for_each(|(_, job)| self.retry_at_file_limit(|| job.prepare()))
    }

    /// Runs `work`, and retries after a pause while too many files are open, so that waiting requests do not fail
    /// because of it.
    fn retry_at_file_limit<T>(&self, work: impl Fn() -> Result<T, LogError>) -> Result<T, LogError> {
        loop {
            match work() {
                Err(error) if error.is_limit() => {
                    let mut state = self.state.lock();
                    if state.stopped {
                        return Err(error);
                    }
                    self.pause.wait_for(&mut state, LIMIT_PAUSE);
                }
                result => return result,
            }
        }
    }
}

fn begin_jobs(owners: &[Arc<dyn LogOwner>]) -> Jobs {
    owners.iter().for_each(|owner| owner.flush_state().take());
    owners.iter().filter_map(|owner| Some((owner.clone(), owner.begin_flush()?))).collect()
}

/// Syncs many jobs of one file system with one call; `false` if there are few jobs or the system has no such call.
pub(super) fn sync_together<'a>(jobs: impl ExactSizeIterator<Item = &'a FlushJob>) -> Result<bool, LogError> {
    if jobs.len() < TOGETHER_MIN {
        return Ok(false);
    }
    for job in jobs {
        if job.sync_file_system()? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tempfile::tempdir;

    use super::*;
    use crate::testing::{BatchSpec, batch, config, create};
    use crate::{FlushEnd, FlushState, Log, LogContext, Origin};

    struct Owner {
        state: FlushState,
        log: Mutex<Log>,
        flushed: Mutex<Sender<i64>>,
    }

    impl Owner {
        fn append(&self) -> i64 {
            let bytes = &mut batch(&BatchSpec::default());
            self.log.lock().append_as_leader(bytes, 0, 0, Origin::Client).expect("append").last_offset + 1
        }
    }

    impl LogOwner for Owner {
        fn flush_state(&self) -> &FlushState {
            &self.state
        }
        fn begin_flush(&self) -> Option<FlushJob> {
            self.log.lock().begin_flush()
        }
        fn complete_flush(&self, end: FlushEnd) {
            let flushed = self.log.lock().complete_flush(end);
            let _ = self.flushed.lock().send(flushed);
        }
        fn high_watermark(&self) -> i64 {
            self.log.lock().log_end_offset()
        }
        fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
            work(&mut self.log.lock());
        }
        fn go_offline(&self) {}
    }

    #[test]
    fn everything_appended_is_eventually_flushed() {
        let dir = tempdir().expect("temporary directory");
        let flusher = Flusher::start(2, Arc::default(), |error| panic!("{error}"), || {}, None);
        for count in [1, 2 * TOGETHER_MIN] {
            let mut waiting = Vec::new();
            for at in 0..count {
                let (flushed, notified) = channel();
                let log = create(&dir.path().join(format!("t-{count}-{at}")), config());
                let state = FlushState::default();
                let owner = Arc::new(Owner { state, log: Mutex::new(log), flushed: Mutex::new(flushed) });
                waiting.push((owner, notified));
            }
            for _ in 0..5 {
                for (owner, notified) in &waiting {
                    let end = owner.append();
                    let shared: Arc<dyn LogOwner> = owner.clone();
                    flusher.mark_dirty(&shared);
                    while count == 1 && notified.recv().expect("the flusher lives") < end {}
                }
            }
            for (_, notified) in &waiting {
                while count > 1 && notified.recv().expect("the flusher lives") < 5 {}
            }
        }
    }

    #[test]
    fn many_concurrent_requests_are_all_flushed() {
        let dir = tempdir().expect("temporary directory");
        let flusher = Flusher::start(2, Arc::default(), |error| panic!("{error}"), || {}, None);
        for count in [1, 2, TOGETHER_MIN, 3 * TOGETHER_MIN] {
            let mut notified = Vec::new();
            let owners: Vec<Arc<dyn LogOwner>> = (0..count)
                .map(|at| {
                    let (flushed, receiver) = channel();
                    let log = Mutex::new(create(&dir.path().join(format!("m-{count}-{at}")), config()));
                    let owner = Owner { state: FlushState::default(), log, flushed: Mutex::new(flushed) };
                    owner.append();
                    notified.push(receiver);
                    Arc::new(owner) as Arc<dyn LogOwner>
                })
                .collect();
            flusher.mark_all_dirty(owners.into_iter());
            assert!(notified.iter().all(|flushed| flushed.recv() == Ok(1)));
        }
    }

    #[test]
    fn an_error_stops_the_flusher_and_is_reported_once() {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let (sender, errors) = channel();
        let sender = Mutex::new(sender);
        let on_error = move |error: &LogError| sender.lock().send(error.to_string()).expect("the test listens");
        let flusher = Flusher::start(2, Arc::default(), on_error, || {}, None);
        let log = create(&path, config());
        // A directory at the path of the epoch file makes the write fail.
        std::fs::create_dir(path.join("leader-epoch-checkpoint.tmp")).expect("create");
        let (flushed, _notified) = channel();
        let owner =
            Arc::new(Owner { state: FlushState::default(), log: Mutex::new(log), flushed: Mutex::new(flushed) });
        owner.append();
        let shared: Arc<dyn LogOwner> = owner.clone();
        flusher.mark_dirty(&shared);
        assert!(errors.recv().expect("an error").contains("leader-epoch-checkpoint"));
        owner.append();
        flusher.mark_dirty(&shared);
        flusher.stop();
        assert!(errors.try_recv().is_err());
        assert_eq!(owner.log.lock().flushed_offset(), 0);
    }

    #[test]
    fn too_many_open_files_only_delay_a_flush() {
        let dir = tempdir().expect("temporary directory");
        let context = LogContext::new(4);
        let paths: Vec<_> = (0..5).map(|at| dir.path().join(format!("t-{at}"))).collect();
        let open = |path| Log::create(path, "t", 0, config().into(), &context, 0, 0).expect("create");
        let mut logs: Vec<Log> = paths.iter().map(|path| open(path)).collect();
        let (flushed, notified) = channel();
        let log = Mutex::new(logs.pop().expect("five"));
        let owner = Arc::new(Owner { state: FlushState::default(), log, flushed: Mutex::new(flushed) });
        owner.append();
        let hold = |log: &mut Log| {
            log.append_as_leader(&mut batch(&BatchSpec::default()), 0, 0, Origin::Client).expect("append");
            log.read(0, 100, 1, true).expect("read")
        };
        let held: Vec<_> = logs.iter_mut().map(hold).collect();
        let flusher = Flusher::start(1, Arc::default(), |error| panic!("{error}"), || {}, None);
        let shared: Arc<dyn LogOwner> = owner.clone();
        flusher.mark_dirty(&shared);
        // Every open file is in use: requests are refused, and nothing is lost.
        let mut bytes = batch(&BatchSpec::default());
        let refused = owner.log.lock().append_as_leader(&mut bytes, 0, 0, Origin::Client).expect_err("refused");
        assert!(refused.to_string().contains("all 4 files"), "{refused}");
        assert!(notified.try_recv().is_err());
        drop(held);
        assert_eq!(notified.recv(), Ok(1));
        assert_eq!(owner.append(), 2);
    }
}
