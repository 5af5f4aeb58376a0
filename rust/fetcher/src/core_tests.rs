//! The requests of a fetcher, and the effects of responses.

use klamm_base::{ErrorCode, Uuid};
use klamm_replica::Position;

use super::core::{FetcherCore, Key, Plan, Step, step};

const BACKOFF_MS: i64 = 100;
const FIRST_PAUSE_MS: i64 = 20;

fn key(index: i32) -> Key {
    (Uuid([7; 16]), index)
}

fn at(fetch_offset: i64) -> Position {
    Position { fetch_offset, last_fetched_epoch: 3, log_start_offset: 0, high_watermark: 0, is_flushed: true }
}

fn wanted(plan: &Plan) -> Vec<(i32, i64)> {
    plan.wanted.iter().map(|wanted| (wanted.key.1, wanted.position.fetch_offset)).collect()
}

fn forgotten(plan: &Plan) -> Vec<i32> {
    plan.forgotten.iter().map(|key| key.1).collect()
}

/// A fetcher with these partitions and an open session.
fn in_session(indexes: &[i32]) -> FetcherCore {
    let mut core = FetcherCore::new(BACKOFF_MS);
    for &index in indexes {
        core.add(key(index), 5, at(0));
    }
    let plan = core.next_plan(0).expect("a full request");
    assert_eq!((plan.session_id, plan.session_epoch, plan.wanted.len()), (0, 0, indexes.len()));
    assert!(core.on_session(ErrorCode::NONE, 77));
    core
}

#[test]
fn the_first_request_has_all_partitions_and_later_ones_only_what_changed() {
    let mut core = in_session(&[0, 1, 2]);
    core.moved(key(1), at(10));
    core.moved(key(2), at(0));
    let plan = core.next_plan(1).expect("a request");
    assert_eq!((plan.session_id, plan.session_epoch), (77, 1));
    assert_eq!(wanted(&plan), [(1, 10)]);
    assert!(core.on_session(ErrorCode::NONE, 77));
    let plan = core.next_plan(2).expect("an empty request fetches all of the session");
    assert_eq!((plan.session_epoch, wanted(&plan), forgotten(&plan)), (2, vec![], vec![]));
}

#[test]
fn a_removed_partition_leaves_the_session_and_comes_back_with_its_new_epoch() {
    let mut core = in_session(&[0, 1]);
    core.remove(key(1));
    let plan = core.next_plan(1).expect("a request");
    assert_eq!((wanted(&plan), forgotten(&plan)), (vec![], vec![1]));
    assert!(core.on_session(ErrorCode::NONE, 77));
    core.add(key(1), 6, at(4));
    let plan = core.next_plan(2).expect("a request");
    assert_eq!((wanted(&plan), forgotten(&plan)), (vec![(1, 4)], vec![]));
    assert_eq!(plan.wanted[0].leader_epoch, 6);
}

#[test]
fn a_partition_that_is_removed_and_added_between_two_requests_is_not_forgotten() {
    let mut core = in_session(&[0, 1]);
    core.remove(key(1));
    core.add(key(1), 6, at(4));
    let plan = core.next_plan(1).expect("a request");
    assert_eq!((wanted(&plan), forgotten(&plan)), (vec![(1, 4)], vec![]));
}

#[test]
fn a_delayed_partition_is_out_of_the_session_until_it_is_due() {
    let mut core = in_session(&[0, 1]);
    core.delay(key(1), 1_000);
    let plan = core.next_plan(1_001).expect("the other one");
    assert_eq!((wanted(&plan), forgotten(&plan)), (vec![], vec![1]));
    assert!(core.on_session(ErrorCode::NONE, 77));
    assert_eq!(core.due_at_ms(), Some(1_000 + FIRST_PAUSE_MS));
    let plan = core.next_plan(1_000 + FIRST_PAUSE_MS - 1).expect("the other one");
    assert_eq!(wanted(&plan), []);
    assert!(core.on_session(ErrorCode::NONE, 77));
    let plan = core.next_plan(1_000 + FIRST_PAUSE_MS).expect("a request");
    assert_eq!(wanted(&plan), [(1, 0)]);
    assert_eq!(core.due_at_ms(), None);
}

#[test]
fn nothing_is_fetched_while_all_partitions_are_delayed_or_there_is_none() {
    let mut core = FetcherCore::new(BACKOFF_MS);
    assert_eq!(core.next_plan(0), None);
    core.add(key(0), 1, at(0));
    for pause_ms in [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS, BACKOFF_MS, BACKOFF_MS] {
        core.delay(key(0), 50);
        assert_eq!(core.due_at_ms(), Some(50 + pause_ms));
    }
    assert_eq!(core.next_plan(50 + BACKOFF_MS - 1), None);
    assert!(core.next_plan(50 + BACKOFF_MS).is_some());
    core.moved(key(0), at(1));
    core.delay(key(0), 200);
    assert_eq!(core.due_at_ms(), Some(200 + FIRST_PAUSE_MS));
    core.remove(key(0));
    assert_eq!(core.next_plan(1_000), None);
    assert!(core.is_empty());
}

#[test]
fn an_unknown_session_is_opened_again_with_all_partitions() {
    for error in [ErrorCode::FETCH_SESSION_ID_NOT_FOUND, ErrorCode::INVALID_FETCH_SESSION_EPOCH] {
        let mut core = in_session(&[0, 1]);
        core.remove(key(1));
        core.add(key(2), 5, at(9));
        let plan = core.next_plan(1).expect("a request");
        assert_eq!(plan.session_epoch, 1);
        assert!(!core.on_session(error, 0));
        let plan = core.next_plan(2).expect("a request");
        assert_eq!((plan.session_epoch, wanted(&plan)), (0, vec![(0, 0), (2, 9)]));
        let closes = error == ErrorCode::INVALID_FETCH_SESSION_EPOCH;
        assert_eq!((plan.session_id, forgotten(&plan)), (if closes { 77 } else { 0 }, vec![]));
    }
}

#[test]
fn without_a_session_every_request_has_all_partitions() {
    let mut core = FetcherCore::new(BACKOFF_MS);
    core.add(key(0), 1, at(0));
    core.add(key(1), 1, at(0));
    for _ in 0..3 {
        let plan = core.next_plan(0).expect("a request");
        assert_eq!((plan.session_epoch, plan.wanted.len()), (0, 2));
        assert!(core.on_session(ErrorCode::NONE, 0));
    }
}

#[test]
fn a_lost_connection_begins_a_new_session() {
    let mut core = in_session(&[0]);
    core.on_lost_connection();
    let plan = core.next_plan(1).expect("a request");
    assert_eq!((plan.session_id, plan.session_epoch, plan.wanted.len()), (0, 0, 1));
}

#[test]
fn each_partition_error_has_its_reaction() {
    assert_eq!(step(ErrorCode::NONE, None), Step::Append);
    assert_eq!(step(ErrorCode::NONE, Some((4, 100))), Step::Truncate(4, 100));
    assert_eq!(step(ErrorCode::OFFSET_OUT_OF_RANGE, None), Step::FindOffsets);
    assert_eq!(step(ErrorCode::FENCED_LEADER_EPOCH, None), Step::Stop);
    for code in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ] {
        assert_eq!(step(code, None), Step::Delay, "{code:?}");
    }
}

#[test]
fn a_paused_partition_leaves_the_session_for_a_time_and_has_not_failed() {
    let mut core = in_session(&[0, 1]);
    core.pause(key(1), 0, 50);
    core.pause(key(1), 10, 50);
    let plan = core.next_plan(10).expect("a request");
    assert_eq!((wanted(&plan), forgotten(&plan), core.due_at_ms()), (vec![], vec![1], Some(50)));
    assert!(core.on_session(ErrorCode::NONE, 77));
    core.pause(key(1), 50, 50);
    assert_eq!(wanted(&core.next_plan(60).expect("a request")), []);
    assert!(core.on_session(ErrorCode::NONE, 77));
    let plan = core.next_plan(100).expect("a request");
    assert_eq!(wanted(&plan), [(1, 0)]);
    core.delay(key(1), 100);
    assert_eq!(core.due_at_ms(), Some(100 + FIRST_PAUSE_MS), "as after a first failure");
}
