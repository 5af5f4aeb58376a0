use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};

use super::attempts::{Attempts, Fault, GiveUpReason, Known, Next, Remedy, RetryPolicy};
use super::config::ClientConfig;
use super::link_error::LinkError;

const POLICY: RetryPolicy =
    RetryPolicy { timeout_ms: 1_000, backoff_ms: 100, backoff_max_ms: 350, retries: 100, refused_ms: u64::MAX };
const NOTHING: Known = Known { topic: false, cluster: false };

fn broken() -> Fault {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionReset));
    Fault::Link(LinkError::Broken { address: "b:1".to_owned(), source })
}

#[test]
fn backoffs_grow_until_the_timeout() {
    let mut attempts = Attempts::new(POLICY, 5_000);
    let mut now_ms = 5_000;
    let mut waits = Vec::new();
    while let Next::Retry { after_ms, refresh } = attempts.on_fault(now_ms, &broken(), NOTHING) {
        assert!(refresh, "the leader may be another one by then");
        waits.push(after_ms);
        now_ms += after_ms;
    }
    assert_eq!(waits, [100, 200, 350]);
    assert_eq!(attempts.on_fault(now_ms, &broken(), NOTHING), Next::GiveUp(GiveUpReason::TimedOut));
    assert_eq!(attempts.left_ms(now_ms), 350);
}

#[test]
fn the_number_of_retries_is_limited_too() {
    let mut attempts = Attempts::new(RetryPolicy { retries: 1, ..POLICY }, 0);
    assert!(matches!(attempts.on_fault(0, &broken(), NOTHING), Next::Retry { .. }));
    assert_eq!(attempts.on_fault(0, &broken(), NOTHING), Next::GiveUp(GiveUpReason::TimedOut));
}

#[test]
fn only_the_sends_of_a_batch_are_limited_for_a_producer() {
    let given = BTreeMap::from([("retries".to_owned(), "0".to_owned())]);
    let config = ClientConfig::new("localhost:9092", &given).expect("valid");
    assert_eq!(config.producer.retry_policy(&config).retries, 0);
    assert_eq!(config.producer.retry_policy_of_calls(&config).retries, u32::MAX, "a broker that starts has no ids yet");
}

#[test]
fn an_unknown_topic_soon_counts_as_missing_unless_it_was_known() {
    let unknown = Fault::Code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let long = RetryPolicy { timeout_ms: 60_000, ..POLICY };
    for (was_known, gives_up_ms) in [(false, 1_500), (true, 10_000)] {
        let mut attempts = Attempts::new(long, 0);
        assert!(matches!(
            attempts.on_fault(0, &unknown, Known { topic: was_known, cluster: true }),
            Next::Retry { refresh: true, .. }
        ));
        assert!(matches!(
            attempts.on_fault(gives_up_ms - 1, &unknown, Known { topic: was_known, cluster: true }),
            Next::Retry { .. }
        ));
        assert_eq!(
            attempts.on_fault(gives_up_ms, &unknown, Known { topic: was_known, cluster: true }),
            Next::GiveUp(GiveUpReason::Final)
        );
    }
}

#[test]
fn each_fault_has_its_remedy() {
    let expected = [
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, Remedy::Refresh),
        (ErrorCode::FENCED_LEADER_EPOCH, Remedy::Refresh),
        (ErrorCode::UNKNOWN_LEADER_EPOCH, Remedy::Wait),
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, Remedy::Wait),
        (ErrorCode::UNKNOWN_TOPIC_ID, Remedy::WaitShortly),
        (ErrorCode::TOPIC_AUTHORIZATION_FAILED, Remedy::None),
        (ErrorCode::PRODUCER_FENCED, Remedy::None),
    ];
    for (code, remedy) in expected {
        assert_eq!(Fault::Code(code).remedy(), remedy, "{code}");
    }
    assert_eq!(broken().remedy(), Remedy::Refresh);
    let hostile = LinkError::TooLong { address: "b:1".to_owned(), len: -1 };
    assert_eq!(Fault::Link(hostile).remedy(), Remedy::None);
}

fn refused() -> Fault {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
    Fault::Link(LinkError::Connect { address: "b:1".to_owned(), source })
}

#[test]
fn refusing_bootstrap_servers_are_given_up_unless_the_cluster_was_reached() {
    let retry_policy = RetryPolicy { timeout_ms: 60_000, refused_ms: 5_000, ..POLICY };
    let mut attempts = Attempts::new(retry_policy, 0);
    assert!(matches!(attempts.on_fault(0, &refused(), NOTHING), Next::Retry { .. }));
    assert!(matches!(attempts.on_fault(4_999, &refused(), NOTHING), Next::Retry { .. }));
    assert_eq!(attempts.on_fault(5_000, &refused(), NOTHING), Next::GiveUp(GiveUpReason::Refused));

    let mut attempts = Attempts::new(retry_policy, 0);
    let known = Known { topic: false, cluster: true };
    assert!(matches!(attempts.on_fault(0, &refused(), known), Next::Retry { .. }));
    assert!(matches!(attempts.on_fault(30_000, &refused(), known), Next::Retry { .. }), "it restarts");

    let mut attempts = Attempts::new(retry_policy, 0);
    assert!(matches!(attempts.on_fault(0, &refused(), NOTHING), Next::Retry { .. }));
    assert!(matches!(attempts.on_fault(4_000, &broken(), NOTHING), Next::Retry { .. }), "it is reachable now");
    assert!(matches!(attempts.on_fault(6_000, &refused(), NOTHING), Next::Retry { .. }));
}

#[test]
fn a_different_topic_id_is_soon_final() {
    let fault = Fault::AnotherTopic { expected: Uuid::ZERO, found: Uuid::ZERO };
    assert_eq!(fault.remedy(), Remedy::WaitShortly);
}
