//! The uniform assignor for members that subscribe to the same topics (Apache Kafka's
//! `UniformHomogeneousAssignmentBuilder`).
//!
//! With T partitions and m members, every member gets T div m partitions, and T mod m of them one more. Members keep
//! what they own up to that limit, and the rest is filled up: free partitions first, then the revoked ones. A balanced
//! assignment does not change.
use crate::assignment::{Assignment, Group, TopicPartition};

pub fn assign(group: &Group, owned: &[Assignment]) -> Vec<Assignment> {
    let subscribed = &group.members[0].subscribed;
    let mut pool = free_partitions(group, subscribed, owned);
    let total: usize = subscribed.iter().map(|topic| group.topics[*topic].partition_count as usize).sum();
    let (each, mut surplus) = (total / owned.len(), total % owned.len());
    let mut assignments = Vec::with_capacity(owned.len());
    let mut unfilled = Vec::new();
    for (member, owned) in owned.iter().enumerate() {
        let mut has_seat = surplus > 0;
        let mut room = each + usize::from(has_seat);
        let is_subscribed = |(topic, _): &TopicPartition| subscribed.binary_search(topic).is_ok();
        let mut kept: Assignment = owned.iter().copied().filter(is_subscribed).collect();
        pool.extend(kept.drain(room.min(kept.len())..));
        room -= kept.len();
        // The seat is for a member that owns more, unless the members from here on are too few to leave one free.
        if room > 0 && has_seat && group.members.len() - member > surplus {
            room -= 1;
            has_seat = false;
        }
        if room > 0 {
            unfilled.push((member, room));
        }
        surplus -= usize::from(has_seat);
        assignments.push(kept);
    }
    let mut pool = pool.into_iter();
    for (member, room) in unfilled {
        assignments[member].extend(pool.by_ref().take(room));
        assignments[member].sort_unstable();
    }
    assert!(pool.next().is_none(), "the limits sum up to the number of partitions");
    assignments
}

/// Partitions without an owner.
fn free_partitions(group: &Group, subscribed: &[usize], owned: &[Assignment]) -> Vec<TopicPartition> {
    let mut is_free: Vec<Vec<bool>> =
        group.topics.iter().map(|topic| vec![true; topic.partition_count as usize]).collect();
    for (topic, partition) in owned.iter().flatten() {
        is_free[*topic][*partition as usize] = false;
    }
    let all = subscribed.iter().flat_map(|topic| (0..group.topics[*topic].partition_count).map(|at| (*topic, at)));
    all.filter(|(topic, partition)| is_free[*topic][*partition as usize]).collect()
}
