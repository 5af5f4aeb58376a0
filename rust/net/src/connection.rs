//! One connection: frames in, answers out in the same order.
//!
//! A connection is one task that is polled when its socket, its time or something it waits for has news. It holds buffers
//! only while bytes are on their way, so that ten thousand idle connections cost little (goal 23).

mod taking;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use klamm_quorum::Looked;
use klamm_wire::header::ResponseHeader;
use tokio::time::Sleep;

use super::answer::{Answer, Frame};
use super::core::Core;
use super::dispatch::Route;
use super::events::{LogLevel, Request};
use super::input::Input;
use super::limits::Place;
use super::link::{Link, Reply};
use super::listener::Listener;
use super::output::Output;
use super::pending::{Asked, Owed, Pending, PendingQueue};
use super::pipeline::Usage;
use super::sending::Sending;
use super::transport::{PeerEnd, Transport};
use taking::Step;

/// Unsent bytes beyond which no further request is taken: a reader that is slow waits for itself.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Frames taken from one connection before others get a turn.
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
    /// Until then no further request is taken: the client's quota is used up.
    muted_until: Option<Instant>,
    /// Why no further request is taken; the connection ends when everything before is answered.
    ending: Option<Ending>,
    /// Set when the peer has ended its side: what waits for longer is not answered any more.
    gives_up_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    active_at: Instant,
    /// When bytes were received last.
    received_at: Instant,
    _place: Place,
}

/// Why a connection ends.
enum Ending {
    /// The peer closed, or the network failed: nothing to say about it.
    Quiet,
    /// The peer did something that closes its connection.
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

    /// Serves until either side ends it.
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
                // What had to wait for room may be taken now; nothing else would say so.
                continue;
            }
            if frames_left == 0 || !(self.poll_receive(cx) || self.poll_time(cx)) {
                self.input.rest(&self.core.buffers);
                self.output.give_back();
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

    /// The steps after an answer of so many bytes, which are the last of the output.
    fn settle(&mut self, asked: Asked, answer_bytes: usize) {
        let usage = Usage { request_bytes: asked.request_bytes, answer_bytes };
        let throttle = self.core.pipeline.quotas.count(&self.link, asked.api, usage);
        if !throttle.is_zero() {
            self.muted_until = Some(Instant::now() + throttle);
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

    /// Moves the answers that are due to the output, in order.
    fn answer_pending(&mut self, waker: &Waker) -> Result<(), Ending> {
        while let Some(Owed { pending, asked }) = self.pending.front_mut() {
            let measured = &mut asked.measured;
            let frame = match pending {
                Pending::Ready(frame) => std::mem::take(frame),
                Pending::Acks(frame, waiting) => {
                    if !waiting.wait.is_done() && Instant::now() < waiting.deadline {
                        break;
                    }
                    waiting.settle(frame);
                    if let Some(measured) = measured {
                        measured.answered();
                        waiting.wait.codes().for_each(|code| measured.has_later_error(code));
                    }
                    std::mem::take(frame)
                }
                Pending::Fetch(waiting) => {
                    let is_ending = self.ending.is_some() || self.gives_up_at.is_some();
                    let is_late = is_ending || Instant::now() >= waiting.deadline;
                    if !is_late && !waiting.is_woken() {
                        break;
                    }
                    let mut answer = Answer::behind(Vec::new());
                    answer.begin(waiting.header());
                    if measured.is_some() {
                        answer.writer.count_errors();
                    }
                    if !waiting.answer_or_wait(&self.core, &mut answer, waker, is_late) {
                        break;
                    }
                    if let Some(measured) = measured {
                        measured.answered();
                        measured.has_errors(answer.writer.take_errors());
                    }
                    finished(answer)?
                }
                Pending::Replica(waiting) => {
                    let is_past = waiting.deadline().is_none_or(|deadline| Instant::now() >= deadline);
                    let is_ending = self.ending.is_some() || self.gives_up_at.is_some();
                    match waiting.look(is_ending || is_past) {
                        Looked::Waits => break,
                        Looked::Answered(body) => {
                            measured.iter_mut().for_each(|measured| measured.answered());
                            whole(waiting.header, &body)?
                        }
                        Looked::Outside => {
                            let ask = |request| ask_outside(&self.core, &self.link, request, waker);
                            if let Some(handle) = waiting.hand_on(ask) {
                                *pending = Pending::Outside { handle, header: waiting.header };
                            }
                            break;
                        }
                    }
                }
                Pending::Outside { handle, header } => {
                    let Some(reply) = self.link.take_reply(*handle) else { break };
                    measured.iter_mut().for_each(|measured| measured.answered_outside(self.link.take_begun()));
                    match reply {
                        Reply::Close => {
                            self.ending = Some(Ending::Quiet);
                            Frame::default()
                        }
                        reply => replied(*header, reply)?,
                    }
                }
            };
            if let Some(owed) = self.pending.pop_front() {
                self.send(frame, owed.asked);
            }
        }
        Ok(())
    }

    /// Adds an answer to the output.
    fn send(&mut self, frame: Frame, asked: Asked) {
        let unsent = self.output.len();
        self.output.push(&frame.bytes, frame.slices);
        self.settle(asked, self.output.len() - unsent);
    }

    /// Receives if anything may come; whether the loop should go round again.
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

    /// While a request holds up the next one, at most what one read gives is taken in advance.
    fn may_receive(&mut self) -> bool {
        let is_held_up = !self.pending.admits(Route::Produce) || self.has_much_unsent();
        let may_read_on = !is_held_up || self.input.is_empty();
        self.ending.is_none() && may_read_on && !self.has_blocked_frame()
    }

    /// Notices the peer's end while nothing is received; whether there is one that was not known.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> bool {
        if self.gives_up_at.is_some() {
            return false;
        }
        let Poll::Ready(end) = self.transport.poll_end(cx) else { return false };
        self.note_end(end);
        true
    }

    /// A peer that has closed cannot be told from one that only listens, so waits end soon and not at once. One that is
    /// gone is not answered.
    fn note_end(&mut self, end: PeerEnd) {
        match end {
            PeerEnd::Sent => {
                let wait = Duration::from_millis(self.core.config.half_closed_ms_max);
                self.gives_up_at.get_or_insert(Instant::now() + wait);
            }
            PeerEnd::Reset => self.link.ask_to_close(),
        }
    }

    /// Whether a whole frame is here that could not be taken.
    fn has_blocked_frame(&mut self) -> bool {
        !matches!(self.input.frame(self.core.config.request_bytes_max), Ok(None))
    }

    /// Looks at the clock; whether something is due.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> bool {
        let idle_at = self.active_at + idle_max(&self.core);
        let next = [self.pending.deadline(), self.gives_up_at, self.muted_until]
            .into_iter()
            .flatten()
            .fold(idle_at, Instant::min);
        // A timer that fires early is cheaper than one that is set for every request.
        if next < self.timer_at {
            self.set_timer(next);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        let now = Instant::now();
        let is_idle = now >= idle_at;
        // A reader that takes nothing for so long is as good as gone, and so is a sender whose bytes are left unread.
        let ends_idle = is_idle && (self.pending.is_empty() || !self.may_receive());
        if ends_idle || self.gives_up_at.is_some_and(|at| now >= at) {
            self.link.ask_to_close();
            return true;
        }
        if is_idle {
            // A request that waits keeps its connection, whose end would be noticed.
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
        self.input.clear(&self.core.buffers);
        self.core.remove_link(self.link.id);
        if self.link.has_asked_outside() {
            self.core.events.push_closed(self.link.id);
        }
    }
}

/// Lets Python answer a request; gives its handle, or the request back when there is no room for it: `waker` is woken then.
fn ask_outside(core: &Core, link: &Arc<Link>, request: Box<Request>, waker: &Waker) -> Result<u64, Box<Request>> {
    let handle = request.handle;
    // Expected before it can be answered.
    core.expect_reply(handle, link);
    let pushed = core.events.push_request(request, waker);
    if pushed.is_err() {
        core.forget_handle(handle);
    }
    pushed.map(|()| handle)
}

/// An answer whose body is all here.
fn whole(header: ResponseHeader, body: &[u8]) -> Result<Frame, Ending> {
    let mut answer = Answer::behind(Vec::new());
    answer.begin(header);
    answer.writer.slice(body);
    finished(answer)
}

/// The answer that came from elsewhere.
fn replied(header: ResponseHeader, reply: Reply) -> Result<Frame, Ending> {
    match reply {
        Reply::Close => Ok(Frame::default()),
        Reply::Body(body) => whole(header, &body),
        Reply::BodyWithSlices(body, slices) => {
            let mut answer = Answer::behind(Vec::new());
            answer.begin(header);
            let start = answer.writer.len();
            answer.writer.slice(&body);
            slices.into_iter().for_each(|(position, slice)| answer.add_slice(start + position, slice));
            finished(answer)
        }
    }
}

fn finished(mut answer: Answer) -> Result<Frame, Ending> {
    match answer.finish() {
        Ok(()) => Ok(answer.split().1),
        Err(error) => Err(Ending::Refused(error.to_string())),
    }
}

/// How long nothing may happen; a century when that is not limited.
fn idle_max(core: &Core) -> Duration {
    const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    u64::try_from(core.config.idle_ms_max).map_or(NEVER, |ms| Duration::from_millis(ms).min(NEVER))
}
