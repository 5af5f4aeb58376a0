//! Peers that close their side while a request waits and later bytes are not read.

use std::time::Duration;

use klamm_wire::api::{CREATE_TOPICS, FETCH, PRODUCE};
use socket2::SockRef;

use crate::NetConfig;
use crate::testing::{Client, FetchSpec, Fixture, NAMED, batch, fetch, frame, produce};

const CLIENTS: usize = 50;

/// More than one read takes in advance, but no more than the system's buffer holds; otherwise the end is not known
/// either.
fn pipelined() -> Vec<u8> {
    (0..1000).flat_map(|id| frame(CREATE_TOPICS, 5, id, &[7; 64])).collect()
}

fn long_poll(client: &mut Client) {
    let partitions = &[(0, 0, 1 << 20)];
    client.send(FETCH, 13, 1, &fetch(&FetchSpec { partitions, max_wait_ms: 600_000, ..FetchSpec::default() }));
}

fn acks_all(client: &mut Client) {
    client.send(PRODUCE, 9, 1, &produce(-1, 600_000, &[(0, &batch(1, 10))]));
}

fn answered_elsewhere(client: &mut Client) {
    client.send(CREATE_TOPICS, 5, 1, b"create");
}

/// `Client::drop` sends the end of the stream, or a reset with `is_reset`.
fn all_are_released(wait: fn(&mut Client), is_reset: bool) {
    let fixture = Fixture::with(NetConfig { half_closed_ms_max: 50, ..NetConfig::default() });
    fixture.backend.at(NAMED, 0).state.lock().holds_back = true;
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| fixture.client()).collect();
    for client in &mut clients {
        wait(client);
        client.send_raw(&pipelined());
    }
    fixture.wait_until(|| fixture.server.connection_count() == CLIENTS);
    for client in clients {
        if is_reset {
            SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).expect("a socket option");
        }
    }
    fixture.wait_until(|| fixture.server.connection_count() == 0);
}

#[test]
fn a_closed_connection_ends_its_long_poll() {
    all_are_released(long_poll, false);
    all_are_released(long_poll, true);
}

#[test]
fn a_closed_connection_ends_its_wait_for_acks() {
    all_are_released(acks_all, false);
    all_are_released(acks_all, true);
}

#[test]
fn a_closed_connection_ends_its_wait_for_an_outside_response() {
    all_are_released(answered_elsewhere, false);
    all_are_released(answered_elsewhere, true);
}

#[test]
fn a_sender_with_unread_bytes_is_closed_when_it_is_idle() {
    for wait in [long_poll, acks_all, answered_elsewhere] {
        let fixture = Fixture::with(NetConfig { idle_ms_max: 300, ..NetConfig::default() });
        fixture.backend.at(NAMED, 0).state.lock().holds_back = true;
        let mut client = fixture.client();
        wait(&mut client);
        client.send_raw(&pipelined());
        fixture.wait_until(|| fixture.server.connection_count() == 0);
    }
}

#[test]
fn a_connection_closed_while_it_waits_for_room_is_noticed() {
    let fixture = Fixture::with(NetConfig { queued_bytes_max: 1, half_closed_ms_max: 50, ..NetConfig::default() });
    let large = produce(0, 1000, &[(0, &batch(1, 1 << 20))]);
    let mut first = fixture.client();
    first.send_raw(&frame(PRODUCE, 9, 1, &large)[..300 << 10]);
    fixture.wait_until(|| !fixture.server.has_room_for_large_frames());
    let mut second = fixture.client();
    second.send_raw(&frame(PRODUCE, 9, 1, &large)[..100 << 10]);
    fixture.wait_until(|| fixture.server.connection_count() == 2);
    drop(second);
    fixture.wait_until(|| fixture.server.connection_count() == 1);
}
