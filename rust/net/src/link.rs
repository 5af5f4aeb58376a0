//! What others hold of a connection: its number, a way to wake it, and the place for an answer from elsewhere.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use klamm_log::FileSlice;
use klamm_wire::api::ListenerKind;
use parking_lot::Mutex;

use super::listener::Listener;
use super::pipeline::Principal;

/// An answer from elsewhere, without frame length and response header.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The answer's body.
    Body(Bytes),
    /// The answer's body, with slices of files at positions of it, ascending.
    BodyWithSlices(Bytes, Vec<(usize, FileSlice)>),
    /// There is none: the connection is closed.
    Close,
}

/// The outside of one connection.
pub struct Link {
    pub id: u64,
    pub peer: SocketAddr,
    /// The listener that it came in by.
    pub listener: Arc<str>,
    pub kind: ListenerKind,
    /// Set once it is known.
    principal: OnceLock<Principal>,
    /// When it was last used, in ms of the server's time.
    used_ms: AtomicU64,
    waker: OnceLock<Waker>,
    close_asked: AtomicBool,
    finish_asked: AtomicBool,
    /// Whether anything was asked outside, where the end of the connection is news then.
    asked_outside: AtomicBool,
    reply: Mutex<Option<(u64, Reply)>>,
    /// When Python took the request that the connection waits for; noted while requests are measured.
    begun: Mutex<Option<Instant>>,
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
            used_ms: AtomicU64::new(0),
            waker: OnceLock::new(),
            close_asked: AtomicBool::new(false),
            finish_asked: AtomicBool::new(false),
            asked_outside: AtomicBool::new(false),
            reply: Mutex::new(None),
        }
    }

    /// Who is at the other end; `None` until it has authenticated.
    #[inline]
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.get()
    }

    /// The connection has authenticated. Once.
    #[cfg(test)]
    pub fn set_principal(&self, principal: Principal) {
        assert!(self.principal.set(principal).is_ok(), "a connection has one principal");
    }

    /// Python has just taken the request that the connection waits for.
    pub fn note_begun(&self) {
        *self.begun.lock() = Some(Instant::now());
    }

    /// When Python took the request that the connection waited for, if that was noted.
    pub fn take_begun(&self) -> Option<Instant> {
        self.begun.lock().take()
    }

    pub fn touch(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Tells which task to wake. A spawned task keeps its waker for life, so the first one stays right.
    pub fn set_waker(&self, waker: &Waker) -> &Waker {
        self.waker.get_or_init(|| waker.clone())
    }

    /// Lets the connection look around; nothing when it was not polled yet, because then it will be.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Hands over the answer to the request with this handle; to be followed by [`Link::wake`].
    pub fn set_reply(&self, handle: u64, reply: Reply) {
        *self.reply.lock() = Some((handle, reply));
    }

    /// The answer to the request with this handle, once it is there.
    pub fn take_reply(&self, handle: u64) -> Option<Reply> {
        let mut reply = self.reply.lock();
        match &*reply {
            Some((of, _)) if *of == handle => reply.take().map(|(_, reply)| reply),
            _ => None,
        }
    }

    pub fn mark_asked_outside(&self) {
        self.asked_outside.store(true, Ordering::Relaxed);
    }

    pub fn has_asked_outside(&self) -> bool {
        self.asked_outside.load(Ordering::Relaxed)
    }

    /// Asks the connection to close now, whatever it is doing.
    pub fn ask_to_close(&self) {
        self.close_asked.store(true, Ordering::Release);
        self.wake();
    }

    /// Asks the connection to answer what it has taken and to close then.
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
