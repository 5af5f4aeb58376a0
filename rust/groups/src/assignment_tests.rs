//! Properties of the assignors over random groups, in several rounds.
use std::collections::{BTreeMap, BTreeSet};

use klamm_base::Uuid;
use proptest::prelude::*;

use crate::assignment::{Assignment, Assignor, Group, Member, Topic};

fn id(topic: usize) -> Uuid {
    Uuid((topic as u128 + 1).to_be_bytes())
}

/// Number of a member, and which topics it subscribes to.
type Wanted = (usize, Vec<bool>);
/// Partition counts of topics, and the members of each round.
type History = (Vec<i32>, Vec<Vec<Wanted>>);

/// Partition counts of topics, and the members with their subscriptions in each round.
fn groups() -> impl Strategy<Value = History> {
    let topics = prop::collection::vec(0..12_i32, 1..6);
    topics.prop_flat_map(|topics| {
        let member = (0..12_usize, prop::collection::vec(any::<bool>(), topics.len()));
        let rounds = prop::collection::vec(prop::collection::vec(member, 1..12), 1..5);
        (Just(topics), rounds)
    })
}

/// One round: members with their targets, by name.
fn round(
    counts: &[i32],
    wanted: &[Wanted],
    targets: &BTreeMap<usize, BTreeMap<Uuid, Vec<i32>>>,
    homogeneous: bool,
) -> (Vec<usize>, Group) {
    let wanted: BTreeMap<usize, &Vec<bool>> = wanted.iter().map(|(name, subscribed)| (*name, subscribed)).collect();
    let first = wanted.values().next().copied().expect("not empty").clone();
    let members: Vec<Member> = wanted
        .iter()
        .map(|(name, subscribed)| {
            let subscribed = if homogeneous { &first } else { *subscribed };
            Member {
                id: format!("member-{name:02}"),
                instance_id: (name % 3 == 0).then(|| format!("instance-{}", 20 - name)),
                subscribed: (0..counts.len()).filter(|at| subscribed[*at]).map(id).collect(),
                target: targets.get(name).cloned().unwrap_or_default(),
            }
        })
        .collect();
    let topic = |(at, count): (usize, &i32)| Topic { id: id(at), partition_count: *count, assignable: None };
    (wanted.into_keys().collect(), Group::new(&members, counts.iter().enumerate().map(topic).collect()))
}

fn by_id(assignment: &Assignment) -> BTreeMap<Uuid, Vec<i32>> {
    let mut target: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in assignment {
        target.entry(id(*topic)).or_default().push(*partition);
    }
    target
}

/// Calls `check` with the group, the old and the new assignment of each round.
fn play((counts, rounds): &History, assignor: Assignor, homogeneous: bool, check: impl Fn(&Group, &[Assignment])) {
    let mut targets = BTreeMap::new();
    for wanted in rounds {
        let (names, group) = round(counts, wanted, &targets, homogeneous);
        let assignments = group.assign(assignor, homogeneous);
        assert_eq!(assignments.len(), names.len());
        for (member, assignment) in group.members.iter().zip(&assignments) {
            assert!(assignment.is_sorted_by(|left, right| left < right), "sorted, no partition twice");
            assert!(assignment.iter().all(|(topic, _)| member.is_subscribed(*topic)));
        }
        check(&group, &assignments);
        targets = names.into_iter().zip(assignments.iter().map(by_id)).collect();
    }
}

/// Every partition of a topic with subscribers has exactly one owner.
fn assert_owned_once(group: &Group, assignments: &[Assignment]) {
    let owned: Vec<_> = assignments.iter().flatten().copied().collect();
    let distinct: BTreeSet<_> = owned.iter().copied().collect();
    assert_eq!(owned.len(), distinct.len());
    let subscribed: BTreeSet<usize> = group.members.iter().flat_map(|member| member.subscribed.clone()).collect();
    let all = subscribed.iter().flat_map(|topic| (0..group.topics[*topic].partition_count).map(|at| (*topic, at)));
    assert_eq!(distinct, all.collect());
}

proptest! {
    #[test]
    fn uniform_is_balanced_and_sticky(history in groups()) {
        play(&history, Assignor::Uniform, true, |group, assignments| {
            assert_owned_once(group, assignments);
            let total: usize = assignments.iter().map(Vec::len).sum();
            let each = total / assignments.len();
            assert!(assignments.iter().all(|it| (each..=each + 1).contains(&it.len())));
            for (member, assignment) in group.members.iter().zip(assignments) {
                let owned = member.owned.iter().filter(|(topic, _)| member.is_subscribed(*topic));
                let (kept, lost): (Vec<_>, Vec<_>) = owned.copied().partition(|it| assignment.contains(it));
                // Only partitions above the limit move.
                assert!(lost.is_empty() || kept.len() >= each, "{kept:?} {lost:?}");
            }
        });
    }

    #[test]
    fn uniform_with_different_subscriptions(history in groups()) {
        play(&history, Assignor::Uniform, false, |group, assignments| {
            assert_owned_once(group, assignments);
            // If all subscribers of a topic have no other topic, its load is balanced.
            for topic in 0..group.topics.len() {
                let subscribers: Vec<_> = (0..group.members.len())
                    .filter(|at| group.members[*at].is_subscribed(topic)).collect();
                if subscribers.iter().all(|at| group.members[*at].subscribed == [topic]) {
                    let sizes: Vec<_> = subscribers.iter().map(|at| assignments[*at].len()).collect();
                    let (min, max) = (sizes.iter().min(), sizes.iter().max());
                    assert!(max.zip(min).is_none_or(|(max, min)| max - min <= 1), "{sizes:?}");
                }
            }
        });
    }

    #[test]
    fn a_repeated_assignment_moves_nothing(history in groups(), homogeneous: bool) {
        let (counts, rounds) = &history;
        let repeated: Vec<_> = rounds.iter().flat_map(|round| [round.clone(), round.clone()]).collect();
        let assignors = [Assignor::Range, Assignor::Simple];
        let assignors = assignors.into_iter().chain(homogeneous.then_some(Assignor::Uniform));
        for assignor in assignors {
            let mut last: Option<Vec<Assignment>> = None;
            let mut targets = BTreeMap::new();
            for (at, wanted) in repeated.iter().enumerate() {
                let (names, group) = round(counts, wanted, &targets, homogeneous);
                let assignments = group.assign(assignor, homogeneous);
                if at % 2 == 1 && assignor != Assignor::Simple {
                    prop_assert_eq!(last.as_ref(), Some(&assignments));
                }
                targets = names.into_iter().zip(assignments.iter().map(by_id)).collect();
                last = Some(assignments);
            }
        }
    }

    #[test]
    fn range_gives_contiguous_ranges(history in groups(), homogeneous: bool) {
        play(&history, Assignor::Range, homogeneous, |group, assignments| {
            assert_owned_once(group, assignments);
            for topic in 0..group.topics.len() {
                let mut sizes = Vec::new();
                for (member, assignment) in group.members.iter().zip(assignments) {
                    let own: Vec<_> = assignment.iter().filter(|(at, _)| *at == topic).map(|(_, at)| *at).collect();
                    assert!(own.windows(2).all(|pair| pair[1] == pair[0] + 1), "{own:?}");
                    if member.is_subscribed(topic) {
                        let key = (member.instance_id.is_none(), member.instance_id.clone(), member.id.clone());
                        sizes.push((key, own.len(), own.first().copied()));
                    }
                }
                // In the order of instance ids and member ids, the sizes fall and the starts rise.
                sizes.sort();
                assert!(sizes.windows(2).all(|pair| pair[0].1 >= pair[1].1 && pair[0].1 <= pair[1].1 + 1));
                let starts: Vec<_> = sizes.iter().filter_map(|it| it.2).collect();
                assert!(starts.is_sorted());
            }
        });
    }

    #[test]
    fn simple_shares_evenly(history in groups(), homogeneous: bool) {
        play(&history, Assignor::Simple, homogeneous, |group, assignments| {
            for topic in 0..group.topics.len() {
                let subscribers = group.members.iter().filter(|member| member.is_subscribed(topic)).count();
                let partitions = if homogeneous {
                    group.members[0].subscribed.iter().map(|at| group.topics[*at].partition_count).sum()
                } else {
                    group.topics[topic].partition_count
                };
                let shares_max = if partitions == 0 { 0 } else { subscribers.div_ceil(partitions as usize) };
                let mut shares: BTreeMap<i32, usize> = BTreeMap::new();
                for (_, partition) in assignments.iter().flatten().filter(|(at, _)| *at == topic) {
                    *shares.entry(*partition).or_default() += 1;
                }
                assert!(shares.values().all(|count| *count <= shares_max), "{shares:?} {shares_max}");
                if shares_max == 1 {
                    assert_eq!(shares.len(), group.topics[topic].partition_count as usize, "all are assigned");
                }
            }
            if homogeneous {
                let sizes: Vec<_> = assignments.iter().map(Vec::len).collect();
                let (min, max) = (sizes.iter().min().expect("members"), sizes.iter().max().expect("members"));
                let partitions: i32 = group.members[0].subscribed.iter().map(|at| group.topics[*at].partition_count).sum();
                assert!(partitions < assignments.len() as i32 || max - min <= 1, "{sizes:?}");
            }
        });
    }
}
