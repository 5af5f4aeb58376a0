//! The leader's direct answers to fetches. While no decision is needed, a replica that fetches in the current epoch
//! from an offset where this log continues receives the records, or waits for them, on the network threads.
//!
//! The core, in Python, decides which fetches may be answered this way and for how long: it grants a lease. It
//! processes each fetch that was answered here before it decides anything else, and is notified immediately of what a
//! fetch commits. [`Answering::end`] revokes the lease: when it returns nothing is answered any more, and waiting
//! fetches are passed on to the core.
//!
//! 1. `gate` is acquired before `state` and held while an answer is built: the end of a lease waits for answers in
//!    progress.
//! 2. `state` is held only briefly, and never during disk access.

mod led;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use klamm_base::WakeUp;
use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};
use klamm_wire::fetch::{FetchResponseWriter, FetchResult};
use klamm_wire::topic::NodeEndpoint;
use parking_lot::{Mutex, MutexGuard, RwLock};

use self::led::{Ends, Led};
pub use self::led::{Lead, LeasedFetch};
use self::request::ReplicaFetch;
use super::{METADATA_TOPIC_ID, QuorumLog};

/// Limit on the bytes of the log in one answer, whatever the request asks for.
const READ_BYTES_MAX: usize = 8 << 20;

/// Answers the fetches of one replica of a quorum.
pub struct Answering {
    log: Arc<QuorumLog>,
    wake_up: WakeUp,
    gate: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    led: Option<Led>,
    /// The number of leases granted so far. A waiting fetch belongs to one of them.
    leases: u64,
    waiting: HashMap<u64, Waiter>,
    waiters: u64,
    /// Whether the descriptor is readable.
    is_raised: bool,
}

struct Waiter {
    waker: Waker,
    /// Whether it waits for records offered to voters, or only for committed ones.
    is_voter: bool,
}

/// The result of a fetch.
pub enum Taken {
    /// The body of the response.
    Answered(Vec<u8>),
    Waits(Waiting),
    /// The core must handle it.
    Outside,
}

/// The result of checking a waiting fetch again.
pub enum Looked {
    Answered(Vec<u8>),
    Waits,
    Outside,
}

/// A fetch that waits for records, a higher high watermark, or its deadline.
pub struct Waiting {
    answering: Arc<Answering>,
    id: u64,
    lease: u64,
    slot: usize,
    asked: Asked,
    /// The high watermark that the replica knows; the current one at the fetch's arrival if the request has none.
    high_watermark: i64,
    pub deadline: Instant,
}

/// The parameters of a request that determine its answer.
struct Asked {
    listener: Arc<str>,
    version: i16,
    offset: i64,
    max_bytes: usize,
}

/// The content of an answer except for the records.
struct AnswerContent {
    leader: (i32, i32),
    high_watermark: i64,
    endpoint: Option<NodeEndpoint>,
    end_offset: i64,
}

impl Answering {
    pub fn new(log: Arc<QuorumLog>) -> io::Result<Self> {
        Ok(Self { log, wake_up: WakeUp::new()?, gate: RwLock::default(), state: Mutex::default() })
    }

    /// Readable when there is something that the core should process immediately.
    pub fn fd(&self) -> RawFd {
        self.wake_up.as_raw_fd()
    }

    /// Whether the descriptor is readable.
    pub fn has_news(&self) -> bool {
        self.state.lock().is_raised
    }

    // The lease of the core

    /// Grants the lease: from now on, fetches of the replicas added with [`Answering::know`] are answered.
    pub fn begin(&self, lead: Lead) {
        let mut state = self.state.lock();
        state.leases += 1;
        state.led = Some(Led::new(lead, self.log.flushed_offset(), self.log.end_offset()));
    }

    /// Accepts the replica's fetches from now on; see [`Led::know`].
    pub fn add_replica(&self, id: i32, directory: Uuid, counts: bool) -> Option<usize> {
        self.state.lock().led.as_mut()?.add_replica(id, directory, counts)
    }

    /// The core advanced the high watermark to `offset`.
    pub fn raise_high_watermark(&self, offset: i64) {
        let mut state = self.state.lock();
        if state.led.as_mut().is_some_and(|led| led.raise_high_watermark(offset)) {
            wake(state, false);
        }
    }

    /// The core has sent its own answers about the high watermark. Now voters receive the higher high watermark too,
    /// for which no client waits.
    pub fn notify_voters(&self) {
        let mut state = self.state.lock();
        if state.led.as_mut().is_some_and(Led::notify_voters) {
            wake(state, true);
        }
    }

    /// The fetches that were answered since the last call.
    pub fn take_fetches(&self) -> Vec<LeasedFetch> {
        let mut state = self.state.lock();
        self.lower(&mut state);
        state.led.as_mut().map_or_else(Vec::new, Led::take_fetches)
    }

    /// Revokes the lease: nothing is answered after this returns. Returns the answered fetches that were not taken
    /// yet.
    pub fn end(&self) -> Vec<LeasedFetch> {
        let _closed = self.gate.write();
        let mut state = self.state.lock();
        self.lower(&mut state);
        let fetches = state.led.take().map_or_else(Vec::new, |mut led| led.take_fetches());
        let wakers: Vec<_> = state.waiting.values().map(|waiter| waiter.waker.clone()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        fetches
    }

    // Events of the log

    /// Offers all records of the log to voters: what is appended in one turn is sent to them, and to their disks,
    /// together.
    pub fn offer(&self) {
        let mut state = self.state.lock();
        let end_offset = self.log.end_offset();
        if let Some(led) = &mut state.led {
            led.offer(end_offset);
        }
        wake(state, true);
    }

    /// The log is durable below `offset`.
    pub fn flushed(&self, offset: i64) {
        let mut state = self.state.lock();
        if state.led.as_mut().is_some_and(|led| led.flushed(offset)) {
            self.raise(&mut state);
            wake(state, false);
        }
    }

    /// Makes the descriptor readable.
    fn raise(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_raised, true) {
            self.wake_up.raise();
        }
    }

    fn lower(&self, state: &mut State) {
        if std::mem::take(&mut state.is_raised) {
            self.wake_up.lower();
        }
    }

    // Requests from the network

    /// Answers the fetch in `body` unless the core must handle it. If it waits, `waker` is woken when it may be
    /// answered.
    pub fn take(self: &Arc<Self>, listener: &Arc<str>, version: i16, body: &[u8], waker: &Waker) -> Taken {
        if self.state.lock().led.is_none() {
            return Taken::Outside;
        }
        let Some(fetch) = ReplicaFetch::read(body, version) else { return Taken::Outside };
        let _open = self.gate.read();
        let now = Instant::now();
        let (mut state, ends) = self.state_and_ends(fetch.offset);
        let Some(led) = &mut state.led else { return Taken::Outside };
        let Some(took) = led.take(&fetch, ends, now) else { return Taken::Outside };
        let (is_voter, high_watermark) = (led.is_voter(took.slot), fetch.high_watermark.min(led.lead.high_watermark));
        let content = took.is_due.then(|| led.content(listener, ends));
        let is_news = took.advanced || led.should_notify();
        let max_bytes = usize::try_from(fetch.max_bytes).unwrap_or(0).min(READ_BYTES_MAX);
        let asked = Asked { listener: listener.clone(), version, offset: fetch.offset, max_bytes };
        let id = state.waiters;
        state.waiters += 1;
        let lease = state.leases;
        if content.is_none() {
            state.waiting.insert(id, Waiter { waker: waker.clone(), is_voter });
        }
        if is_news {
            self.raise(&mut state);
        }
        if took.advanced {
            wake(state, false);
        } else {
            drop(state);
        }
        match content {
            Some(content) => self.body(&asked, &content).map_or(Taken::Outside, Taken::Answered),
            None => {
                let deadline = now + Duration::from_millis(u64::try_from(fetch.max_wait_ms).unwrap_or(0));
                let answering = self.clone();
                Taken::Waits(Waiting { answering, id, lease, slot: took.slot, asked, high_watermark, deadline })
            }
        }
    }

    /// The state, and the log's ends while the state is locked.
    fn state_and_ends(&self, offset: i64) -> (MutexGuard<'_, State>, Ends) {
        loop {
            // The log's lock may be held during a write; the end offset is available without it.
            let start_offset = (offset < self.log.end_offset()).then(|| self.log.start_offset());
            let state = self.state.lock();
            let end_offset = self.log.end_offset();
            if start_offset.is_some() || offset >= end_offset {
                return (state, Ends { start_offset: start_offset.unwrap_or(i64::MAX), end_offset });
            }
        }
    }

    /// The body of an answer; `None` if the log cannot be read.
    fn body(&self, asked: &Asked, content: &AnswerContent) -> Option<Vec<u8>> {
        let log_start_offset = self.log.start_offset();
        let is_there = (log_start_offset..content.end_offset).contains(&asked.offset);
        let records = if is_there { self.log.read(asked.offset, asked.max_bytes).ok()? } else { Vec::new() };
        let result = FetchResult {
            high_watermark: content.high_watermark,
            log_start_offset,
            aborted: None,
            current_leader: Some(content.leader),
            records_len: records.len(),
            ..FetchResult::refused(ErrorCode::NONE)
        };
        let mut writer = Writer::with_capacity(records.len() + 128);
        let mut response = FetchResponseWriter::begin(&mut writer, asked.version, ErrorCode::NONE, 0, 1);
        response.begin_topic("", METADATA_TOPIC_ID, 1);
        response.partition(0, &result);
        response.try_records(records.len(), |room| {
            room.copy_from_slice(&records);
            true
        });
        response.end_partition(&result);
        response.end_topic();
        response.end(content.endpoint.as_slice());
        Some(writer.into_bytes())
    }
}

/// Wakes the fetches that wait for offered records and high watermarks of voters, or those that wait for committed
/// records.
fn wake(state: MutexGuard<'_, State>, voters: bool) {
    let found = state.waiting.values().filter(|waiter| waiter.is_voter == voters);
    let wakers: Vec<_> = found.map(|waiter| waiter.waker.clone()).collect();
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

impl Led {
    fn content(&self, listener: &str, ends: Ends) -> AnswerContent {
        let endpoint = self.lead.endpoints.iter().find(|(name, _)| name == listener).map(|(_, endpoint)| endpoint);
        AnswerContent {
            leader: (self.lead.leader_id, self.lead.epoch),
            high_watermark: self.lead.high_watermark,
            endpoint: endpoint.cloned(),
            end_offset: ends.end_offset,
        }
    }
}

impl Waiting {
    /// Checks the fetch again. `is_late`: the deadline has passed, so it is answered in any case.
    pub fn look(&self, is_late: bool) -> Looked {
        let answering = &self.answering;
        let _open = answering.gate.read();
        let (state, ends) = answering.state_and_ends(self.asked.offset);
        let Some(led) = state.led.as_ref().filter(|_| state.leases == self.lease) else { return Looked::Outside };
        if !ends.holds(self.asked.offset) {
            return Looked::Outside;
        }
        let is_due = led.high_watermark_for(self.slot) > self.high_watermark;
        if !is_late && !is_due && !led.has_more(self.slot, self.asked.offset) {
            return Looked::Waits;
        }
        let content = led.content(&self.asked.listener, ends);
        drop(state);
        answering.body(&self.asked, &content).map_or(Looked::Outside, Looked::Answered)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.answering.state.lock().waiting.remove(&self.id);
    }
}
