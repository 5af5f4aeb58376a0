//! Requests that come without a connection, for the simulator of brokers: Fetch, ShareFetch and ShareAcknowledge, with the same
//! sessions, reads, waits and responses.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_wire::api::{Api, FETCH, ListenerKind, SHARE_ACKNOWLEDGE, SHARE_FETCH};
use klamm_wire::fetch::FetchPartition;
use klamm_wire::header::ResponseHeader;

use super::answer::Answer;
use super::backend::Backend;
use super::config::NetConfig;
use super::core::Core;
use super::events::{Event, LogLevel, ShareStateCall};
use super::handlers::fetch::WaitingFetch;
use super::handlers::share::{self, WaitingShare};
use super::handlers::{Call, Outcome, fetch};
use super::link::Link;
use super::listener::Listener;
use super::pipeline::{Pipeline, RequestContext};
use super::session::TopicKey;
use super::sessions::{SessionOptions, Sessions};
use super::share::{Phase, ShareConfig, ShareKey};

const HEADER: ResponseHeader = ResponseHeader { correlation_id: 0, flexible: true };

/// Handles requests of any peer, one at a time.
pub struct UnconnectedRequests {
    core: Core,
    listener: Arc<Listener>,
}

/// A request and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Unconnected<'a> {
    pub api_key: i16,
    pub version: i16,
    /// Identifies the connection: a share session ends with its own.
    pub connection_id: u64,
    pub body: &'a [u8],
}

/// A request that waits.
pub struct WaitingRequest {
    waiting: Waiting,
    connection_id: u64,
    /// Its time is over.
    is_late: bool,
}

enum Waiting {
    Fetch(Box<WaitingFetch>),
    /// Its own deadline is real time, and must be far away.
    Share(Box<WaitingShare>),
}

/// The result of a look at the partitions of a request.
pub enum Looked {
    /// The body of the response.
    Answered(Vec<u8>),
    Waits(WaitingRequest),
}

/// A share partition that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct ShareGauges {
    /// Unique among the share partitions of the node's life: one that is loaded again has another.
    pub id: u64,
    pub leader_epoch: i32,
    /// The offsets in flight are `[start_offset, next_offset)`.
    pub start_offset: i64,
    pub next_offset: i64,
}

impl UnconnectedRequests {
    pub fn new(backend: Arc<dyn Backend>, sessions: SessionOptions, share: ShareConfig) -> io::Result<Self> {
        let config = NetConfig { share, ..NetConfig::default() };
        let mut core = Core::new(config, String::new(), backend, Pipeline::default())?;
        core.sessions = Sessions::new(sessions);
        let listener = Arc::new(Listener::new("PLAINTEXT", ListenerKind::Broker));
        Ok(Self { core, listener })
    }

    /// Handles a request. `waker` is woken when a fetch that waits should look again. An error: the body is malformed.
    pub fn take(&self, request: Unconnected<'_>, waker: &Waker) -> io::Result<Looked> {
        let Unconnected { api_key, version, connection_id, body } = request;
        let link = Arc::new(Link::new(connection_id, ([127, 0, 0, 1], 1).into(), &self.listener));
        let mut answer = Answer::after(Vec::new());
        let context = RequestContext {
            api: Api::of(api_key).expect("an API of this node"),
            version,
            correlation_id: 0,
            client_id: "".into(),
            listener: &self.listener,
            request_bytes: body.len(),
            connection: &link,
            arrived: Instant::now(),
        };
        let call = Call { core: &self.core, context, answer: &mut answer };
        let outcome = match api_key {
            FETCH => fetch::handle(call, HEADER, waker, body),
            SHARE_FETCH => share::fetch(call, HEADER, waker, body),
            SHARE_ACKNOWLEDGE => share::acknowledge(call, HEADER, body),
            _ => unreachable!("API {api_key} needs a connection"),
        };
        let waiting = match outcome {
            Outcome::Answered => return Ok(Looked::Answered(whole(answer)?)),
            Outcome::Fetch(waiting) => Waiting::Fetch(waiting),
            Outcome::Share(waiting) => Waiting::Share(waiting),
            Outcome::Close(reason) => return Err(io::Error::new(io::ErrorKind::InvalidData, reason)),
            Outcome::Silent | Outcome::Acks(_) | Outcome::Verifies(_) => unreachable!("no produce"),
        };
        Ok(Looked::Waits(WaitingRequest { waiting, connection_id, is_late: false }))
    }

    /// A request looks again; one that is late is answered as soon as its acknowledgements are written.
    pub fn look_again(&self, request: WaitingRequest, waker: &Waker, is_late: bool) -> io::Result<Looked> {
        let WaitingRequest { mut waiting, connection_id, is_late: was_late } = request;
        let is_late = is_late || was_late;
        let mut answer = Answer::after(Vec::new());
        let is_answered = match &mut waiting {
            Waiting::Fetch(fetch) => fetch.answer_or_wait(&self.core, &mut answer, waker, is_late),
            Waiting::Share(share) => {
                let at_once = is_late && share.deadline().is_some();
                share.answer_or_wait(&self.core, &mut answer, waker, at_once)
            }
        };
        match is_answered {
            true => Ok(Looked::Answered(whole(answer)?)),
            false => Ok(Looked::Waits(WaitingRequest { waiting, connection_id, is_late })),
        }
    }

    /// The partitions of a fetch session, by topic id, in order; none if it is not open.
    pub fn in_session(&self, id: i32) -> Vec<(Uuid, FetchPartition)> {
        let Some(session) = self.core.sessions.get(id) else { return Vec::new() };
        let session = session.lock();
        let with_id = session.partitions.wanted().filter_map(|wanted| match wanted.topic {
            TopicKey::Id(topic_id) => Some((topic_id, wanted.partition)),
            TopicKey::Name(_) => None,
        });
        let mut partitions: Vec<_> = with_id.collect();
        partitions.sort_unstable_by_key(|(topic_id, partition)| (*topic_id, partition.index));
        partitions
    }

    // Share groups

    /// A connection was closed.
    pub fn on_disconnect(&self, connection_id: u64) {
        self.core.shares.on_disconnect(&self.core, connection_id);
    }

    /// See `Server::drop_stale_shares`.
    pub fn drop_stale_shares(&self, image: &MetadataImage) {
        self.core.shares.on_image(image);
    }

    /// Ends the acquisition locks that are due.
    pub fn expire_locks(&self) {
        self.core.shares.expire(&self.core);
    }

    /// The calls of share coordinators that are due. An error: what the product would log as one.
    pub fn take_share_calls(&self) -> io::Result<Vec<ShareStateCall>> {
        let mut calls = Vec::new();
        for event in self.core.events.drain(usize::MAX) {
            match event {
                Event::ShareState(call) => calls.push(*call),
                Event::Log { level: LogLevel::Error, message } => return Err(io::Error::other(message)),
                _ => {}
            }
        }
        Ok(calls)
    }

    /// See `Server::share_state_answered`.
    pub fn share_state_answered(&self, request_id: u64, code: ErrorCode, body: &[u8]) {
        self.core.shares.on_answered(&self.core, request_id, code, body);
    }

    /// The share partition of a group, if it is loaded.
    pub fn share_gauges(&self, group: &str, topic: Uuid, index: i32) -> Option<ShareGauges> {
        let key = ShareKey { group: Arc::from(group), topic, index };
        let live = self.core.shares.find(&self.core.backend.image(), &key)?;
        let Phase::Active(partition) = &live.state.lock().phase else { return None };
        Some(ShareGauges {
            id: live.id,
            leader_epoch: live.leader_epoch,
            start_offset: partition.start_offset(),
            next_offset: partition.next_offset(),
        })
    }
}

impl WaitingRequest {
    /// The connection on which it came.
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Whether its waker was woken.
    pub fn is_woken(&self) -> bool {
        match &self.waiting {
            Waiting::Fetch(fetch) => fetch.is_woken(),
            Waiting::Share(share) => share.is_woken() || self.is_late && share.deadline().is_some(),
        }
    }
}

/// The bytes of a response, with its records.
fn whole(answer: Answer) -> io::Result<Vec<u8>> {
    let (mut bytes, slices) = answer.into_parts();
    for (position, slice) in slices.into_iter().rev() {
        let mut records = vec![0; slice.len];
        slice.file.file().read_exact_at(&mut records, slice.position)?;
        bytes.splice(position..position, records);
    }
    Ok(bytes)
}
