//! DescribeTopicPartitions: topics by name, from a cursor on, with a limited number of partitions (KIP-966).

use std::borrow::Cow;
use std::collections::BTreeSet;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::topic::Topic;
use klamm_wire::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribedPartition, DescribedTopic, write_response,
};
use klamm_wire::metadata::{NOT_ASKED, TopicHead};

use super::metadata::TOPIC_OPERATIONS;
use super::{Call, Outcome};
use crate::brokers::Brokers;
use crate::pipeline::Topics;
use crate::topic_name::{is_internal, is_valid};

/// The latest version of Metadata, whose partition states are used here.
const LATEST_METADATA: i16 = 13;

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    let request = match DescribeTopicPartitionsRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    if !is_valid_cursor(&request) {
        let names: Vec<_> = request.topics.collect();
        let refused = |name| topic(name, Uuid::ZERO, ErrorCode::INVALID_REQUEST, NOT_ASKED);
        let topics: Vec<_> = names.iter().map(|name| refused(&**name)).collect();
        write_response(&mut call.answer.writer, &topics, None);
        return Outcome::Answered;
    }
    let image = call.core.backend.image();
    let named: BTreeSet<_> = request.topics.clone().collect();
    let allowed = call.topics(&image);
    let wanted = wanted(&named, allowed, request.cursor.map_or("", |cursor| cursor.topic));
    let limit = request.response_partition_limit.min(call.core.config.request_partitions_max).max(1) as usize;
    let mut brokers = Brokers::new(&image, &call.context.listener.name);
    let (topics, next) = describe(allowed, &mut brokers, &wanted, request.cursor, limit);
    write_response(&mut call.answer.writer, &topics, next);
    Outcome::Answered
}

fn is_valid_cursor(request: &DescribeTopicPartitionsRequest<'_>) -> bool {
    request.cursor.is_none_or(|cursor| {
        let mut topics = request.topics.clone();
        cursor.partition >= 0 && (topics.len() == 0 || topics.any(|name| name == cursor.topic))
    })
}

/// The topics to return, in ascending order from `first` on: those requested, or all.
fn wanted<'a>(named: &'a BTreeSet<Cow<'_, str>>, allowed: Topics<'a>, first: &str) -> Vec<&'a str> {
    if named.is_empty() {
        let all = allowed.image.topics().sorted_names();
        let rest = all[all.partition_point(|name| &**name < first)..].iter().map(|name| &**name);
        return rest.filter(|name| allowed.allows(name)).collect();
    }
    named.iter().map(|name| &**name).filter(|name| *name >= first).collect()
}

fn describe<'a>(
    allowed: Topics<'_>,
    brokers: &mut Brokers<'_>,
    wanted: &[&'a str],
    cursor: Option<Cursor<'a>>,
    limit: usize,
) -> (Vec<DescribedTopic<'a>>, Option<Cursor<'a>>) {
    let mut topics = Vec::new();
    let mut left = limit;
    for &name in wanted {
        if left == 0 {
            return (topics, Some(Cursor { topic: name, partition: 0 }));
        }
        let known = match allowed.named(name) {
            Ok(known) => known,
            Err(error) => {
                let is_invalid = error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION && !is_valid(name);
                let error = if is_invalid { ErrorCode::INVALID_TOPIC_EXCEPTION } else { error };
                topics.push(topic(name, Uuid::ZERO, error, TOPIC_OPERATIONS));
                continue;
            }
        };
        let first = cursor.filter(|cursor| cursor.topic == name).map_or(0, |cursor| cursor.partition as usize);
        let count = known.partition_count();
        let end = count.min(first.saturating_add(left));
        let mut described = topic(name, known.id(), ErrorCode::NONE, TOPIC_OPERATIONS);
        described.partitions.extend((first..end).filter_map(|index| describe_one(brokers, known, index as i32)));
        left -= described.partitions.len();
        topics.push(described);
        if end < count {
            return (topics, Some(Cursor { topic: name, partition: end as i32 }));
        }
    }
    (topics, None)
}

fn describe_one(brokers: &mut Brokers<'_>, topic: &Topic, index: i32) -> Option<DescribedPartition> {
    let partition = topic.partition(index)?;
    let state = brokers.state(index, partition, LATEST_METADATA);
    Some(DescribedPartition::new(&state, partition.elr(), partition.last_known_elr()))
}

fn topic(name: &str, id: Uuid, error: ErrorCode, authorized_operations: i32) -> DescribedTopic<'_> {
    let head = TopicHead { error, name: Some(name), id, is_internal: is_internal(name), partition_count: 0 };
    DescribedTopic { head, partitions: Vec::new(), authorized_operations }
}
