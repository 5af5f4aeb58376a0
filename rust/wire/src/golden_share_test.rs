//! The share APIs as Apache Kafka 4.3.1 writes them (`golden/Frames.java`).

use klamm_base::ErrorCode;

use super::golden_test::{ID, RECORDS, lines, node, written};
use super::share_acknowledge::{self, ShareAcknowledgeRequest, ShareAcknowledgeResult};
use super::share_fetch::{AcquiredOffsets, ShareFetchRequest, ShareFetchResponseWriter, ShareFetchResult};
use super::share_request::Acknowledgement;
use super::share_state::{PersistedBatch, ReadState, SharePartitionName, WrittenState};

const NAME: SharePartitionName<'_> = SharePartitionName { group_id: "group", topic: ID, index: 7 };

#[test]
fn share_fetch_requests() {
    for (version, body) in lines("ShareFetchRequest") {
        let request = ShareFetchRequest::parse(&body, version).expect("Kafka's own");
        assert_eq!((request.group_id.as_deref(), request.member_id.as_deref()), (Some("group"), Some("member")));
        assert_eq!((request.session_epoch, request.max_wait_ms, request.min_bytes), (3, 500, 1));
        assert_eq!((request.max_bytes, request.max_records, request.batch_size), (9000, 100, 50));
        assert_eq!((request.acquire_mode, request.is_renew_ack), if version >= 2 { (1, true) } else { (0, false) });
        assert!(request.has_acknowledgements());
        let topics: Vec<_> = request.topics.collect();
        assert!(topics.len() == 1 && topics[0].id == ID);
        let partitions: Vec<_> = topics[0].partitions.clone().collect();
        assert_eq!(partitions.iter().map(|partition| partition.index).collect::<Vec<_>>(), [7, 8]);
        let acknowledgements: Vec<_> = partitions[0].acknowledgements.clone().collect();
        let first = Acknowledgement { first_offset: 5, last_offset: 9, types: &[1] };
        let second = Acknowledgement { first_offset: 10, last_offset: 12, types: &[0, 2, 253] };
        assert_eq!(acknowledgements, [first, second]);
        assert_eq!(partitions[1].acknowledgements.len(), 0);
        let forgotten: Vec<_> = request.forgotten.collect();
        assert!(forgotten.len() == 1 && forgotten[0].id == ID);
        assert_eq!(forgotten[0].partitions.clone().collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn share_fetch_answers() {
    for (version, answer) in lines("ShareFetchResponse") {
        let full = ShareFetchResult {
            records_len: RECORDS.len(),
            acquired: vec![
                AcquiredOffsets { first: 5, last: 9, delivery_count: 1 },
                AcquiredOffsets { first: 12, last: 12, delivery_count: 2 },
            ],
            ..ShareFetchResult::of(ErrorCode::NONE)
        };
        let moved = ShareFetchResult {
            message: Some("why".into()),
            acknowledge_error: ErrorCode::INVALID_RECORD_STATE,
            acknowledge_message: Some("state".into()),
            current_leader: (4, 11),
            ..ShareFetchResult::of(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        };
        let bytes = written(|writer| {
            let error = ErrorCode::INVALID_SHARE_SESSION_EPOCH;
            let mut out = ShareFetchResponseWriter::begin(writer, 0, error, Some("epoch"), 30_000, 1);
            out.begin_topic(ID, 2);
            out.partition(7, &full);
            assert!(out.try_records(RECORDS.len(), |room| {
                room.copy_from_slice(RECORDS);
                true
            }));
            out.end_partition(&full);
            out.partition(8, &moved);
            out.end_partition(&moved);
            out.end_topic();
            out.end(&[node(Some("r"))]);
        });
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn share_acknowledge_requests() {
    for (version, body) in lines("ShareAcknowledgeRequest") {
        let request = ShareAcknowledgeRequest::parse(&body, version).expect("Kafka's own");
        assert_eq!((request.group_id.as_deref(), request.member_id.as_deref()), (Some("group"), None));
        assert_eq!((request.session_epoch, request.is_renew_ack), (-1, version >= 2));
        let topic = request.topics.clone().next().expect("one topic");
        let partition = topic.partitions.clone().next().expect("one partition");
        assert_eq!((topic.id, partition.index), (ID, 7));
        let acknowledgement = Acknowledgement { first_offset: 5, last_offset: 9, types: &[4] };
        assert_eq!(partition.acknowledgements.collect::<Vec<_>>(), [acknowledgement]);
    }
}

#[test]
fn share_acknowledge_answers() {
    for (version, answer) in lines("ShareAcknowledgeResponse") {
        let good = ShareAcknowledgeResult { index: 7, error: ErrorCode::NONE, message: None, current_leader: (0, 0) };
        let moved = ShareAcknowledgeResult {
            index: 8,
            error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
            message: Some("why".into()),
            current_leader: (4, 11),
        };
        let topics = [(ID, vec![good, moved])];
        let bytes = written(|writer| {
            share_acknowledge::write_response(writer, version, (ErrorCode::NONE, None), 15_000, &topics, &[node(None)]);
        });
        assert_eq!(bytes, answer, "v{version}");
    }
}

#[test]
fn share_state_requests() {
    for (_, body) in lines("ReadShareGroupStateRequest") {
        assert_eq!(NAME.read_request(11), body);
    }
    for (_, body) in lines("WriteShareGroupStateRequest") {
        let batch = PersistedBatch { first: 5, last: 9, state: 4, delivery_count: 3 };
        let state = WrittenState {
            state_epoch: 2,
            leader_epoch: 11,
            start_offset: 5,
            delivery_complete_count: 4,
            batches: &[batch],
        };
        assert_eq!(NAME.write_request(&state), body);
    }
}

#[test]
fn share_state_answers() {
    let other = SharePartitionName { index: 8, ..NAME };
    for (_, body) in lines("ReadShareGroupStateResponse") {
        let batches = vec![PersistedBatch { first: 5, last: 9, state: 2, delivery_count: 3 }];
        let state = ReadState { error: ErrorCode::NONE, state_epoch: 2, start_offset: 5, batches };
        assert_eq!(NAME.read_response(&body), Ok(Some(state)));
        assert_eq!(other.read_response(&body), Ok(None));
    }
    for (_, body) in lines("WriteShareGroupStateResponse") {
        assert_eq!(NAME.write_response(&body), Ok(Some(ErrorCode::FENCED_LEADER_EPOCH)));
        assert_eq!(other.write_response(&body), Ok(None));
    }
}
