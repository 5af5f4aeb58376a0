//! ShareFetch and ShareAcknowledge (KIP-932): checks that both have in common, and requests that wait.

mod acknowledge;
mod acks;
mod fetch;
mod gather;

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_wire::api::{Operation, Resource};
use klamm_wire::header::ResponseHeader;

use super::Call;
use crate::answer::Answer;
use crate::core::Core;
use crate::share::{MemberKey, is_enabled};

pub use acknowledge::handle as acknowledge;
pub use fetch::handle as fetch;

/// An error of a whole request.
type Refusal = (ErrorCode, Option<&'static str>);

/// The longest member id.
const MEMBER_ID_LEN_MAX: usize = 36;

/// A request that waits: for records, for the share coordinator, or because there are too many sessions.
pub enum WaitingShare {
    Fetch(fetch::WaitingShareFetch),
    Acknowledge(acknowledge::WaitingAcknowledge),
    /// Refused once it has waited as long as a fetch, so that its client does not try again at once.
    TooManySessions {
        header: ResponseHeader,
        deadline: Instant,
    },
}

impl WaitingShare {
    pub fn header(&self) -> ResponseHeader {
        match self {
            Self::Fetch(fetch) => fetch.header,
            Self::Acknowledge(acknowledge) => acknowledge.header,
            Self::TooManySessions { header, .. } => *header,
        }
    }

    /// When it must be answered; `None`: once the share coordinator has answered.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Fetch(fetch) => fetch.deadline(),
            Self::Acknowledge(_) => None,
            Self::TooManySessions { deadline, .. } => Some(*deadline),
        }
    }

    /// Whether an event occurred that may complete the request.
    pub fn is_woken(&self) -> bool {
        match self {
            Self::Fetch(fetch) => fetch.is_woken(),
            Self::Acknowledge(acknowledge) => acknowledge.is_done(),
            Self::TooManySessions { .. } => false,
        }
    }

    /// Writes the response if there is one, or if `at_once` is set.
    pub fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool {
        match self {
            Self::Fetch(fetch) => fetch.answer_or_wait(core, answer, waker, at_once),
            Self::Acknowledge(acknowledge) => acknowledge.answer_or_wait(core, answer, at_once),
            Self::TooManySessions { .. } => {
                if at_once {
                    fetch::write_refusal(answer, (ErrorCode::SHARE_SESSION_LIMIT_REACHED, None));
                }
                at_once
            }
        }
    }
}

/// The member of a request, if share groups are enabled and it may use the group.
fn check_member(
    call: &Call<'_>,
    image: &MetadataImage,
    group: Option<&str>,
    member: Option<&str>,
) -> Result<MemberKey, Refusal> {
    if !is_enabled(image) {
        return Err((ErrorCode::UNSUPPORTED_VERSION, None));
    }
    let group = group.ok_or((ErrorCode::INVALID_REQUEST, Some("Invalid group id in the request.")))?;
    let authorizer = &call.core.pipeline.authorizer;
    if !authorizer.allows(call.context.connection, Operation::Read, Resource::Group, group) {
        return Err((Resource::Group.refusal(), None));
    }
    let is_valid = |id: &&str| (1..=MEMBER_ID_LEN_MAX).contains(&id.chars().count());
    let invalid = (ErrorCode::INVALID_REQUEST, Some("Invalid member id in the request."));
    let member = member.filter(is_valid).ok_or(invalid)?;
    Ok(MemberKey { group: Arc::from(group), member: Arc::from(member) })
}

/// The results by topic, in the order of each topic's first.
fn by_topic<T>(results: impl Iterator<Item = (Uuid, T)>) -> Vec<(Uuid, Vec<T>)> {
    let (mut places, mut topics) = (HashMap::new(), Vec::<(Uuid, Vec<T>)>::new());
    for (topic, result) in results {
        let place = *places.entry(topic).or_insert(topics.len());
        if place == topics.len() {
            topics.push((topic, Vec::new()));
        }
        topics[place].1.push(result);
    }
    topics
}
