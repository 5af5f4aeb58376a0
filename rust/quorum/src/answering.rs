//! A leader's answers to fetches as long as nothing is to be decided: who fetches in the epoch that is led, from where this
//! log goes on, gets what there is or waits for it, on the network's threads.
//!
//! What may be answered so, and until when, is the core's word, in Python. It is told of each fetch that was taken before it
//! decides anything else; what commits by one it is told at once. With [`Answering::end`] it takes its word back: nothing is
//! answered when that returns, and who still waits is handed on to it.
//!
//! 1. `gate` is taken before `state`, and held while an answer is made: its end waits for answers under way.
//! 2. `state` is held for no more than a few words, of which none waits for a disk.

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
pub use self::led::{Lead, Noted};
use self::request::ReplicaFetch;
use super::{METADATA_TOPIC_ID, QuorumLog};

/// Most bytes of the log that an answer holds, whatever was asked for.
const READ_BYTES_MAX: usize = 8 << 20;

/// Answers for one replica of a quorum.
pub struct Answering {
    log: Arc<QuorumLog>,
    wake_up: WakeUp,
    gate: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    led: Option<Led>,
    /// How often a word was given: who waits waits by one of them.
    words: u64,
    waiting: HashMap<u64, Waiter>,
    waiters: u64,
    /// Whether the descriptor is readable.
    is_raised: bool,
}

struct Waiter {
    waker: Waker,
    /// Whether it waits for what is offered, or for what is committed alone.
    is_voter: bool,
}

/// What became of a fetch.
pub enum Taken {
    /// The answer's body.
    Answered(Vec<u8>),
    Waits(Waiting),
    /// The core has to see it.
    Outside,
}

/// What became of one that waits.
pub enum Looked {
    Answered(Vec<u8>),
    Waits,
    Outside,
}

/// A fetch that waits for records, a higher high watermark, or its time.
pub struct Waiting {
    answering: Arc<Answering>,
    id: u64,
    word: u64,
    slot: usize,
    asked: Asked,
    /// What it knows to be committed, or what was when it came if it does not tell.
    high_watermark: i64,
    pub deadline: Instant,
}

/// What an answer depends on.
struct Asked {
    listener: Arc<str>,
    version: i16,
    offset: i64,
    max_bytes: usize,
}

/// What an answer says beside the records.
struct Said {
    leader: (i32, i32),
    high_watermark: i64,
    endpoint: Option<NodeEndpoint>,
    end_offset: i64,
}

impl Answering {
    pub fn new(log: Arc<QuorumLog>) -> io::Result<Self> {
        Ok(Self { log, wake_up: WakeUp::new()?, gate: RwLock::default(), state: Mutex::default() })
    }

    /// Readable when there is something to tell that matters at once.
    pub fn fd(&self) -> RawFd {
        self.wake_up.as_raw_fd()
    }

    /// Whether there is.
    pub fn has_news(&self) -> bool {
        self.state.lock().is_raised
    }

    // The core's word

    /// Answers by that from now on, for those that [`Answering::know`] names.
    pub fn begin(&self, lead: Lead) {
        let mut state = self.state.lock();
        state.words += 1;
        state.led = Some(Led::new(lead, self.log.flushed_offset(), self.log.end_offset()));
    }

    /// Takes that replica's fetches from now on; see [`Led::know`].
    pub fn know(&self, id: i32, directory: Uuid, counts: bool) -> Option<usize> {
        self.state.lock().led.as_mut()?.know(id, directory, counts)
    }

    /// The core knows so much to be committed.
    pub fn raise_high_watermark(&self, offset: i64) {
        let mut state = self.state.lock();
        if state.led.as_mut().is_some_and(|led| led.raise_high_watermark(offset)) {
            wake(state, false);
        }
    }

    /// What the core has to say about what is committed has left: voters may be told too, who do nothing by it that anybody
    /// waits for.
    pub fn tell_voters(&self) {
        let mut state = self.state.lock();
        if state.led.as_mut().is_some_and(Led::tell_voters) {
            wake(state, true);
        }
    }

    /// What was noted since the last call.
    pub fn take_noted(&self) -> Vec<Noted> {
        let mut state = self.state.lock();
        self.lower(&mut state);
        state.led.as_mut().map_or_else(Vec::new, Led::take_noted)
    }

    /// Answers nothing any more when this returns; gives what was noted and not taken.
    pub fn end(&self) -> Vec<Noted> {
        let _closed = self.gate.write();
        let mut state = self.state.lock();
        self.lower(&mut state);
        let noted = state.led.take().map_or_else(Vec::new, |mut led| led.take_noted());
        let wakers: Vec<_> = state.waiting.values().map(|waiter| waiter.waker.clone()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        noted
    }

    // The log's news

    /// Voters may have all that the log has now: what is appended in one turn goes to them, and to their disks, together.
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

    /// There is something to tell.
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

    // The network's questions

    /// Takes the fetch in `body` if the core needs not see it; `waker` is woken when it may be answered, if it waits.
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
        let said = took.is_due.then(|| led.said(listener, ends));
        let is_news = took.advanced || led.has_much_to_tell();
        let max_bytes = usize::try_from(fetch.max_bytes).unwrap_or(0).min(READ_BYTES_MAX);
        let asked = Asked { listener: listener.clone(), version, offset: fetch.offset, max_bytes };
        let id = state.waiters;
        state.waiters += 1;
        let word = state.words;
        if said.is_none() {
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
        match said {
            Some(said) => self.body(&asked, &said).map_or(Taken::Outside, Taken::Answered),
            None => {
                let deadline = now + Duration::from_millis(u64::try_from(fetch.max_wait_ms).unwrap_or(0));
                let answering = self.clone();
                Taken::Waits(Waiting { answering, id, word, slot: took.slot, asked, high_watermark, deadline })
            }
        }
    }

    /// The state, and the log's ends as they are while it is held.
    fn state_and_ends(&self, offset: i64) -> (MutexGuard<'_, State>, Ends) {
        loop {
            // The log's lock may be held for as long as a write takes, the end is there without it.
            let start_offset = (offset < self.log.end_offset()).then(|| self.log.start_offset());
            let state = self.state.lock();
            let end_offset = self.log.end_offset();
            if start_offset.is_some() || offset >= end_offset {
                return (state, Ends { start_offset: start_offset.unwrap_or(i64::MAX), end_offset });
            }
        }
    }

    /// The body of an answer; `None` when the log cannot be read.
    fn body(&self, asked: &Asked, said: &Said) -> Option<Vec<u8>> {
        let log_start_offset = self.log.start_offset();
        let is_there = (log_start_offset..said.end_offset).contains(&asked.offset);
        let records = if is_there { self.log.read(asked.offset, asked.max_bytes).ok()? } else { Vec::new() };
        let result = FetchResult {
            high_watermark: said.high_watermark,
            log_start_offset,
            aborted: None,
            current_leader: Some(said.leader),
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
        response.end(said.endpoint.as_slice());
        Some(writer.into_bytes())
    }
}

/// Lets those look again who wait for what is offered and told to voters, or those who wait for what is committed.
fn wake(state: MutexGuard<'_, State>, voters: bool) {
    let found = state.waiting.values().filter(|waiter| waiter.is_voter == voters);
    let wakers: Vec<_> = found.map(|waiter| waiter.waker.clone()).collect();
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

impl Led {
    fn said(&self, listener: &str, ends: Ends) -> Said {
        let endpoint = self.lead.endpoints.iter().find(|(name, _)| name == listener).map(|(_, endpoint)| endpoint);
        Said {
            leader: (self.lead.leader_id, self.lead.epoch),
            high_watermark: self.lead.high_watermark,
            endpoint: endpoint.cloned(),
            end_offset: ends.end_offset,
        }
    }
}

impl Waiting {
    /// Looks again; `is_late`: it is answered with whatever there is.
    pub fn look(&self, is_late: bool) -> Looked {
        let answering = &self.answering;
        let _open = answering.gate.read();
        let (state, ends) = answering.state_and_ends(self.asked.offset);
        let Some(led) = state.led.as_ref().filter(|_| state.words == self.word) else { return Looked::Outside };
        if !ends.holds(self.asked.offset) {
            return Looked::Outside;
        }
        let is_due = led.high_watermark_for(self.slot) > self.high_watermark;
        if !is_late && !is_due && !led.has_more(self.slot, self.asked.offset) {
            return Looked::Waits;
        }
        let said = led.said(&self.asked.listener, ends);
        drop(state);
        answering.body(&self.asked, &said).map_or(Looked::Outside, Looked::Answered)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.answering.state.lock().waiting.remove(&self.id);
    }
}
