//! Which fetches wait, for what, and how long.

use super::*;

fn observer() -> Fetch {
    PATIENT.of(BROKER)
}

#[track_caller]
fn waits(waiting: &Waiting) {
    assert!(matches!(waiting.look(false), Looked::Waits));
}

#[test]
fn a_voter_waits_for_appended_records_and_an_observer_for_committed_ones() {
    let scene = Scene::led(lead());
    let (voter, voters_bell) = scene.wait(PATIENT);
    let (broker, brokers_bell) = scene.wait(observer());
    waits(&voter);
    scene.append();
    assert_eq!((voters_bell.rings(), brokers_bell.rings()), (1, 0));
    waits(&broker);
    let answer = answered(voter.look(false));
    assert_eq!(answer.records, scene.log.read(END, 1 << 20).expect("read"));
    assert_eq!((answer.high_watermark, answer.leader), (FLUSHED, (1, EPOCH)));
}

#[test]
fn appends_of_one_turn_are_sent_together() {
    let scene = Scene::led(lead());
    let (voter, bell) = scene.wait(PATIENT);
    for _ in 0..2 {
        scene.log.append(&[b"value"], EPOCH, 0).expect("append");
        assert!(matches!(voter.look(false), Looked::Waits));
    }
    assert_eq!(bell.rings(), 0);
    scene.answering.offer();
    assert_eq!(bell.rings(), 1);
    assert_eq!(klamm_records::batches(&answered(voter.look(false)).records).count(), 2);
}

/// Voter 2 and the broker wait. After `commits` advances the high watermark, the broker is answered immediately, and
/// the voter when voters are notified.
#[track_caller]
fn check_observers_are_notified_first(scene: &Scene, high_watermark: i64, commits: impl Fn()) {
    let (voter, voters_bell) = scene.wait(PATIENT);
    let (broker, brokers_bell) = scene.wait(observer());
    let rings = || (voters_bell.rings(), brokers_bell.rings());
    commits();
    assert_eq!(rings(), (0, 1));
    waits(&voter);
    assert_eq!(answered(broker.look(false)).high_watermark, high_watermark);
    scene.answering.notify_voters();
    assert_eq!(rings(), (1, 1));
    let answer = answered(voter.look(false));
    assert_eq!((answer.high_watermark, answer.records), (high_watermark, Vec::new()));
    scene.answering.notify_voters();
    assert_eq!(rings(), (1, 1));
}

#[test]
fn observers_are_notified_first_of_a_commit_by_a_fetch() {
    let scene = Scene::led(Lead { voters: (2..=5).map(|id| (id, FLUSHED)).collect(), ..lead() });
    scene.flush();
    check_observers_are_notified_first(&scene, END, || {
        assert!(scene.is_taken(FETCH.of(4).at(FLUSHED)) && scene.is_taken(FETCH.of(3)));
    });
}

#[test]
fn observers_are_notified_first_of_a_commit_by_a_flush() {
    let scene = Scene::led(lead());
    check_observers_are_notified_first(&scene, END, || {
        scene.answering.flushed(FLUSHED);
        scene.flush();
    });
}

#[test]
fn observers_receive_the_high_watermark_of_the_core_first() {
    let scene = Scene::led(lead());
    check_observers_are_notified_first(&scene, FLUSHED + 1, || {
        scene.answering.raise_high_watermark(FLUSHED);
        scene.answering.raise_high_watermark(FLUSHED + 1);
    });
}

#[test]
fn a_fetch_without_a_commit_wakes_nothing() {
    let scene = Scene::led(lead());
    let (voter, voters_bell) = scene.wait(PATIENT);
    let (broker, brokers_bell) = scene.wait(observer());
    scene.answering.flushed(FLUSHED);
    scene.answering.raise_high_watermark(FLUSHED);
    scene.answering.notify_voters();
    assert!(scene.is_taken(FETCH.of(3).at(FLUSHED)));
    assert_eq!((voters_bell.rings(), brokers_bell.rings()), (0, 0));
    waits(&voter);
    waits(&broker);
}

#[test]
fn a_voter_receives_the_high_watermark_with_other_answers() {
    let scene = Scene::led(lead());
    let (late, _) = scene.wait(PATIENT);
    let (voter, _) = scene.wait(PATIENT);
    scene.answering.raise_high_watermark(END);
    assert_eq!(answered(late.look(true)).high_watermark, END);
    scene.append();
    assert_eq!(answered(voter.look(false)).high_watermark, END);
    assert_eq!(scene.answer(PATIENT.at(END)).high_watermark, END);
    assert_eq!(scene.answer(FETCH.at(END + 1)).high_watermark, END);
}

#[test]
fn a_voter_that_arrives_before_voters_are_notified_waits() {
    let scene = Scene::led(lead());
    scene.answering.raise_high_watermark(END);
    let (knows_less, bell) = scene.wait(PATIENT.knowing(FLUSHED));
    let (knows, _) = scene.wait(PATIENT.knowing(END));
    let (tells_nothing, _) = scene.wait(PATIENT);
    scene.answering.notify_voters();
    assert_eq!(bell.rings(), 1);
    assert_eq!(answered(knows_less.look(false)).high_watermark, END);
    waits(&knows);
    waits(&tells_nothing);
    assert_eq!(scene.answer(PATIENT.knowing(FLUSHED)).high_watermark, END);
}

#[test]
fn an_observer_gets_all_records_once_some_are_committed() {
    let scene = Scene::led(lead());
    let (broker, _) = scene.wait(observer().at(FLUSHED));
    assert!(scene.takes(FETCH.at(FLUSHED + 1)));
    waits(&broker);
    scene.flush();
    let answer = answered(broker.look(false));
    assert_eq!((answer.high_watermark, answer.records), (6, scene.log.read(FLUSHED, 1 << 20).expect("read")));
    assert!(!scene.answer(observer().at(FLUSHED)).records.is_empty());
    scene.wait(observer().at(6));
}

#[test]
fn a_voter_gets_available_records_at_once() {
    let scene = Scene::led(lead());
    assert!(!scene.answer(PATIENT.at(END - 1)).records.is_empty());
}

#[test]
fn a_waiting_fetch_is_answered_at_its_deadline() {
    let scene = Scene::led(lead());
    let before = Instant::now();
    let (voter, bell) = scene.wait(PATIENT);
    let wait = Duration::from_secs(60);
    assert!((before + wait..=Instant::now() + wait).contains(&voter.deadline));
    waits(&voter);
    let answer = answered(voter.look(true));
    assert_eq!((answer.high_watermark, answer.records), (FLUSHED, Vec::new()));
    assert_eq!(bell.rings(), 0);
    let (broker, _) = scene.wait(observer());
    scene.append();
    assert!(!answered(broker.look(true)).records.is_empty());
}

#[test]
fn a_fetch_without_a_wait_time_is_answered() {
    let scene = Scene::led(lead());
    assert!(scene.answer(FETCH).records.is_empty());
    let (waiting, _) = scene.wait(Fetch { max_wait_ms: 1, ..FETCH });
    waits(&waiting);
}

#[test]
fn a_replica_with_a_lower_high_watermark_is_answered_immediately() {
    let scene = Scene::led(lead());
    for fetch in [PATIENT, observer()] {
        assert_eq!(scene.answer(fetch.knowing(FLUSHED - 1)).high_watermark, FLUSHED);
        assert_eq!(scene.answer(fetch.knowing(-1)).high_watermark, FLUSHED);
        for fetch in [fetch.knowing(FLUSHED), fetch.knowing(FLUSHED + 1), fetch] {
            scene.wait(fetch);
        }
        // Before version 18 no request contains it.
        let taken = scene.take_body(17, &fetch.knowing(-1).body(17), &Arc::default());
        assert_eq!(what(&taken), "waits");
    }
}

#[test]
fn a_voters_own_commit_is_sent_with_that_of_the_others() {
    let scene = Scene::led(lead());
    scene.flush();
    let (voter, bell) = scene.wait(PATIENT.knowing(FLUSHED));
    assert_eq!(scene.high_watermark(), END);
    waits(&voter);
    scene.answering.notify_voters();
    assert_eq!((answered(voter.look(false)).high_watermark, bell.rings()), (END, 1));
    // Without it, the fetch counts as knowing the current one.
    scene.append();
    scene.flush();
    let (voter, _) = scene.wait(PATIENT.at(END + 1));
    assert_eq!(scene.high_watermark(), END + 1);
    scene.answering.notify_voters();
    waits(&voter);
}

#[test]
fn a_fetch_that_ends_leaves_no_waiter() {
    let scene = Scene::led(lead());
    let (voter, bell) = scene.wait(PATIENT);
    let (broker, _) = scene.wait(observer());
    assert_eq!(scene.waiter_count(), 2);
    answered(voter.look(true));
    drop(voter);
    assert_eq!(scene.waiter_count(), 1);
    scene.append();
    assert_eq!((bell.rings(), Arc::strong_count(&bell)), (0, 1));
    scene.answering.end();
    drop(broker);
    assert_eq!(scene.waiter_count(), 0);
    drop((scene.take(FETCH), scene.take(FETCH.of(10))));
    assert_eq!(scene.waiter_count(), 0);
}
