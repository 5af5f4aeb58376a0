//! The steps of the pipeline for the engine's handlers: authorization, quotas and metrics.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{ClientQuotaRecord, EntityData, Record};
use klamm_wire::api::{API_VERSIONS, CREATE_TOPICS, FETCH, HEARTBEAT, METADATA, OFFSET_DELETE, PRODUCE, Resource};

use crate::pipeline::{Authorizer, Pipeline};
use crate::testing::{FetchSpec, Fixture, INTERNAL, NAMED, batch, fetch, fetched, produce, produce_to, produced};
use crate::{NetConfig, Note, Reply};

const LIMIT: i32 = 1 << 20;

#[test]
fn only_unauthorized_topics_are_rejected() {
    let authorizer = Authorizer::AllBut(Resource::Topic, "named");
    let fixture = Fixture::of(NetConfig::default(), Pipeline { authorizer, ..Pipeline::default() });
    let mut client = fixture.client();
    let refused = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    let answer = client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 10))]));
    assert_eq!(produced(&answer)[0].0, refused);
    let answer = client.call(PRODUCE, 9, &produce_to("absent", 1, 1000, &[(0, &batch(1, 10))]));
    assert_eq!(produced(&answer)[0].0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    for (topic, error) in [(NAMED, refused), (INTERNAL, ErrorCode::NONE)] {
        let spec = FetchSpec { partitions: &[(0, 0, LIMIT)], topic, ..FetchSpec::default() };
        assert_eq!(fetched(&client.call(FETCH, 13, &fetch(&spec))).partitions[0].1, error);
    }
}

#[test]
fn a_throttled_connection_reads_no_further_request_and_others_are_served() {
    let fixture = Fixture::new();
    fixture.server.set_quotas(&quota("producer_byte_rate", 100.0));
    let (mut client, mut other) = (fixture.client(), fixture.client());
    // A burst of ten seconds is free.
    let throttle_ms = throttled_ms(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 700))])));
    let begun = Instant::now();
    assert_eq!(throttle_ms, 0);
    let throttle_ms = throttled_ms(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 150))])));
    assert!((1..2000).contains(&throttle_ms), "{throttle_ms} ms");
    other.call(API_VERSIONS, 0, &[]);
    client.call(API_VERSIONS, 0, &[]);
    assert!(begun.elapsed() > Duration::from_millis(throttle_ms as u64) / 2, "{:?}", begun.elapsed());
    fixture.server.set_quotas(&quota("consumer_byte_rate", 100.0));
    assert_eq!(throttled_ms(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 1000))]))), 0);
}

#[test]
fn a_throttle_time_of_the_controller_mutes_the_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send(CREATE_TOPICS, 5, 6, b"body");
    fixture.server.answer(fixture.request().handle, Reply::Body(Bytes::from_static(&[0, 0, 1, 44])));
    client.receive();
    let begun = Instant::now();
    client.call(API_VERSIONS, 0, &[]);
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?} of 300 ms", begun.elapsed());
}

#[test]
fn the_time_of_handlers_counts_and_responses_name_the_throttle_time() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    // Every request takes longer than this quota allows. A throttle time is at most one window of a second.
    fixture.server.set_quotas(&quota("request_percentage", 1e-9));
    let throttled = |begun: Instant| begun.elapsed() > Duration::from_millis(500);
    let begun = Instant::now();
    assert_eq!(throttled_ms(&client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 10))]))), 1000);
    let spec = FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    assert_eq!(fetched(&client.call(FETCH, 13, &fetch(&spec))).throttle_ms, 1000);
    assert!(throttled(begun), "the second request had to wait");
    let answer = client.call(METADATA, 3, &[0, 0, 0, 0]);
    assert_eq!(answer[..4], 1000i32.to_be_bytes());
    let begun = Instant::now();
    client.call(METADATA, 1, &[0, 0, 0, 0]);
    assert!(throttled(begun), "the connection waits although this version has no field for it");
    fixture.server.set_quotas(&MetadataImage::default());
    let mut other = fixture.client();
    assert_eq!(throttled_ms(&other.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 10))]))), 0);
}

#[test]
fn a_fetch_that_waits_counts_only_the_time_of_its_handler() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let spec = FetchSpec { max_wait_ms: 300, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    // Half of one thread for ten seconds.
    fixture.server.set_quotas(&quota("request_percentage", 50.0));
    (0..20).for_each(|_| drop(fetched(&client.call(FETCH, 13, &fetch(&spec)))));
    assert_eq!(fetched(&client.call(FETCH, 13, &fetch(&spec))).throttle_ms, 0);
    // A follower's fetch is exempt.
    fixture.server.set_quotas(&quota("request_percentage", 1e-9));
    let mut of_follower = fetch(&FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() });
    of_follower[..4].copy_from_slice(&2i32.to_be_bytes());
    assert_eq!(fetched(&client.call(FETCH, 13, &of_follower)).throttle_ms, 0);
}

#[test]
fn the_time_of_pythons_handlers_counts_and_is_named_in_their_responses() {
    let fixture = Fixture::new();
    fixture.server.set_quotas(&quota("request_percentage", 1.0));
    let mut client = fixture.client();
    let mut call = |key, version, body: &'static [u8], took_ms| {
        client.send(key, version, 7, b"body");
        let handle = fixture.request().handle;
        fixture.server.note(handle, Note { handler_time: Duration::from_millis(took_ms), ..Note::default() });
        fixture.server.answer(handle, Reply::Body(Bytes::from_static(body)));
        client.receive().1
    };
    // Ten seconds allow 0.1 s of one thread.
    assert_eq!(call(HEARTBEAT, 1, &[0; 6], 50)[..4], [0; 4]);
    let throttle_ms = i32::from_be_bytes(call(HEARTBEAT, 1, &[0; 6], 55)[..4].try_into().expect("four bytes"));
    assert!((300..=500).contains(&throttle_ms), "{throttle_ms} ms");
    // The error code comes first.
    assert_eq!(call(OFFSET_DELETE, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1000)[..6], [0, 0, 0, 0, 3, 232]);
    // The controller's throttle time is kept if it is longer.
    assert_eq!(call(CREATE_TOPICS, 4, &[0, 0, 5, 0, 0], 0)[..4], [0, 0, 5, 0]);
}

#[test]
fn an_address_that_connects_too_often_is_delayed_and_closed() {
    let fixture = Fixture::new();
    fixture.server.set_quotas(&image_with(&[("ip", None)], "connection_creation_rate", 1000.0));
    fixture.client().call(API_VERSIONS, 0, &[]);
    fixture.server.set_quotas(&image_with(&[("ip", Some("127.0.0.1"))], "connection_creation_rate", 0.2));
    // Ten seconds allow two connections, of which one was counted before.
    let mut second = fixture.client();
    second.call(API_VERSIONS, 0, &[]);
    assert!(fixture.client().is_closed());
    second.call(API_VERSIONS, 0, &[]);
    fixture.server.set_quotas(&MetadataImage::default());
    fixture.client().call(API_VERSIONS, 0, &[]);
}

#[test]
fn a_fetch_beyond_its_quota_is_empty_and_keeps_its_session() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let records = batch(1, 439);
    assert_eq!(records.len(), 500);
    (0..3).for_each(|_| drop(client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &records)]))));
    fixture.server.set_quotas(&quota("consumer_byte_rate", 120.0));
    // The maximum is what ten seconds allow.
    let all = FetchSpec { partitions: &[(0, 0, LIMIT)], session: (0, 0), ..FetchSpec::default() };
    let first = fetched(&client.call(FETCH, 13, &fetch(&all)));
    assert_eq!((first.throttle_ms, first.partitions[0].3.len()), (0, 1000));
    let rest = FetchSpec { partitions: &[(0, 2, LIMIT)], session: (first.session_id, 1), ..FetchSpec::default() };
    let second = fetched(&client.call(FETCH, 13, &fetch(&rest)));
    assert!((1..=5000).contains(&second.throttle_ms), "{} ms", second.throttle_ms);
    assert_eq!((second.error, second.session_id), (ErrorCode::NONE, first.session_id));
    assert!(second.partitions.is_empty());
    fixture.server.set_quotas(&quota("consumer_byte_rate", 1e9));
    let mut other = fixture.client();
    let next = FetchSpec { session: (first.session_id, 2), ..FetchSpec::default() };
    let third = fetched(&other.call(FETCH, 13, &fetch(&next)));
    assert_eq!((third.throttle_ms, third.partitions[0].3.len()), (0, 500));
}

#[test]
fn a_measured_request_is_recorded_under_each_of_its_times_once_its_answer_is_sent() {
    let fixture = Fixture::new();
    let metrics = fixture.server.request_metrics();
    let mut client = fixture.client();
    client.call(METADATA, 1, &[0, 0, 0, 0]);
    assert_eq!(metrics.distributions(), [], "nothing is measured unless it was asked for");
    metrics.measure(true);
    client.call(PRODUCE, 9, &produce(1, 1000, &[(0, &batch(1, 10)), (7, &batch(1, 10))]));
    fixture.backend.at(NAMED, 0).state.lock().holds_back = true;
    client.send(PRODUCE, 9, 5, &produce(-1, 50, &[(0, &batch(1, 10))]));
    client.receive();
    let spec = FetchSpec { max_wait_ms: 50, partitions: &[(1, 0, LIMIT)], ..FetchSpec::default() };
    client.call(FETCH, 13, &fetch(&spec));
    client.send(CREATE_TOPICS, 5, 6, b"body");
    let handle = fixture.request().handle;
    let errors = vec![(ErrorCode::NONE, 2), (ErrorCode::TOPIC_ALREADY_EXISTS, 1)];
    fixture.server.note(handle, Note { errors, ..Note::default() });
    fixture.server.answer(handle, Reply::Body(Bytes::from_static(b"\0\0\0\0done")));
    client.receive();
    client.send(PRODUCE, 9, 7, &produce(0, 1000, &[(0, &batch(1, 10))]));
    let count = |name: &str| found(&fixture).get(name).map_or(0, |(count, _)| *count);
    fixture.wait_until(|| count("TotalTimeMs,request=Produce") == 3);
    for (name, expected) in [("Produce", 3), ("FetchConsumer", 1), ("CreateTopics", 1)] {
        for time in ["Total", "RequestQueue", "Local", "Remote", "ResponseQueue", "ResponseSend", "Throttle"] {
            assert_eq!(count(&format!("{time}TimeMs,request={name}")), expected, "{time} of {name}");
        }
        assert_eq!(count(&format!("RequestBytes,request={name}")), expected, "{name}");
    }
    let waited_ms = found(&fixture)["RemoteTimeMs,request=FetchConsumer"].1;
    assert!((25.0..10_000.0).contains(&waited_ms), "{waited_ms} ms");
    let counters: HashMap<_, _> = metrics.named().collect();
    let counter = |rest: &str| counters.get(&format!("kafka.network:type=RequestMetrics,name={rest}")).copied();
    assert_eq!(counter("RequestsPerSec,request=Produce,version=9"), Some(3));
    assert_eq!(counter("RequestsPerSec,request=Metadata,version=1"), Some(1));
    // Of the partitions: two appended, one unknown, and one whose acknowledgement did not arrive in time.
    assert_eq!(counter("ErrorsPerSec,request=Produce,error=NONE"), Some(2));
    assert_eq!(counter("ErrorsPerSec,request=Produce,error=UNKNOWN_TOPIC_OR_PARTITION"), Some(1));
    assert_eq!(counter("ErrorsPerSec,request=Produce,error=REQUEST_TIMED_OUT"), Some(1));
    // Python's response.
    assert_eq!(counter("ErrorsPerSec,request=CreateTopics,error=NONE"), Some(2));
    assert_eq!(counter("ErrorsPerSec,request=CreateTopics,error=TOPIC_ALREADY_EXISTS"), Some(1));
}

/// Count and sum of each distribution, by its name after the type.
fn found(fixture: &Fixture) -> HashMap<String, (u64, f64)> {
    let found = fixture.server.request_metrics().distributions().into_iter();
    let short = |name: String| name.split_once("name=").expect("a name").1.to_owned();
    found.map(|metric| (short(metric.name), (metric.values.count, metric.values.sum as f64 * metric.unit))).collect()
}

/// An image in which every client without a more specific quota has this one.
fn quota(key: &str, value: f64) -> MetadataImage {
    image_with(&[("client-id", None)], key, value)
}

/// An image with one quota.
fn image_with(entity: &[(&str, Option<&str>)], key: &str, value: f64) -> MetadataImage {
    let part = |&(entity_type, entity_name)| EntityData { entity_type, entity_name };
    let parts: Vec<_> = entity.iter().map(part).collect();
    let record = ClientQuotaRecord { entity: (&parts[..]).into(), key, value, remove: false };
    let record = Record::ClientQuota(record).encode(0).expect("a record");
    MetadataImage::default().apply([record.as_slice()]).expect("records that fit")
}

/// The throttle time in a response to Produce v9: the last field before the tags.
fn throttled_ms(answer: &[u8]) -> i32 {
    let field = answer[..answer.len() - 1].last_chunk().expect("a response");
    i32::from_be_bytes(*field)
}
