//! Properties of the task assignor over random groups, in several rounds.
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::sticky_tasks::{Assigned, Member, NoMembers, Subtopology, Task, assign};

/// Subtopologies, and for each round the processes of the members by name, and the number of standbys.
type History = (Vec<Subtopology>, Vec<(BTreeMap<u8, usize>, u32)>);

fn histories() -> impl Strategy<Value = History> {
    let subtopology =
        (1..10_u32, any::<bool>()).prop_map(|(task_count, is_stateful)| Subtopology { task_count, is_stateful });
    let members = prop::collection::btree_map(0..12_u8, 0..4_usize, 1..10);
    (prop::collection::vec(subtopology, 1..4), prop::collection::vec((members, 0..4_u32), 1..5))
}

/// Calls `check` with the members, the number of standbys and the assignment of each round.
fn play((subtopologies, rounds): &History, mut check: impl FnMut(&[Member], u32, &[Assigned])) {
    let mut targets: BTreeMap<u8, Assigned> = BTreeMap::new();
    for (processes, standbys) in rounds {
        let target = |name: &u8| targets.get(name).cloned().unwrap_or_default();
        let members: Vec<Member> = processes
            .iter()
            .map(|(name, &process)| {
                let Assigned { active, standby } = target(name);
                Member { process, active, standby }
            })
            .collect();
        let members = renumbered(members);
        let assigned = assign(subtopologies, &members, *standbys).expect("there are members");
        check(&members, *standbys, &assigned);
        targets = processes.keys().copied().zip(assigned).collect();
    }
}

/// Processes are numbered without gaps.
fn renumbered(mut members: Vec<Member>) -> Vec<Member> {
    let used: BTreeSet<usize> = members.iter().map(|one| one.process).collect();
    for one in &mut members {
        one.process = used.range(..one.process).count();
    }
    members
}

fn count(subtopologies: &[Subtopology]) -> usize {
    subtopologies.iter().map(|one| one.task_count as usize).sum()
}

proptest! {
    #[test]
    fn every_task_is_active_once(history in histories()) {
        play(&history, |_, _, assigned| {
            let all: Vec<Task> = assigned.iter().flat_map(|one| one.active.clone()).collect();
            assert_eq!(all.len(), count(&history.0));
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        });
    }

    #[test]
    fn a_process_has_a_task_at_most_once(history in histories()) {
        play(&history, |members, _, assigned| {
            let mut seen = BTreeSet::new();
            for (member, one) in members.iter().zip(assigned) {
                for &task in one.active.iter().chain(&one.standby) {
                    assert!(seen.insert((member.process, task)), "process {} has {task:?} twice", member.process);
                }
            }
        });
    }

    #[test]
    fn a_stateful_task_has_all_standbys_that_processes_allow(history in histories()) {
        play(&history, |members, standbys, assigned| {
            let processes = members.iter().map(|one| one.process).collect::<BTreeSet<_>>().len();
            let mut found: BTreeMap<Task, usize> = BTreeMap::new();
            for task in assigned.iter().flat_map(|one| one.standby.clone()) {
                *found.entry(task).or_default() += 1;
            }
            for (subtopology, one) in history.0.iter().enumerate() {
                let wanted = if one.is_stateful { (standbys as usize).min(processes - 1) } else { 0 };
                for partition in 0..one.task_count {
                    let task = Task { partition, subtopology };
                    assert_eq!(found.get(&task).copied().unwrap_or(0), wanted, "{task:?}");
                }
            }
        });
    }

    #[test]
    fn balanced_active_tasks_stay(history in histories()) {
        play(&history, |members, _, assigned| {
            let sizes = || assigned.iter().map(|one| one.active.len());
            if sizes().max() > sizes().min().map(|least| least + 1) {
                return;
            }
            let settled = |(member, one): (&Member, &Assigned)| {
                Member { process: member.process, active: one.active.clone(), standby: Vec::new() }
            };
            let settled: Vec<Member> = members.iter().zip(assigned).map(settled).collect();
            let again = assign(&history.0, &settled, 0).expect("there are members");
            for (new, old) in again.iter().zip(assigned) {
                assert_eq!(new.active, old.active);
            }
        });
    }
}

#[test]
fn tasks_need_a_member() {
    let one = [Subtopology { task_count: 2, is_stateful: true }];
    assert_eq!(assign(&one, &[], 1), Err(NoMembers(2)));
    assert_eq!(assign(&[], &[], 1), Ok(Vec::new()));
}

#[test]
fn a_member_that_leaves_gives_its_tasks_to_its_standby() {
    let one = [Subtopology { task_count: 3, is_stateful: true }];
    let task = |partition| Task { partition, subtopology: 0 };
    let fresh = |process| Member { process, ..Member::default() };
    let first = assign(&one, &[fresh(0), fresh(1), fresh(2)], 1).expect("there are members");
    let left: Vec<Member> = first[1..]
        .iter()
        .enumerate()
        .map(|(process, was)| Member { process, active: was.active.clone(), standby: was.standby.clone() })
        .collect();
    let second = assign(&one, &left, 1).expect("there are members");
    for (was, now) in left.iter().zip(&second) {
        assert!(was.active.iter().all(|kept| now.active.contains(kept)), "{was:?} {now:?}");
    }
    let inherited: Vec<Task> = (0..3).map(task).filter(|one| first[0].active.contains(one)).collect();
    for gone in inherited {
        let heir = second.iter().position(|now| now.active.contains(&gone)).expect("every task is active");
        assert!(left[heir].standby.contains(&gone), "{gone:?} moved to a member without its state");
    }
}
