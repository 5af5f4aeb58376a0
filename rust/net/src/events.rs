//! Events for Python: a bounded queue of two priorities with a descriptor that becomes readable.
//!
//! Heartbeats and the quorum's own requests must not wait for admin requests, so they have their own queue, which is
//! emptied first. A request that finds its queue full waits in its connection, which stops reading: memory stays
//! bounded, and the peer is slowed down.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_base::{Content, ErrorCode, Inbox, Uuid};
use klamm_wire::api::{self, ListenerKind};

use super::pipeline::{Principal, RequestContext};

/// One event for Python.
#[derive(Debug)]
pub enum Event {
    Request(Box<Request>),
    /// Clients requested topics that do not exist and may be created. A name is repeated until the topic exists: the
    /// receiver tracks which creations are in progress.
    AutoCreate {
        topics: Vec<(String, Asker)>,
    },
    /// A connection that had sent requests to Python was closed; its open requests need no response.
    Closed {
        connection_id: u64,
    },
    /// The append with this token is committed (`NONE`), or can no longer be committed.
    Acked {
        token: u64,
        code: ErrorCode,
    },
    /// Transactional batches wait for their transaction coordinator. Answered once, by [`Server::on_verified`].
    ///
    /// [`Server::on_verified`]: super::Server::on_verified
    Verify(Box<Verify>),
    /// A share partition reads or writes its state. Answered once, by [`Server::share_state_answered`].
    ///
    /// [`Server::share_state_answered`]: super::Server::share_state_answered
    ShareState(Box<ShareStateCall>),
    /// A log directory went offline.
    DirFailed {
        id: Uuid,
    },
    /// Leaders propose ISRs to the controller.
    IsrChanged,
    /// Replicas are in other log directories than the controller knows.
    DirectoriesChanged,
    /// A log message.
    Log {
        level: LogLevel,
        message: String,
    },
}

/// A request to the transaction coordinator for a produce request.
#[derive(Debug)]
pub struct Verify {
    /// Identifies the request in the answer, once.
    pub handle: u64,
    pub transactional_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Whether to add the partitions to the transaction; otherwise they must be part of it.
    pub is_adding: bool,
    /// The version of the Produce request.
    pub version: i16,
    /// Topic and index, each once.
    pub partitions: Vec<(String, i32)>,
}

/// A request to the share coordinator about one share partition.
#[derive(Debug)]
pub struct ShareStateCall {
    /// Identifies the call in its answer, once.
    pub request_id: u64,
    /// ReadShareGroupState (84) or WriteShareGroupState (85).
    pub api_key: i16,
    pub group_id: String,
    pub topic: Uuid,
    pub index: i32,
    /// ReadShareGroupState v0, or WriteShareGroupState v1.
    pub body: Vec<u8>,
}

/// A request that is answered outside of the network.
#[derive(Debug)]
pub struct Request {
    /// Identifies the request in its response, once.
    pub handle: u64,
    pub connection_id: u64,
    /// Name of the listener that received it.
    pub listener: Arc<str>,
    pub is_on_controller: bool,
    pub principal: Principal,
    /// The client's address.
    pub address: IpAddr,
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: String,
    /// Everything after the request header.
    pub body: Vec<u8>,
    pub arrived: Instant,
    /// The deadline for processing, unless the request contains a timeout.
    pub deadline: Instant,
}

impl Request {
    /// A request that is answered under this handle.
    pub fn of(handle: u64, context: RequestContext<'_>, body: Vec<u8>) -> Self {
        Self {
            handle,
            connection_id: context.connection.id,
            listener: context.listener.name.clone(),
            is_on_controller: context.listener.kind == ListenerKind::Controller,
            principal: context.principal().clone(),
            address: context.address(),
            api_key: context.api.key,
            api_version: context.version,
            correlation_id: context.correlation_id,
            arrived: context.arrived,
            deadline: context.deadline(),
            client_id: context.client_id.into_owned(),
            body,
        }
    }
}

/// The client in whose name this node does something later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub principal: Principal,
    pub client_id: Box<str>,
    /// The client's address.
    pub address: IpAddr,
}

impl Asker {
    pub fn of(context: &RequestContext<'_>) -> Self {
        Self {
            principal: context.principal().clone(),
            client_id: context.client_id.as_ref().into(),
            address: context.address(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// The priority of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    High,
    Normal,
}

impl Priority {
    /// Requests whose delay would count as a failure, and those that end an election, are urgent.
    pub fn of(api_key: i16) -> Self {
        match api_key {
            api::HEARTBEAT | api::CONSUMER_GROUP_HEARTBEAT | api::BROKER_HEARTBEAT => Self::High,
            api::JOIN_GROUP | api::LEAVE_GROUP | api::SYNC_GROUP => Self::High,
            api::FETCH | api::VOTE | api::BEGIN_QUORUM_EPOCH | api::END_QUORUM_EPOCH | api::FETCH_SNAPSHOT => {
                Self::High
            }
            _ => Self::Normal,
        }
    }
}

/// The queue. Cheap to share; any thread pushes, one consumer drains.
pub struct EventQueue {
    inbox: Inbox<Inner>,
    requests_max: usize,
}

#[derive(Default)]
struct Inner {
    high: VecDeque<Box<Request>>,
    normal: VecDeque<Box<Request>>,
    /// Events that must not be lost or wait for requests; each results from an earlier request.
    news: VecDeque<Event>,
    /// The topics, with the client that asked first.
    auto_create: HashMap<String, Asker>,
    log: VecDeque<(LogLevel, String)>,
    log_dropped: u64,
    /// Connections that found a queue full.
    waiting: Vec<Waker>,
}

/// Limit on topics to create that are kept; a client whose topic is not kept will ask again.
const AUTO_CREATE_MAX: usize = 10_000;
/// Limit on log messages for a slow consumer; further ones are only counted.
const LOG_LINES_MAX: usize = 1_000;

impl EventQueue {
    /// A queue for `requests_max` requests of each priority.
    pub fn new(requests_max: usize) -> io::Result<Self> {
        Ok(Self { inbox: Inbox::new(Inner::default())?, requests_max: requests_max.max(1) })
    }

    /// Readable while there is something to drain; [`EventQueue::drain`] resets it. `None` after
    /// [`EventQueue::close`].
    pub fn fd(&self) -> Option<RawFd> {
        self.inbox.fd()
    }

    /// Closes the queue: releases the descriptor and drops the waiting connections' wakers.
    pub fn close(&self) {
        self.inbox.close();
        drop(self.inbox.change(|inner| std::mem::take(&mut inner.waiting)));
    }

    /// Adds a request. If its queue is full, returns the request and wakes `waker` when there is room.
    pub fn push_request(&self, request: Box<Request>, waker: &Waker) -> Result<(), Box<Request>> {
        self.inbox.change(|inner| {
            let queue = match Priority::of(request.api_key) {
                Priority::High => &mut inner.high,
                Priority::Normal => &mut inner.normal,
            };
            if queue.len() >= self.requests_max {
                inner.waiting.push(waker.clone());
                return Err(request);
            }
            queue.push_back(request);
            Ok(())
        })
    }

    /// Reports that a connection which had sent requests to Python was closed.
    pub fn push_closed(&self, connection_id: u64) {
        self.push_news(Event::Closed { connection_id });
    }

    /// Reports the result of an append by this node.
    pub fn push_acked(&self, token: u64, code: ErrorCode) {
        self.push_news(Event::Acked { token, code });
    }

    /// Asks the share coordinator about a share partition.
    pub fn push_share_state(&self, call: Box<ShareStateCall>) {
        self.push_news(Event::ShareState(call));
    }

    /// Asks the transaction coordinator for a produce request.
    pub fn push_verify(&self, verify: Box<Verify>) {
        self.push_news(Event::Verify(verify));
    }

    /// Reports that a log directory went offline.
    pub fn push_dir_failed(&self, id: Uuid) {
        self.push_news(Event::DirFailed { id });
    }

    /// Reports that leaders propose ISRs.
    pub fn push_isr_changed(&self) {
        self.push_news(Event::IsrChanged);
    }

    /// Reports that replicas are in other log directories.
    pub fn push_directories_changed(&self) {
        self.push_news(Event::DirectoriesChanged);
    }

    fn push_news(&self, event: Event) {
        self.inbox.change(|inner| inner.news.push_back(event));
    }

    /// Requests the creation of topics for a client.
    pub fn push_auto_create<'a>(&self, context: &RequestContext<'_>, topics: impl Iterator<Item = &'a str>) {
        self.inbox.change(|inner| {
            for topic in topics {
                if inner.auto_create.len() < AUTO_CREATE_MAX && !inner.auto_create.contains_key(topic) {
                    inner.auto_create.insert(topic.to_owned(), Asker::of(context));
                }
            }
        });
    }

    /// Adds a log message.
    pub fn log(&self, level: LogLevel, message: String) {
        self.inbox.change(|inner| {
            if inner.log.len() >= LOG_LINES_MAX {
                inner.log_dropped += 1;
            } else {
                inner.log.push_back((level, message));
            }
        });
    }

    /// The number of queued requests.
    pub fn request_count(&self) -> usize {
        self.inbox.look(|inner| inner.high.len() + inner.normal.len())
    }

    /// Takes all queued requests, and leaves the other events.
    pub fn take_requests(&self) -> Vec<Box<Request>> {
        let (high, normal, waiting) = self.inbox.change(|inner| {
            let (high, normal) = (std::mem::take(&mut inner.high), std::mem::take(&mut inner.normal));
            (high, normal, std::mem::take(&mut inner.waiting))
        });
        waiting.into_iter().for_each(Waker::wake);
        high.into_iter().chain(normal).collect()
    }

    /// Takes at most `max` events, urgent ones first. If more are left, the descriptor stays readable.
    pub fn drain(&self, max: usize) -> Vec<Event> {
        let (events, waiting) = self.inbox.take(|inner| {
            let events: Vec<_> = std::iter::from_fn(|| inner.pop()).take(max).collect();
            (events, std::mem::take(&mut inner.waiting))
        });
        waiting.into_iter().for_each(Waker::wake);
        events
    }
}

impl Inner {
    fn pop(&mut self) -> Option<Event> {
        if let Some(request) = self.high.pop_front() {
            return Some(Event::Request(request));
        }
        if let Some(event) = self.news.pop_front() {
            return Some(event);
        }
        if let Some((level, message)) = self.log.pop_front() {
            return Some(Event::Log { level, message });
        }
        if self.log_dropped > 0 {
            let message = format!("{} further lines were dropped", std::mem::take(&mut self.log_dropped));
            return Some(Event::Log { level: LogLevel::Warn, message });
        }
        if !self.auto_create.is_empty() {
            return Some(Event::AutoCreate { topics: self.auto_create.drain().collect() });
        }
        self.normal.pop_front().map(Event::Request)
    }
}

impl Content for Inner {
    fn is_empty(&self) -> bool {
        self.high.is_empty()
            && self.normal.is_empty()
            && self.news.is_empty()
            && self.log.is_empty()
            && self.log_dropped == 0
            && self.auto_create.is_empty()
    }
}
