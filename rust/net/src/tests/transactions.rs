//! Produce with transactional batches: when the transaction coordinator is asked, and the effect of its response.
//! "Case" is the number in the list of cases of transactions.

use klamm_base::ErrorCode;
use klamm_wire::api::{FETCH, METADATA, PRODUCE};

use crate::testing::{Client, FetchSpec, Fixture, NAMED, batch, fetch, produce, produced, with_transactional_id};
use crate::{Event, Reply, Verify};

const NONE: ErrorCode = ErrorCode::NONE;

/// A transactional batch of a record.
fn transactional(producer_id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut bytes = batch(1, 10);
    bytes[22] |= 0x10;
    bytes[43..51].copy_from_slice(&producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    bytes
}

/// The body of a Produce request of transactional id `t`.
fn of_t(partitions: &[(i32, &[u8])]) -> Vec<u8> {
    with_transactional_id("t", &produce(-1, 10_000, partitions))
}

fn verify(fixture: &Fixture) -> Box<Verify> {
    match fixture.event() {
        Event::Verify(verify) => verify,
        other => panic!("{other:?} where a question was expected"),
    }
}

fn end_offset(fixture: &Fixture, index: i32) -> i64 {
    fixture.backend.at(NAMED, index).state.lock().end_offset
}

/// The coordinator's response to the verification of a request of this version, and the response for a partition.
fn answer_of(version: i16, code: ErrorCode) -> ErrorCode {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(PRODUCE, version, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    let asked = verify(&fixture);
    assert_eq!((asked.version, asked.is_adding), (version, version >= 12));
    assert_eq!((&*asked.transactional_id, asked.producer_id, asked.producer_epoch), ("t", 7, 3));
    assert_eq!(asked.partitions, [("named".to_owned(), 0)]);
    assert_eq!(end_offset(&fixture, 0), 0, "nothing is appended before the answer");
    fixture.server.on_verified([(asked.handle, [code].into())]);
    let answered = client.receive().1;
    let [(found, offset)] = produced(&answered)[..] else { panic!("one partition") };
    assert_eq!((end_offset(&fixture, 0), offset), if found == NONE { (1, 0) } else { (0, -1) });
    found
}

#[test]
fn case_39_the_answer_by_version_of_the_request() {
    assert_eq!(answer_of(9, ErrorCode::TRANSACTION_ABORTABLE), ErrorCode::INVALID_TXN_STATE);
    assert_eq!(answer_of(10, ErrorCode::TRANSACTION_ABORTABLE), ErrorCode::INVALID_TXN_STATE);
    assert_eq!(answer_of(11, ErrorCode::TRANSACTION_ABORTABLE), ErrorCode::TRANSACTION_ABORTABLE);
    assert_eq!(answer_of(12, NONE), NONE);
    assert_eq!(answer_of(9, NONE), NONE);
}

#[test]
fn case_40_the_previous_transaction_is_not_complete() {
    assert_eq!(answer_of(12, ErrorCode::CONCURRENT_TRANSACTIONS), ErrorCode::CONCURRENT_TRANSACTIONS);
    assert_eq!(answer_of(11, ErrorCode::CONCURRENT_TRANSACTIONS), ErrorCode::NOT_ENOUGH_REPLICAS);
}

#[test]
fn case_41_nothing_is_verified_while_the_transaction_is_open() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().is_transaction_open = true;
    let answer = client.call(PRODUCE, 9, &of_t(&[(0, &transactional(7, 3, 0))]));
    assert_eq!(produced(&answer), [(NONE, 0)]);
    assert_eq!(fixture.backend.at(NAMED, 0).state.lock().guards, [None]);
    assert!(fixture.server.drain(10).is_empty());
}

#[test]
fn case_44_a_fenced_producer_is_rejected_without_a_verification() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().verification_error = Some(ErrorCode::INVALID_PRODUCER_EPOCH);
    let answer = client.call(PRODUCE, 9, &of_t(&[(0, &transactional(7, 3, 0))]));
    assert_eq!(produced(&answer), [(ErrorCode::INVALID_PRODUCER_EPOCH, -1)]);
    assert!(fixture.server.drain(10).is_empty());
    assert!(fixture.backend.at(NAMED, 0).state.lock().guards.is_empty(), "it does not reach the log");
}

#[test]
fn partitions_that_are_not_verified_are_omitted() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let one = transactional(7, 3, 0);
    client.send(PRODUCE, 9, 1, &of_t(&[(1, &one), (9, &one), (0, &one)]));
    let asked = verify(&fixture);
    assert_eq!(asked.partitions, [("named".to_owned(), 1), ("named".to_owned(), 0)]);
    fixture.server.on_verified([(asked.handle, [ErrorCode::TRANSACTION_ABORTABLE, NONE].into())]);
    let unknown = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(produced(&client.receive().1), [(ErrorCode::INVALID_TXN_STATE, -1), unknown, (NONE, 0)]);
    let guards = fixture.backend.at(NAMED, 0).state.lock().guards.clone();
    assert!(matches!(guards[..], [Some(_)]), "{guards:?}");
}

#[test]
fn only_partitions_without_the_open_transaction_are_verified() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().is_transaction_open = true;
    let one = transactional(7, 3, 0);
    client.send(PRODUCE, 9, 1, &of_t(&[(0, &one), (1, &one)]));
    let asked = verify(&fixture);
    assert_eq!(asked.partitions, [("named".to_owned(), 1)]);
    assert_eq!(end_offset(&fixture, 0), 0, "the request is handled as a whole");
    // A wrong number of codes: no partition is appended without its own.
    fixture.server.on_verified([(asked.handle, [].into())]);
    assert_eq!(produced(&client.receive().1), [(NONE, 0), (ErrorCode::NOT_ENOUGH_REPLICAS, -1)]);
}

#[test]
fn case_47_two_producers_in_a_request_are_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for other in [transactional(8, 3, 0), transactional(7, 4, 0)] {
        let body = of_t(&[(0, &transactional(7, 3, 0)), (1, &other)]);
        let refused = (ErrorCode::INVALID_PRODUCER_ID_MAPPING, -1);
        assert_eq!(produced(&client.call(PRODUCE, 9, &body)), [refused; 2]);
    }
    // Trap 4: a transactional id does not make the batches transactional.
    let mut idempotent = transactional(8, 0, 0);
    idempotent[22] = 0;
    assert_eq!(produced(&client.call(PRODUCE, 9, &of_t(&[(0, &idempotent)]))), [(NONE, 0)]);
    assert!(fixture.server.drain(10).is_empty());
}

#[test]
fn case_48_a_transactional_batch_without_id_is_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let body = produce(-1, 10_000, &[(0, &transactional(7, 3, 0))]);
    let refused = (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1);
    assert_eq!(produced(&client.call(PRODUCE, 9, &body)), [refused]);
    // Batches that the log rejects anyway are not verified.
    let (mut control, negative) = (transactional(7, 3, 0), transactional(7, 3, -1));
    control[22] |= 0x20;
    client.call(PRODUCE, 9, &of_t(&[(0, &control), (1, &negative)]));
    assert!(fixture.server.drain(10).is_empty());
}

#[test]
fn a_plain_batch_stays_plain_in_a_request_with_a_transactional_id() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let answer = client.call(PRODUCE, 12, &of_t(&[(0, &batch(1, 10))]));
    assert_eq!(produced(&answer), [(NONE, 0)]);
    assert!(fixture.server.drain(10).is_empty(), "no coordinator is asked");
    assert_eq!(fixture.backend.at(NAMED, 0).state.lock().guards, [None]);
}

#[test]
fn a_batch_that_waited_for_its_verification_wakes_fetches() {
    let fixture = Fixture::new();
    let (mut producer, mut consumer) = (fixture.client(), fixture.client());
    let wanted = FetchSpec { max_wait_ms: 60_000, partitions: &[(0, 0, 1 << 20)], ..FetchSpec::default() };
    consumer.send(FETCH, 13, 1, &fetch(&wanted));
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    producer.send(PRODUCE, 12, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    fixture.server.on_verified([(verify(&fixture).handle, [NONE].into())]);
    assert_eq!(produced(&producer.receive().1), [(NONE, 0)]);
    assert_eq!(consumer.receive().0, 1);
}

#[test]
fn case_77_requests_of_a_connection_keep_their_order() {
    let fixture = Fixture::new();
    let (mut client, mut other) = (fixture.client(), fixture.client());
    client.send(PRODUCE, 9, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    client.send(PRODUCE, 9, 2, &of_t(&[(0, &transactional(7, 3, 1))]));
    client.send(METADATA, 1, 3, b"\0\0\0\0");
    let first = verify(&fixture);
    other.call(METADATA, 1, b"\0\0\0\0");
    assert!(fixture.server.drain(10).is_empty(), "the second request waits for the first one");
    fixture.server.on_verified([(first.handle, [NONE].into())]);
    let (id, answer) = client.receive();
    assert_eq!((id, produced(&answer)), (1, vec![(NONE, 0)]));
    let second = verify(&fixture);
    fixture.server.on_verified([(second.handle, [NONE].into())]);
    let (id, answer) = client.receive();
    assert_eq!((id, produced(&answer)), (2, vec![(NONE, 1)]));
    assert_eq!(client.receive().0, 3);
}

#[test]
fn a_large_batch_waits_in_its_receive_buffer() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut large = batch(1, 3 << 20);
    large[22] |= 0x10;
    large[43..57].copy_from_slice(&transactional(7, 3, 0)[43..57]);
    client.send(PRODUCE, 9, 1, &of_t(&[(0, &large)]));
    client.send(PRODUCE, 9, 2, &of_t(&[(0, &large)]));
    for id in 1..3 {
        fixture.server.on_verified([(verify(&fixture).handle, [NONE].into())]);
        let (answered, body) = client.receive();
        assert_eq!((answered, produced(&body)), (id, vec![(NONE, i64::from(id) - 1)]));
    }
}

#[test]
fn earlier_produces_are_answered_while_one_waits() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    fixture.backend.at(NAMED, 1).state.lock().holds_back = true;
    client.send(PRODUCE, 9, 1, &produce(-1, 10_000, &[(1, &batch(1, 10))]));
    client.send(PRODUCE, 9, 2, &of_t(&[(0, &transactional(7, 3, 0))]));
    let asked = verify(&fixture);
    fixture.backend.at(NAMED, 1).commit(1);
    assert_eq!(client.receive().0, 1);
    fixture.server.on_verified([(asked.handle, [NONE].into())]);
    assert_eq!(client.receive().0, 2);
}

#[test]
fn without_acks_an_error_closes_the_connection() {
    for (code, is_closed) in [(NONE, false), (ErrorCode::TRANSACTION_ABORTABLE, true)] {
        let fixture = Fixture::new();
        let mut client = fixture.client();
        let body = with_transactional_id("t", &produce(0, 10_000, &[(0, &transactional(7, 3, 0))]));
        client.send(PRODUCE, 9, 1, &body);
        fixture.server.on_verified([(verify(&fixture).handle, [code].into())]);
        if is_closed {
            assert!(client.is_closed());
        } else {
            client.call(METADATA, 1, b"\0\0\0\0");
            assert_eq!(end_offset(&fixture, 0), 1);
        }
    }
}

#[test]
fn the_verification_of_a_closed_connection_is_dropped() {
    let fixture = Fixture::new();
    // The first verification shows that the second one was sent too.
    let mut clients: Vec<Client> = (0..2).map(|_| fixture.client()).collect();
    let mut asked = Vec::new();
    for client in &mut clients {
        client.send(PRODUCE, 9, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    }
    asked.push(verify(&fixture).handle);
    drop(clients);
    fixture.wait_until(|| fixture.server.connection_count() == 0);
    assert!(fixture.server.drain(10).is_empty());
    fixture.server.on_verified([(asked[0], [NONE].into())]);
    assert_eq!(end_offset(&fixture, 0), 0);
}

#[test]
fn a_node_that_stops_answers_waiting_requests() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(PRODUCE, 9, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    verify(&fixture);
    fixture.server.finish();
    assert_eq!(produced(&client.receive().1), [(ErrorCode::NOT_ENOUGH_REPLICAS, -1)]);
    assert!(client.is_closed());
}

#[test]
fn a_verification_that_cannot_be_sent_is_an_error() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(PRODUCE, 9, 1, &of_t(&[(0, &transactional(7, 3, 0))]));
    assert!(fixture.server.answer(verify(&fixture).handle, Reply::Close));
    assert_eq!(produced(&client.receive().1), [(ErrorCode::NOT_ENOUGH_REPLICAS, -1)]);
}
