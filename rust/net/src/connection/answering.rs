//! How a connection answers: the responses that are due, in the order of the requests.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use klamm_quorum::Looked;
use klamm_wire::api::{Api, Quota};
use klamm_wire::header::ResponseHeader;

use super::{Connection, Ending};
use crate::answer::{Answer, Frame};
use crate::core::Core;
use crate::events::Request;
use crate::handlers::fetch::WaitingFetch;
use crate::handlers::produce::WaitingProduce;
use crate::handlers::share::WaitingShare;
use crate::link::{Link, Reply};
use crate::pending::{Owed, Pending, Timed};
use crate::pipeline::Measured;
use crate::transport::Transport;

/// The state of the oldest request that has no response yet.
enum Due {
    Waits,
    Answered(Frame),
    /// Python requires closing the connection.
    Close,
}

/// What a response depends on besides its request.
struct Answering<'a> {
    core: &'a Core,
    link: &'a Arc<Link>,
    waker: &'a Waker,
    /// Whether requests wait no longer, because the connection ends.
    is_ending: bool,
}

/// A request that is answered by the engine when something happens, or at its deadline.
trait Waiting {
    fn header(&self) -> ResponseHeader;
    fn deadline(&self) -> Option<Instant>;
    fn is_woken(&self) -> bool;
    fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool;
}

impl Waiting for WaitingFetch {
    fn header(&self) -> ResponseHeader {
        self.header()
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    fn is_woken(&self) -> bool {
        self.is_woken()
    }

    fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool {
        self.answer_or_wait(core, answer, waker, at_once)
    }
}

impl Waiting for WaitingShare {
    fn header(&self) -> ResponseHeader {
        self.header()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn is_woken(&self) -> bool {
        self.is_woken()
    }

    fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool {
        self.answer_or_wait(core, answer, waker, at_once)
    }
}

impl<T: Transport> Connection<T> {
    /// Moves the responses that are due to the output, in order.
    pub(super) fn answer_pending(&mut self, waker: &Waker) -> Result<(), Ending> {
        while let Some(owed) = self.pending.front_mut() {
            let is_ending = self.ending.is_some() || self.gives_up_at.is_some();
            let answering = Answering { core: &self.core, link: &self.link, waker, is_ending };
            let frame = match answering.due(owed)? {
                Due::Waits => break,
                Due::Answered(frame) => frame,
                Due::Close => {
                    self.ending = Some(Ending::Quiet);
                    Frame::default()
                }
            };
            if let Some(owed) = self.pending.pop_front() {
                self.send(frame, owed.asked);
            }
        }
        Ok(())
    }
}

impl Answering<'_> {
    fn due(&self, owed: &mut Owed) -> Result<Due, Ending> {
        let api = owed.asked.api;
        let measured = owed.asked.measured.as_deref_mut();
        let timed = owed.asked.timed.as_deref();
        match &mut owed.pending {
            Pending::Ready(frame) => Ok(Due::Answered(std::mem::take(frame))),
            Pending::Acks(frame, waiting) => Ok(produced(frame, waiting, measured)),
            Pending::Fetch(waiting) => self.fetched(&mut **waiting, measured, timed),
            Pending::Share(waiting) => self.fetched(&mut **waiting, measured, timed),
            Pending::Replica(_) => self.fetched_by_replica(&mut owed.pending, measured),
            Pending::Outside { handle, header } => self.replied(api, *handle, *header, measured, timed),
        }
    }

    fn fetched(
        &self,
        waiting: &mut impl Waiting,
        measured: Option<&mut Measured>,
        timed: Option<&Timed>,
    ) -> Result<Due, Ending> {
        let begun = Instant::now();
        let is_late = self.is_ending || waiting.deadline().is_some_and(|deadline| begun >= deadline);
        if !is_late && !waiting.is_woken() {
            return Ok(Due::Waits);
        }
        let mut answer = Answer::after(Vec::new());
        answer.begin(waiting.header());
        if measured.is_some() {
            answer.writer.count_errors();
        }
        let is_answered = waiting.answer_or_wait(self.core, &mut answer, self.waker, is_late);
        if let Some(timed) = timed {
            answer.throttle(self.core.pipeline.quotas.took(&timed.client, begun.elapsed()));
        }
        if !is_answered {
            return Ok(Due::Waits);
        }
        if let Some(measured) = measured {
            measured.answered();
            measured.has_errors(answer.writer.take_errors());
        }
        finished(answer).map(Due::Answered)
    }

    /// A fetch of the quorum's log that can no longer be answered here is passed to Python.
    fn fetched_by_replica(&self, pending: &mut Pending, measured: Option<&mut Measured>) -> Result<Due, Ending> {
        let Pending::Replica(waiting) = pending else { unreachable!("matched by the caller") };
        let is_past = waiting.deadline().is_none_or(|deadline| Instant::now() >= deadline);
        match waiting.look(self.is_ending || is_past) {
            Looked::Waits => Ok(Due::Waits),
            Looked::Answered(body) => {
                measured.into_iter().for_each(Measured::answered);
                whole(waiting.header, &body).map(Due::Answered)
            }
            Looked::Outside => {
                let ask = |request| ask_outside(self.core, self.link, request, self.waker);
                if let Some(handle) = waiting.hand_on(ask) {
                    *pending = Pending::Outside { handle, header: waiting.header };
                }
                Ok(Due::Waits)
            }
        }
    }

    /// The response of Python, if there is one.
    fn replied(
        &self,
        api: &Api,
        handle: u64,
        header: ResponseHeader,
        measured: Option<&mut Measured>,
        timed: Option<&Timed>,
    ) -> Result<Due, Ending> {
        let Some(reply) = self.link.take_reply(handle) else { return Ok(Due::Waits) };
        let notes = self.link.take_notes(handle);
        if let Some(measured) = measured {
            measured.answered_outside(self.link.take_begun(handle));
            measured.has_errors(notes.errors);
        }
        match reply {
            Reply::Close | Reply::Verified(_) => Ok(Due::Close),
            Reply::Body(body) => {
                let throttle_ms = throttle_ms(api, &body);
                let mut frame = Frame { throttle_ms, ..whole(header, &body)? };
                if let Some(timed) = timed {
                    self.throttle(&mut frame, body.len(), api, timed, notes.handler_time);
                }
                Ok(Due::Answered(frame))
            }
            Reply::BodyWithSlices(body, slices) => {
                let mut answer = Answer::after(Vec::new());
                answer.begin(header);
                let start = answer.writer.len();
                answer.writer.slice(&body);
                slices.into_iter().for_each(|(position, slice)| answer.add_slice(start + position, slice));
                finished(answer).map(Due::Answered)
            }
        }
    }
}

impl Answering<'_> {
    /// Counts the time that Python's handler took for a response with a body of this length.
    fn throttle(&self, frame: &mut Frame, body_len: usize, api: &Api, timed: &Timed, took: Duration) {
        let ms = self.core.pipeline.quotas.took(&timed.client, took);
        if ms <= frame.throttle_ms {
            return;
        }
        frame.throttle_ms = ms;
        let body = frame.bytes.len() - body_len;
        if let Some(at) = api.throttle_time_at(timed.version)
            && let Some(field) = frame.bytes.get_mut(body + at..body + at + 4)
        {
            field.copy_from_slice(&ms.to_be_bytes());
        }
    }
}

/// The throttle time that a response of Python names, where the controller may set one (KIP-599).
fn throttle_ms(api: &Api, body: &[u8]) -> i32 {
    match (api.quota, body.first_chunk()) {
        // It is the first field in every version.
        (Quota::ControllerMutation, Some(field)) => i32::from_be_bytes(*field),
        _ => 0,
    }
}

/// The response to a produce, once its partitions have committed the records or the wait is over.
fn produced(frame: &mut Frame, waiting: &mut WaitingProduce, measured: Option<&mut Measured>) -> Due {
    if !waiting.wait.is_done() && Instant::now() < waiting.deadline {
        return Due::Waits;
    }
    waiting.settle(frame);
    if let Some(measured) = measured {
        measured.answered();
        waiting.wait.codes().for_each(|code| measured.has_later_error(code));
    }
    Due::Answered(std::mem::take(frame))
}

/// Passes a request to Python; returns its handle, or the request if there is no room for it: then `waker` is woken
/// later.
pub(super) fn ask_outside(
    core: &Core,
    link: &Arc<Link>,
    request: Box<Request>,
    waker: &Waker,
) -> Result<u64, Box<Request>> {
    let handle = request.handle;
    // Registered before it can be answered.
    core.expect_reply(handle, link);
    let pushed = core.events.push_request(request, waker);
    if pushed.is_err() {
        core.forget_handle(handle);
    }
    pushed.map(|()| handle)
}

/// A response whose body is complete.
pub(super) fn whole(header: ResponseHeader, body: &[u8]) -> Result<Frame, Ending> {
    let mut answer = Answer::after(Vec::new());
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
