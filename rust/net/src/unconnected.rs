//! Fetches that come without a connection, for the simulator of brokers: the same sessions, reads, waits and responses.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_wire::api::{Api, FETCH, ListenerKind};
use klamm_wire::header::ResponseHeader;

use super::answer::Answer;
use super::backend::Backend;
use super::config::NetConfig;
use super::core::Core;
use super::handlers::fetch::WaitingFetch;
use super::handlers::{Call, Outcome, fetch};
use super::link::Link;
use super::listener::Listener;
use super::pipeline::{Pipeline, RequestContext};
use super::sessions::{SessionOptions, Sessions};

const HEADER: ResponseHeader = ResponseHeader { correlation_id: 0, flexible: true };

/// Answers fetches of any peer, one at a time.
pub struct UnconnectedFetches {
    core: Core,
    listener: Arc<Listener>,
    link: Arc<Link>,
}

/// A fetch that found too little, and waits.
pub struct UnconnectedFetch(Box<WaitingFetch>);

/// The result of a look at the partitions of a fetch.
pub enum Looked {
    /// The body of the response.
    Answered(Vec<u8>),
    Waits(UnconnectedFetch),
}

impl UnconnectedFetches {
    pub fn new(backend: Arc<dyn Backend>, sessions: SessionOptions) -> io::Result<Self> {
        let mut core = Core::new(NetConfig::default(), String::new(), backend, Pipeline::default())?;
        core.sessions = Sessions::new(sessions);
        let listener = Arc::new(Listener::new("PLAINTEXT", ListenerKind::Broker));
        let link = Arc::new(Link::new(1, ([127, 0, 0, 1], 1).into(), &listener));
        Ok(Self { core, listener, link })
    }

    /// Handles the body of a request. `waker` is woken when a fetch that waits should look again. An error: the body is malformed.
    pub fn take(&self, version: i16, body: &[u8], waker: &Waker) -> io::Result<Looked> {
        let mut answer = Answer::after(Vec::new());
        let context = RequestContext {
            api: Api::of(FETCH).expect("an API of this node"),
            version,
            correlation_id: 0,
            client_id: "".into(),
            listener: &self.listener,
            request_bytes: body.len(),
            connection: &self.link,
            arrived: Instant::now(),
        };
        let call = Call { core: &self.core, context, answer: &mut answer };
        match fetch::handle(call, HEADER, waker, body) {
            Outcome::Answered => Ok(Looked::Answered(whole(answer)?)),
            Outcome::Fetch(waiting) => Ok(Looked::Waits(UnconnectedFetch(waiting))),
            Outcome::Close(reason) => Err(io::Error::new(io::ErrorKind::InvalidData, reason)),
            Outcome::Silent | Outcome::Acks(_) | Outcome::Verifies(_) | Outcome::Share(_) => unreachable!("a fetch"),
        }
    }

    /// A fetch looks again; one that is late is answered in any case.
    pub fn look_again(&self, fetch: UnconnectedFetch, waker: &Waker, is_late: bool) -> io::Result<Looked> {
        let UnconnectedFetch(mut waiting) = fetch;
        let mut answer = Answer::after(Vec::new());
        match waiting.answer_or_wait(&self.core, &mut answer, waker, is_late) {
            true => Ok(Looked::Answered(whole(answer)?)),
            false => Ok(Looked::Waits(UnconnectedFetch(waiting))),
        }
    }
}

impl UnconnectedFetch {
    /// Whether its waker was woken.
    pub fn is_woken(&self) -> bool {
        self.0.is_woken()
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
