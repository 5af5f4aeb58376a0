//! Invariant: whatever members subscribe to and own, each assignor gives every partition that has a subscriber to members that
//! subscribe to it, exclusively unless the group shares it; and every task of a streams group is active once.

use std::collections::{BTreeMap, BTreeSet};

use klamm_base::Uuid;
use klamm_groups::assignment::{Assignment, Assignor, Group, Member, Topic};
use klamm_groups::sticky_tasks::{self, Subtopology, Task};

use crate::input::Input;

const TOPICS_MAX: usize = 6;
const PARTITIONS_MAX: usize = 24;
const MEMBERS_MAX: usize = 12;
const OWNED_MAX: usize = 32;
const STANDBYS_MAX: usize = 4;

/// The bytes are a group: what exists, then its members with what they subscribe to and own, existing or not.
pub fn assignors(data: &[u8]) {
    let mut input = Input::new(data);
    let topics: Vec<Topic> = (0..input.below(TOPICS_MAX)).map(|at| topic(at, &mut input)).collect();
    let members: Vec<Member> = (0..input.below(MEMBERS_MAX)).map(|at| member(at, &mut input)).collect();
    let group = Group::new(&members, topics);
    let is_homogeneous = group.members.windows(2).all(|pair| pair[0].subscribed == pair[1].subscribed);
    for assignor in [Assignor::Range, Assignor::Uniform, Assignor::Simple] {
        for homogeneous in [false, true] {
            if is_homogeneous || !homogeneous {
                check(&group, assignor, &group.assign(assignor, homogeneous));
            }
        }
    }
    assign_tasks(&mut input);
}

fn id(at: usize) -> Uuid {
    // Ids of both signs: Kafka compares their halves as signed numbers.
    Uuid([(at as u8).wrapping_mul(0x55); 16])
}

fn topic(at: usize, input: &mut Input<'_>) -> Topic {
    let partition_count = input.below(PARTITIONS_MAX) as i32;
    Topic { id: id(at), partition_count, assignable: None }
}

fn member(at: usize, input: &mut Input<'_>) -> Member {
    let choices = input.byte();
    // More topics and partitions than there are.
    let subscribed = (0..TOPICS_MAX).filter(|topic| choices >> topic & 1 == 1).map(id).collect();
    let mut target: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for _ in 0..input.below(OWNED_MAX) {
        target.entry(id(input.below(TOPICS_MAX))).or_default().push(i32::from(input.signed()));
    }
    Member { id: at.to_string(), instance_id: (choices & 0x80 != 0).then(|| (99 - at).to_string()), subscribed, target }
}

fn check(group: &Group, assignor: Assignor, assignments: &[Assignment]) {
    assert_eq!(assignments.len(), group.members.len());
    let mut owned = BTreeSet::new();
    for (member, assignment) in group.members.iter().zip(assignments) {
        assert!(assignment.is_sorted_by(|left, right| left < right), "{assignor:?}: {assignment:?}");
        for place in assignment {
            assert!(member.is_subscribed(place.0), "{assignor:?}: {place:?} for a member that does not subscribe");
            assert!(owned.insert(*place) || assignor == Assignor::Simple, "{assignor:?}: {place:?} has two owners");
        }
    }
    let subscribed: BTreeSet<usize> = group.members.iter().flat_map(|one| one.subscribed.iter().copied()).collect();
    let all = subscribed.iter().flat_map(|at| (0..group.topics[*at].partition_count).map(move |index| (*at, index)));
    assert_eq!(owned, all.collect::<BTreeSet<_>>(), "{assignor:?}");
}

fn assign_tasks(input: &mut Input<'_>) {
    let subtopologies: Vec<Subtopology> = (0..input.below(TOPICS_MAX))
        .map(|_| Subtopology { task_count: input.below(PARTITIONS_MAX) as u32, is_stateful: input.byte() & 1 == 1 })
        .collect();
    let mut processes = 0;
    let members: Vec<sticky_tasks::Member> = (0..input.below(MEMBERS_MAX))
        .map(|_| {
            // Processes are numbered without gaps.
            let process = input.below(processes + 1);
            processes = processes.max(process + 1);
            let mut tasks =
                || -> Vec<Task> { (0..input.below(OWNED_MAX)).filter_map(|_| task(input, &subtopologies)).collect() };
            sticky_tasks::Member { process, active: tasks(), standby: tasks() }
        })
        .collect();
    let standbys = input.below(STANDBYS_MAX) as u32;
    let expected: BTreeSet<Task> = (0..)
        .zip(&subtopologies)
        .flat_map(|(subtopology, one)| (0..one.task_count).map(move |partition| Task { partition, subtopology }))
        .collect();
    let Ok(assigned) = sticky_tasks::assign(&subtopologies, &members, standbys) else {
        assert!(members.is_empty() && !expected.is_empty());
        return;
    };
    let mut active = BTreeSet::new();
    for (member, one) in members.iter().zip(&assigned) {
        assert!(one.active.iter().all(|task| active.insert(*task)), "a task is active twice: {assigned:?}");
        assert!(one.standby.iter().all(|task| expected.contains(task)), "{member:?} {one:?}");
        assert!(one.standby.iter().all(|task| !one.active.contains(task)), "{member:?} {one:?}");
    }
    assert_eq!(active, expected);
}

/// A task of a subtopology that exists; its partition may not.
fn task(input: &mut Input<'_>, subtopologies: &[Subtopology]) -> Option<Task> {
    let (subtopology, partition) = (input.below(TOPICS_MAX), u32::from(input.byte()));
    (subtopology < subtopologies.len()).then_some(Task { partition, subtopology })
}
