//! The steps of the pipeline for the engine's handlers: authorization, quotas and metrics.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use klamm_base::ErrorCode;
use klamm_wire::api::{API_VERSIONS, CREATE_TOPICS, FETCH, METADATA, PRODUCE, Resource};

use crate::pipeline::{Authorizer, Pipeline, Quotas};
use crate::testing::{FetchSpec, Fixture, INTERNAL, NAMED, batch, fetch, fetched, produce, produce_to, produced};
use crate::{NetConfig, Reply};

const LIMIT: i32 = 1 << 20;

#[test]
fn a_topic_without_the_right_to_it_is_refused_and_others_are_not() {
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
fn a_throttled_connection_takes_no_further_request_and_others_go_on() {
    let throttle = Duration::from_millis(300);
    let quotas = Quotas::Fixed(METADATA, throttle);
    let fixture = Fixture::of(NetConfig::default(), Pipeline { quotas, ..Pipeline::default() });
    let (mut client, mut other) = (fixture.client(), fixture.client());
    client.call(METADATA, 1, &[0, 0, 0, 0]);
    let begun = Instant::now();
    other.call(API_VERSIONS, 0, &[]);
    assert!(begun.elapsed() < throttle, "{:?}", begun.elapsed());
    client.call(API_VERSIONS, 0, &[]);
    // The response may have been sent a moment before the time started.
    assert!(begun.elapsed() > throttle / 2, "{:?}", begun.elapsed());
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
    fixture.server.answer(fixture.request().handle, Reply::Body(Bytes::from_static(b"done")));
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
}

/// Count and sum of each distribution, by its name after the type.
fn found(fixture: &Fixture) -> HashMap<String, (u64, f64)> {
    let found = fixture.server.request_metrics().distributions().into_iter();
    let short = |name: String| name.split_once("name=").expect("a name").1.to_owned();
    found.map(|metric| (short(metric.name), (metric.values.count, metric.values.sum as f64 * metric.unit))).collect()
}
