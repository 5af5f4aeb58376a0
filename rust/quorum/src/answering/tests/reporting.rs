//! What is reported to the core, when, and how the core revokes the lease.

use super::*;

fn places(fetches: &[LeasedFetch]) -> Vec<(usize, i64, i64)> {
    fetches.iter().map(|one| (one.slot, one.fetch_offset, one.end_offset)).collect()
}

#[test]
fn all_answered_fetches_are_reported_in_order() {
    let scene = Scene::led(lead());
    let before = Instant::now();
    scene.answer(FETCH.of(3).at(6));
    let (_waiting, _) = scene.wait(PATIENT);
    assert!(!scene.is_taken(FETCH.at(END + 1)));
    scene.append();
    scene.answer(FETCH.of(BROKER).at(5));
    scene.answer(FETCH.at(5));
    let fetches = scene.answering.take_fetches();
    assert_eq!(places(&fetches), [(1, 6, 7), (0, 7, 7), (2, 5, 8), (0, 5, 8)]);
    assert!(fetches.is_sorted_by_key(|one| one.at));
    assert!(fetches.iter().all(|one| (before..=Instant::now()).contains(&one.at)));
    assert!(scene.answering.take_fetches().is_empty());
    scene.answer(FETCH.at(6));
    assert_eq!(places(&scene.answering.end()), [(0, 6, 8)]);
    assert!(scene.answering.end().is_empty() && scene.answering.take_fetches().is_empty());
}

#[test]
fn a_commit_is_reported_immediately() {
    let scene = Scene::led(lead());
    scene.answer(FETCH);
    assert!(!scene.is_raised());
    // This fetch commits the first, the flush commits the second.
    scene.answer(FETCH.of(3).at(6));
    assert!(scene.is_raised());
    assert_eq!(scene.answering.take_fetches().len(), 2);
    assert!(!scene.is_raised());
    scene.flush();
    assert!(scene.is_raised());
    assert!(scene.answering.take_fetches().is_empty());
    assert!(!scene.is_raised());
}

#[test]
fn a_report_without_a_commit_can_wait() {
    let scene = Scene::led(lead());
    scene.answer(FETCH);
    scene.answer(FETCH.of(BROKER));
    let (_waiting, _) = scene.wait(PATIENT);
    scene.append();
    scene.answering.flushed(FLUSHED);
    // The core reported that itself.
    scene.answering.raise_high_watermark(END);
    scene.flush();
    assert!(!scene.is_raised());
}

#[test]
fn many_recorded_fetches_are_reported_immediately() {
    let scene = Scene::led(lead());
    for _ in 0..2 {
        (0..511).for_each(|_| drop(scene.answer(FETCH)));
        assert!(!scene.is_raised());
        scene.answer(FETCH);
        assert!(scene.is_raised());
        scene.answer(FETCH);
        assert_eq!(scene.answering.take_fetches().len(), 513);
        assert!(!scene.is_raised());
    }
}

#[test]
fn nothing_is_reported_after_the_end() {
    let scene = Scene::led(lead());
    scene.answer(FETCH);
    scene.flush();
    assert!(scene.is_raised());
    assert_eq!(scene.answering.end().len(), 1);
    assert!(!scene.is_raised());
    scene.append();
    scene.flush();
    assert!(!scene.is_raised());
}

#[test]
fn nothing_is_answered_after_the_end() {
    let scene = Scene::led(lead());
    scene.answering.end();
    assert!(!scene.is_taken(FETCH) && !scene.is_taken(PATIENT));
    assert_eq!(scene.answering.add_replica(2, directory(2), true), None);
    assert!(scene.answering.take_fetches().is_empty() && scene.answering.end().is_empty());
}

#[test]
fn waiting_fetches_go_to_the_core_when_the_lease_ends() {
    let scene = Scene::led(lead());
    let (voter, voters_bell) = scene.wait(PATIENT);
    let (broker, brokers_bell) = scene.wait(PATIENT.of(BROKER));
    scene.answering.end();
    assert_eq!((voters_bell.rings(), brokers_bell.rings()), (1, 1));
    let are_outside = || {
        let looks = [voter.look(false), voter.look(true), broker.look(false), broker.look(true)];
        looks.iter().all(|looked| matches!(looked, Looked::Outside))
    };
    assert!(are_outside());
    // A new lease is not the one that they belong to, even if its terms are the same.
    scene.begin(lead());
    assert!(are_outside());
    scene.append();
    scene.flush();
    assert!(are_outside());
    let (new, _) = scene.wait(PATIENT.at(END + 1));
    assert!(matches!(new.look(false), Looked::Waits));
}

#[test]
fn a_waiting_fetch_below_the_log_start_goes_to_the_core() {
    let scene = Scene::led(lead());
    let (voter, _) = scene.wait(PATIENT);
    scene.clean_before(END);
    assert!(matches!(voter.look(false), Looked::Waits));
    scene.append();
    assert!(matches!(voter.look(false), Looked::Outside));
}

#[test]
fn a_new_lease_starts_without_replicas() {
    let scene = Scene::led(lead());
    scene.answer(FETCH);
    scene.answering.end();
    scene.answering.begin(Lead { epoch: EPOCH + 1, start_offset: END, high_watermark: END, ..lead() });
    scene.append_in(EPOCH + 1);
    let fetch = Fetch { epoch: EPOCH + 1, last_epoch: EPOCH + 1, ..FETCH.at(END + 1) };
    assert!(!scene.is_taken(fetch));
    assert_eq!(scene.answering.add_replica(2, directory(2), true), Some(0));
    let answer = scene.answer(fetch);
    assert_eq!((answer.leader, answer.high_watermark), ((1, EPOCH + 1), END));
    assert_eq!(places(&scene.answering.take_fetches()), [(0, END + 1, END + 1)]);
    assert!(!scene.is_taken(FETCH));
}
