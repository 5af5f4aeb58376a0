//! Produce: what is appended, what is rejected, and when it is answered.

use std::time::Duration;

use klamm_base::ErrorCode;
use klamm_wire::api::{METADATA, PRODUCE};

use crate::NetConfig;
use crate::testing::{Fixture, INTERNAL, NAMED, batch, frame, produce, produce_to, produced};

const NONE: ErrorCode = ErrorCode::NONE;

#[test]
fn batches_are_appended_and_answered_in_the_order_of_the_request() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let (one, three) = (batch(1, 10), batch(3, 200));
    client.call(PRODUCE, 9, &produce(-1, 1000, &[(1, &three)]));
    let body = produce(-1, 1000, &[(1, &three), (0, &one), (7, &one)]);
    let unknown = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(produced(&client.call(PRODUCE, 9, &body)), [(NONE, 3), (NONE, 0), unknown]);
    assert_eq!(fixture.backend.at(NAMED, 1).state.lock().end_offset, 6);
}

#[test]
fn the_last_batch_of_a_repeated_partition_counts() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let (one, three) = (batch(1, 10), batch(3, 200));
    let body = produce(-1, 1000, &[(1, &three), (0, &three), (1, &three), (1, &one)]);
    assert_eq!(produced(&client.call(PRODUCE, 9, &body)), [(NONE, 0), (NONE, 0)]);
    let end_offset = |index| fixture.backend.at(NAMED, index).state.lock().end_offset;
    assert_eq!((end_offset(0), end_offset(1)), (3, 1));
}

#[test]
fn invalid_bytes_of_a_repeated_partition_are_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let one = batch(1, 10);
    let invalid = (ErrorCode::INVALID_RECORD, -1);
    // An incomplete batch does not count; bytes in no batch format would be a corrupt message, which is returned for
    // all.
    for order in [[&one[..70], &one], [&one, &one[..70]]] {
        let body = produce(-1, 1000, &[(1, order[0]), (0, &one), (1, order[1])]);
        let answered = produced(&client.call(PRODUCE, 9, &body));
        assert_eq!((answered.len(), answered.contains(&invalid)), (2, true), "{answered:?}");
    }
    assert_eq!(fixture.backend.at(NAMED, 1).state.lock().end_offset, 2, "the whole ones are appended");
    let answered = produced(&client.call(PRODUCE, 9, &produce(-1, 1000, &[(1, &one), (7, &[0; 20]), (0, &one)])));
    assert_eq!(answered, [(ErrorCode::CORRUPT_MESSAGE, -1); 3]);
    assert_eq!(fixture.backend.at(NAMED, 1).state.lock().end_offset, 2);
}

#[test]
fn repeated_large_batches_are_complete() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for (at, padding) in [1 << 20, 3 << 20, 100, 1 << 20, (64 << 10) - 100, 5 << 20].into_iter().enumerate() {
        let batch = batch(1, padding);
        assert_eq!(produced(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch)]))), [(NONE, at as i64)]);
    }
}

#[test]
fn a_request_after_a_large_frame_is_received() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let large = frame(PRODUCE, 9, 1, &produce(1, 1000, &[(0, &batch(1, 3 << 20))]));
    for _ in 0..3 {
        client.send_raw(&large);
        assert_eq!(client.receive().0, 1);
        client.call(METADATA, 1, b"\0\0\0\0");
    }
    // Both at once, and the start of a third.
    let many = [&large[..], &frame(METADATA, 1, 2, b"\0\0\0\0"), &large[..3]].concat();
    client.send_raw(&many);
    assert_eq!([client.receive().0, client.receive().0], [1, 2]);
    client.send_raw(&large[3..]);
    assert_eq!(client.receive().0, 1);
}

#[test]
fn a_large_frame_may_arrive_slowly_or_through_a_small_buffer_or_never() {
    for receive_buffer_bytes in [NetConfig::default().receive_buffer_bytes, 16 << 10] {
        let fixture = Fixture::with(NetConfig { receive_buffer_bytes, ..NetConfig::default() });
        let mut client = fixture.client();
        let large = frame(PRODUCE, 9, 1, &produce(1, 1000, &[(0, &batch(1, 1 << 20))]));
        for piece in [1 << 20, 300_000, 70_000, 9_000] {
            for bytes in large.chunks(piece) {
                client.send_raw(bytes);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(client.receive().0, 1);
        }
        client.send_raw(&large[..500_000]);
        client.shut_down_writing();
        assert!(client.is_closed());
    }
}

#[test]
fn an_answer_waits_for_the_high_watermark() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let partition = fixture.backend.at(NAMED, 0);
    partition.state.lock().holds_back = true;
    client.send(PRODUCE, 9, 1, &produce(-1, 10_000, &[(0, &batch(2, 10)), (1, &batch(1, 10))]));
    client.send(PRODUCE, 9, 2, &produce(1, 10_000, &[(0, &batch(1, 10))]));
    fixture.wait_until(|| partition.state.lock().end_offset == 3);
    partition.commit(1);
    partition.commit(2);
    let (correlation_id, answer) = client.receive();
    assert_eq!((correlation_id, produced(&answer)), (1, vec![(NONE, 0), (NONE, 0)]));
    // acks=1 waited only for the requests before it.
    assert_eq!((client.receive().0, partition.state.lock().high_watermark), (2, 2));
}

#[test]
fn unacknowledged_records_time_out() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().holds_back = true;
    let answer = client.call(PRODUCE, 9, &produce(-1, 20, &[(1, &batch(1, 10)), (0, &batch(1, 10))]));
    assert_eq!(produced(&answer), [(NONE, 0), (ErrorCode::REQUEST_TIMED_OUT, 0)]);
    let answer = client.call(PRODUCE, 9, &produce(-1, -5, &[(0, &batch(1, 10))]));
    assert_eq!(produced(&answer), [(ErrorCode::REQUEST_TIMED_OUT, 1)]);
}

#[test]
fn a_rejection_contains_its_reasons() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().append_error = Some(ErrorCode::INVALID_RECORD);
    let answer = client.call(PRODUCE, 9, &produce(-1, 1000, &[(0, &batch(1, 10))]));
    assert_eq!(produced(&answer), [(ErrorCode::INVALID_RECORD, -1)]);
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("no key") && text.contains("one or more"), "{text}");
}

#[test]
fn invalid_acks_transactions_and_internal_topics_are_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let one = batch(1, 10);
    for acks in [-2, 2, i16::MAX] {
        let answer = client.call(PRODUCE, 9, &produce(acks, 1000, &[(0, &one)]));
        assert_eq!(produced(&answer), [(ErrorCode::INVALID_REQUIRED_ACKS, -1)]);
    }
    let mut transactional = one.clone();
    transactional[22] |= 0x10;
    let answer = client.call(PRODUCE, 9, &produce(-1, 1000, &[(0, &transactional)]));
    assert_eq!(produced(&answer), [(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]);
    let answer = client.call(PRODUCE, 9, &produce_to("__consumer_offsets", -1, 1000, &[(0, &one)]));
    assert_eq!(produced(&answer), [(ErrorCode::INVALID_TOPIC_EXCEPTION, -1)]);
    assert_eq!(fixture.backend.at(INTERNAL, 0).state.lock().end_offset, 0);
    assert_eq!(fixture.backend.at(NAMED, 0).state.lock().end_offset, 0);
}

#[test]
fn without_acks_there_is_no_answer_and_an_error_closes() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(PRODUCE, 9, 1, &produce(0, 1000, &[(0, &batch(1, 10))]));
    assert_eq!(produced(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 10))]))), [(NONE, 1)]);
    client.send(PRODUCE, 9, 2, &produce(0, 1000, &[(9, &batch(1, 10))]));
    assert!(client.is_closed());
    assert!(fixture.log_line().contains("UNKNOWN_TOPIC_OR_PARTITION"));
}

#[test]
fn a_request_to_the_wrong_node_returns_the_leader() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    // Broker 9 leads `other` and is not registered: the response contains its id but no endpoint.
    let answer = client.call(PRODUCE, 10, &produce_to("other", 1, 1000, &[(0, &batch(1, 10))]));
    let leader_tag = b"\x01\x00\x09\x00\x00\x00\x09\x00\x00\x00\x05\x00";
    assert!(answer.windows(leader_tag.len()).any(|part| part == leader_tag), "{answer:?}");
    fixture.backend.at(NAMED, 0).state.lock().append_error = Some(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let answer = client.call(PRODUCE, 10, &produce(1, 1000, &[(0, &batch(1, 10))]));
    let endpoint = b"\x0fbroker.example\x00\x00\x23\x84\x03r1\x00";
    assert!(answer.ends_with(endpoint), "{answer:?}");
}
