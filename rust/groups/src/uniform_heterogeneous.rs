//! The uniform assignor for members with different subscriptions (Apache Kafka's
//! `UniformHeterogeneousAssignmentBuilder`).
//!
//! Members keep what they own of the topics to which they subscribe. Free partitions go to the subscriber with the
//! smallest total, and then partitions move from the most to the least loaded subscribers of each topic, in at most 16
//! rounds over all topics.
use std::cmp::Ordering;

use crate::assignment::{Assignment, Group};

const ROUNDS_MAX: usize = 16;

pub fn assign(group: &Group, owned: &[Assignment]) -> Vec<Assignment> {
    let mut state = State::new(group, owned);
    state.assign_free();
    state.balance();
    state.assignments()
}

struct State<'a> {
    group: &'a Group,
    /// The subscribers of each topic, in ascending order.
    subscribers: Vec<Vec<usize>>,
    /// The member that has each partition of each topic.
    owners: Vec<Vec<Option<usize>>>,
    /// The number of partitions of each member.
    sizes: Vec<usize>,
}

impl<'a> State<'a> {
    fn new(group: &'a Group, owned: &[Assignment]) -> Self {
        let mut subscribers = vec![Vec::new(); group.topics.len()];
        let mut owners: Vec<Vec<Option<usize>>> =
            group.topics.iter().map(|topic| vec![None; topic.partition_count as usize]).collect();
        let mut sizes = vec![0; group.members.len()];
        for (number, member) in group.members.iter().enumerate() {
            for topic in &member.subscribed {
                subscribers[*topic].push(number);
            }
            for (topic, partition) in owned[number].iter().filter(|(topic, _)| member.is_subscribed(*topic)) {
                owners[*topic][*partition as usize] = Some(number);
                sizes[number] += 1;
            }
        }
        Self { group, subscribers, owners, sizes }
    }

    fn assign_free(&mut self) {
        let has_free = |topic: &usize| !self.subscribers[*topic].is_empty() && self.owners[*topic].contains(&None);
        for topic in self.sorted((0..self.owners.len()).filter(has_free).collect()) {
            let mut loads = Loads::new(&self.subscribers[topic], &self.sizes);
            for partition in 0..self.owners[topic].len() {
                if self.owners[topic][partition].is_none() {
                    let member = loads.next_least(&self.sizes);
                    self.move_to(topic, partition, member);
                }
            }
        }
    }

    /// Repeats a round over the topics until none of a whole round could be improved.
    fn balance(&mut self) {
        let shared = (0..self.owners.len()).filter(|topic| self.subscribers[*topic].len() >= 2);
        let topics = self.sorted(shared.collect());
        let mut last_improved = None;
        for _ in 0..ROUNDS_MAX {
            for topic in &topics {
                if last_improved == Some(*topic) {
                    return;
                }
                let improved = self.balance_topic(*topic);
                if improved || last_improved.is_none() {
                    last_improved = Some(*topic);
                }
            }
        }
    }

    /// Moves partitions of a topic between its subscribers; returns whether it moved any.
    fn balance_topic(&mut self, topic: usize) -> bool {
        let mut loads = Loads::new(&self.subscribers[topic], &self.sizes);
        if loads.is_flat(&self.sizes) {
            return false;
        }
        let mut movable: Vec<Vec<usize>> = vec![Vec::new(); self.group.members.len()];
        for (partition, owner) in self.owners[topic].iter().enumerate() {
            if let Some(owner) = owner {
                movable[*owner].push(partition);
            }
        }
        let mut moved = false;
        while !loads.is_balanced() {
            let partition = loop {
                let Some(most) = loads.next_most(&self.sizes) else { return moved };
                match movable[most].pop() {
                    Some(partition) => break partition,
                    None => loads.exclude_most(),
                }
            };
            let least = loads.next_least(&self.sizes);
            if loads.is_balanced() {
                break;
            }
            self.move_to(topic, partition, least);
            moved = true;
        }
        moved
    }

    fn move_to(&mut self, topic: usize, partition: usize, member: usize) {
        if let Some(owner) = self.owners[topic][partition].replace(member) {
            self.sizes[owner] -= 1;
        }
        self.sizes[member] += 1;
    }

    /// By partitions for each subscriber, descending; then by subscribers, ascending; then by id.
    fn sorted(&self, mut topics: Vec<usize>) -> Vec<usize> {
        let subscribers = |topic: usize| self.subscribers[topic].len();
        let density = |topic: usize| self.owners[topic].len() as f64 / subscribers(topic) as f64;
        topics.sort_by(|left, right| {
            let by_density = density(*right).partial_cmp(&density(*left)).unwrap_or(Ordering::Equal);
            by_density.then(subscribers(*left).cmp(&subscribers(*right))).then(left.cmp(right))
        });
        topics
    }

    fn assignments(&self) -> Vec<Assignment> {
        let mut assignments: Vec<Assignment> = self.sizes.iter().map(|size| Vec::with_capacity(*size)).collect();
        for (topic, owners) in self.owners.iter().enumerate() {
            for (partition, owner) in owners.iter().enumerate() {
                if let Some(owner) = owner {
                    assignments[*owner].push((topic, partition as i32));
                }
            }
        }
        assignments
    }
}

/// The subscribers of a topic by load, with a range of the least loaded ones, which grows to the right, and one of the
/// most loaded ones, which grows to the left. The members of a range take turns; after a turn of all, their load has
/// changed by one, and the range takes in the members that have that load already.
///
/// It remembers the loads of both ranges; those of members that it has not reached yet are read from the sizes, which
/// only this walk changes.
struct Loads {
    members: Vec<usize>,
    least_end: usize,
    least_load: i64,
    least_next: usize,
    most_start: usize,
    most_end: usize,
    most_load: i64,
    /// The next of the most loaded members is the one before this.
    most_next: usize,
}

impl Loads {
    fn new(subscribers: &[usize], sizes: &[usize]) -> Self {
        let mut members = subscribers.to_vec();
        members.sort_by_key(|member| (sizes[*member], *member));
        let (first, last) = (members[0], members[members.len() - 1]);
        let count = members.len();
        Self {
            members,
            least_end: 0,
            least_load: sizes[first] as i64 - 1,
            least_next: 0,
            most_start: count,
            most_end: count,
            most_load: sizes[last] as i64 + 1,
            most_next: count,
        }
    }

    /// Whether the loads differ by one at most.
    fn is_flat(&self, sizes: &[usize]) -> bool {
        sizes[self.members[self.members.len() - 1]] - sizes[self.members[0]] <= 1
    }

    fn is_balanced(&self) -> bool {
        self.most_load - self.least_load <= 1
    }

    fn load(&self, at: usize, sizes: &[usize]) -> i64 {
        sizes[self.members[at]] as i64
    }

    fn next_least(&mut self, sizes: &[usize]) -> usize {
        if self.least_next >= self.least_end {
            self.least_load += 1;
            while self.least_end < self.members.len() && self.load(self.least_end, sizes) == self.least_load {
                self.least_end += 1;
            }
            self.least_next = 0;
        }
        self.least_next += 1;
        self.members[self.least_next - 1]
    }

    /// `None`: no member is left that may give up a partition.
    fn next_most(&mut self, sizes: &[usize]) -> Option<usize> {
        if self.most_next <= self.most_start {
            if self.most_end <= self.most_start && self.most_start > 0 {
                // All members of the range were excluded.
                self.most_load = self.load(self.most_start - 1, sizes);
            } else {
                self.most_load -= 1;
            }
            while self.most_start > 0 && self.load(self.most_start - 1, sizes) == self.most_load {
                self.most_start -= 1;
            }
            self.most_next = self.most_end;
        }
        self.most_next = self.most_next.checked_sub(1)?;
        Some(self.members[self.most_next])
    }

    /// Takes the member of the last [`Self::next_most`] out of the range.
    fn exclude_most(&mut self) {
        self.members.swap(self.most_next, self.most_end - 1);
        self.most_end -= 1;
    }
}
