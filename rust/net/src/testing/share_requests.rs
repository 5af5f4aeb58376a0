//! The handlers of share consumers' requests without sockets, tasks and clock, for the fuzzer.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_base::ErrorCode;
use klamm_metadata::records::{ConfigRecord, FeatureLevelRecord, Record};
use klamm_wire::api::{ListenerKind, READ_SHARE_GROUP_STATE, SHARE_ACKNOWLEDGE, SHARE_FETCH};

use super::share::{read_answer, share_answer, write_answer};
use super::{FakeBackend, NAMED, batch};
use crate::answer::Answer;
use crate::backend::Partition;
use crate::core::Core;
use crate::dispatch::{Routed, route};
use crate::handlers::Outcome;
use crate::handlers::share::WaitingShare;
use crate::link::Link;
use crate::listener::Listener;
use crate::{Event, NetConfig, Pipeline, ShareStateCall};

/// Length and correlation id of a response.
const FRAME_HEAD_LEN: usize = 8;
/// The first version whose responses `share_answer` reads.
const ANSWER_VERSION: i16 = 2;

/// A broker with the partitions of [`super::image`], connections to it, and the calls that wait for a share coordinator.
pub struct ShareRequests {
    core: Core,
    backend: Arc<FakeBackend>,
    listener: Arc<Listener>,
    links: Vec<Arc<Link>>,
    /// Each with its connection.
    waiting: Vec<(u64, Routed, Box<WaitingShare>)>,
    calls: VecDeque<Box<ShareStateCall>>,
}

impl ShareRequests {
    /// So many connections, and a group `g` that reads from the beginning.
    pub fn of(connections: usize) -> Self {
        let backend = FakeBackend::new();
        let level = FeatureLevelRecord { name: "share.version", feature_level: 1 };
        let (name, value) = ("share.auto.offset.reset", Some("earliest"));
        let group = ConfigRecord { resource_type: 32, resource_name: "g", name, value };
        backend.apply([Record::FeatureLevel(level), Record::Config(group)].into_iter());
        let core = Core::new(NetConfig::default(), "a-cluster".to_owned(), backend.clone(), Pipeline::default());
        let mut requests = Self {
            core: core.expect("an event queue"),
            backend,
            listener: Arc::new(Listener::new("CLIENTS", ListenerKind::Broker)),
            links: Vec::new(),
            waiting: Vec::new(),
            calls: VecDeque::new(),
        };
        (0..connections).for_each(|_| requests.connect());
        requests
    }

    fn connect(&mut self) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        self.links.push(Arc::new(Link::new(self.core.new_id(), peer, &self.listener)));
    }

    /// Takes a frame, without its length, of a connection. Returns why the connection is closed.
    pub fn take(&mut self, connection: usize, frame: &mut [u8]) -> Result<(), String> {
        let routed = route(&self.listener, frame)?;
        if !matches!(routed.api.key, SHARE_FETCH | SHARE_ACKNOWLEDGE) {
            return Err(format!("a request of {}", routed.api.name));
        }
        let link = self.links[connection].clone();
        let (mut answer, now) = (Answer::after(Vec::new()), Instant::now());
        match routed.handle(&self.core, &self.listener, &link, now, Waker::noop(), None, frame, &mut answer) {
            Outcome::Answered => check(routed, answer),
            Outcome::Share(waiting) => self.waiting.push((link.id, routed, waiting)),
            Outcome::Close(reason) => return Err(reason),
            _ => panic!("another outcome than those of share consumers' requests"),
        }
        Ok(())
    }

    /// Closes a connection, and opens another in its place.
    pub fn disconnect(&mut self, connection: usize) {
        let link = self.links.remove(connection);
        self.waiting.retain(|(id, ..)| *id != link.id);
        self.core.shares.on_disconnect(&self.core, link.id);
        self.connect();
    }

    /// Answers the requests that something has woken, or all of them.
    pub fn answer(&mut self, at_once: bool) {
        for (id, routed, mut waiting) in std::mem::take(&mut self.waiting) {
            let is_due = at_once || waiting.is_woken();
            let mut answer = Answer::after(Vec::new());
            answer.begin(waiting.header());
            if is_due && waiting.answer_or_wait(&self.core, &mut answer, Waker::noop(), at_once) {
                check(routed, answer);
            } else {
                self.waiting.push((id, routed, waiting));
            }
        }
    }

    /// The number of requests without a response.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// The oldest call of the share coordinator: whether it reads.
    pub fn next_call(&mut self) -> Option<bool> {
        let events = self.core.events.drain(usize::MAX);
        self.calls.extend(events.into_iter().filter_map(|event| match event {
            Event::ShareState(call) => Some(call),
            _ => None,
        }));
        self.calls.front().map(|call| call.api_key == READ_SHARE_GROUP_STATE)
    }

    /// Answers it with a state that begins at an offset, or with a successful write.
    pub fn answer_call(&mut self, start_offset: i64, batches: &[(i64, i64, i8, i16)]) {
        let Some(call) = self.calls.pop_front() else { return };
        let body = match call.api_key == READ_SHARE_GROUP_STATE {
            true => read_answer(&call, start_offset, batches),
            false => write_answer(&call, ErrorCode::NONE),
        };
        self.core.shares.on_answered(&self.core, call.request_id, ErrorCode::NONE, &body);
    }

    /// Answers it with an error, or with any bytes.
    pub fn fail_call(&mut self, code: ErrorCode, body: &[u8]) {
        let Some(call) = self.calls.pop_front() else { return };
        self.core.shares.on_answered(&self.core, call.request_id, code, body);
    }

    /// Appends a batch of records to a partition of `named`.
    pub fn append(&self, index: i32, records: i32) {
        let appended = self.backend.at(NAMED, index).append(&mut batch(records, 8), -1, None, 0);
        assert!(appended.is_ok(), "the log takes it");
    }

    /// The log of a partition of `named` begins later.
    pub fn begin_log_at(&self, index: i32, offset: i64) {
        let mut state = self.backend.at(NAMED, index).state.lock();
        state.log_start_offset = offset.clamp(state.log_start_offset, state.high_watermark);
    }

    /// Lets time pass, and locks end.
    pub fn pass(&self, ms: i64) {
        self.backend.pass(ms);
        self.core.shares.expire(&self.core);
    }

    /// Panics unless the invariants of every share partition hold.
    pub fn check_invariants(&self) {
        self.core.shares.check_invariants();
    }
}

/// Panics unless the response is complete.
fn check(routed: Routed, mut answer: Answer) {
    answer.finish().expect("a short response");
    let (bytes, slices) = answer.into_parts();
    if slices.is_empty() && routed.version() >= ANSWER_VERSION {
        share_answer(&bytes[FRAME_HEAD_LEN..], routed.api.key == SHARE_FETCH);
    }
}
