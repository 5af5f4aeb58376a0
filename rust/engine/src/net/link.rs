//! What others hold of a connection: its number, a way to wake it, and the place for an answer from elsewhere.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;

use super::answer::Answer;
use super::listener::Listener;
use super::os;
use super::slice::FileSlice;
use crate::wire::api::ListenerKind;
use crate::wire::header::ResponseHeader;

/// An answer from elsewhere, without frame length and response header.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The answer's body.
    Body(Bytes),
    /// The answer's body, with slices of files at positions of it, ascending.
    BodyWithSlices(Bytes, Vec<(usize, FileSlice)>),
    /// There is none: the connection is closed.
    Close,
    /// A frame of which so many bytes are sent already.
    Begun(Vec<u8>, usize),
}

/// A longer answer is left to its connection: whoever has it has other things to do than to wait for its bytes.
const SENT_HERE_BYTES: usize = 64 << 10;

/// How the answer to the only request that a connection waits for may be sent by whoever has it.
pub struct Direct {
    pub handle: u64,
    pub header: ResponseHeader,
    /// Open as long as [`Link`] has this.
    pub socket: RawFd,
}

/// The outside of one connection.
pub struct Link {
    pub id: u64,
    pub peer: SocketAddr,
    /// The listener that it came in by.
    pub listener: Arc<str>,
    pub kind: ListenerKind,
    /// When it was last used, in ms of the server's time.
    used_ms: AtomicU64,
    waker: OnceLock<Waker>,
    close_asked: AtomicBool,
    finish_asked: AtomicBool,
    /// Whether anything was asked outside, where the end of the connection is news then.
    asked_outside: AtomicBool,
    reply: Mutex<Option<(u64, Reply)>>,
    direct: Mutex<Option<Direct>>,
}

impl Link {
    pub fn new(id: u64, peer: SocketAddr, listener: &Listener) -> Self {
        Self {
            id,
            peer,
            listener: listener.name.clone(),
            kind: listener.kind,
            used_ms: AtomicU64::new(0),
            waker: OnceLock::new(),
            close_asked: AtomicBool::new(false),
            finish_asked: AtomicBool::new(false),
            asked_outside: AtomicBool::new(false),
            reply: Mutex::new(None),
            direct: Mutex::new(None),
        }
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

    /// Hands over the answer to the request with this handle, which is sent at once if it may be and the connection has
    /// nothing else to send. `false`: [`Link::wake`] has to follow.
    ///
    /// A connection that is not woken finds out with the next request. To wake it would cost a thread's turn, twice what
    /// the sending costs.
    pub fn set_reply(&self, handle: u64, reply: Reply, may_send: bool) -> bool {
        let mut direct = self.direct.lock();
        let (reply, is_sent) = match (direct.take_if(|direct| may_send && direct.handle == handle), reply) {
            (Some(direct), Reply::Body(body)) if body.len() <= SENT_HERE_BYTES => send_now(&direct, body),
            (_, reply) => (reply, false),
        };
        *self.reply.lock() = Some((handle, reply));
        is_sent
    }

    /// Lets the next answer be sent by whoever has it, or not any more: to be called by the connection alone.
    pub fn set_direct(&self, direct: Option<Direct>) {
        *self.direct.lock() = direct;
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

/// What is left to do of an answer, and whether that is nothing.
fn send_now(direct: &Direct, body: Bytes) -> (Reply, bool) {
    let mut answer = Answer::behind(Vec::new());
    answer.begin(direct.header);
    answer.writer.slice(&body);
    if answer.finish().is_err() {
        return (Reply::Body(body), false);
    }
    let (frame, _) = answer.into_parts();
    // Whatever the socket has against it, the connection meets when it sends the rest.
    let sent = os::send(direct.socket, &frame, false).unwrap_or(0);
    let is_sent = sent == frame.len();
    (Reply::Begun(if is_sent { Vec::new() } else { frame }, sent), is_sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_a_socket_does_not_take_is_left_to_the_connection() {
        let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
        here.set_nonblocking(true).expect("a socket option");
        let direct = |handle| Direct {
            handle,
            header: ResponseHeader { correlation_id: 7, flexible: false },
            socket: here.as_raw_fd(),
        };
        let body = Bytes::from(vec![1; SENT_HERE_BYTES]);
        let mut frames = 0;
        let (rest, sent) = loop {
            match send_now(&direct(1), body.clone()) {
                (Reply::Begun(rest, sent), false) => break (rest, sent),
                (Reply::Begun(_, sent), true) => assert_eq!(sent, body.len() + 8),
                other => panic!("{other:?}"),
            }
            frames += 1;
            assert!(frames < 1000, "the socket takes everything");
        };
        there.set_nonblocking(true).expect("a socket option");
        let mut received = Vec::new();
        // It ends with what is not there yet.
        let _ = there.read_to_end(&mut received);
        assert_eq!(received.len(), frames * (body.len() + 8) + sent);
        here.write_all(&rest[sent..]).expect("room");
        let _ = there.read_to_end(&mut received);
        let frame = &received[frames * (body.len() + 8)..];
        assert_eq!((&frame[..8], &frame[8..]), (&[0, 1, 0, 4, 0, 0, 0, 7][..], &body[..]));
    }
}
