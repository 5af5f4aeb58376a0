//! The acknowledgements of a request: checked, passed to the share partitions, and their results.

use std::borrow::Cow;
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_share::{AckBatch, AckError, Member, check_acknowledgements};
use klamm_wire::share_request::{ShareRequestPartition, ShareTopic, ack_type_max};

use crate::acks::AckWait;
use crate::core::Core;
use crate::handlers::Call;
use crate::pipeline::Topics;
use crate::share::{MemberKey, ShareKey};

/// The result of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckResult {
    pub topic: Uuid,
    pub index: i32,
    pub error: ErrorCode,
    pub message: Option<Cow<'static, str>>,
}

/// One partition of the request.
struct Entry {
    topic: Uuid,
    index: i32,
    outcome: Outcome,
    /// Acknowledged records by type.
    counts: [u64; 5],
}

enum Outcome {
    Known(ErrorCode, Option<&'static str>),
    /// The place of its code in the wait.
    Awaited(usize),
    /// It has no acknowledgements; the response contains it if others were processed.
    Empty,
}

pub struct Acks {
    entries: Vec<Entry>,
    wait: Option<Arc<AckWait>>,
}

/// What all partitions of a request have in common.
pub struct Acknowledging<'a> {
    pub image: &'a MetadataImage,
    pub key: &'a MemberKey,
    pub member: &'a Member,
    pub version: i16,
    pub is_renew: bool,
}

impl Acks {
    pub fn none() -> Self {
        Self { entries: Vec::new(), wait: None }
    }

    /// Passes the acknowledgements to their share partitions.
    pub fn begin<'a>(call: &Call<'_>, by: &Acknowledging<'_>, topics: impl Iterator<Item = ShareTopic<'a>>) -> Self {
        let allowed = call.topics(by.image);
        let mut wanted = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        for topic in topics {
            for partition in topic.partitions {
                let batches: Vec<AckBatch<'a>> = batches(&partition).collect();
                let outcome = check(&allowed, by, topic.id, partition.index, &batches);
                let (topic, index) = (topic.id, partition.index);
                if let Outcome::Awaited(_) = outcome {
                    wanted.push((entries.len(), batches));
                }
                entries.push(Entry { topic, index, outcome, counts: [0; 5] });
            }
        }
        if wanted.is_empty() {
            // Partitions without acknowledgements are not answered alone, as in Apache Kafka.
            entries.retain(|entry| !matches!(entry.outcome, Outcome::Empty));
            return Self { entries, wait: None };
        }
        call.core.shares.metrics.acknowledge_requests.add(1);
        let wait = AckWait::new(call.context.connection.clone(), wanted.len());
        for (place, (at, batches)) in wanted.iter().enumerate() {
            let entry = &mut entries[*at];
            entry.outcome = Outcome::Awaited(place);
            entry.acknowledge(call.core, by, batches, &wait, place);
        }
        let is_done = wait.is_done_after_setup();
        debug_assert!(is_done == wait.is_done() || !is_done);
        Self { entries, wait: Some(wait) }
    }

    pub fn is_done(&self) -> bool {
        self.wait.as_ref().is_none_or(|wait| wait.is_done())
    }

    /// The results; those that are still pending have timed out.
    pub fn results(&self, core: &Core) -> Vec<AckResult> {
        let codes: Vec<ErrorCode> = self.wait.iter().flat_map(|wait| wait.codes()).collect();
        let result = |entry: &Entry| {
            let (error, message) = match entry.outcome {
                Outcome::Known(error, message) => (error, message),
                Outcome::Awaited(place) => (codes[place], None),
                Outcome::Empty => (ErrorCode::NONE, None),
            };
            let metrics = &core.shares.metrics;
            match error.is_error() {
                true => metrics.failed_acknowledges.add(1),
                false => (0..).zip(entry.counts).for_each(|(id, count)| metrics.acknowledged(id, count)),
            }
            AckResult { topic: entry.topic, index: entry.index, error, message: message.map(Cow::Borrowed) }
        };
        self.entries.iter().map(result).collect()
    }
}

impl Entry {
    fn acknowledge(
        &mut self,
        core: &Core,
        by: &Acknowledging<'_>,
        batches: &[AckBatch<'_>],
        wait: &Arc<AckWait>,
        place: usize,
    ) {
        let key = ShareKey { group: by.key.group.clone(), topic: self.topic, index: self.index };
        let done = wait.callback(place);
        match core.shares.acknowledge(core, by.image, &key, by.member, batches, done) {
            Ok(()) => {
                for batch in batches {
                    let each = if batch.types.len() == 1 { batch.last.abs_diff(batch.first) + 1 } else { 1 };
                    batch.types.iter().for_each(|id| self.counts[usize::from(*id)] += each);
                }
            }
            Err(error) => {
                let (code, message) = match error {
                    AckError::Request(message) => (ErrorCode::INVALID_REQUEST, message),
                    AckError::RecordState(message) => (ErrorCode::INVALID_RECORD_STATE, message),
                };
                self.outcome = Outcome::Known(code, Some(message));
                // The callback was not used: the place counts as settled.
                wait.callback(place)(code);
            }
        }
    }
}

fn batches<'a>(partition: &ShareRequestPartition<'a>) -> impl Iterator<Item = AckBatch<'a>> + use<'a> {
    let acknowledgements = partition.acknowledgements.clone();
    acknowledgements.map(|ack| AckBatch { first: ack.first_offset, last: ack.last_offset, types: ack.types })
}

/// What can be said without the share partition, in Kafka's order.
fn check(allowed: &Topics<'_>, by: &Acknowledging<'_>, topic: Uuid, index: i32, batches: &[AckBatch<'_>]) -> Outcome {
    let Some(found) = by.image.topics().by_id(topic) else { return Outcome::Known(ErrorCode::UNKNOWN_TOPIC_ID, None) };
    if let Err(AckError::Request(message) | AckError::RecordState(message)) =
        check_acknowledgements(batches, ack_type_max(by.version), by.is_renew)
    {
        return Outcome::Known(ErrorCode::INVALID_REQUEST, Some(message));
    }
    if !allowed.allows(found.name()) {
        return Outcome::Known(ErrorCode::TOPIC_AUTHORIZATION_FAILED, None);
    }
    if found.partition(index).is_none() {
        return Outcome::Known(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None);
    }
    if batches.is_empty() { Outcome::Empty } else { Outcome::Awaited(0) }
}
