//! When damaged partitions are repaired.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::followed_tests::Follower;
use super::repairs::Attempts;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_failed_attempt_is_repeated_after_growing_pauses_whatever_is_found_meanwhile() {
    let follower = Follower::new(1);
    let (partition, mut now) = (follower.only_replica(), Instant::now());
    let mut attempts = Attempts::default();
    attempts.add(partition.clone(), now);
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let [failed] = <[_; 1]>::try_from(attempts.take_due(now)).ok().expect("one attempt");
        attempts.put_back(failed, now);
        attempts.add(partition.clone(), now);
        assert_eq!(attempts.next_due(), Some(now + pause * SECOND));
        assert!(attempts.take_due(now + pause * SECOND - Duration::from_millis(1)).is_empty());
        now += pause * SECOND;
    }
    follower.replicas.shutdown(1);
}

#[test]
fn a_replica_that_was_removed_and_added_again_does_not_wait_for_the_previous_one() {
    let follower = Follower::new(1);
    let (removed, now) = (follower.only_replica(), Instant::now());
    let mut attempts = Attempts::default();
    attempts.add(removed.clone(), now);
    for attempt in attempts.take_due(now) {
        attempts.put_back(attempt, now);
    }
    follower.remove_and_add_again();
    let added = follower.only_replica();
    attempts.add(added.clone(), now);
    // A reader of the removed replica reports its damage late.
    attempts.add(removed, now);
    let [attempt] = <[_; 1]>::try_from(attempts.take_due(now)).ok().expect("one attempt");
    assert!(Arc::ptr_eq(&attempt.partition, &added));
    assert_eq!(attempts.next_due(), None);
    follower.replicas.shutdown(1);
}
