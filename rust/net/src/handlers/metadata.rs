//! Metadata: brokers, topics and partitions from the committed image.

use std::borrow::Cow;
use std::collections::HashSet;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::topic::Topic;
use klamm_wire::elements::Elements;
use klamm_wire::metadata::{
    MetadataRequest, MetadataResponseWriter, NOT_ASKED, TOPIC_ID_VERSION, TopicHead, TopicQuery,
};

use super::leaders::endpoints;
use super::{Call, Outcome};
use crate::brokers::Brokers;
use crate::pipeline::Topics;
use crate::topic_name::{is_internal, is_valid};

/// The authorized operations on a topic without an authorizer: read, write, create, delete, alter, describe and both
/// config operations, by the codes of `AclOperation`.
pub const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// The same for the cluster: create, alter, describe, cluster action, both config operations, idempotent write.
const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// One topic of the response.
enum TopicResult<'a> {
    Topic(&'a Topic),
    Missing { name: Option<Cow<'a, str>>, id: Uuid, error: ErrorCode },
}

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    let request = match MetadataRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    if let Some(topics) = request.topics.clone().filter(|topics| !may_ask(topics.clone(), call.context.version)) {
        write_refusal(call, topics);
        return Outcome::Answered;
    }
    let image = call.core.backend.image();
    let found = match request.topics.clone() {
        Some(named) => find(&call, call.topics(&image), named, request.allow_auto_topic_creation),
        None => call.topics(&image).all().map(TopicResult::Topic).collect(),
    };
    write(call, &image, &request, &found);
    Outcome::Answered
}

type Queries<'a> = Elements<'a, TopicQuery<'a>>;

/// Versions 10 and 11 have topic ids that must be zero, and names that must not be null.
fn may_ask(mut topics: Queries<'_>, version: i16) -> bool {
    let is_plain = |topic: TopicQuery<'_>| topic.id.is_zero() && topic.name.is_some();
    // Later versions need a name only if there is no id.
    (version >= TOPIC_ID_VERSION && topics.clone().any(|topic| !topic.id.is_zero())) || topics.all(is_plain)
}

fn find<'a>(call: &Call<'_>, topics: Topics<'a>, named: Queries<'a>, may_create: bool) -> Vec<TopicResult<'a>> {
    if named.clone().any(|topic| !topic.id.is_zero()) {
        let mut seen = HashSet::new();
        let ids = named.map(|topic| topic.id).filter(|id| !id.is_zero() && seen.insert(*id));
        return ids.map(|id| find_by_id(topics, id)).collect();
    }
    let mut seen = HashSet::new();
    let names = named.filter_map(|topic| topic.name).filter(|name| seen.insert(name.clone()));
    let found: Vec<_> = names.map(|name| find_by_name(topics, name)).collect();
    if may_create && call.core.config.auto_create_topics {
        call.core.events.push_auto_create(&call.context, found.iter().filter_map(TopicResult::creatable));
    }
    found
}

fn find_by_id(topics: Topics<'_>, id: Uuid) -> TopicResult<'_> {
    match topics.with_id(id) {
        Ok(topic) => TopicResult::Topic(topic),
        Err(error) => TopicResult::Missing { name: None, id, error },
    }
}

fn find_by_name<'a>(topics: Topics<'a>, name: Cow<'a, str>) -> TopicResult<'a> {
    match topics.named(&name) {
        Ok(topic) => TopicResult::Topic(topic),
        Err(error) => {
            let is_invalid = error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION && !is_valid(&name);
            let error = if is_invalid { ErrorCode::INVALID_TOPIC_EXCEPTION } else { error };
            TopicResult::Missing { name: Some(name), id: Uuid::ZERO, error }
        }
    }
}

impl TopicResult<'_> {
    /// Name of a topic that does not exist but may be created.
    fn creatable(&self) -> Option<&str> {
        match self {
            Self::Missing { name, error: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, .. } => name.as_deref(),
            _ => None,
        }
    }

    fn head(&self) -> TopicHead<'_> {
        match self {
            Self::Topic(topic) => TopicHead {
                error: ErrorCode::NONE,
                name: Some(topic.name()),
                id: topic.id(),
                is_internal: is_internal(topic.name()),
                partition_count: topic.partition_count(),
            },
            Self::Missing { name, id, error } => TopicHead {
                error: *error,
                name: name.as_deref(),
                id: *id,
                is_internal: name.as_deref().is_some_and(is_internal),
                partition_count: 0,
            },
        }
    }
}

fn write(call: Call<'_>, image: &MetadataImage, request: &MetadataRequest<'_>, found: &[TopicResult<'_>]) {
    let version = call.context.version;
    let alive = endpoints(image, &call.context.listener.name);
    // Every broker forwards to the controller, so any broker will do.
    let controller_id = alive.first().map_or(-1, |broker| broker.node_id);
    let cluster_id = Some(call.core.cluster_id.as_str());
    let out = &mut call.answer.writer;
    let mut out = MetadataResponseWriter::begin(out, version, &alive, cluster_id, controller_id, found.len());
    let mut brokers = Brokers::new(image, &call.context.listener.name);
    let asked = |asked: bool, operations: i32| if asked { operations } else { NOT_ASKED };
    for found in found {
        let head = found.head();
        out.begin_topic(&head);
        if let TopicResult::Topic(topic) = found {
            for (index, partition) in topic.partitions() {
                out.partition(&brokers.state(index, partition, version));
            }
        }
        let is_known = head.error != ErrorCode::UNKNOWN_TOPIC_ID;
        out.end_topic(asked(request.include_topic_authorized_operations && is_known, TOPIC_OPERATIONS));
    }
    out.end(asked(request.include_cluster_authorized_operations, CLUSTER_OPERATIONS), ErrorCode::NONE);
}

/// A response with the same error for every topic.
fn write_refusal(call: Call<'_>, topics: Queries<'_>) {
    // If ids are allowed, Apache Kafka does not check for the missing name, and fails.
    let error = if call.context.version < TOPIC_ID_VERSION {
        ErrorCode::INVALID_REQUEST
    } else {
        ErrorCode::UNKNOWN_SERVER_ERROR
    };
    let mut out =
        MetadataResponseWriter::begin(&mut call.answer.writer, call.context.version, &[], None, -1, topics.len());
    for topic in topics {
        let name = Some(topic.name.as_deref().unwrap_or(""));
        out.begin_topic(&TopicHead { error, name, id: topic.id, is_internal: false, partition_count: 0 });
        out.end_topic(NOT_ASKED);
    }
    out.end(NOT_ASKED, error);
}
