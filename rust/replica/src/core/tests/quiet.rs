//! Partitions that are quiet in a follower's session.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// The time of its last fetch.
#[derive(Clone, Default)]
pub(super) struct Session(Rc<Cell<i64>>);

impl FollowerSession for Session {
    fn last_fetch_ms(&self) -> i64 {
        self.0.get()
    }

    fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Rig {
    fn become_quiet(&mut self, replica_id: i32, session: &Session) -> bool {
        self.core.become_quiet((Awaits::LogEnd, Fetch("session")), Some((replica_id, session)), &self.offsets)
    }
}

/// Leads with follower 1, which has fetched all of the log, and is quiet in its session.
fn quiet() -> (Rig, Session) {
    let mut rig = Rig::leading(&[0, 1]);
    rig.append(1);
    rig.fetch(1, 1).expect("a replica");
    rig.effects = Effects::default();
    let session = Session::default();
    session.0.set(rig.now_ms);
    assert!(rig.become_quiet(1, &session));
    (rig, session)
}

#[test]
fn each_fetch_of_a_session_marks_its_quiet_partitions_as_caught_up() {
    for (last_fetch, lags) in [(0, true), (LAG_MAX_MS - 1, true), (LAG_MAX_MS, false)] {
        let (mut rig, session) = quiet();
        session.0.set(rig.now_ms + last_fetch);
        rig.now_ms += 2 * LAG_MAX_MS;
        rig.check_lag();
        assert_eq!(rig.proposed(), None, "it holds all of the log");
        rig.append(1);
        rig.check_lag();
        assert_eq!(rig.proposed(), lags.then(|| vec![0]), "{last_fetch}");
    }
}

#[test]
fn a_session_counts_only_until_the_partition_changes_or_leaves_it() {
    type Change = fn(&mut Rig, &Session);
    let changes: [(Change, usize); 4] = [
        (|rig, _| rig.append(1), 1),
        (|rig, session| rig.core.end_quiet(session, |fetch| fetch.0 == "session"), 0),
        (|rig, _| rig.core.on_log_start(&mut rig.effects), 1),
        (|rig, _| rig.assign(0, 1, 2, &[0, 1]), 1),
    ];
    for (at, (change, notified)) in changes.into_iter().enumerate() {
        let (mut rig, session) = quiet();
        change(&mut rig, &session);
        rig.now_ms += 2 * LAG_MAX_MS;
        session.0.set(rig.now_ms);
        rig.append(1);
        assert_eq!(rig.effects.fetches.len(), notified, "an entry is used once");
        rig.check_lag();
        assert_eq!(rig.proposed(), Some(vec![0]), "{at}");
    }
}

#[test]
fn a_follower_out_of_the_isr_is_visited_at_each_fetch() {
    let mut rig = Rig::leading(&[0]);
    rig.append(1);
    rig.fetch(1, 1).expect("a replica");
    let proposal = rig.proposal().expect("it is caught up");
    let session = Session::default();
    assert!(!rig.become_quiet(1, &session), "the proposal may be refused");
    rig.answer(&proposal, Ok(&committed(2, &[0, 1])));
    assert!(rig.become_quiet(1, &session));
    rig.assign(0, 1, 3, &[0]);
    assert_eq!(rig.effects.fetches, [Fetch("session")], "and as soon as it has left");
    assert!(!rig.become_quiet(1, &session));
}

#[test]
fn a_follower_that_has_caught_up_before_it_left_the_isr_is_visited() {
    let (mut rig, session) = quiet();
    rig.append(1);
    rig.now_ms += 2 * LAG_MAX_MS;
    rig.check_lag();
    let proposal = rig.proposal().expect("it lags");
    rig.fetch(1, 2).expect("a replica");
    assert!(rig.become_quiet(1, &session));
    rig.effects = Effects::default();
    rig.answer(&proposal, Ok(&committed(2, &[0])));
    assert_eq!(rig.effects.fetches, [Fetch("session")]);
}

#[test]
fn a_follower_that_lacks_records_is_visited() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.append(1);
    rig.fetch(1, 0).expect("a replica");
    assert!(!rig.become_quiet(1, &Session::default()));
}

#[test]
fn a_fetch_outside_of_the_session_ends_its_effect() {
    let (mut rig, session) = quiet();
    rig.fetch(1, 0).expect("it has lost its log, and has another session");
    rig.now_ms += 2 * LAG_MAX_MS;
    session.0.set(rig.now_ms);
    rig.check_lag();
    assert_eq!(rig.proposed(), Some(vec![0]));
}

#[test]
fn consumers_read_from_the_follower_whose_session_fetched_last() {
    let mut rig = Rig::leading(&[0, 1, 2]);
    let sessions = [Session::default(), Session::default()];
    (1..=2).for_each(|id| rig.fetch(id, 0).expect("a replica"));
    for (id, session) in (1..).zip(&sessions) {
        session.0.set(rig.now_ms);
        assert!(rig.become_quiet(id, session));
    }
    assert_eq!(rig.core.replica_in_rack("b", 0, &rig.cluster), Some(2));
    sessions[0].0.set(rig.now_ms + 1);
    assert_eq!(rig.core.replica_in_rack("b", 0, &rig.cluster), Some(1));
}

#[test]
fn the_last_fetch_of_a_session_applies_to_its_quiet_partitions() {
    let mut rig = Rig::leading(&[0, 1]);
    rig.fetch(2, 0).expect("a replica");
    let proposal = rig.proposal().expect("it is caught up");
    rig.answer(&proposal, Err(ErrorCode::INELIGIBLE_REPLICA));
    rig.offsets.end = 1;
    rig.core.on_appended(&rig.offsets, &rig.cluster, &mut rig.effects);
    rig.fetch(1, 1).expect("a replica");
    let session = Session::default();
    session.0.set(rig.now_ms + 2 * LAG_MAX_MS);
    assert!(rig.become_quiet(1, &session));
    rig.offsets.counted = 1;
    rig.core.on_flushed(&rig.offsets, &rig.cluster, &mut rig.effects);
    assert_eq!(rig.core.high_watermark(), 1, "replica 2 is not about to join any more");
}

#[test]
fn a_quiet_partition_notifies_its_sessions_of_each_change() {
    type Change = fn(&mut Rig);
    let changes: [(&str, Change, &[&str]); 7] = [
        ("an append", |rig| rig.append(1), &["session"]),
        ("the log start", |rig| rig.core.on_log_start(&mut rig.effects), &["consumer", "session"]),
        ("a new epoch", |rig| rig.assign(0, 2, 2, &[0, 1]), &["consumer", "session"]),
        ("an ISR", |rig| rig.assign(0, 1, 2, &[0, 1, 2]), &["consumer", "session"]),
        ("another leader", |rig| rig.assign(1, 2, 2, &[0, 1]), &["consumer", "session"]),
        (
            "its end",
            |rig| rig.core.go_offline(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, &mut rig.effects),
            &["consumer", "session"],
        ),
        (
            "a follower that gets what consumers read",
            |rig| rig.fetch(2, 1).expect("a replica"),
            &["consumer", "session"],
        ),
    ];
    for (what, change, expected) in changes {
        let (mut rig, _) = quiet();
        assert!(rig.core.become_quiet((Awaits::HighWatermark, Fetch("consumer")), None, &rig.offsets));
        change(&mut rig);
        let mut notified: Vec<_> = rig.effects.fetches.iter().map(|fetch| fetch.0).collect();
        notified.sort_unstable();
        assert_eq!(notified, expected, "{what}");
    }
}
