//! Responses are sent in the order of their requests, whatever each of them waits for.

use klamm_base::ErrorCode;
use klamm_wire::api::{FETCH, HEARTBEAT, PRODUCE};

use crate::testing::{FetchSpec, Fixture, NAMED, batch, fetch, frame, produce, produced};

/// Metadata v0 for all topics: a request that needs no waiting.
const METADATA: (i16, i16, &[u8]) = (3, 1, b"\xff\xff\xff\xff");

#[test]
fn a_ready_response_waits_for_earlier_ones() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let partition = fixture.backend.at(NAMED, 0);
    partition.state.lock().holds_back = true;
    client.send(PRODUCE, 9, 1, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    client.send(METADATA.0, METADATA.1, 2, METADATA.2);
    client.send(PRODUCE, 9, 3, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    client.send(PRODUCE, 9, 4, &produce(1, 10_000, &[(1, &batch(1, 10))]));
    let spec = FetchSpec { partitions: &[(0, 0, 1 << 20)], ..FetchSpec::default() };
    client.send(FETCH, 13, 5, &fetch(&spec));
    client.send(HEARTBEAT, 4, 6, b"heartbeat");
    // Both produces after the first were appended although it is not acknowledged.
    fixture.wait_until(|| fixture.backend.at(NAMED, 1).state.lock().end_offset == 1);
    assert_eq!(partition.state.lock().end_offset, 2);
    partition.commit(2);
    for correlation_id in 1..=5 {
        assert_eq!(client.receive().0, correlation_id);
    }
    let request = fixture.request();
    assert_eq!((request.correlation_id, &request.body[..]), (6, &b"heartbeat"[..]));
}

#[test]
fn many_requests_in_one_write_are_answered_one_by_one() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let all: Vec<u8> = (0..1000).flat_map(|id| frame(METADATA.0, METADATA.1, id, METADATA.2)).collect();
    let mut sender = client.stream.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &all).expect("an open connection"));
    for id in 0..1000 {
        assert_eq!(client.receive().0, id);
    }
    sending.join().expect("no panic");
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for byte in frame(METADATA.0, METADATA.1, 9, METADATA.2) {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.receive().0, 9);
}

#[test]
fn pipelined_produces_are_bounded() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let partition = fixture.backend.at(NAMED, 0);
    partition.state.lock().holds_back = true;
    for id in 0..100 {
        client.send(PRODUCE, 9, id, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    }
    fixture.wait_until(|| partition.state.lock().end_offset == 64);
    for id in 0..100 {
        partition.commit(i64::from(id) + 1);
        let (correlation_id, answer) = client.receive();
        assert_eq!((correlation_id, produced(&answer)), (id, vec![(ErrorCode::NONE, i64::from(id))]));
    }
}

#[test]
fn a_client_that_stops_sending_still_gets_its_answers() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let partition = fixture.backend.at(NAMED, 0);
    partition.state.lock().holds_back = true;
    client.send(PRODUCE, 9, 1, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    client.send(HEARTBEAT, 4, 2, b"");
    client.shut_down_writing();
    fixture.wait_until(|| partition.state.lock().end_offset == 1);
    partition.commit(1);
    assert_eq!(client.receive().0, 1);
    let request = fixture.request();
    fixture.server.answer(request.handle, crate::Reply::Body(bytes::Bytes::from_static(b"x")));
    assert_eq!(client.receive(), (2, b"\x00x".to_vec()));
    assert!(client.is_closed());
}
