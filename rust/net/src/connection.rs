//! One connection: receives frames and sends responses in the same order.
//!
//! A connection is one task, which is polled when its socket, its timer or something it waits for is ready. It holds
//! buffers only while bytes are in transit, so that ten thousand idle connections use little memory.

mod answering;
mod taking;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::answer::Frame;
use super::core::Core;
use super::dispatch::Route;
use super::events::LogLevel;
use super::handlers::verification::Verification;
use super::input::Input;
use super::limits::Place;
use super::link::Link;
use super::listener::Listener;
use super::output::Output;
use super::pending::{Asked, Pending, PendingQueue};
use super::sending::Sending;
use super::transport::{PeerEnd, Transport};
use taking::Step;

/// With more unsent bytes than this, no further request is taken: a slow reader delays only itself.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Frames that are taken from one connection before others get a turn.
const FRAMES_PER_TURN: usize = 64;

pub struct Connection<T> {
    core: Arc<Core>,
    listener: Arc<Listener>,
    link: Arc<Link>,
    transport: T,
    input: Input,
    pending: PendingQueue,
    output: Output,
    sending: Sending,
    /// The next request, a produce, waits for the transaction coordinator.
    verifying: Option<Box<Verification>>,
    /// Until then no further request is taken, because the client exceeded its quota.
    muted_until: Option<Instant>,
    /// Why no further request is taken; the connection closes after the responses to all earlier requests.
    ending: Option<Ending>,
    /// Set when the peer has closed its side: requests that wait longer are not answered any more.
    gives_up_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    active_at: Instant,
    /// When bytes were last received.
    received_at: Instant,
    _place: Place,
}

/// Why a connection ends.
enum Ending {
    /// The peer closed the connection, or the network failed: not worth a log line.
    Quiet,
    /// The peer's request requires closing the connection.
    Refused(String),
}

impl<T: Transport> Connection<T> {
    pub fn new(core: Arc<Core>, listener: Arc<Listener>, link: Arc<Link>, transport: T, place: Place) -> Self {
        let now = Instant::now();
        let timer_at = now + idle_max(&core);
        Self {
            core,
            listener,
            link,
            transport,
            input: Input::default(),
            pending: PendingQueue::default(),
            output: Output::default(),
            sending: Sending::default(),
            verifying: None,
            muted_until: None,
            ending: None,
            gives_up_at: None,
            timer: Box::pin(tokio::time::sleep_until(timer_at.into())),
            timer_at,
            active_at: now,
            received_at: now,
            _place: place,
        }
    }

    /// Serves until either side closes it.
    pub async fn serve(mut self) {
        let ending = std::future::poll_fn(|cx| self.poll(cx)).await;
        if let Ending::Refused(reason) = ending {
            self.core.counters.closed_for_fault.add(1);
            let message = format!("connection {} from {} closed: {reason}", self.link.id, self.link.peer);
            self.core.events.log(LogLevel::Warn, message);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        self.link.set_waker(cx.waker());
        let mut frames_left = FRAMES_PER_TURN;
        loop {
            if self.link.is_asked_to_close() {
                return Poll::Ready(Ending::Quiet);
            }
            if self.ending.is_none() && self.link.is_asked_to_finish() {
                self.ending = Some(Ending::Quiet);
            }
            if let Err(ending) = self.answer_pending(cx.waker()) {
                return Poll::Ready(ending);
            }
            while frames_left > 0 && matches!(self.take_frame(cx.waker()), Step::Taken) {
                frames_left -= 1;
            }
            if frames_left == 0 {
                cx.waker().wake_by_ref();
            }
            let was_full = self.has_much_unsent();
            let unsent = self.output.len();
            let sending = self.output.poll_send(cx, &mut self.transport);
            self.note_sent(unsent - self.output.len());
            match sending {
                Poll::Ready(Err(_)) => return Poll::Ready(Ending::Quiet),
                Poll::Ready(Ok(())) if self.pending.is_empty() && self.ending.is_some() => {
                    return Poll::Ready(self.ending.take().expect("looked at just before"));
                }
                _ => {}
            }
            if was_full && !self.has_much_unsent() {
                // A request that waited for room may be taken now; no event would report this.
                continue;
            }
            if frames_left == 0 || !(self.poll_receive(cx) || self.poll_time(cx)) {
                self.input.rest(&self.core.buffers);
                self.output.release();
                return Poll::Pending;
            }
        }
    }

    fn note_sent(&mut self, bytes: usize) {
        if bytes > 0 {
            self.active_at = Instant::now();
            self.core.touch(&self.link, self.active_at);
            self.core.counters.sent_bytes.add(bytes as u64);
            self.sending.note_sent(bytes, &self.core.pipeline.metrics);
        }
    }

    /// The pipeline steps after a response of `answer_bytes`, which are the last bytes of the output.
    fn settle(&mut self, asked: Asked, answer_bytes: usize, throttle_ms: i32) {
        let throttle = Duration::from_millis(u64::try_from(throttle_ms).unwrap_or(0));
        if !throttle.is_zero() {
            self.muted_until = self.muted_until.max(Some(Instant::now() + throttle));
        }
        if let Some(mut measured) = asked.measured {
            measured.queued(throttle);
            match answer_bytes {
                0 => self.core.pipeline.metrics.record(&measured, Instant::now()),
                _ => self.sending.push(measured, self.output.len()),
            }
        }
    }

    fn is_muted(&mut self) -> bool {
        let Some(until) = self.muted_until else { return false };
        let is_muted = Instant::now() < until;
        if !is_muted {
            self.muted_until = None;
        }
        is_muted
    }

    fn has_much_unsent(&self) -> bool {
        self.output.len() > UNSENT_BYTES_MAX
    }

    /// Adds a response to the output.
    fn send(&mut self, frame: Frame, asked: Asked) {
        let unsent = self.output.len();
        self.output.push(&frame.bytes, frame.slices);
        self.settle(asked, self.output.len() - unsent, frame.throttle_ms);
    }

    /// Receives if that is allowed; returns whether the loop should continue.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.may_receive() {
            return self.poll_end(cx);
        }
        let max = self.core.config.request_bytes_max;
        match self.input.make_room(&self.core.buffers, cx.waker(), max) {
            Ok(true) => {}
            Ok(false) => return self.poll_end(cx),
            Err(error) => {
                self.refuse(error.to_string());
                return true;
            }
        }
        match self.input.poll_receive(cx, &mut self.transport, max) {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                self.ending = Some(Ending::Quiet);
                self.note_end(PeerEnd::Sent);
                true
            }
            Poll::Ready(Err(_)) => {
                self.note_end(PeerEnd::Reset);
                true
            }
            Poll::Ready(Ok(received)) => {
                self.core.counters.received_bytes.add(received as u64);
                self.active_at = Instant::now();
                self.received_at = self.active_at;
                self.core.touch(&self.link, self.active_at);
                true
            }
        }
    }

    /// While a request blocks the next one, at most one read's worth of bytes is received in advance.
    fn may_receive(&mut self) -> bool {
        let is_held_up = !self.pending.admits(Route::Produce) || self.has_much_unsent();
        let may_read_on = !is_held_up || self.input.is_empty();
        self.ending.is_none() && may_read_on && !self.has_blocked_frame()
    }

    /// Checks for the peer's end while nothing is received; returns whether it is a new one.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> bool {
        if self.gives_up_at.is_some() {
            return false;
        }
        let Poll::Ready(end) = self.transport.poll_end(cx) else { return false };
        self.note_end(end);
        true
    }

    /// A peer that has closed its side may still read, so its waiting requests end soon but not immediately. After a
    /// reset nothing is sent.
    fn note_end(&mut self, end: PeerEnd) {
        match end {
            PeerEnd::Sent => {
                let wait = Duration::from_millis(self.core.config.half_closed_ms_max);
                self.gives_up_at.get_or_insert(Instant::now() + wait);
            }
            PeerEnd::Reset => self.link.ask_to_close(),
        }
    }

    /// Whether a complete frame was received that cannot be taken yet.
    fn has_blocked_frame(&mut self) -> bool {
        !matches!(self.input.frame(self.core.config.request_bytes_max), Ok(None))
    }

    /// Checks the timer; returns whether something is due.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> bool {
        let idle_at = self.active_at + idle_max(&self.core);
        let verified_by = self.verifying.as_ref().map(|verifying| verifying.deadline);
        let next = [self.pending.deadline(), verified_by, self.gives_up_at, self.muted_until]
            .into_iter()
            .flatten()
            .fold(idle_at, Instant::min);
        // A timer that fires early is cheaper than setting one for every request.
        if next < self.timer_at {
            self.set_timer(next);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        let now = Instant::now();
        let is_idle = now >= idle_at;
        // A reader that takes nothing for so long counts as gone, and so does a sender whose bytes are not read.
        let ends_idle = is_idle && self.verifying.is_none() && (self.pending.is_empty() || !self.may_receive());
        if ends_idle || self.gives_up_at.is_some_and(|at| now >= at) {
            self.link.ask_to_close();
            return true;
        }
        if is_idle {
            // A waiting request keeps its connection open; the connection's end would be noticed.
            self.active_at = now;
        }
        self.set_timer(next.max(now + Duration::from_millis(1)));
        true
    }

    fn set_timer(&mut self, at: Instant) {
        self.timer.as_mut().reset(at.into());
        self.timer_at = at;
    }
}

impl<T> Drop for Connection<T> {
    fn drop(&mut self) {
        for pending in self.pending.drain() {
            if let Pending::Outside { handle, .. } = pending {
                self.core.forget_handle(handle);
            }
        }
        if let Some(verifying) = &self.verifying {
            self.core.forget_handle(verifying.handle);
        }
        self.input.clear(&self.core.buffers);
        self.core.remove_link(self.link.id);
        self.core.shares.on_disconnect(&self.core, self.link.id);
        if self.link.has_asked_outside() {
            self.core.events.push_closed(self.link.id);
        }
    }
}

/// The maximum idle time; a century if it is not limited.
fn idle_max(core: &Core) -> Duration {
    const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    u64::try_from(core.config.idle_ms_max).map_or(NEVER, |ms| Duration::from_millis(ms).min(NEVER))
}
