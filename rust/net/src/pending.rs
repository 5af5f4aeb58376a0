//! The requests of a connection that are not answered yet, in the order of their answers.

use std::collections::VecDeque;
use std::time::Instant;

use klamm_wire::api::Api;
use klamm_wire::header::ResponseHeader;

use super::answer::Frame;
use super::dispatch::Route;
use super::handlers::fetch::WaitingFetch;
use super::handlers::produce::WaitingProduce;
use super::handlers::replica_fetch::WaitingReplica;
use super::pipeline::Measured;

/// A request that was taken and is not answered, with what the steps after the answer need.
pub struct Owed {
    pub pending: Pending,
    pub asked: Asked,
}

/// What the steps after the answer need of a request.
pub struct Asked {
    pub api: &'static Api,
    pub request_bytes: usize,
    /// While requests are measured.
    pub measured: Option<Box<Measured>>,
}

/// How a request stands.
pub enum Pending {
    /// Ready, but others are before it.
    Ready(Frame),
    /// A produce: the frame but for some error codes.
    Acks(Frame, WaitingProduce),
    Fetch(Box<WaitingFetch>),
    /// A fetch of the quorum's log.
    Replica(Box<WaitingReplica>),
    /// Answered elsewhere, by this handle.
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

/// Produces that may wait for their acknowledgement on one connection.
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
            // An idle connection holds nothing.
            self.queue = VecDeque::new();
        }
        front
    }

    /// Whether a request may be taken now, or has to wait for those before it.
    ///
    /// Apache Kafka takes one request of a connection at a time, so clients may rely on each seeing what those before it
    /// did. What cannot tell the difference goes ahead: produces behind produces, and questions about metadata.
    pub fn admits(&self, route: Route) -> bool {
        match self.queue.back().map(|owed| &owed.pending) {
            None => true,
            Some(Pending::Fetch(_) | Pending::Replica(_) | Pending::Outside { .. }) => false,
            Some(Pending::Ready(_) | Pending::Acks(..)) => {
                self.queue.len() < LEN_MAX && matches!(route, Route::Produce | Route::Own)
            }
        }
    }

    /// When the first of them has to be looked at although nothing happened.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.queue.front()?.pending {
            Pending::Acks(_, waiting) => Some(waiting.deadline),
            Pending::Fetch(waiting) => Some(waiting.deadline),
            Pending::Replica(waiting) => waiting.deadline(),
            Pending::Ready(_) | Pending::Outside { .. } => None,
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.queue.drain(..).map(|owed| owed.pending)
    }
}
