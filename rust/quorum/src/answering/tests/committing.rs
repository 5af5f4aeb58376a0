//! Which records are committed: those that most voters have durably; the high watermark never decreases.

use super::*;

fn five() -> Lead {
    Lead { voters: (2..=5).map(|id| (id, FLUSHED)).collect(), ..lead() }
}

/// The high watermark after each of these fetches.
fn after_each(scene: &Scene, fetches: &[(i32, i64)]) -> Vec<i64> {
    let after = |&(id, offset)| {
        assert!(scene.takes(FETCH.of(id).at(offset)));
        scene.high_watermark()
    };
    fetches.iter().map(after).collect()
}

#[test]
fn two_of_three_commit() {
    let scene = Scene::led(lead());
    scene.flush();
    assert_eq!(scene.high_watermark(), FLUSHED);
    assert_eq!(after_each(&scene, &[(2, 6), (3, 7), (2, 7)]), [6, 7, 7]);
}

#[test]
fn voters_commit_records_that_are_not_flushed_here() {
    let scene = Scene::led(lead());
    assert_eq!(after_each(&scene, &[(2, 7), (3, 6), (3, 7)]), [5, 6, 7]);
}

#[test]
fn the_flush_may_come_last() {
    let scene = Scene::led(lead());
    assert_eq!(after_each(&scene, &[(2, 7)]), [5]);
    scene.flush();
    assert_eq!(scene.high_watermark(), 7);
}

#[test]
fn a_flush_counts_up_to_its_offset() {
    let scene = Scene::led(lead());
    assert_eq!(after_each(&scene, &[(2, 7)]), [5]);
    for (offset, high_watermark) in [(6, 6), (5, 6), (7, 7), (9, 7)] {
        scene.answering.flushed(offset);
        assert_eq!(scene.high_watermark(), high_watermark);
    }
}

#[test]
fn an_older_flush_changes_nothing() {
    let scene = Scene::led(lead());
    scene.answering.flushed(7);
    scene.answering.flushed(5);
    assert_eq!(after_each(&scene, &[(2, 7)]), [7]);
}

#[test]
fn records_flushed_before_the_lease_count() {
    let scene = Scene::idle();
    scene.flush();
    scene.begin(lead());
    assert_eq!(after_each(&scene, &[(3, 7)]), [7]);
}

#[test]
fn three_of_five_commit() {
    let scene = Scene::led(five());
    scene.flush();
    assert_eq!(after_each(&scene, &[(2, 7), (3, 6), (4, 7), (5, 6), (3, 7)]), [5, 6, 7, 7, 7]);
    let scene = Scene::led(five());
    assert_eq!(after_each(&scene, &[(5, 7), (4, 7)]), [5, 5]);
    scene.flush();
    assert_eq!(scene.high_watermark(), 7);
}

#[test]
fn a_leader_that_is_not_a_voter_does_not_count_itself() {
    let scene = Scene::led(Lead { counts_itself: false, voters: vec![(2, 5), (3, 5), (4, 5)], ..lead() });
    scene.flush();
    assert_eq!(after_each(&scene, &[(2, 7), (4, 6), (4, 7)]), [5, 6, 7]);
    let scene = Scene::led(Lead { counts_itself: false, voters: vec![(2, 5), (3, 5)], ..lead() });
    scene.flush();
    assert_eq!(after_each(&scene, &[(2, 7), (3, 7)]), [5, 7]);
}

#[test]
fn a_sole_voter_commits_by_its_flush() {
    let scene = Scene::led(Lead { voters: Vec::new(), ..lead() });
    scene.flush();
    assert_eq!(scene.high_watermark(), END);
}

#[test]
fn nothing_commits_without_voters() {
    let scene = Scene::led(Lead { voters: Vec::new(), counts_itself: false, ..lead() });
    scene.flush();
    assert_eq!(scene.high_watermark(), FLUSHED);
}

#[test]
fn voters_without_a_known_position_have_nothing() {
    let scene = Scene::led(Lead { voters: vec![(2, -1), (3, -1)], ..lead() });
    scene.flush();
    assert_eq!(scene.high_watermark(), FLUSHED);
    assert_eq!(after_each(&scene, &[(3, 6)]), [6]);
}

#[test]
fn observers_commit_nothing() {
    let scene = Scene::led(lead());
    scene.flush();
    assert_eq!(after_each(&scene, &[(BROKER, 7)]), [5]);
}

#[test]
fn records_of_earlier_leaders_are_not_committed_by_themselves() {
    let all_at = |offset| Lead { high_watermark: -1, voters: vec![(2, offset), (3, offset)], ..lead() };
    for offset in [START - 1, START] {
        let scene = Scene::led(all_at(offset));
        scene.flush();
        assert_eq!(scene.high_watermark(), -1);
        // A record of the epoch commits everything before it.
        assert_eq!(after_each(&scene, &[(2, START + 1)]), [START + 1]);
    }
}

#[test]
fn the_high_watermark_never_decreases() {
    let scene = Scene::led(lead());
    scene.flush();
    assert_eq!(after_each(&scene, &[(2, 7), (2, 5), (3, 5), (3, 6)]), [7, 7, 7, 7]);
    scene.answering.raise_high_watermark(6);
    assert_eq!(scene.high_watermark(), 7);
}

#[test]
fn a_voter_that_lost_records_no_longer_counts_for_them() {
    let scene = Scene::led(five());
    assert_eq!(after_each(&scene, &[(2, 7), (3, 7), (3, 5)]), [5, 5, 5]);
    scene.flush();
    assert_eq!(scene.high_watermark(), 5);
    assert_eq!(after_each(&scene, &[(3, 7)]), [7]);
}

#[test]
fn the_core_may_have_a_higher_high_watermark() {
    let scene = Scene::led(lead());
    for (offset, high_watermark) in [(6, 6), (5, 6), (7, 7)] {
        scene.answering.raise_high_watermark(offset);
        assert_eq!(scene.high_watermark(), high_watermark);
    }
    assert_eq!(scene.answer(FETCH.at(6)).high_watermark, 7);
}
