//! The body of an answer equals what Python's codec writes.
//!
//! The bytes are those of `klamm.raft.wire.responses.encode_response` for `FetchResponse(Error.NONE, 5, 2, high_watermark=7,
//! log_start_offset=0, records=…, leader_endpoints=…)` on listener `CONTROLLER`, with `Endpoint("CONTROLLER", "localhost", 9093)`
//! or none.

use super::*;

/// The bytes up to the records' length.
const BEFORE: &str = "00000000 0000 00000000 02 00000000000000000000000000000001 02 00000000 0000 0000000000000007 \
    ffffffffffffffff 0000000000000000 00 ffffffff";
const NO_RECORDS: &str = "01";
const RECORDS_LEN_200: &str = "c901";
const AFTER: &str = "01 01 09 00000002 00000005 00 00 00";
const AFTER_WITH_ENDPOINT: &str =
    "01 01 09 00000002 00000005 00 00 01 00 15 02 00000002 0a 6c6f63616c686f7374 00002385 00 00";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("two digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// Leader 2 of epoch 5.
fn other_lead() -> Lead {
    let endpoint = NodeEndpoint { node_id: 2, host: "localhost".to_owned(), port: 9093, rack: None };
    Lead {
        leader_id: 2,
        epoch: 5,
        high_watermark: END,
        voters: vec![(1, FLUSHED), (3, FLUSHED)],
        endpoints: vec![("CONTROLLER".to_owned(), endpoint)],
        ..lead()
    }
}

/// From voter 3 at the end of the log: the body is the same.
fn fetch() -> Fetch {
    Fetch { epoch: 5, last_epoch: 5, ..FETCH.of(3) }
}

fn body_of(scene: &Scene, listener: &str, version: i16, fetch: &Fetch) -> Vec<u8> {
    match scene.answering.take(&listener.into(), version, &fetch.body(version), Waker::noop()) {
        Taken::Answered(body) => body,
        taken => panic!("it {}", what(&taken)),
    }
}

#[test]
fn it_is_the_same_as_pythons() {
    let scene = Scene::led(other_lead());
    for version in [17, 18] {
        for (listener, after) in [("CONTROLLER", AFTER_WITH_ENDPOINT), ("OTHER", AFTER)] {
            let golden = [BEFORE, NO_RECORDS, after].map(bytes).concat();
            assert_eq!(body_of(&scene, listener, version, &fetch()), golden, "version {version}");
        }
    }
}

#[test]
fn it_is_the_same_with_records() {
    let scene = Scene::led(other_lead());
    scene.log.append(&[[7; 130]], EPOCH, 0).expect("append");
    let records = scene.log.read(END, 1 << 20).expect("read");
    assert_eq!(records.len(), 200, "a batch has 70 bytes around the value of such a record");
    for (listener, after) in [("CONTROLLER", AFTER_WITH_ENDPOINT), ("OTHER", AFTER)] {
        let golden = [bytes(BEFORE), bytes(RECORDS_LEN_200), records.clone(), bytes(after)].concat();
        assert_eq!(body_of(&scene, listener, 18, &fetch()), golden);
    }
}

#[test]
fn it_is_the_same_after_a_wait() {
    let scene = Scene::led(other_lead());
    let (waiting, _) = scene.wait(Fetch { max_wait_ms: 1000, ..fetch() });
    let Looked::Answered(body) = waiting.look(true) else { panic!("it is late") };
    assert_eq!(body, [BEFORE, NO_RECORDS, AFTER_WITH_ENDPOINT].map(bytes).concat());
}

#[test]
fn it_has_at_most_the_requested_size() {
    let scene = Scene::led(lead());
    let answer = |max_bytes| scene.answer(Fetch { max_bytes, ..FETCH.at(FLUSHED) }).records;
    let (one, two) = (scene.log.read(FLUSHED, 1).expect("read"), scene.log.read(FLUSHED, 1 << 20).expect("read"));
    assert!(one.len() < two.len());
    let len = two.len() as i32;
    assert_eq!([0, 1, len - 1].map(answer), [&one[..]; 3]);
    assert_eq!([len, i32::MAX].map(answer), [&two[..]; 2]);
}

#[test]
fn it_has_at_most_eight_mebibytes() {
    let scene = Scene::led(lead());
    let value = vec![0; 700_000];
    for _ in 0..14 {
        scene.log.append(&[&value], EPOCH, 0).expect("append");
    }
    let len = scene.answer(Fetch { max_bytes: i32::MAX, ..FETCH }).records.len();
    assert!((7 << 20..=8 << 20).contains(&len), "{len} bytes");
}
