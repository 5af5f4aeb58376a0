//! ListOffsets: the offset for a timestamp, or for a special timestamp.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use klamm_base::ErrorCode;
use klamm_replica::OffsetQuery;
use klamm_wire::list_offsets::{
    CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResult,
    SPECIAL_TIMESTAMPS, write_response,
};

use super::{Call, Outcome};
use crate::core::Core;
use crate::pipeline::{Topics, id_with_partition};

/// First version with OFFSET_NOT_AVAILABLE.
const OFFSET_NOT_AVAILABLE_VERSION: i16 = 5;

pub fn handle(call: Call<'_>, body: &[u8]) -> Outcome {
    let request = match ListOffsetsRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    let topics = call.topics(&image);
    let is_level_known = matches!(request.isolation_level, 0 | 1);
    let twice = named_twice(&request);
    let answer = |topic: &str, partition: &ListOffsetsPartition| {
        let found = match is_level_known {
            true if twice.contains(&(topic.to_owned(), partition.index)) => Err(ErrorCode::INVALID_REQUEST),
            true => find(call.core, &topics, &request, topic, partition, call.context.version),
            false => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        found.unwrap_or_else(|code| ListOffsetsResult::none(for_version(code, call.context.version)))
    };
    let out = &mut call.answer.writer;
    // A request that is rejected as a whole is answered entry by entry, including repeated ones.
    if !is_level_known || (twice.is_empty() && is_plain(&request)) {
        let named = request.topics.clone().map(|topic| (topic.name, topic.partitions));
        write_response(out, call.context.version, named, answer);
    } else {
        let named = each_once(&request).into_iter().map(|(name, partitions)| (name, partitions.into_iter()));
        write_response(out, call.context.version, named, answer);
    }
    Outcome::Answered
}

/// Whether every topic appears once and has partitions.
fn is_plain(request: &ListOffsetsRequest<'_>) -> bool {
    let mut seen = HashSet::new();
    request.topics.clone().all(|topic| topic.partitions.len() > 0 && seen.insert(topic.name))
}

/// Each topic and each of its partitions once, at its first position; topics without partitions are omitted.
fn each_once<'a>(request: &ListOffsetsRequest<'a>) -> Vec<(Cow<'a, str>, Vec<ListOffsetsPartition>)> {
    let mut topics: Vec<(Cow<'a, str>, Vec<ListOffsetsPartition>)> = Vec::new();
    let mut places = HashMap::new();
    let mut seen = HashSet::new();
    for topic in request.topics.clone() {
        for partition in topic.partitions {
            let place = *places.entry(topic.name.clone()).or_insert_with(|| {
                topics.push((topic.name.clone(), Vec::new()));
                topics.len() - 1
            });
            if seen.insert((place, partition.index)) {
                topics[place].1.push(partition);
            }
        }
    }
    topics
}

fn find(
    core: &Core,
    topics: &Topics<'_>,
    request: &ListOffsetsRequest<'_>,
    topic: &str,
    partition: &ListOffsetsPartition,
    version: i16,
) -> Result<ListOffsetsResult, ErrorCode> {
    if !is_supported(partition.timestamp, version) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let id = id_with_partition(topics.named(topic)?, partition.index)?;
    let found = core.backend.partition(id, partition.index)?.find_offset(&OffsetQuery {
        timestamp: partition.timestamp,
        current_leader_epoch: partition.current_leader_epoch,
        read_committed: (request.replica_id == CONSUMER_REPLICA_ID).then_some(request.isolation_level == 1),
        only_from_leader: request.replica_id != DEBUGGING_REPLICA_ID,
    })?;
    Ok(ListOffsetsResult {
        error: ErrorCode::NONE,
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: found.leader_epoch,
    })
}

fn is_supported(timestamp: i64, version: i16) -> bool {
    let special = SPECIAL_TIMESTAMPS.iter().find(|(special, _)| *special == timestamp);
    timestamp >= 0 || special.is_some_and(|(_, since)| version >= *since)
}

/// Old clients know OFFSET_NOT_AVAILABLE under another error code.
fn for_version(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::OFFSET_NOT_AVAILABLE if version < OFFSET_NOT_AVAILABLE_VERSION => ErrorCode::LEADER_NOT_AVAILABLE,
        code => code,
    }
}

/// The partitions that the request contains more than once.
fn named_twice(request: &ListOffsetsRequest<'_>) -> HashSet<(String, i32)> {
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for topic in request.topics.clone() {
        for partition in topic.partitions {
            let key = (topic.name.to_string(), partition.index);
            if !seen.insert(key.clone()) {
                twice.insert(key);
            }
        }
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_times_begin_with_their_versions() {
        let table = [(0, 1), (1_700_000_000_000, 1), (-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)];
        for (timestamp, since) in table {
            for version in 1..=11 {
                assert_eq!(is_supported(timestamp, version), version >= since, "{timestamp} v{version}");
            }
        }
        assert!((1..=11).all(|version| !is_supported(-7, version) && !is_supported(i64::MIN, version)));
    }
}
