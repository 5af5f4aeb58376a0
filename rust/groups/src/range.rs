//! The range assignor (Apache Kafka's `RangeAssignor`): each topic is cut into contiguous ranges, one for each of its
//! subscribers, static members first. The first subscribers get the surplus.
use std::cmp::Ordering;

use crate::assignment::{Assignment, Group, GroupMember};

pub fn assign(group: &Group) -> Vec<Assignment> {
    let mut order: Vec<usize> = (0..group.members.len()).collect();
    order.sort_by(|left, right| compare(&group.members[*left], &group.members[*right]));
    let mut assignments = vec![Assignment::new(); group.members.len()];
    for (number, topic) in group.topics.iter().enumerate() {
        let subscribers: Vec<usize> =
            order.iter().copied().filter(|member| group.members[*member].is_subscribed(number)).collect();
        if subscribers.is_empty() {
            continue;
        }
        let each = topic.partition_count / subscribers.len() as i32;
        let surplus = topic.partition_count % subscribers.len() as i32;
        let mut start = 0;
        for (at, member) in subscribers.into_iter().enumerate() {
            let end = start + each + i32::from((at as i32) < surplus);
            assignments[member].extend((start..end).map(|partition| (number, partition)));
            start = end;
        }
    }
    assignments
}

/// Static members by instance id, then the others by member id.
fn compare(left: &GroupMember, right: &GroupMember) -> Ordering {
    match (&left.instance_id, &right.instance_id) {
        (Some(left), Some(right)) => compare_as_java(left, right),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => compare_as_java(&left.id, &right.id),
    }
}

/// Java compares strings by their UTF-16 units.
pub fn compare_as_java(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}
