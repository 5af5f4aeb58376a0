//! Parses complete frames without processing them, for fuzzers and tests.

use klamm_base::primitives::WireError;

use super::api;
use super::api_versions::ApiVersionsRequest;
use super::describe_topic_partitions::DescribeTopicPartitionsRequest;
use super::fetch::FetchRequest;
use super::header::RequestHeader;
use super::list_offsets::ListOffsetsRequest;
use super::metadata::MetadataRequest;
use super::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use super::produce::{ProduceItem, ProduceRequest};
use super::share_acknowledge::ShareAcknowledgeRequest;
use super::share_fetch::ShareFetchRequest;
use super::share_request::ShareTopic;

/// Parses a frame's header and, if the engine serves the API, its request. Never panics, and allocates in proportion
/// to the frame. Returns whether everything was well formed.
pub fn read(frame: &[u8]) -> bool {
    match RequestHeader::parse(frame) {
        Ok((header, body)) => read_request(header.api.key, header.api_version, body).is_ok(),
        Err(_) => false,
    }
}

/// Parses the request of an API that the engine serves, at any version, and iterates over all of it; requests of
/// other APIs are not parsed.
pub fn read_request(key: i16, version: i16, body: &[u8]) -> Result<(), WireError> {
    match key {
        api::PRODUCE => ProduceRequest::parse(body, version).map(|request| check_ranges(&request, body)),
        api::FETCH => FetchRequest::parse(body, version).map(|request| {
            request.topics.for_each(|topic| topic.partitions.for_each(drop));
            request.forgotten.for_each(|topic| topic.partitions.for_each(drop));
        }),
        api::LIST_OFFSETS => ListOffsetsRequest::parse(body, version).map(|request| {
            request.topics.for_each(|topic| topic.partitions.for_each(drop));
        }),
        api::METADATA => MetadataRequest::parse(body, version).map(|request| {
            request.topics.into_iter().flatten().for_each(drop);
        }),
        api::API_VERSIONS => ApiVersionsRequest::parse(body, version).map(drop),
        api::OFFSET_FOR_LEADER_EPOCH => OffsetForLeaderEpochRequest::parse(body, version).map(|request| {
            request.topics.for_each(|topic| topic.partitions.for_each(drop));
        }),
        api::DESCRIBE_TOPIC_PARTITIONS => DescribeTopicPartitionsRequest::parse(body, version).map(|request| {
            request.topics.for_each(drop);
        }),
        api::SHARE_FETCH => ShareFetchRequest::parse(body, version).map(|request| {
            request.topics.for_each(walk_share_topic);
            request.forgotten.for_each(|topic| topic.partitions.for_each(drop));
        }),
        api::SHARE_ACKNOWLEDGE => ShareAcknowledgeRequest::parse(body, version).map(|request| {
            request.topics.for_each(walk_share_topic);
        }),
        _ => Ok(()),
    }
}

fn walk_share_topic(topic: ShareTopic<'_>) {
    topic.partitions.for_each(|partition| partition.acknowledgements.for_each(drop));
}

/// The iteration finds as many items as were counted, and the ranges of batches are within the body, each after the
/// previous one: batches are modified in place.
fn check_ranges(request: &ProduceRequest, body: &[u8]) {
    let (mut end, mut topics, mut partitions) = (0, 0, 0);
    let mut walk = request.walk();
    while let Some(item) = walk.next(body) {
        match item {
            ProduceItem::Topic { .. } => topics += 1,
            ProduceItem::TopicEnd => {}
            ProduceItem::Partition { records, .. } => {
                partitions += 1;
                let range = records.unwrap_or(end..end);
                assert!(end <= range.start && range.start <= range.end && range.end <= body.len(), "{range:?}");
                end = range.end;
            }
        }
    }
    assert_eq!((topics, partitions), (request.topic_count, request.partition_count));
    assert_eq!(request.transactional_id(body).is_some(), request.is_with_transactional_id);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            key in prop::sample::select(vec![0i16, 1, 2, 3, 18, 23, 75, 78, 79]), version in -1i16..20,
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
            frame.extend([0, 0, 0, 1, 0xff, 0xff, 0]);
            frame.extend(rest);
            read(&frame);
        }
    }
}
