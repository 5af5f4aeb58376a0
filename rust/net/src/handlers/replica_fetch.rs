//! Fetches of the quorum's log: answered here while the core has granted a lease, otherwise by the core.

use std::task::Waker;
use std::time::Instant;

use klamm_quorum::{Looked, Taken, Waiting};
use klamm_wire::api::{self, ListenerKind};
use klamm_wire::header::ResponseHeader;

use crate::core::Core;
use crate::dispatch::Routed;
use crate::events::Request;
use crate::listener::Listener;
use crate::pending::Pending;

/// A waiting fetch, and the request for the core if it must handle it after all.
pub struct WaitingReplica {
    waiting: Waiting,
    /// Present until it is passed on.
    request: Option<Box<Request>>,
    pub header: ResponseHeader,
    /// Whether the core must handle it but had no room so far.
    waits_for_room: bool,
}

impl WaitingReplica {
    pub fn pending(waiting: Waiting, request: Box<Request>, header: ResponseHeader) -> Pending {
        Pending::Replica(Box::new(Self { waiting, request: Some(request), header, waits_for_room: false }))
    }

    /// When to check it without an event. A fetch that waits for room is woken by an event, so it has no deadline:
    /// one in the past would be due forever.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.waits_for_room).then_some(self.waiting.deadline)
    }

    /// See [`Waiting::look`].
    pub fn look(&self, is_late: bool) -> Looked {
        self.waiting.look(is_late)
    }

    /// Passes the request on with `ask`, which returns its handle, or the request if there is no room.
    pub fn hand_on(&mut self, ask: impl FnOnce(Box<Request>) -> Result<u64, Box<Request>>) -> Option<u64> {
        let asked = ask(self.request.take()?);
        self.waits_for_room = asked.is_err();
        asked.map_err(|request| self.request = Some(request)).ok()
    }
}

/// Takes a request on a controller listener if it is such a fetch.
pub fn take(core: &Core, listener: &Listener, routed: &Routed, frame: &[u8], waker: &Waker) -> Taken {
    match core.answering.get() {
        Some(answering) if routed.api.key == api::FETCH && listener.kind == ListenerKind::Controller => {
            answering.take(&listener.name, routed.version(), routed.body(frame), waker)
        }
        _ => Taken::Outside,
    }
}
