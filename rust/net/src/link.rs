//! The shared handle of a connection: its id, a way to wake it, and the response from outside of the engine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_base::primitives::ErrorCounts;
use klamm_log::FileSlice;
use klamm_wire::api::ListenerKind;
use parking_lot::Mutex;

use super::listener::Listener;
use super::pipeline::Principal;

/// A response from outside of the engine, without frame length and response header.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The response body.
    Body(Bytes),
    /// The response body, with slices of files at ascending positions.
    BodyWithSlices(Bytes, Vec<(usize, FileSlice)>),
    /// No response: the connection is closed.
    Close,
    /// The transaction coordinator's error codes for the partitions of a verification.
    Verified(Box<[ErrorCode]>),
}

/// What Python reports about a request before it answers it.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// How long its handler worked; reported while request time is limited.
    pub handler_time: Duration,
    /// The error codes of the response; reported while requests are measured.
    pub errors: ErrorCounts,
}

/// The shared part of one connection.
pub struct Link {
    pub id: u64,
    pub peer: SocketAddr,
    /// The listener that accepted it.
    pub listener: Arc<str>,
    pub kind: ListenerKind,
    /// Set once the principal is known.
    principal: OnceLock<Principal>,
    /// When it was last used, in ms of the server's time.
    used_ms: AtomicU64,
    waker: OnceLock<Waker>,
    close_asked: AtomicBool,
    finish_asked: AtomicBool,
    /// Whether any request was passed to Python, which then must be notified when the connection ends.
    asked_outside: AtomicBool,
    /// By handle; several only of commits, which are answered together.
    replies: Mutex<VecDeque<(u64, Reply)>>,
    /// When Python took the requests that the connection waits for, by handle; recorded while requests are measured.
    begun: Mutex<VecDeque<(u64, Instant)>>,
    /// By handle.
    notes: Mutex<VecDeque<(u64, Note)>>,
}

impl Link {
    pub fn new(id: u64, peer: SocketAddr, listener: &Listener) -> Self {
        Self {
            id,
            peer,
            listener: listener.name.clone(),
            kind: listener.kind,
            principal: listener.authentication.principal_at_accept().map_or_else(OnceLock::new, OnceLock::from),
            begun: Mutex::default(),
            notes: Mutex::default(),
            used_ms: AtomicU64::new(0),
            waker: OnceLock::new(),
            close_asked: AtomicBool::new(false),
            finish_asked: AtomicBool::new(false),
            asked_outside: AtomicBool::new(false),
            replies: Mutex::default(),
        }
    }

    /// The principal of the peer; `None` until it has authenticated.
    #[inline]
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.get()
    }

    /// Sets the principal after authentication, once.
    #[cfg(test)]
    pub fn set_principal(&self, principal: Principal) {
        assert!(self.principal.set(principal).is_ok(), "a connection has one principal");
    }

    /// Python has just taken the request with this handle.
    pub fn note_begun(&self, handle: u64) {
        self.begun.lock().push_back((handle, Instant::now()));
    }

    /// When Python took the request with this handle, if that was recorded. Python takes requests in their order, so
    /// entries before it belong to requests that were not measured; they are dropped.
    pub fn take_begun(&self, handle: u64) -> Option<Instant> {
        let mut begun = self.begun.lock();
        std::iter::from_fn(|| begun.pop_front()).find(|(of, _)| *of == handle).map(|(_, at)| at)
    }

    /// Stores what Python reports about the request with this handle.
    pub fn note(&self, handle: u64, note: Note) {
        self.notes.lock().push_back((handle, note));
    }

    /// Everything that was reported about the request with this handle. Notes on earlier requests are dropped: the
    /// responses of a connection keep the order of its requests.
    pub fn take_notes(&self, handle: u64) -> Note {
        let mut notes = self.notes.lock();
        let until = std::iter::from_fn(|| notes.pop_front_if(|(of, _)| *of <= handle));
        let mut found = Note::default();
        for (_, note) in until.filter(|(of, _)| *of == handle) {
            found.handler_time += note.handler_time;
            found.errors.extend(note.errors);
        }
        found
    }

    pub fn touch(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Stores the waker of the task. A spawned task keeps its waker, so the first one stays valid.
    pub fn set_waker(&self, waker: &Waker) -> &Waker {
        self.waker.get_or_init(|| waker.clone())
    }

    /// Wakes the connection's task. Does nothing before its first poll, which will check everything.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Stores the response to the request with this handle; call [`Link::wake`] afterwards.
    pub fn set_reply(&self, handle: u64, reply: Reply) {
        self.replies.lock().push_back((handle, reply));
    }

    /// The response to the request with this handle, if it has arrived.
    pub fn take_reply(&self, handle: u64) -> Option<Reply> {
        let mut replies = self.replies.lock();
        let position = replies.iter().position(|(of, _)| *of == handle)?;
        let (_, reply) = replies.remove(position)?;
        if replies.is_empty() {
            // An idle connection holds nothing.
            *replies = VecDeque::new();
        }
        Some(reply)
    }

    pub fn mark_asked_outside(&self) {
        self.asked_outside.store(true, Ordering::Relaxed);
    }

    pub fn has_asked_outside(&self) -> bool {
        self.asked_outside.load(Ordering::Relaxed)
    }

    /// Requests that the connection closes immediately, whatever it is doing.
    pub fn ask_to_close(&self) {
        self.close_asked.store(true, Ordering::Release);
        self.wake();
    }

    /// Requests that the connection answers the requests it has taken and then closes.
    pub fn ask_to_finish(&self) {
        self.finish_asked.store(true, Ordering::Release);
        self.wake();
    }

    pub fn is_asked_to_finish(&self) -> bool {
        self.finish_asked.load(Ordering::Acquire)
    }

    pub fn is_asked_to_close(&self) -> bool {
        self.close_asked.load(Ordering::Acquire)
    }
}
