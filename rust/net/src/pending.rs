//! The unanswered requests of a connection, in the order of their responses.

use std::collections::VecDeque;
use std::time::Instant;

use klamm_wire::api::{Api, OFFSET_COMMIT};
use klamm_wire::header::ResponseHeader;

use super::answer::Frame;
use super::dispatch::Route;
use super::handlers::fetch::WaitingFetch;
use super::handlers::produce::WaitingProduce;
use super::handlers::replica_fetch::WaitingReplica;
use super::handlers::share::WaitingShare;
use super::pipeline::{Measured, QuotaClient};

/// A request that was taken and is not answered yet, with the input of the steps after the response.
pub struct Owed {
    pub pending: Pending,
    pub asked: Asked,
}

/// The properties of a request that the steps after the response need.
pub struct Asked {
    pub api: &'static Api,
    /// Present while requests are measured.
    pub measured: Option<Box<Measured>>,
    /// Present if the time of the request counts for a quota.
    pub timed: Option<Box<Timed>>,
}

/// A request whose handler's time counts.
pub struct Timed {
    pub client: QuotaClient,
    pub version: i16,
}

/// The state of a request.
pub enum Pending {
    /// The response is complete but must wait for earlier ones.
    Ready(Frame),
    /// A produce: the response is complete except for some error codes.
    Acks(Frame, WaitingProduce),
    Fetch(Box<WaitingFetch>),
    /// A request of a share consumer.
    Share(Box<WaitingShare>),
    /// A fetch of the quorum's log.
    Replica(Box<WaitingReplica>),
    /// Answered outside of the engine, under this handle.
    Outside {
        handle: u64,
        header: ResponseHeader,
    },
}

/// The queue of a connection.
#[derive(Default)]
pub struct PendingQueue {
    queue: VecDeque<Owed>,
}

/// Requests of one connection that may wait for their answer at the same time.
const LEN_MAX: usize = 64;

impl PendingQueue {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn push(&mut self, pending: Pending, asked: Asked) {
        self.queue.push_back(Owed { pending, asked });
    }

    pub fn front_mut(&mut self) -> Option<&mut Owed> {
        self.queue.front_mut()
    }

    pub fn pop_front(&mut self) -> Option<Owed> {
        let front = self.queue.pop_front();
        if self.queue.is_empty() {
            // An idle connection holds no memory.
            self.queue = VecDeque::new();
        }
        front
    }

    /// Whether a request may be taken now, or must wait for earlier ones.
    ///
    /// Apache Kafka processes one request of a connection at a time, so clients may rely on each request seeing the
    /// effects of earlier ones. Requests for which this makes no difference are taken early: produces after produces,
    /// offset commits after offset commits, and metadata queries.
    pub fn admits(&self, route: Route) -> bool {
        let Some(last) = self.queue.back() else { return true };
        let may_follow = match last.pending {
            Pending::Ready(_) | Pending::Acks(..) => matches!(route, Route::Produce | Route::Own),
            Pending::Outside { .. } => last.asked.api.key == OFFSET_COMMIT && route == Route::Commit,
            Pending::Fetch(_) | Pending::Replica(_) | Pending::Share(_) => false,
        };
        may_follow && self.queue.len() < LEN_MAX
    }

    /// When the first of them must be checked without an event.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.queue.front()?.pending {
            Pending::Acks(_, waiting) => Some(waiting.deadline),
            Pending::Fetch(waiting) => Some(waiting.deadline),
            Pending::Replica(waiting) => waiting.deadline(),
            Pending::Share(waiting) => waiting.deadline(),
            Pending::Ready(_) | Pending::Outside { .. } => None,
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.queue.drain(..).map(|owed| owed.pending)
    }
}
