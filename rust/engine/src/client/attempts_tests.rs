use std::io;
use std::sync::Arc;

use super::attempts::{Attempts, Fault, Next, Patience, Remedy};
use super::link_error::LinkError;
use crate::ErrorCode;

const PATIENCE: Patience = Patience { timeout_ms: 1_000, backoff_ms: 100, backoff_max_ms: 350, retries: 100 };

fn broken() -> Fault {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionReset));
    Fault::Link(LinkError::Broken { address: "b:1".to_owned(), source })
}

#[test]
fn waits_grow_until_the_time_is_over() {
    let mut attempts = Attempts::new(PATIENCE, 5_000);
    let mut now_ms = 5_000;
    let mut waits = Vec::new();
    while let Next::Retry { after_ms, refresh } = attempts.on_fault(now_ms, &broken(), false) {
        assert!(refresh, "the leader may be another one by then");
        waits.push(after_ms);
        now_ms += after_ms;
    }
    assert_eq!(waits, [100, 200, 350]);
    assert_eq!(attempts.on_fault(now_ms, &broken(), false), Next::GiveUp { timed_out: true });
    assert_eq!(attempts.left_ms(now_ms), 350);
}

#[test]
fn retries_are_bounded_by_their_number_too() {
    let mut attempts = Attempts::new(Patience { retries: 1, ..PATIENCE }, 0);
    assert!(matches!(attempts.on_fault(0, &broken(), false), Next::Retry { .. }));
    assert_eq!(attempts.on_fault(0, &broken(), false), Next::GiveUp { timed_out: true });
}

#[test]
fn what_is_unknown_is_soon_taken_for_missing_unless_it_was_known() {
    let unknown = Fault::Code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let patient = Patience { timeout_ms: 60_000, ..PATIENCE };
    for (was_known, gives_up_ms) in [(false, 1_500), (true, 10_000)] {
        let mut attempts = Attempts::new(patient, 0);
        assert!(matches!(attempts.on_fault(0, &unknown, was_known), Next::Retry { refresh: true, .. }));
        assert!(matches!(attempts.on_fault(gives_up_ms - 1, &unknown, was_known), Next::Retry { .. }));
        assert_eq!(attempts.on_fault(gives_up_ms, &unknown, was_known), Next::GiveUp { timed_out: false });
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
