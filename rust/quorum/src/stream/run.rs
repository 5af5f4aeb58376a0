//! One run of a stream: its thread, and the calls that other threads may make.
//!
//! 1. The log and the socket are used only under `work`, while the run is armed and not held; only flushes run
//!    outside of it.
//! 2. `work` is acquired before `news`; `news` is held only briefly.
//! 3. No thread waits for a hold, or for `work`, during a flush.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use klamm_base::LogError;
use klamm_base::WakeUp;
use klamm_base::os::request_short_time_slices;
use klamm_client::ChannelPlan;
use klamm_client::blocking::{BlockingConnection, Interrupter, Unfinished, Until};
use klamm_log::FlushJob;
use klamm_wire::api::FETCH;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::answer::{self, Expected, Plain};
use super::request::{Position, fetch_body};
use super::{End, FetchPlan, StreamProgress};
use crate::QuorumLog;

/// After this many consecutive early answers without news, each further one causes a pause.
const FRUITLESS_MAX: u32 = 3;
const FRUITLESS_PAUSE: Duration = Duration::from_millis(5);

pub struct Run {
    log: Arc<QuorumLog>,
    plan: FetchPlan,
    wake_up: Arc<WakeUp>,
    /// Interrupts what the thread waits for.
    interrupter: Interrupter,
    work: Mutex<Work>,
    released: Condvar,
    news: Mutex<Report>,
}

struct Work {
    is_armed: bool,
    is_held: bool,
}

struct Report {
    /// Nothing is reported any more.
    is_over: bool,
    is_new: bool,
    sent: Option<(Position, Instant)>,
    /// The time of the last answer that was not reported yet.
    heard: Option<Instant>,
    leader_high_watermark: i64,
    end: Option<End>,
}

/// Why the thread stops: an end to report, or nothing because it was stopped.
enum Stop {
    Silent,
    End(End),
}

/// An interrupted thread reports nothing.
fn failed(error: Unfinished) -> Stop {
    match error {
        Unfinished::Interrupted => Stop::Silent,
        Unfinished::Failed(error) => Stop::End(End::Failed(error.to_string())),
    }
}

impl Run {
    pub fn new(log: Arc<QuorumLog>, plan: FetchPlan, wake_up: Arc<WakeUp>) -> Self {
        let report =
            Report { is_over: false, is_new: false, sent: None, heard: None, leader_high_watermark: -1, end: None };
        let work = Mutex::new(Work { is_armed: true, is_held: false });
        let interrupter = Interrupter::default();
        Self { log, plan, wake_up, interrupter, work, released: Condvar::new(), news: Mutex::new(report) }
    }

    /// Holds the run if that is possible without waiting.
    pub fn try_hold(&self) -> bool {
        self.work.try_lock().map(|mut work| work.is_held = true).is_some()
    }

    /// Holds the run after its current step.
    pub fn hold(&self) {
        self.work.lock().is_held = true;
    }

    pub fn release(&self) {
        self.work.lock().is_held = false;
        self.released.notify_all();
    }

    /// Stops the run; after this returns it appends, sends and reports nothing.
    pub fn stop(&self) {
        {
            let mut report = self.news.lock();
            report.is_over = true;
            self.wake_up.lower();
        }
        self.interrupter.interrupt();
        self.work.lock().is_armed = false;
        self.released.notify_all();
    }

    /// What is new since the last call, and whether the run is over.
    pub fn take(&self) -> Option<StreamProgress> {
        let mut report = self.news.lock();
        self.wake_up.lower();
        if report.is_over || !std::mem::take(&mut report.is_new) {
            return None;
        }
        let end = report.end.take();
        report.is_over = end.is_some();
        Some(StreamProgress {
            sent: report.sent.map(|(position, _)| position),
            since_sent: report.sent.map(|(_, at)| at.elapsed()),
            since_heard: report.heard.take().map(|at| at.elapsed()),
            leader_high_watermark: report.leader_high_watermark,
            end,
        })
    }

    /// The body of the thread.
    pub fn run(self: Arc<Self>) {
        request_short_time_slices();
        let Err(Stop::End(end)) = self.fetch() else { return };
        let mut report = self.news.lock();
        if !report.is_over {
            (report.end, report.is_new) = (Some(end), true);
            self.wake_up.raise();
        }
    }

    fn fetch(&self) -> Result<(), Stop> {
        let mut connection = self.connect()?;
        let high_watermark = self.plan.high_watermark;
        let mut state = Progress { high_watermark, leader_high_watermark: -1, ..Progress::default() };
        loop {
            self.flush(&mut state)?;
            let Some(position) = self.send(&mut connection, &mut state)? else { continue };
            self.notify_waiters(&mut state);
            self.log.prepare(state.job.take());
            let begun = Instant::now();
            let body = connection.receive(FETCH, self.plan.version, self.within(), &self.until()).map_err(failed)?;
            let was = state.leader_high_watermark;
            self.take_answer(&body, position, &mut state)?;
            let is_fruitful = state.has_records || state.leader_high_watermark > was;
            state
                .pace(is_fruitful || begun.elapsed() * 2 >= Duration::from_millis(self.plan.max_wait_ms.max(0) as u64));
            if state.fruitless > FRUITLESS_MAX {
                let mut work = self.work.lock();
                if work.is_armed {
                    self.released.wait_for(&mut work, FRUITLESS_PAUSE);
                }
            }
        }
    }

    fn connect(&self) -> Result<BlockingConnection, Stop> {
        let address = match self.plan.host.contains(':') {
            true => format!("[{}]:{}", self.plan.host, self.plan.port),
            false => format!("{}:{}", self.plan.host, self.plan.port),
        };
        let (client_id, security) = (self.plan.client_id.clone(), Arc::default());
        let conditions = self.plan.conditions.clone();
        let plan = ChannelPlan { address, client_id, security, conditions };
        BlockingConnection::open(&plan, self.within(), &self.until()).map_err(failed)
    }

    fn within(&self) -> Duration {
        Duration::from_millis(self.plan.timeout_ms)
    }

    fn until(&self) -> Until<'_> {
        Until::Interrupted(&self.interrupter)
    }

    /// Locks the work when the run is not held. `before_waiting` runs first if a holder may depend on it.
    fn work(&self, before_waiting: impl FnOnce()) -> Result<MutexGuard<'_, Work>, Stop> {
        let mut work = self.work.lock();
        if work.is_held && work.is_armed {
            before_waiting();
        }
        while work.is_held && work.is_armed {
            self.released.wait(&mut work);
        }
        if work.is_armed { Ok(work) } else { Err(Stop::Silent) }
    }

    /// Sends the next fetch; `None` if a flush must come first, because the fetch acknowledges the records below its
    /// offset.
    fn send(&self, connection: &mut BlockingConnection, state: &mut Progress) -> Result<Option<Position>, Stop> {
        if !state.has_records {
            // No client waits for this request, but one may wait for the news.
            self.notify_waiters(state);
        }
        let work = self.work(|| self.notify_waiters(state))?;
        if self.needs_flush() {
            return Ok(None);
        }
        let (end_offset, last_epoch) = (self.log.end_offset(), self.log.last_epoch());
        let position = Position { end_offset, last_epoch, high_watermark: state.high_watermark };
        let body = fetch_body(&self.plan, position);
        // Update the news first, so that a holder finds the position of this request.
        self.news.lock().sent = Some((position, Instant::now()));
        connection.send(FETCH, self.plan.version, &body, self.within(), &self.until()).map_err(failed)?;
        drop(work);
        Ok(Some(position))
    }

    fn take_answer(&self, body: &[u8], asked: Position, state: &mut Progress) -> Result<(), Stop> {
        {
            let mut report = self.news.lock();
            (report.heard, report.is_new) = (Some(Instant::now()), true);
        }
        let expected = Expected { leader_id: self.plan.leader_id, epoch: self.plan.epoch };
        let not_plain = || Stop::End(End::Answer { version: self.plan.version, body: body.to_vec() });
        let Plain { high_watermark, records } = answer::plain(body, expected).ok_or_else(not_plain)?;
        let work = self.work(|| ())?;
        state.has_records = !records.is_empty();
        // A holder changed the log: the requested records may no longer follow.
        if (self.log.end_offset(), self.log.last_epoch()) != (asked.end_offset, asked.last_epoch) {
            return Err(not_plain());
        }
        if state.has_records {
            // Python receives the error when it appends the same batches.
            match self.log.append_fetched(&body[records], self.plan.epoch, now_ms()) {
                Ok(end_offset) if end_offset > asked.end_offset => {}
                _ => return Err(not_plain()),
            }
        }
        drop(work);
        state.leader_high_watermark = state.leader_high_watermark.max(high_watermark);
        Ok(())
    }

    fn needs_flush(&self) -> bool {
        self.plan.flushes && self.log.flushed_offset() < self.log.end_offset()
    }

    /// Makes the log durable and updates the high watermark.
    fn flush(&self, state: &mut Progress) -> Result<(), Stop> {
        if self.needs_flush() {
            self.log.prepare(state.job.take());
            let (_, job) = self.log.flush_here().map_err(|error| self.disk(error))?;
            state.job = job;
        }
        let acknowledged = if self.plan.flushes { self.log.flushed_offset() } else { self.log.end_offset() };
        let committed = state.leader_high_watermark.min(acknowledged);
        if committed > state.high_watermark {
            (state.high_watermark, state.is_unreported) = (committed, true);
        }
        let mut report = self.news.lock();
        if report.leader_high_watermark != state.leader_high_watermark || state.is_unreported {
            (report.leader_high_watermark, report.is_new) = (state.leader_high_watermark, true);
        }
        Ok(())
    }

    /// Returns the text; the next flush fails with the error too, because this run may have been stopped.
    fn disk(&self, error: LogError) -> Stop {
        let text = error.to_string();
        self.log.fail_flushes(error);
        Stop::End(End::Disk(text))
    }

    /// Wakes waiters for committed records, once for each advance.
    fn notify_waiters(&self, state: &mut Progress) {
        if !std::mem::take(&mut state.is_unreported) {
            return;
        }
        let report = self.news.lock();
        if !report.is_over {
            self.wake_up.raise();
        }
    }
}

/// State that only the thread uses.
#[derive(Default)]
struct Progress {
    leader_high_watermark: i64,
    /// The high watermark known to this side.
    high_watermark: i64,
    /// The high watermark has advanced since waiters were last woken.
    is_unreported: bool,
    /// Whether the last answer contained records: then a client waits for the acknowledgement.
    has_records: bool,
    fruitless: u32,
    job: Option<FlushJob>,
}

impl Progress {
    fn pace(&mut self, is_well: bool) {
        self.fruitless = if is_well { 0 } else { self.fruitless.saturating_add(1) };
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
