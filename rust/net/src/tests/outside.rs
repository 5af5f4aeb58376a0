//! Requests that are answered outside of the engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use klamm_wire::api::{API_VERSIONS, CREATE_TOPICS, HEARTBEAT, METADATA, OFFSET_COMMIT, OFFSET_FETCH};
use klamm_wire::api_versions::ApiRange;

use crate::testing::{Fixture, frame};
use crate::{Event, NetConfig, Principal, Reply};

#[test]
fn a_request_is_passed_on_completely_and_its_answer_sent() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(CREATE_TOPICS, 5, 42, b"create");
    let request = fixture.request();
    assert_eq!((request.api_key, request.api_version, request.correlation_id), (CREATE_TOPICS, 5, 42));
    assert_eq!((&*request.listener, &*request.client_id, &request.body[..]), ("CLIENTS", "test", &b"create"[..]));
    assert_eq!(request.address, client.stream.local_addr().expect("an address").ip());
    assert_eq!((request.principal, request.is_on_controller), (Principal::ANONYMOUS, false));
    assert_eq!(request.deadline - request.arrived, Duration::from_secs(60));
    assert!(fixture.server.answer(request.handle, Reply::Body(Bytes::from_static(b"\0\0\0\0done"))));
    assert_eq!(client.receive(), (42, b"\0\0\0\0\0done".to_vec()));
    // Versions that are not flexible have no tagged fields in the header.
    client.send(CREATE_TOPICS, 4, 43, b"");
    let request = fixture.request();
    assert!(fixture.server.answer(request.handle, Reply::Body(Bytes::from_static(b"\0\0\0\0done"))));
    assert_eq!(client.receive(), (43, b"\0\0\0\0done".to_vec()));
    assert!(!fixture.server.answer(request.handle, Reply::Body(Bytes::new())));
}

#[test]
fn one_request_of_a_connection_is_passed_on_at_a_time() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send_raw(
        &[frame(CREATE_TOPICS, 5, 1, b"one"), frame(CREATE_TOPICS, 5, 2, b"two"), frame(METADATA, 1, 3, b"\0\0\0\0")]
            .concat(),
    );
    for (id, body) in [(1, b"one"), (2, b"two")] {
        let request = fixture.request();
        assert_eq!((request.correlation_id, &request.body[..]), (id, &body[..]));
        assert!(fixture.server.drain(9).is_empty());
        fixture.server.answer(request.handle, Reply::Body(Bytes::new()));
        assert_eq!(client.receive().0, id);
    }
    assert_eq!(client.receive().0, 3);
}

#[test]
fn commits_of_a_connection_are_passed_on_together_and_answered_in_order() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let commits = (0..3).map(|id| frame(OFFSET_COMMIT, 7, id, b"commit"));
    client.send_raw(&commits.chain([frame(OFFSET_FETCH, 5, 3, b"fetch")]).collect::<Vec<_>>().concat());
    let requests: Vec<_> = (0..3).map(|_| fixture.request()).collect();
    assert_eq!(requests.iter().map(|request| request.correlation_id).collect::<Vec<_>>(), [0, 1, 2]);
    // A request that may see their effect waits for all of them.
    assert!(fixture.server.drain(9).is_empty());
    for request in requests.iter().rev() {
        assert!(fixture.server.answer(request.handle, Reply::Body(Bytes::from(format!("{}", request.correlation_id)))));
    }
    for id in 0..3 {
        assert_eq!(client.receive(), (id, format!("{id}").into_bytes()));
    }
    assert_eq!(fixture.request().correlation_id, 3);
}

#[test]
fn commits_of_a_connection_are_bounded_and_forgotten_when_it_closes() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for id in 0..100 {
        client.send(OFFSET_COMMIT, 7, id, b"commit");
    }
    let requests: Vec<_> = (0..64).map(|_| fixture.request()).collect();
    assert!(fixture.server.drain(99).is_empty());
    drop(client);
    assert!(matches!(fixture.event(), Event::Closed { connection_id } if connection_id == requests[0].connection_id));
    for request in requests {
        assert!(!fixture.server.answer(request.handle, Reply::Body(Bytes::new())));
    }
}

#[test]
fn closing_instead_of_answering_is_reported() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(CREATE_TOPICS, 5, 1, b"");
    let request = fixture.request();
    assert!(fixture.server.answer(request.handle, Reply::Close));
    assert!(client.is_closed());
    assert!(matches!(fixture.event(), Event::Closed { connection_id } if connection_id == request.connection_id));
}

#[test]
fn a_response_to_a_closed_connection_is_dropped() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(CREATE_TOPICS, 5, 1, b"");
    let request = fixture.request();
    assert!(fixture.server.close_connection(request.connection_id));
    assert!(client.is_closed());
    assert!(matches!(fixture.event(), Event::Closed { .. }));
    assert!(!fixture.server.answer(request.handle, Reply::Body(Bytes::new())));
    assert!(!fixture.server.close_connection(request.connection_id));
}

#[test]
fn a_connection_without_requests_ends_silently() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.call(METADATA, 1, b"\0\0\0\0");
    drop(client);
    fixture.wait_until(|| fixture.server.connection_count() == 0);
    assert!(fixture.server.drain(9).is_empty());
}

#[test]
fn keep_alives_overtake_and_full_queues_hold_connections() {
    let fixture = Fixture::with(NetConfig { queued_requests_max: 2, ..NetConfig::default() });
    let mut clients: Vec<_> = (0..4).map(|_| fixture.client()).collect();
    for (id, client) in clients.iter_mut().enumerate() {
        client.send(CREATE_TOPICS, 5, id as i32, b"");
    }
    let mut urgent = fixture.client();
    urgent.send(HEARTBEAT, 4, 100, b"");
    fixture.wait_until(|| fixture.server.events().request_count() == 3);
    assert_eq!(fixture.request().correlation_id, 100);
    let mut seen: Vec<_> = (0..4).map(|_| fixture.request().correlation_id).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn topics_to_create_are_queued_once() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let ask = |names: &[&str]| {
        let mut body = (names.len() as i32).to_be_bytes().to_vec();
        for name in names {
            body.extend((name.len() as i16).to_be_bytes());
            body.extend(name.as_bytes());
        }
        body
    };
    client.call(METADATA, 1, &ask(&["new", "named", "not legal", "newer"]));
    client.call(METADATA, 1, &ask(&["new"]));
    client.call(METADATA, 4, &[ask(&["never"]), vec![0]].concat());
    let Event::AutoCreate { topics } = fixture.event() else { panic!("no topics to create") };
    let mut names: Vec<_> = topics.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["new", "newer"]);
    for (_, asker) in &topics {
        assert_eq!((&asker.principal, asker.address), (&Principal::ANONYMOUS, [127, 0, 0, 1].into()));
        assert_eq!(&*asker.client_id, "test");
    }
    assert!(fixture.server.drain(9).is_empty());
}

#[test]
fn before_it_opens_a_listener_only_accepts() {
    let fixture = Fixture::closed(NetConfig::default());
    let mut client = fixture.client();
    client.send(METADATA, 1, 5, b"\0\0\0\0");
    client.stream.set_nonblocking(true).expect("a socket option");
    assert!(client.stream.peek(&mut [0]).is_err());
    client.stream.set_nonblocking(false).expect("a socket option");
    assert!(fixture.server.open("CLIENTS") && !fixture.server.open("OTHERS"));
    assert_eq!(client.receive().0, 5);
}

#[test]
fn a_listener_that_is_not_open_may_serve_api_versions() {
    let fixture = Fixture::closed(NetConfig::default());
    let mut client = fixture.client();
    client.send(API_VERSIONS, 0, 5, b"");
    fixture.server.open_for_versions(Arc::default());
    assert_eq!(client.receive().0, 5);
    // A request after a waiting one waits too.
    client.send(METADATA, 1, 6, b"\0\0\0\0");
    client.send(API_VERSIONS, 0, 7, b"");
    assert_eq!(fixture.client().call(API_VERSIONS, 0, b"")[..2], [0, 0]);
    client.stream.set_nonblocking(true).expect("a socket option");
    assert!(client.stream.peek(&mut [0]).is_err());
    client.stream.set_nonblocking(false).expect("a socket option");
    assert!(fixture.server.open("CLIENTS"));
    assert_eq!([client.receive().0, client.receive().0], [6, 7]);
}

#[test]
fn api_versions_includes_the_active_controllers_versions() {
    let fixture = Fixture::new();
    let advertised = |key: i16| {
        let answer = fixture.client().call(API_VERSIONS, 0, b"");
        let word = |at: usize| i16::from_be_bytes([answer[at], answer[at + 1]]);
        (6..answer.len()).step_by(6).find(|&at| word(at) == key).map(|at| (word(at + 2), word(at + 4)))
    };
    let range = |key, version_min, version_max| ApiRange { key, version_min, version_max };
    let (fetch, own) = (advertised(1), advertised(19).expect("the fixture serves it"));
    for (there, both) in
        [((0, own.1 - 1), Some((own.0, own.1 - 1))), ((own.1, 99), Some((own.1, own.1))), ((0, -1), None)]
    {
        fixture.server.set_controller_apis(Some(vec![range(19, there.0, there.1)]));
        assert_eq!((advertised(19), advertised(1)), (both, fetch), "{there:?}");
    }
    // The engine does not reject such a request: the controller does.
    fixture.client().send(CREATE_TOPICS, own.1, 1, b"");
    assert_eq!(fixture.request().api_version, own.1);
    fixture.server.set_controller_apis(None);
    assert_eq!(advertised(19), Some(own));
}
