//! Invalid frames and malformed requests: the connection is closed with one log message, and no memory leaks.

use klamm_wire::api::{API_VERSIONS, Api, METADATA, Served};

use crate::NetConfig;
use crate::testing::{Fixture, frame};

#[test]
fn invalid_sizes_close_before_anything_is_read() {
    let fixture = Fixture::with(NetConfig { request_bytes_max: 1000, ..NetConfig::default() });
    for (len, allowed) in [(-1, false), (i32::MIN, false), (1001, false), (i32::MAX, false), (0, true), (3, true)] {
        let mut client = fixture.client();
        client.send_raw(&i32::to_be_bytes(len));
        client.send_raw(&[0, 3, 0]);
        assert!(client.is_closed(), "{len}");
        let line = fixture.log_line();
        assert_eq!(line.contains("0 to 1000 are allowed"), !allowed, "{line}");
    }
    fixture.wait_until(|| fixture.server.connection_count() == 0);
}

#[test]
fn unsupported_requests_close() {
    let fixture = Fixture::new();
    // Unknown keys; removed ones; versions below and above; Produce's advertised but rejected versions; controller
    // APIs; an API that does not exist yet.
    let absent = Api::all().iter().find(|api| api.on_broker == Served::NotYet).expect("something is left to do");
    let absent = (absent.key, absent.version_min);
    for (key, version) in [(-1, 0), (4, 1), (93, 0), (3, -1), (3, 14), (1, 3), (0, 0), (0, 2), (52, 0), absent] {
        let mut client = fixture.client();
        client.send(key, version, 1, b"");
        assert!(client.is_closed(), "{key} v{version}");
        assert!(fixture.log_line().contains(&format!("{key}")));
    }
}

#[test]
fn earlier_requests_are_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send_raw(
        &[frame(METADATA, 1, 1, b"\0\0\0\0"), frame(99, 0, 2, b""), frame(METADATA, 1, 3, b"\0\0\0\0")].concat(),
    );
    assert_eq!(client.receive().0, 1);
    assert!(client.is_closed());
}

#[test]
fn api_versions_is_answered_in_any_version() {
    let fixture = Fixture::new();
    for version in [-1, 5, 100, i16::MAX] {
        // For an unsupported version, the response has version 0 with the supported versions: error 35, one API.
        let answer = fixture.client().call(API_VERSIONS, version, b"");
        assert_eq!(answer, b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04", "{version}");
    }
    let answer = fixture.client().call(API_VERSIONS, 3, b"\x02-\x021\x00");
    assert_eq!(answer, b"\x00\x2a\x01\x00\x00\x00\x00\x00", "an invalid client software name");
    let answer = fixture.client().call(API_VERSIONS, 0, b"");
    let served = |api: &&Api| matches!(api.on_broker, Served::ByEngine | Served::ByPython);
    let count = Api::all().iter().filter(served).count();
    assert_eq!(answer[..6], [&[0; 5][..], &[count as u8]].concat());
    assert_eq!(answer[6..12], [0, 0, 0, 0, 0, 13]);
}

#[test]
fn truncated_requests_close() {
    let fixture = Fixture::new();
    let full: [(i16, i16, &[u8]); 6] = [
        (0, 9, b"\x00\xff\xff\x00\x00\x00\x01\x02\x06named\x02\x00\x00\x00\x00\x02\x00\x00\x00\x00"),
        (1, 4, b"\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x10\x00\x00\x00\x00\x00\x01"),
        (2, 1, b"\xff\xff\xff\xff\x00\x00\x00\x01\x00\x05named\x00\x00\x00\x01"),
        (3, 9, b"\x02\x06named\x00\x01\x00"),
        (23, 4, b"\xff\xff\xff\xff\x02\x06named\x02\x00\x00\x00\x00"),
        (75, 0, b"\x02\x06named\x00\x00\x00\x00\x01\xff"),
    ];
    for (key, version, body) in full {
        for cut in 0..body.len() {
            let mut client = fixture.client();
            client.send(key, version, 1, &body[..cut]);
            assert!(client.is_closed(), "{key} v{version} cut at {cut}");
            let line = fixture.log_line();
            assert!(line.contains(Api::of(key).expect("known").name), "{line}");
        }
    }
}

#[test]
fn false_counts_close() {
    let fixture = Fixture::new();
    for (key, version, body) in [
        (0, 8, &b"\xff\xff\xff\xff\x00\x00\x00\x01\x7f\xff\xff\xff"[..]),
        (1, 12, b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\x0f"),
        (3, 1, b"\x7f\xff\xff\xff"),
        (75, 0, b"\xff\xff\xff\xff\x0f"),
    ] {
        let mut client = fixture.client();
        client.send(key, version, 1, body);
        assert!(client.is_closed(), "{key} v{version}");
    }
}

#[test]
fn input_that_apache_kafka_tolerates_is_accepted() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    // Every negative count is null, which requests all topics: three of them.
    let answer = client.call(METADATA, 1, &i32::to_be_bytes(-2));
    assert!(answer.windows(9).any(|part| part == b"\0\0\0\x03\0\0\0\x05n" || part == b"\0\0\0\x03\0\0\0\x05o"));
    // Invalid UTF-8 in a name is replaced, and bytes after a request are ignored.
    let answer = client.call(METADATA, 4, b"\0\0\0\x01\0\x02a\xff\0rubbish");
    assert!(answer.ends_with(b"\0\x11\0\x04a\xef\xbf\xbd\0\0\0\0\0"), "{answer:?}");
    let mut odd = frame(METADATA, 1, 8, b"\0\0\0\0");
    odd[14] = 0xff;
    client.send_raw(&odd);
    assert_eq!(client.receive().0, 8);
    // A name that becomes too long when it is made valid cannot be sent back.
    let mut name = i32::to_be_bytes(1).to_vec();
    name.extend([0x7f, 0xff]);
    name.extend([0xff; 0x7fff]);
    client.send(METADATA, 1, 9, &name);
    assert!(client.is_closed());
}
