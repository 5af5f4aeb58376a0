//! One run of a stream: the thread, and what the others may ask of it.
//!
//! 1. The log and the socket are touched under `work` only, while the run is armed and nobody holds it; flushes alone are not.
//! 2. `work` is taken before `news`; `news` is held for no more than a few words.
//! 3. Nobody waits for a hold, or for `work`, inside of a flush.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use klamm_base::LogError;
use klamm_base::WakeUp;
use klamm_base::os::ask_for_short_turns;
use klamm_client::ChannelPlan;
use klamm_client::blocking::{BlockingConnection, Interrupter, Unfinished, Until};
use klamm_log::FlushJob;
use klamm_wire::api::FETCH;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::answer::{self, Expected, Plain};
use super::request::{Position, fetch_body};
use super::{End, FetchPlan, News};
use crate::QuorumLog;

/// How many answers in a row may come early and say nothing new; then each costs a pause.
const FRUITLESS_MAX: u32 = 3;
const FRUITLESS_PAUSE: Duration = Duration::from_millis(5);

pub struct Run {
    log: Arc<QuorumLog>,
    plan: FetchPlan,
    wake_up: Arc<WakeUp>,
    /// Ends what the thread waits for.
    interrupter: Interrupter,
    work: Mutex<Work>,
    released: Condvar,
    news: Mutex<Told>,
}

struct Work {
    is_armed: bool,
    is_held: bool,
}

struct Told {
    /// Nothing is told any more.
    is_over: bool,
    is_new: bool,
    sent: Option<(Position, Instant)>,
    /// The last answer that was not told.
    heard: Option<Instant>,
    leader_high_watermark: i64,
    end: Option<End>,
}

/// Why the thread goes no further: an end to tell, or nothing because it was stopped.
enum Stop {
    Silent,
    End(End),
}

/// What an interrupted thread would tell, nobody hears.
fn failed(error: Unfinished) -> Stop {
    match error {
        Unfinished::Interrupted => Stop::Silent,
        Unfinished::Failed(error) => Stop::End(End::Failed(error.to_string())),
    }
}

impl Run {
    pub fn new(log: Arc<QuorumLog>, plan: FetchPlan, wake_up: Arc<WakeUp>) -> Self {
        let told =
            Told { is_over: false, is_new: false, sent: None, heard: None, leader_high_watermark: -1, end: None };
        let work = Mutex::new(Work { is_armed: true, is_held: false });
        let interrupter = Interrupter::default();
        Self { log, plan, wake_up, interrupter, work, released: Condvar::new(), news: Mutex::new(told) }
    }

    /// Holds it, if that needs no waiting.
    pub fn try_hold(&self) -> bool {
        self.work.try_lock().map(|mut work| work.is_held = true).is_some()
    }

    /// Holds it, once what it is at has ended.
    pub fn hold(&self) {
        self.work.lock().is_held = true;
    }

    pub fn release(&self) {
        self.work.lock().is_held = false;
        self.released.notify_all();
    }

    /// Ends it; when this returns nothing is appended, sent or told any more.
    pub fn stop(&self) {
        {
            let mut told = self.news.lock();
            told.is_over = true;
            self.wake_up.lower();
        }
        self.interrupter.interrupt();
        self.work.lock().is_armed = false;
        self.released.notify_all();
    }

    /// What is new since the last call, and whether the run is over.
    pub fn take(&self) -> Option<News> {
        let mut told = self.news.lock();
        self.wake_up.lower();
        if told.is_over || !std::mem::take(&mut told.is_new) {
            return None;
        }
        let end = told.end.take();
        told.is_over = end.is_some();
        Some(News {
            sent: told.sent.map(|(position, _)| position),
            since_sent: told.sent.map(|(_, at)| at.elapsed()),
            since_heard: told.heard.take().map(|at| at.elapsed()),
            leader_high_watermark: told.leader_high_watermark,
            end,
        })
    }

    /// What the thread does.
    pub fn run(self: Arc<Self>) {
        ask_for_short_turns();
        let Err(Stop::End(end)) = self.fetch() else { return };
        let mut told = self.news.lock();
        if !told.is_over {
            (told.end, told.is_new) = (Some(end), true);
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
            self.tell(&mut state);
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
        let plan = ChannelPlan { address, client_id, security };
        BlockingConnection::open(&plan, self.within(), &self.until()).map_err(failed)
    }

    fn within(&self) -> Duration {
        Duration::from_millis(self.plan.timeout_ms)
    }

    fn until(&self) -> Until<'_> {
        Until::Interrupted(&self.interrupter)
    }

    /// The work, when nobody holds it. `before_waiting` is for those that the holder may wait for.
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

    /// Asks for what follows; `None` when a flush has to come first, since a fetch acknowledges what lies below it.
    fn send(&self, connection: &mut BlockingConnection, state: &mut Progress) -> Result<Option<Position>, Stop> {
        if !state.has_records {
            // Nobody waits for this request as somebody may for the news.
            self.tell(state);
        }
        let work = self.work(|| self.tell(state))?;
        if self.needs_flush() {
            return Ok(None);
        }
        let (end_offset, last_epoch) = (self.log.end_offset(), self.log.last_epoch());
        let position = Position { end_offset, last_epoch, high_watermark: state.high_watermark };
        let body = fetch_body(&self.plan, position);
        // Told first: whoever hears of it holds the log as it was asked from.
        self.news.lock().sent = Some((position, Instant::now()));
        connection.send(FETCH, self.plan.version, &body, self.within(), &self.until()).map_err(failed)?;
        drop(work);
        Ok(Some(position))
    }

    fn take_answer(&self, body: &[u8], asked: Position, state: &mut Progress) -> Result<(), Stop> {
        {
            let mut told = self.news.lock();
            (told.heard, told.is_new) = (Some(Instant::now()), true);
        }
        let expected = Expected { leader_id: self.plan.leader_id, epoch: self.plan.epoch };
        let not_plain = || Stop::End(End::Answer { version: self.plan.version, body: body.to_vec() });
        let Plain { high_watermark, records } = answer::plain(body, expected).ok_or_else(not_plain)?;
        let work = self.work(|| ())?;
        state.has_records = !records.is_empty();
        // Somebody who held this has changed the log: what was asked for may no longer follow.
        if (self.log.end_offset(), self.log.last_epoch()) != (asked.end_offset, asked.last_epoch) {
            return Err(not_plain());
        }
        if state.has_records {
            // Of whatever goes wrong Python hears when it appends the same.
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

    /// Makes durable what is there, and notes how much of it is committed.
    fn flush(&self, state: &mut Progress) -> Result<(), Stop> {
        if self.needs_flush() {
            self.log.prepare(state.job.take());
            let (_, job) = self.log.flush_here().map_err(|error| self.disk(error))?;
            state.job = job;
        }
        let acknowledged = if self.plan.flushes { self.log.flushed_offset() } else { self.log.end_offset() };
        let committed = state.leader_high_watermark.min(acknowledged);
        if committed > state.high_watermark {
            (state.high_watermark, state.is_untold) = (committed, true);
        }
        let mut told = self.news.lock();
        if told.leader_high_watermark != state.leader_high_watermark || state.is_untold {
            (told.leader_high_watermark, told.is_new) = (state.leader_high_watermark, true);
        }
        Ok(())
    }

    /// The text; the next flush hears of it too, because this run may have been stopped.
    fn disk(&self, error: LogError) -> Stop {
        let text = error.to_string();
        self.log.fail_flushes(error);
        Stop::End(End::Disk(text))
    }

    /// Wakes whoever waits for what is committed, once for each advance.
    fn tell(&self, state: &mut Progress) {
        if !std::mem::take(&mut state.is_untold) {
            return;
        }
        let told = self.news.lock();
        if !told.is_over {
            self.wake_up.raise();
        }
    }
}

/// What the thread alone knows.
#[derive(Default)]
struct Progress {
    leader_high_watermark: i64,
    /// What this side knows to be committed.
    high_watermark: i64,
    /// The high watermark is one that nobody was woken for.
    is_untold: bool,
    /// Whether the last answer had any: somebody waits for the acknowledgement then.
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
