//! The simple assignor of share groups (KIP-932, Apache Kafka's `SimpleAssignor`).
//!
//! With P partitions and m members, every partition is meant for s = ceil(m / P) members, and member i for
//! ceil(s * P / m * (i + 1)) - ceil(s * P / m * i) partitions. Members keep what they have up to that number, no
//! partition is shared more often than s times, and the rest is dealt out in turns. When subscriptions differ, this
//! is done for each topic with its subscribers.
//!
//! Apache Kafka stops dealing out when each member that lacks partitions has the next one already, even if
//! later ones have no member; so does this.
use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::{Assignment, Group, TopicPartition};

pub fn assign_homogeneous(group: &Group) -> Vec<Assignment> {
    let subscribed = &group.members[0].subscribed;
    let members: Vec<usize> = (0..group.members.len()).collect();
    let mut assignments = vec![Assignment::new(); members.len()];
    deal(group, subscribed, &members, &mut assignments);
    assignments
}

pub fn assign_heterogeneous(group: &Group) -> Vec<Assignment> {
    let mut assignments = vec![Assignment::new(); group.members.len()];
    for topic in 0..group.topics.len() {
        let is_subscriber = |member: &usize| group.members[*member].is_subscribed(topic);
        let subscribers: Vec<usize> = (0..group.members.len()).filter(is_subscriber).collect();
        if !subscribers.is_empty() {
            deal(group, &[topic], &subscribers, &mut assignments);
        }
    }
    assignments
}

/// Assigns the partitions of `topics` to `members`, all of which subscribe to them.
fn deal(group: &Group, topics: &[usize], members: &[usize], assignments: &mut [Assignment]) {
    let targets: Vec<TopicPartition> = topics.iter().flat_map(|topic| assignable(group, *topic)).collect();
    let sharing = if targets.is_empty() { 0 } else { members.len().div_ceil(targets.len()) };
    let precise = (sharing * targets.len()) as f64 / members.len() as f64;
    let up_to = |member: usize| (precise * member as f64).ceil() as usize;
    let wanted: Vec<usize> = (0..members.len()).map(|at| up_to(at + 1) - up_to(at)).collect();

    let mut shares: BTreeMap<TopicPartition, BTreeSet<usize>> = BTreeMap::new();
    let mut held: Vec<BTreeSet<TopicPartition>> = vec![BTreeSet::new(); members.len()];
    for (at, member) in members.iter().enumerate() {
        let owned = owned_of(&group.members[*member].owned, topics);
        // The first ones are given up.
        for partition in &owned[owned.len().saturating_sub(wanted[at])..] {
            shares.entry(*partition).or_default().insert(at);
            held[at].insert(*partition);
        }
    }
    for (partition, holders) in &mut shares {
        while holders.len() > sharing {
            let first = holders.pop_first().expect("it is not empty");
            held[first].remove(partition);
        }
    }
    for partition in &targets {
        shares.entry(*partition).or_default();
    }
    fill_up(&shares, &wanted, sharing, &mut held);
    for (at, member) in members.iter().enumerate() {
        assignments[*member].extend(held[at].iter().copied());
    }
}

/// The partitions of some topics, which are in ascending order.
fn owned_of(owned: &[TopicPartition], topics: &[usize]) -> Vec<TopicPartition> {
    let (Some(first), Some(last)) = (topics.first(), topics.last()) else { return Vec::new() };
    let start = owned.partition_point(|(topic, _)| topic < first);
    let end = owned.partition_point(|(topic, _)| topic <= last);
    owned[start..end].iter().copied().filter(|(topic, _)| topics.binary_search(topic).is_ok()).collect()
}

fn assignable(group: &Group, topic: usize) -> Vec<TopicPartition> {
    let Group { topics, .. } = group;
    match &topics[topic].assignable {
        Some(partitions) => partitions.iter().map(|partition| (topic, *partition)).collect(),
        None => (0..topics[topic].partition_count).map(|partition| (topic, partition)).collect(),
    }
}

/// Deals out partitions that too few have to the members that have too few, who take turns.
fn fill_up(
    shares: &BTreeMap<TopicPartition, BTreeSet<usize>>,
    wanted: &[usize],
    sharing: usize,
    held: &mut [BTreeSet<TopicPartition>],
) {
    let mut unfilled: BTreeSet<usize> = (0..held.len()).filter(|at| held[*at].len() < wanted[*at]).collect();
    let mut turn = 0;
    let mut has_dealt = false;
    for (partition, holders) in shares {
        let mut missing = sharing.saturating_sub(holders.len());
        while missing > 0 {
            let Some(member) = unfilled.range(turn..).next().copied() else {
                if !has_dealt {
                    break;
                }
                (turn, has_dealt) = (0, false);
                if unfilled.is_empty() {
                    break;
                }
                continue;
            };
            turn = member + 1;
            if !holders.contains(&member) {
                held[member].insert(*partition);
                missing -= 1;
                has_dealt = true;
                if held[member].len() >= wanted[member] {
                    unfilled.remove(&member);
                }
            }
        }
        if unfilled.is_empty() {
            return;
        }
    }
}
