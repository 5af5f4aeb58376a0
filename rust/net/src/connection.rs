//! One connection: frames in, answers out in the same order.
//!
//! A connection is one task that is polled when its socket, its time or something it waits for has news. It holds buffers
//! only while bytes are on their way, so that ten thousand idle connections cost little (goal 23).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use klamm_quorum::{Looked, Taken};
use klamm_wire::header::ResponseHeader;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::answer::{Answer, Frame};
use super::core::Core;
use super::dispatch::{Route, route};
use super::events::{LogLevel, Request};
use super::handlers::Outcome;
use super::handlers::replica_fetch::{self, WaitingReplica};
use super::input::Input;
use super::limits::Place;
use super::link::{Link, Reply};
use super::listener::Listener;
use super::output::Output;
use super::pending::{Pending, PendingQueue};
use super::socket::{PeerEnd, Socket};

/// Unsent bytes beyond which no further request is taken: a reader that is slow waits for itself.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Frames taken from one connection before others get a turn.
const FRAMES_PER_TURN: usize = 64;

pub struct Connection {
    core: Arc<Core>,
    listener: Arc<Listener>,
    link: Arc<Link>,
    socket: Socket,
    input: Input,
    pending: PendingQueue,
    output: Output,
    /// Why no further request is taken; the connection ends when everything before is answered.
    ending: Option<Ending>,
    /// Set when the peer has ended its side: what waits for longer is not answered any more.
    gives_up_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    active_at: Instant,
    _place: Place,
}

/// Why a connection ends.
enum Ending {
    /// The peer closed, or the network failed: nothing to say about it.
    Quiet,
    /// The peer did something that closes its connection.
    Refused(String),
}

/// What came of looking at the next frame.
enum Step {
    Taken,
    /// No whole frame, or one that has to wait.
    Blocked,
}

impl Connection {
    pub fn new(core: Arc<Core>, listener: Arc<Listener>, link: Arc<Link>, stream: TcpStream, place: Place) -> Self {
        let now = Instant::now();
        let timer_at = now + idle_max(&core);
        Self {
            core,
            listener,
            link,
            socket: Socket::new(stream),
            input: Input::default(),
            pending: PendingQueue::default(),
            output: Output::default(),
            ending: None,
            gives_up_at: None,
            timer: Box::pin(tokio::time::sleep_until(timer_at.into())),
            timer_at,
            active_at: now,
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
            let sending = self.output.poll_send(cx, self.socket.stream());
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
        }
    }

    fn has_much_unsent(&self) -> bool {
        self.output.len() > UNSENT_BYTES_MAX
    }

    /// Takes the next frame if there is a whole one whose turn it is.
    fn take_frame(&mut self, waker: &Waker) -> Step {
        if self.ending.is_some() || self.has_much_unsent() {
            return Step::Blocked;
        }
        let frame = match self.input.frame(self.core.config.request_bytes_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Blocked,
            Err(error) => return self.refuse(error.to_string()),
        };
        let routed = match route(&self.listener, frame) {
            Ok(routed) => routed,
            Err(reason) => return self.refuse(reason),
        };
        if !self.listener.answers(routed.api_key(), waker) || !self.pending.admits(routed.route) {
            return Step::Blocked;
        }
        let len = frame.len();
        if routed.route == Route::Outside {
            match replica_fetch::take(&self.core, &self.listener, &routed, frame, waker) {
                Taken::Answered(body) => match whole(routed.header, &body) {
                    // Nothing is before it: else it would not have been admitted.
                    Ok(frame) => self.output.push(&frame.bytes, frame.slices),
                    Err(ending) => {
                        self.ending = Some(ending);
                        return Step::Blocked;
                    }
                },
                taken => {
                    let request = match routed.to_request(self.core.new_id(), &self.listener, &self.link, frame) {
                        Ok(request) => request,
                        Err(error) => return self.refuse(error.to_string()),
                    };
                    let pending = match taken {
                        Taken::Waits(waiting) => WaitingReplica::pending(waiting, request, routed.header),
                        _ => match ask_outside(&self.core, &self.link, request, waker) {
                            Ok(handle) => Pending::Outside { handle, header: routed.header },
                            Err(_) => return Step::Blocked,
                        },
                    };
                    self.pending.push(pending);
                }
            }
            self.link.mark_asked_outside();
        } else {
            let is_next = self.pending.is_empty();
            let before = if is_next { self.output.take_bytes() } else { Vec::new() };
            let mut answer = Answer::behind(before);
            let outcome = routed.handle(&self.core, &self.listener, &self.link, waker, frame, &mut answer);
            if let Some(reason) = self.keep(outcome, answer, is_next) {
                return self.refuse(reason);
            }
        }
        self.core.counters.add_request(routed.api_key());
        self.input.consume(len);
        Step::Taken
    }

    /// Puts what became of a request where it belongs; a reason to close, if there is one.
    fn keep(&mut self, outcome: Outcome, mut answer: Answer, is_next: bool) -> Option<String> {
        let needs_length = matches!(outcome, Outcome::Answered | Outcome::Acks(_));
        let too_long = if needs_length { answer.finish().err() } else { None };
        if matches!(outcome, Outcome::Answered) && too_long.is_none() && is_next {
            let (bytes, slices) = answer.into_parts();
            self.output.restore(bytes);
            slices.into_iter().for_each(|(position, slice)| self.output.insert_slice(position, slice));
            return None;
        }
        let (before, frame) = answer.split();
        if is_next {
            self.output.restore(before);
        }
        match outcome {
            _ if too_long.is_some() => return too_long.map(|error| error.to_string()),
            Outcome::Answered => self.pending.push(Pending::Ready(frame)),
            Outcome::Silent => {}
            Outcome::Acks(waiting) => self.pending.push(Pending::Acks(frame, waiting)),
            Outcome::Fetch(waiting) => self.pending.push(Pending::Fetch(waiting)),
            Outcome::Close(reason) => return Some(reason),
        }
        None
    }

    /// Takes nothing more; what was taken is still answered.
    fn refuse(&mut self, reason: String) -> Step {
        self.ending = Some(Ending::Refused(reason));
        Step::Blocked
    }

    /// Moves the answers that are due to the output, in order.
    fn answer_pending(&mut self, waker: &Waker) -> Result<(), Ending> {
        while let Some(front) = self.pending.front_mut() {
            let frame = match front {
                Pending::Ready(frame) => std::mem::take(frame),
                Pending::Acks(frame, waiting) => {
                    if !waiting.wait.is_done() && Instant::now() < waiting.deadline {
                        break;
                    }
                    waiting.settle(frame);
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
                    if !waiting.answer_or_wait(&self.core, &mut answer, waker, is_late) {
                        break;
                    }
                    finished(answer)?
                }
                Pending::Replica(waiting) => {
                    let is_past = waiting.deadline().is_none_or(|deadline| Instant::now() >= deadline);
                    let is_ending = self.ending.is_some() || self.gives_up_at.is_some();
                    match waiting.look(is_ending || is_past) {
                        Looked::Waits => break,
                        Looked::Answered(body) => whole(waiting.header, &body)?,
                        Looked::Outside => {
                            let ask = |request| ask_outside(&self.core, &self.link, request, waker);
                            if let Some(handle) = waiting.hand_on(ask) {
                                *front = Pending::Outside { handle, header: waiting.header };
                            }
                            break;
                        }
                    }
                }
                Pending::Outside { handle, header } => match self.link.take_reply(*handle) {
                    None => break,
                    Some(Reply::Close) => {
                        self.ending = Some(Ending::Quiet);
                        Frame::default()
                    }
                    Some(Reply::Body(body)) => whole(*header, &body)?,
                    Some(Reply::BodyWithSlices(body, slices)) => {
                        let mut answer = Answer::behind(Vec::new());
                        answer.begin(*header);
                        let start = answer.writer.len();
                        answer.writer.slice(&body);
                        slices.into_iter().for_each(|(position, slice)| answer.add_slice(start + position, slice));
                        finished(answer)?
                    }
                },
            };
            self.pending.pop_front();
            self.output.push(&frame.bytes, frame.slices);
        }
        Ok(())
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
        match self.input.poll_receive(cx, &mut self.socket, max) {
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
        let Poll::Ready(end) = self.socket.poll_end(cx) else { return false };
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
        let next = [self.pending.deadline(), self.gives_up_at].into_iter().flatten().fold(idle_at, Instant::min);
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

impl Drop for Connection {
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
