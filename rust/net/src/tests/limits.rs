//! Limits on the number of connections, on idle time and on memory.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_wire::api::{FETCH, LEAVE_GROUP, ListenerKind, METADATA, PRODUCE};

use crate::testing::{Client, FetchSpec, Fixture, NAMED, batch, fetch, fetched, frame, produce, produced};
use crate::{ConnectionLimitsConfig, ListenerLimits, ListenerOptions, NetConfig, Reply, Windows};

#[test]
fn an_idle_connection_is_closed_and_a_waiting_one_is_not() {
    let fixture = Fixture::with(NetConfig { idle_ms_max: 500, ..NetConfig::default() });
    let mut idle = fixture.client();
    let mut waiting = fixture.client();
    fixture.backend.at(NAMED, 0).state.lock().holds_back = true;
    waiting.send(PRODUCE, 9, 1, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    assert!(idle.is_closed());
    fixture.wait_until(|| fixture.server.connection_count() == 1);
    fixture.backend.at(NAMED, 0).commit(1);
    assert_eq!(waiting.receive().0, 1);
    assert!(waiting.is_closed());
}

#[test]
fn a_client_that_reads_nothing_is_closed() {
    let fixture = Fixture::with(NetConfig { idle_ms_max: 1000, ..NetConfig::default() });
    let request = produce(1, 1000, &[(0, &batch(1, 8 << 20))]);
    let mut client = fixture.client();
    client.call(PRODUCE, 9, &request);
    client.send(FETCH, 13, 1, &fetch(&FetchSpec { partitions: &[(0, 0, 1)], ..FetchSpec::default() }));
    fixture.wait_until(|| fixture.server.connection_count() == 0);
}

fn limited(connections: ConnectionLimitsConfig) -> Fixture {
    Fixture::with(NetConfig { connections, ..NetConfig::default() })
}

#[test]
fn an_address_has_a_limit_of_connections() {
    let address = "127.0.0.1".parse().expect("an address");
    let overrides = HashMap::from([(address, 2)]);
    let fixture = limited(ConnectionLimitsConfig { per_ip_overrides: overrides, ..ConnectionLimitsConfig::default() });
    let mut first = fixture.client();
    let mut second = fixture.client();
    first.call(METADATA, 1, b"\0\0\0\0");
    second.call(METADATA, 1, b"\0\0\0\0");
    assert!(fixture.client().is_closed());
    assert!(fixture.log_line().contains("has 2 already"));
    drop(first);
    fixture.wait_until(|| fixture.server.connection_count() == 1);
    fixture.client().call(METADATA, 1, b"\0\0\0\0");
    second.call(METADATA, 1, b"\0\0\0\0");
}

#[test]
fn beyond_the_limit_connections_wait_for_room() {
    let fixture = limited(ConnectionLimitsConfig { most: 1, ..ConnectionLimitsConfig::default() });
    let mut first = fixture.client();
    first.call(METADATA, 1, b"\0\0\0\0");
    let mut second = fixture.client();
    second.send(METADATA, 1, 2, b"\0\0\0\0");
    first.call(METADATA, 1, b"\0\0\0\0");
    assert_eq!(fixture.server.connection_count(), 1);
    drop(first);
    assert_eq!(second.receive().0, 2);
}

#[test]
fn limits_change_while_connections_wait() {
    let fixture = limited(ConnectionLimitsConfig { most: 1, ..ConnectionLimitsConfig::default() });
    let mut first = fixture.client();
    first.call(METADATA, 1, b"\0\0\0\0");
    let mut second = fixture.client();
    second.send(METADATA, 1, 2, b"\0\0\0\0");
    fixture.server.set_limits(ConnectionLimitsConfig { most: 2, ..ConnectionLimitsConfig::default() });
    assert_eq!(second.receive().0, 2);
    fixture.server.set_limits(ConnectionLimitsConfig { per_ip_max: 2, ..ConnectionLimitsConfig::default() });
    assert!(fixture.client().is_closed());
    // Existing connections stay open.
    first.call(METADATA, 1, b"\0\0\0\0");
}

#[test]
fn connections_above_the_rate_are_delayed_but_served() {
    let quota_windows = Windows { count: 1, window_ms: 50 };
    let windows = ConnectionLimitsConfig { quota_windows, ..ConnectionLimitsConfig::default() };
    let fixture = limited(ConnectionLimitsConfig { creation_rate: 20, ..windows });
    for _ in 0..4 {
        fixture.client().call(METADATA, 1, b"\0\0\0\0");
    }
}

/// A second listener besides the fixture's.
fn listener_between_brokers(fixture: &Fixture) -> SocketAddr {
    let options = ListenerOptions {
        name: "BROKERS".to_owned(),
        kind: ListenerKind::Broker,
        host: "127.0.0.1".to_owned(),
        port: 0,
    };
    let address = fixture.server.listen(&options).expect("a free port");
    assert!(fixture.server.open("BROKERS"));
    fixture
        .server
        .set_listener_limits(ListenerLimits { inter_broker: Some("BROKERS".to_owned()), ..ListenerLimits::default() });
    address
}

#[test]
fn the_longest_idle_connection_is_closed_for_brokers_and_for_a_lower_limit() {
    let fixture = limited(ConnectionLimitsConfig { most: 2, ..ConnectionLimitsConfig::default() });
    let brokers = listener_between_brokers(&fixture);
    let (mut busy, mut idle) = (fixture.client(), fixture.client());
    busy.call(METADATA, 1, b"\0\0\0\0");
    idle.call(METADATA, 1, b"\0\0\0\0");
    // So that their times differ.
    std::thread::sleep(Duration::from_millis(5));
    busy.call(METADATA, 1, b"\0\0\0\0");
    let mut broker = Client::connect(brokers);
    broker.call(METADATA, 1, b"\0\0\0\0");
    assert!(idle.is_closed());
    busy.call(METADATA, 1, b"\0\0\0\0");
    fixture.wait_until(|| fixture.server.connection_count() == 2);
    fixture.server.set_limits(ConnectionLimitsConfig { most: 1, ..ConnectionLimitsConfig::default() });
    assert!(busy.is_closed());
    broker.call(METADATA, 1, b"\0\0\0\0");
}

#[test]
fn closing_a_listener_affects_no_other() {
    let fixture = Fixture::new();
    let address = listener_between_brokers(&fixture);
    let (mut stays, mut goes) = (fixture.client(), Client::connect(address));
    stays.call(METADATA, 1, b"\0\0\0\0");
    goes.call(METADATA, 1, b"\0\0\0\0");
    assert!(fixture.server.close_listener("BROKERS") && !fixture.server.close_listener("BROKERS"));
    assert!(goes.is_closed());
    fixture.wait_until(|| std::net::TcpStream::connect(address).is_err());
    stays.call(METADATA, 1, b"\0\0\0\0");
}

#[test]
fn closing_the_server_closes_everything() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.call(METADATA, 1, b"\0\0\0\0");
    fixture.server.close();
    assert!(client.is_closed());
    fixture.wait_until(|| fixture.server.connection_count() == 0);
    fixture.wait_until(|| std::net::TcpStream::connect(fixture.address).is_err());
}

#[test]
fn a_connection_whose_request_is_not_taken_is_closed() {
    let fixture = Fixture::new();
    let (mut queued, mut taken) = (fixture.client(), fixture.client());
    taken.send(LEAVE_GROUP, 4, 1, b"leave");
    let request = fixture.request();
    queued.send(LEAVE_GROUP, 4, 2, b"leave");
    fixture.wait_until(|| fixture.server.events().request_count() == 1);
    fixture.server.finish();
    fixture.server.refuse_queued();
    assert!(queued.is_closed());
    assert!(fixture.server.answer(request.handle, Reply::Body(Bytes::new())));
    assert_eq!(taken.receive().0, 1);
}

#[test]
fn finishing_answers_taken_requests() {
    let fixture = Fixture::new();
    let (mut reader, mut writer, mut asking) = (fixture.client(), fixture.client(), fixture.client());
    let partition = fixture.backend.at(NAMED, 0);
    let spec = FetchSpec { max_wait_ms: 60_000, partitions: &[(0, 0, 1 << 20)], ..FetchSpec::default() };
    reader.send(FETCH, 13, 1, &fetch(&spec));
    fixture.wait_until(|| partition.watcher_count() == 1);
    partition.state.lock().holds_back = true;
    writer.send(PRODUCE, 9, 2, &produce(-1, 10_000, &[(0, &batch(1, 10))]));
    fixture.wait_until(|| partition.state.lock().end_offset == 1);
    asking.send(LEAVE_GROUP, 4, 3, b"leave");
    let request = fixture.request();
    fixture.server.finish();
    assert_eq!(fetched(&reader.receive().1).partitions[0].1, ErrorCode::NONE);
    assert!(reader.is_closed());
    partition.commit(1);
    assert_eq!(writer.receive().0, 2);
    assert!(fixture.server.answer(request.handle, Reply::Body(Bytes::new())));
    assert_eq!(asking.receive().0, 3);
    assert!(writer.is_closed() && asking.is_closed());
    fixture.wait_until(|| fixture.server.connection_count() == 0);
}

#[test]
fn large_frames_wait_for_each_other_beyond_the_limit() {
    let fixture = Fixture::with(NetConfig { queued_bytes_max: 1 << 20, ..NetConfig::default() });
    let whole = frame(PRODUCE, 9, 1, &produce(1, 1000, &[(0, &batch(1, 900_000))]));
    let (mut first, mut second) = (fixture.client(), fixture.client());
    // The first has started and sends nothing more, so the second gets no room; small frames pass.
    first.send_raw(&whole[..800_000]);
    fixture.wait_until(|| !fixture.server.has_room_for_large_frames());
    let mut sender = second.stream.try_clone().expect("a second handle");
    let bytes = whole.clone();
    let sending =
        std::thread::spawn(move || std::io::Write::write_all(&mut sender, &bytes).expect("an open connection"));
    fixture.client().call(PRODUCE, 9, &produce(1, 1000, &[(1, &batch(1, 10))]));
    assert_eq!(fixture.backend.at(NAMED, 0).state.lock().end_offset, 0);
    first.send_raw(&whole[800_000..]);
    assert_eq!(produced(&first.receive().1), [(ErrorCode::NONE, 0)]);
    assert_eq!(produced(&second.receive().1), [(ErrorCode::NONE, 1)]);
    sending.join().expect("no panic");
}

#[test]
fn a_connection_is_small() {
    // An idle connection must use at most 4 KiB in total, excluding the socket's own memory.
    assert!(size_of::<crate::connection::Connection<crate::transport::TcpTransport>>() <= 512);
}

#[test]
fn the_work_is_counted() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let request = frame(METADATA, 1, 1, b"\0\0\0\0");
    client.send_raw(&request);
    let answer = client.receive().1;
    client.send(99, 0, 2, b"");
    assert!(client.is_closed());
    fixture.wait_until(|| fixture.server.counters().closed_for_fault.get() == 1);
    let counters = fixture.server.counters();
    assert_eq!(counters.accepted.get(), 1);
    assert_eq!(fixture.server.request_metrics().requests().collect::<Vec<_>>(), [(METADATA, 1)]);
    assert_eq!(counters.sent_bytes.get(), answer.len() as u64 + 8);
    assert_eq!(counters.received_bytes.get(), (request.len() + frame(99, 0, 2, b"").len()) as u64);
}
