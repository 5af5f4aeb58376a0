//! How a connection takes a request: the pipeline steps before the response.

use std::task::Waker;
use std::time::Instant;

use klamm_base::ErrorCode;
use klamm_quorum::Taken;

use super::answering::{ask_outside, whole};
use super::{Connection, Ending};
use crate::answer::Answer;
use crate::dispatch::{Route, Routed, route};
use crate::handlers::Outcome;
use crate::handlers::replica_fetch::{self, WaitingReplica};
use crate::handlers::verification::Verified;
use crate::link::Reply;
use crate::pending::{Asked, Pending};
use crate::pipeline::{Measured, authentication};
use crate::transport::Transport;

/// The result of checking the next frame.
pub(super) enum Step {
    Taken,
    /// There is no complete frame, or it must wait.
    Blocked,
}

impl<T: Transport> Connection<T> {
    /// Takes the next frame if it is complete and may be processed now.
    pub(super) fn take_frame(&mut self, waker: &Waker) -> Step {
        let verified = match self.take_verified() {
            Some(verified) => Some(verified),
            None if self.verifying.is_some() => return Step::Blocked,
            None if self.ending.is_some() || self.has_much_unsent() || self.is_muted() => return Step::Blocked,
            None => None,
        };
        let frame = match self.input.frame(self.core.config.request_bytes_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Blocked,
            Err(error) => return self.refuse(error.to_string()),
        };
        let routed = route(&self.listener, frame);
        let routed = match routed.and_then(|routed| authentication::check(routed.api, &self.link).map(|()| routed)) {
            Ok(routed) => routed,
            Err(reason) => return self.refuse(reason),
        };
        if !self.listener.answers(routed.api.key, waker) || !self.pending.admits(routed.route) {
            return Step::Blocked;
        }
        let len = frame.len();
        let is_measured = self.core.pipeline.metrics.is_on();
        let measured = is_measured
            .then(|| Measured::begin(routed.api, routed.version(), routed.body(frame), len, self.received_at));
        let timed = routed.timed(&self.core, &self.link, frame);
        let asked = Asked { api: routed.api, measured, timed };
        let step = match routed.route {
            Route::Outside | Route::Commit => self.take_outside(&routed, asked, waker),
            _ => self.take_own(&routed, verified, asked, waker),
        };
        if matches!(step, Step::Taken) {
            self.core.pipeline.metrics.add_request(routed.api, routed.version());
            self.input.consume(len);
        }
        step
    }

    /// Passes the request on, unless it is a fetch of the quorum's log that can be answered here.
    fn take_outside(&mut self, routed: &Routed, mut asked: Asked, waker: &Waker) -> Step {
        let Ok(Some(frame)) = self.input.frame(self.core.config.request_bytes_max) else {
            unreachable!("it was there just before")
        };
        match replica_fetch::take(&self.core, &self.listener, routed, frame, waker) {
            Taken::Answered(body) => match whole(routed.header, &body) {
                // No request is before it: otherwise it would not have been admitted.
                Ok(frame) => {
                    asked.measured.iter_mut().for_each(|measured| measured.handled());
                    self.send(frame, asked);
                }
                Err(ending) => {
                    self.ending = Some(ending);
                    return Step::Blocked;
                }
            },
            taken => {
                if let Taken::Waits(_) = taken {
                    asked.timed = None;
                }
                let handle = self.core.new_id();
                let request = match routed.to_request(handle, &self.listener, &self.link, self.received_at, frame) {
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
                self.pending.push(pending, asked);
            }
        }
        self.link.mark_asked_outside();
        Step::Taken
    }

    /// The result for the produce that waits for the transaction coordinator, if it must wait no longer.
    fn take_verified(&mut self) -> Option<Verified> {
        let verifying = self.verifying.as_ref()?;
        let codes = match self.link.take_reply(verifying.handle) {
            Some(Reply::Verified(codes)) => codes,
            None if self.ending.is_none() && Instant::now() < verifying.deadline => return None,
            _ => {
                self.core.forget_handle(verifying.handle);
                [ErrorCode::NETWORK_EXCEPTION].into()
            }
        };
        self.verifying.take().map(|verifying| verifying.answered(&codes))
    }

    /// Runs the engine's handler, which answers the request now or later.
    fn take_own(&mut self, routed: &Routed, verified: Option<Verified>, mut asked: Asked, waker: &Waker) -> Step {
        let is_next = self.pending.is_empty();
        let unsent = self.output.len();
        let before = if is_next { self.output.take_bytes() } else { Vec::new() };
        let mut answer = Answer::after(before);
        if asked.measured.is_some() {
            answer.writer.count_errors();
        }
        let Ok(Some(frame)) = self.input.frame(self.core.config.request_bytes_max) else {
            unreachable!("it was there just before")
        };
        let (core, arrived) = (&self.core, self.received_at);
        let begun = asked.timed.is_some().then(Instant::now);
        let outcome = routed.handle(core, &self.listener, &self.link, arrived, waker, verified, frame, &mut answer);
        if let Outcome::Verifies(verifying) = outcome {
            if is_next {
                self.output.restore(answer.split().0);
            }
            self.verifying = Some(verifying);
            return Step::Blocked;
        }
        if answer.is_exempt {
            asked.timed = None;
        }
        if let (Some(timed), Some(begun)) = (&asked.timed, begun) {
            answer.throttle(core.pipeline.quotas.took(&timed.client, begun.elapsed()));
        }
        if let Some(measured) = &mut asked.measured {
            measured.has_errors(answer.writer.take_errors());
            measured.handled();
        }
        match self.keep(outcome, answer, is_next, unsent, asked) {
            Some(reason) => self.refuse(reason),
            None => Step::Taken,
        }
    }

    /// Stores the outcome of a request in the right place; returns an error if the connection must close.
    fn keep(
        &mut self,
        outcome: Outcome,
        mut answer: Answer,
        is_next: bool,
        unsent: usize,
        asked: Asked,
    ) -> Option<String> {
        let throttle_ms = answer.throttle_ms;
        let needs_length = matches!(outcome, Outcome::Answered | Outcome::Acks(_));
        let too_long = if needs_length { answer.finish().err() } else { None };
        if matches!(outcome, Outcome::Answered) && too_long.is_none() && is_next {
            let (bytes, slices) = answer.into_parts();
            self.output.restore(bytes);
            slices.into_iter().for_each(|(position, slice)| self.output.insert_slice(position, slice));
            self.settle(asked, self.output.len() - unsent, throttle_ms);
            return None;
        }
        let (before, frame) = answer.split();
        if is_next {
            self.output.restore(before);
        }
        match outcome {
            _ if too_long.is_some() => return too_long.map(|error| error.to_string()),
            Outcome::Answered => self.pending.push(Pending::Ready(frame), asked),
            Outcome::Silent => self.settle(asked, 0, throttle_ms),
            Outcome::Acks(waiting) => self.pending.push(Pending::Acks(frame, waiting), asked),
            Outcome::Fetch(waiting) => self.pending.push(Pending::Fetch(waiting), asked),
            Outcome::Share(waiting) => self.pending.push(Pending::Share(waiting), asked),
            Outcome::Close(reason) => return Some(reason),
            Outcome::Verifies(_) => unreachable!("it is not answered yet"),
        }
        None
    }

    /// Takes no further requests; earlier ones are still answered.
    pub(super) fn refuse(&mut self, reason: String) -> Step {
        self.ending = Some(Ending::Refused(reason));
        Step::Blocked
    }
}
