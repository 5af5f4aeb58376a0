//! Which fetches are answered here and which are left to the core: one test for each rule.

use super::*;

#[test]
fn fetches_in_the_current_epoch() {
    let scene = Scene::led(lead());
    for fetch in [FETCH, FETCH.of(3), FETCH.of(BROKER), FETCH.at(START + 1), Fetch { max_bytes: 0, ..FETCH }] {
        assert!(scene.takes(fetch));
    }
}

#[test]
fn none_before_the_lease_begins() {
    let scene = Scene::idle();
    assert_eq!(scene.answering.add_replica(2, directory(2), true), None);
    assert!(!scene.takes(FETCH));
    scene.append();
    scene.flush();
    scene.answering.raise_high_watermark(END);
    assert!(scene.answering.take_fetches().is_empty() && scene.answering.end().is_empty());
    assert!(!scene.is_raised());
}

#[test]
fn none_of_another_cluster() {
    let scene = Scene::led(lead());
    assert!(scene.takes(Fetch { cluster_id: None, ..FETCH }));
    assert!(!scene.takes(Fetch { cluster_id: Some("clusters"), ..FETCH }));
    assert!(!scene.takes(Fetch { cluster_id: Some(""), ..FETCH }));
}

#[test]
fn none_of_another_epoch() {
    let scene = Scene::led(lead());
    for epoch in [EPOCH - 1, EPOCH + 1, -1] {
        assert!(!scene.takes(Fetch { epoch, ..FETCH }));
        assert!(!scene.takes(Fetch { epoch, last_epoch: epoch, ..FETCH }));
    }
}

#[test]
fn none_whose_log_ends_in_another_epoch() {
    let scene = Scene::led(lead());
    for last_epoch in [EPOCH - 1, EPOCH + 1, -1] {
        assert!(!scene.takes(Fetch { last_epoch, ..FETCH }));
    }
}

#[test]
fn none_at_or_below_the_start_of_the_epoch() {
    let scene = Scene::led(lead());
    assert!([START, START - 1, 0, -1, i64::MIN].iter().all(|offset| !scene.takes(FETCH.at(*offset))));
    assert!(scene.takes(FETCH.at(START + 1)));
}

#[test]
fn none_above_the_end() {
    let scene = Scene::led(lead());
    assert!(!scene.takes(FETCH.at(END + 1)) && !scene.takes(FETCH.at(i64::MAX)));
    scene.append();
    assert!(scene.takes(FETCH.at(END + 1)) && !scene.takes(FETCH.at(END + 2)));
}

#[test]
fn none_at_or_below_the_start_of_the_log() {
    let scene = Scene::led(lead());
    scene.clean_before(END - 1);
    assert!(!scene.takes(FETCH.at(END - 2)) && !scene.takes(FETCH.at(END - 1)));
    assert!(scene.takes(FETCH));
    assert_eq!(scene.answer(FETCH).log_start_offset, END - 1);
    // A fetch at the log's end reads nothing, so nothing needs to exist.
    scene.clean_before(END);
    assert!(scene.takes(FETCH));
    scene.append();
    assert!(!scene.takes(FETCH) && scene.takes(FETCH.at(END + 1)));
}

#[test]
fn none_from_unknown_replicas() {
    let scene = Scene::led(lead());
    assert!(!scene.takes(FETCH.of(10)));
    assert_eq!(scene.answering.add_replica(10, directory(10), false), Some(3));
    assert!(scene.takes(FETCH.of(10)));
    // Only until the core's next lease.
    scene.answering.end();
    scene.begin(lead());
    assert!(scene.takes(FETCH) && !scene.takes(FETCH.of(10)));
}

#[test]
fn none_of_another_directory() {
    let scene = Scene::led(lead());
    for directory in [Some(directory(3)), Some(Uuid::ZERO), None] {
        assert!(!scene.takes(Fetch { directory, ..FETCH }));
    }
    assert_eq!(scene.answering.add_replica(2, Uuid::ZERO, true), Some(3));
    assert!(scene.takes(Fetch { directory: None, ..FETCH }));
    assert!(scene.takes_body(17, &Fetch { directory: None, ..FETCH }.body(17)));
}

#[test]
fn none_of_a_voters_former_disk() {
    let scene = Scene::led(lead());
    assert_eq!(scene.answering.add_replica(2, directory(5), false), None);
    assert!(!scene.takes(Fetch { directory: Some(directory(5)), ..FETCH }));
    // A replica that is not a voter, or has no valid id, does not count either.
    assert_eq!(scene.answering.add_replica(10, directory(10), true), None);
    assert_eq!(scene.answering.add_replica(-1, Uuid::ZERO, false), None);
    assert!(!scene.takes(FETCH.of(10)));
    assert!(!scene.takes(Fetch { replica_id: -1, directory: Some(Uuid::ZERO), ..FETCH }));
}

#[test]
fn none_of_versions_with_fewer_fields() {
    let scene = Scene::led(lead());
    scene.answering.add_replica(2, Uuid::ZERO, true);
    let fetch = Fetch { directory: None, ..FETCH };
    for (version, is_taken) in [(12, false), (13, false), (16, false), (17, true), (18, true), (19, false)] {
        assert_eq!(scene.takes_body(version, &fetch.body(version)), is_taken, "version {version}");
    }
}

#[test]
fn none_of_other_topics_or_partitions() {
    const OTHER: Uuid = Uuid([8; 16]);
    let scene = Scene::led(lead());
    let others: [&[(Uuid, &[i32])]; 8] = [
        &[],
        &[(METADATA_TOPIC_ID, &[])],
        &[(METADATA_TOPIC_ID, &[1])],
        &[(METADATA_TOPIC_ID, &[-1])],
        &[(METADATA_TOPIC_ID, &[0, 1])],
        &[(METADATA_TOPIC_ID, &[0]), (METADATA_TOPIC_ID, &[0])],
        &[(METADATA_TOPIC_ID, &[0]), (OTHER, &[])],
        &[(OTHER, &[0])],
    ];
    for topics in others {
        assert!(!scene.takes(Fetch { topics, ..FETCH }), "{topics:?}");
    }
}

#[test]
fn none_that_is_truncated() {
    let scene = Scene::led(lead());
    let body = FETCH.knowing(END).body(18);
    assert!((0..body.len()).all(|len| !scene.takes_body(18, &body[..len])));
    assert!(scene.takes_body(18, &body));
}

#[test]
fn none_with_a_negative_wait_or_size() {
    let scene = Scene::led(lead());
    assert!(!scene.takes(Fetch { max_wait_ms: -1, ..FETCH }));
    assert!(!scene.takes(Fetch { max_bytes: -1, ..FETCH }));
}

#[test]
fn none_while_reports_are_not_read_for_too_long() {
    let take_timeout = Duration::from_secs(5);
    let mut led = Led::new(Lead { take_timeout, ..lead() }, FLUSHED, END);
    led.add_replica(2, directory(2), true);
    let body = FETCH.body(18);
    let fetch = ReplicaFetch::read(&body, 18).expect("a fetch");
    let ends = Ends { start_offset: 0, end_offset: END };
    let begun = Instant::now();
    let takes = |led: &mut Led, after: Duration| led.take(&fetch, ends, begun + after).is_some();
    let moment = Duration::from_nanos(1);
    assert!(takes(&mut led, Duration::ZERO) && takes(&mut led, take_timeout - moment));
    // The time counts from the oldest one.
    assert!(!takes(&mut led, take_timeout) && !takes(&mut led, take_timeout * 9));
    assert_eq!(led.take_fetches().len(), 2);
    assert!(takes(&mut led, take_timeout * 9) && takes(&mut led, take_timeout * 10 - moment));
}

#[test]
fn none_while_a_thousand_are_not_reported() {
    let scene = Scene::led(lead());
    assert!((0..1024).all(|_| scene.is_taken(FETCH)));
    assert!(!scene.is_taken(FETCH) && !scene.is_taken(FETCH.of(BROKER)));
    assert_eq!(scene.answering.take_fetches().len(), 1024);
    assert!(scene.is_taken(FETCH));
}

#[test]
fn none_of_more_than_a_thousand_replicas() {
    let scene = Scene::led(lead());
    let broker = |number: usize| (1000 + number as i32, Uuid([7; 16]));
    let known = |number| scene.answering.add_replica(broker(number).0, broker(number).1, false);
    assert!((3..1000).all(|number| known(number) == Some(number)));
    assert_eq!((known(1000), known(999), known(3)), (None, Some(999), Some(3)));
    let fetch = |number| Fetch { replica_id: broker(number).0, directory: Some(broker(number).1), ..FETCH };
    assert!(scene.takes(fetch(999)) && !scene.takes(fetch(1000)));
}
