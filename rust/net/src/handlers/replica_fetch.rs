//! Fetches of the quorum's log: answered here as long as the core lets them be, else its own.

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

/// A fetch that waits, and what goes to the core when it has to see it after all.
pub struct WaitingReplica {
    waiting: Waiting,
    /// Until it has gone.
    request: Option<Box<Request>>,
    pub header: ResponseHeader,
    /// Whether the core has to see it, and had no room so far.
    waits_for_room: bool,
}

impl WaitingReplica {
    pub fn pending(waiting: Waiting, request: Box<Request>, header: ResponseHeader) -> Pending {
        Pending::Replica(Box::new(Self { waiting, request: Some(request), header, waits_for_room: false }))
    }

    /// When it is to be looked at although nothing happened. Who waits for room is woken by it: nothing is due then, and a
    /// time that has passed would be due for ever.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.waits_for_room).then_some(self.waiting.deadline)
    }

    /// See [`Waiting::look`].
    pub fn look(&self, is_late: bool) -> Looked {
        self.waiting.look(is_late)
    }

    /// Lets `ask` hand it on to the core, which gives its handle, or the request back when there is no room.
    pub fn hand_on(&mut self, ask: impl FnOnce(Box<Request>) -> Result<u64, Box<Request>>) -> Option<u64> {
        let asked = ask(self.request.take()?);
        self.waits_for_room = asked.is_err();
        asked.map_err(|request| self.request = Some(request)).ok()
    }
}

/// Takes a request on a controller's listener if it is such a fetch.
pub fn take(core: &Core, listener: &Listener, routed: &Routed, frame: &[u8], waker: &Waker) -> Taken {
    match core.answering.get() {
        Some(answering) if routed.api.key == api::FETCH && listener.kind == ListenerKind::Controller => {
            answering.take(&listener.name, routed.version(), routed.body(frame), waker)
        }
        _ => Taken::Outside,
    }
}
