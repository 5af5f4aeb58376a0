//! ShareAcknowledge: answered once the share coordinator has confirmed what changed.

use klamm_base::ErrorCode;
use klamm_share::Member;
use klamm_wire::header::ResponseHeader;
use klamm_wire::share_acknowledge::{ShareAcknowledgeRequest, ShareAcknowledgeResult, write_response};
use std::sync::Arc;

use super::acks::{Acknowledging, Acks};
use super::{Refusal, WaitingShare, by_topic, check_member};
use crate::answer::Answer;
use crate::core::Core;
use crate::handlers::leaders::Leaders;
use crate::handlers::{Call, Outcome};
use crate::link::Link;
use crate::share::{FINAL_EPOCH, INITIAL_EPOCH, MemberKey};

/// A request whose acknowledgements are being written.
pub struct WaitingAcknowledge {
    pub header: ResponseHeader,
    version: i16,
    connection: Arc<Link>,
    key: MemberKey,
    is_final: bool,
    acks: Acks,
}

pub fn handle(call: Call<'_>, header: ResponseHeader, body: &[u8]) -> Outcome {
    let version = call.context.version;
    let request = match ShareAcknowledgeRequest::parse(body, version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    let checked = check_member(&call, &image, request.group_id.as_deref(), request.member_id.as_deref());
    let key = match checked.and_then(|key| advance(call.core, &key, request.session_epoch).map(|()| key)) {
        Ok(key) => key,
        Err((code, message)) => {
            write_response(&mut call.answer.writer, version, (code, message), 0, &[], &[]);
            return Outcome::Answered;
        }
    };
    let member = Member::new(&key.member);
    let by = Acknowledging { image: &image, key: &key, member: &member, version, is_renew: request.is_renew_ack };
    let acks = Acks::begin(&call, &by, request.topics);
    let mut waiting = WaitingAcknowledge {
        header,
        version,
        connection: call.context.connection.clone(),
        is_final: request.session_epoch == FINAL_EPOCH,
        key,
        acks,
    };
    match waiting.answer_or_wait(call.core, call.answer, false) {
        true => Outcome::Answered,
        false => Outcome::Share(Box::new(WaitingShare::Acknowledge(waiting))),
    }
}

/// Takes the request into its session.
fn advance(core: &Core, key: &MemberKey, epoch: i32) -> Result<(), Refusal> {
    let mut sessions = core.shares.sessions.lock();
    let taken = match epoch {
        INITIAL_EPOCH => Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH),
        FINAL_EPOCH => sessions.check_exists(key),
        epoch => sessions.advance(key, epoch).map(drop),
    };
    taken.map_err(|code| (code, None))
}

impl WaitingAcknowledge {
    pub fn is_done(&self) -> bool {
        self.acks.is_done()
    }

    pub fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, at_once: bool) -> bool {
        if !at_once && !self.acks.is_done() {
            return false;
        }
        let image = core.backend.image();
        let mut leaders = Leaders::new(&image, &self.connection.listener);
        let topics = by_topic(self.acks.results(core).into_iter().map(|result| {
            let current_leader = match result.error {
                ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH => {
                    leaders.name(image.topics().by_id(result.topic).map(|topic| &**topic), result.index)
                }
                _ => (0, 0),
            };
            let (index, error, message) = (result.index, result.error, result.message);
            (result.topic, ShareAcknowledgeResult { index, error, message, current_leader })
        }));
        let lock_ms = core.shares.settings(&image, &self.key.group).limits.lock_duration_ms;
        let lock_ms = i32::try_from(lock_ms).unwrap_or(i32::MAX);
        let error = (ErrorCode::NONE, None);
        write_response(&mut answer.writer, self.version, error, lock_ms, &topics, &leaders.into_endpoints());
        if self.is_final {
            core.shares.end_session(core, &self.key);
        }
        true
    }
}
