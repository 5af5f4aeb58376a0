//! The task assignor of streams groups, "sticky" (KIP-1071; Kafka's `StickyTaskAssignor`).
//!
//! Active tasks stay with their member, or move to a member that has the standby, while that member is below its quota.
//! The others go to the process with the least load, and in it to the member with the fewest tasks. Then standbys are
//! placed in the same way, never twice in a process.
//!
//! Where loads are equal, Kafka's choice depends on the order of its hash maps and on its priority queue. Here the
//! order is that of the ids, and the queue orders equal elements as `java.util.PriorityQueue` does.
use std::cmp::Ordering;

/// A task: an index into the subtopologies, and a partition. Ordered by partition first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    pub partition: u32,
    pub subtopology: usize,
}

/// A subtopology in the order of the ids. Only stateful ones have standbys.
#[derive(Clone, Copy, Debug)]
pub struct Subtopology {
    pub task_count: u32,
    pub is_stateful: bool,
}

/// A member in the order of the ids: its process, an index in the order of their ids, and its present tasks.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub process: usize,
    pub active: Vec<Task>,
    pub standby: Vec<Task>,
}

/// The tasks of a member, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    pub active: Vec<Task>,
    pub standby: Vec<Task>,
}

/// There are tasks, but no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no process is available for {0} active tasks")]
pub struct NoMembers(pub usize);

/// Assigns every task, and up to `standby_replicas` standbys of each stateful one.
pub fn assign(
    subtopologies: &[Subtopology],
    members: &[Member],
    standby_replicas: u32,
) -> Result<Vec<Assigned>, NoMembers> {
    let tasks: Vec<Task> = tasks_of(subtopologies, |_| true);
    if members.is_empty() && !tasks.is_empty() {
        return Err(NoMembers(tasks.len()));
    }
    let mut assignment = Assignment::new(subtopologies, members, &tasks, standby_replicas);
    assignment.assign_active(tasks);
    if standby_replicas > 0 {
        assignment.assign_standbys(tasks_of(subtopologies, |one| one.is_stateful), standby_replicas);
    }
    let mut assigned = assignment.assigned;
    for one in &mut assigned {
        one.active.sort_unstable();
        one.standby.sort_unstable();
    }
    Ok(assigned)
}

fn tasks_of(subtopologies: &[Subtopology], filter: impl Fn(&Subtopology) -> bool) -> Vec<Task> {
    let chosen = subtopologies.iter().enumerate().filter(|(_, one)| filter(one));
    chosen
        .flat_map(|(subtopology, one)| (0..one.task_count).map(move |partition| Task { partition, subtopology }))
        .collect()
}

/// How many tasks a member may get; members that have reached it no longer count.
struct Quota {
    tasks: i64,
    members: i64,
    per_member: i64,
}

impl Quota {
    fn new(tasks: i64, members: i64) -> Self {
        let per_member = if members == 0 { 0 } else { (tasks + members - 1) / members };
        Self { tasks, members, per_member }
    }

    fn on_task_added(&mut self, count: i64) {
        if count == self.per_member {
            *self = Self::new(self.tasks - count, self.members - 1);
        }
    }
}

#[derive(Default)]
struct Process {
    members: Vec<usize>,
    task_count: u32,
    /// The members by their number of tasks; rebuilt after a task was given to a chosen member.
    by_load: Option<Queue<i64>>,
}

impl Process {
    fn load(&self) -> f64 {
        f64::from(self.task_count) / self.members.len() as f64
    }
}

struct Assignment {
    first_task: Vec<usize>,
    previous_active: Vec<Option<usize>>,
    previous_standbys: Vec<Vec<usize>>,
    process_of: Vec<usize>,
    processes: Vec<Process>,
    /// The processes that have a task, in any role.
    processes_with: Vec<Vec<usize>>,
    task_counts: Vec<i64>,
    active_quota: Quota,
    quota: Quota,
    assigned: Vec<Assigned>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Active,
    Standby,
}

impl Assignment {
    fn new(subtopologies: &[Subtopology], members: &[Member], tasks: &[Task], standby_replicas: u32) -> Self {
        let mut first_task = Vec::with_capacity(subtopologies.len());
        let (mut count, mut standby_count) = (0, 0);
        for one in subtopologies {
            first_task.push(count);
            count += one.task_count as usize;
            standby_count += if one.is_stateful { i64::from(one.task_count) * i64::from(standby_replicas) } else { 0 };
        }
        let process_count = members.iter().map(|one| one.process + 1).max().unwrap_or(0);
        let mut assignment = Self {
            first_task,
            previous_active: vec![None; count],
            previous_standbys: vec![Vec::new(); count],
            process_of: members.iter().map(|one| one.process).collect(),
            processes: (0..process_count).map(|_| Process::default()).collect(),
            processes_with: vec![Vec::new(); count],
            task_counts: vec![0; members.len()],
            active_quota: Quota::new(tasks.len() as i64, members.len() as i64),
            quota: Quota::new(tasks.len() as i64 + standby_count, members.len() as i64),
            assigned: vec![Assigned::default(); members.len()],
        };
        let exists =
            |task: &&Task| subtopologies.get(task.subtopology).is_some_and(|one| task.partition < one.task_count);
        for (member, one) in members.iter().enumerate() {
            assignment.processes[one.process].members.push(member);
            for task in one.active.iter().filter(exists) {
                let index = assignment.index(*task);
                assignment.previous_active[index] = Some(member);
            }
            for task in one.standby.iter().filter(exists) {
                let index = assignment.index(*task);
                assignment.previous_standbys[index].push(member);
            }
        }
        assignment
    }

    fn index(&self, task: Task) -> usize {
        self.first_task[task.subtopology] + task.partition as usize
    }

    fn has_task(&self, process: usize, task: Task) -> bool {
        self.processes_with[self.index(task)].contains(&process)
    }

    fn add(&mut self, member: usize, task: Task, role: Role) -> i64 {
        let process = self.process_of[member];
        let index = self.index(task);
        self.processes_with[index].push(process);
        self.processes[process].task_count += 1;
        let assigned = &mut self.assigned[member];
        if role == Role::Active {
            assigned.active.push(task)
        } else {
            assigned.standby.push(task)
        }
        self.task_counts[member] += 1;
        self.task_counts[member]
    }

    /// Gives a task to a chosen member.
    fn add_to(&mut self, member: usize, task: Task, role: Role) {
        self.processes[self.process_of[member]].by_load = None;
        let count = self.add(member, task, role);
        self.on_added(count, role);
    }

    /// Gives a task to the member of a process that has the fewest.
    fn add_to_process(&mut self, process: usize, task: Task, role: Role) {
        let count = if let [only] = self.processes[process].members[..] {
            self.add(only, task, role)
        } else {
            let mut by_load = match self.processes[process].by_load.take() {
                Some(queue) => queue,
                None => self.members_by_load(process),
            };
            let member = by_load.pop().expect("a process has members");
            let count = self.add(member, task, role);
            by_load.push(count, member);
            self.processes[process].by_load = Some(by_load);
            count
        };
        self.on_added(count, role);
    }

    fn on_added(&mut self, count: i64, role: Role) {
        if role == Role::Active {
            self.active_quota.on_task_added(count);
        }
        self.quota.on_task_added(count);
    }

    fn members_by_load(&self, process: usize) -> Queue<i64> {
        let mut queue = Queue::default();
        for &member in &self.processes[process].members {
            queue.push(self.task_counts[member], member);
        }
        queue
    }

    fn by_load(&self) -> Queue<f64> {
        let mut queue = Queue::default();
        for (process, one) in self.processes.iter().enumerate() {
            queue.push(one.load(), process);
        }
        queue
    }

    fn assign_active(&mut self, mut tasks: Vec<Task>) {
        // By partition first: tasks with the same partition probably belong together.
        tasks.sort_unstable();
        tasks.retain(|&task| {
            let previous = self.previous_active[self.index(task)];
            let Some(member) = previous.filter(|&one| self.task_counts[one] < self.active_quota.per_member) else {
                return true;
            };
            self.add_to(member, task, Role::Active);
            false
        });
        tasks.retain(|&task| {
            let previous = self.least_loaded_standby(task, false);
            let Some(member) = previous.filter(|&one| self.task_counts[one] < self.active_quota.per_member) else {
                return true;
            };
            self.add_to(member, task, Role::Active);
            false
        });
        tasks.sort_unstable_by_key(|task| (task.subtopology, task.partition));
        let mut by_load = self.by_load();
        for task in tasks {
            let process = by_load.pop().expect("there are members");
            self.add_to_process(process, task, Role::Active);
            by_load.push(self.processes[process].load(), process);
        }
    }

    /// The member with a standby of the task that has the least load; if `is_new`, the process must not have the task.
    ///
    /// As in Kafka the last condition is not checked of the chosen process but of the first one.
    fn least_loaded_standby(&self, task: Task, is_new: bool) -> Option<usize> {
        let members = &self.previous_standbys[self.index(task)];
        let (&first, others) = members.split_first()?;
        let load = |member: usize| self.processes[self.process_of[member]].load();
        let (mut chosen, mut process_load, mut count) = (first, load(first), self.task_counts[first]);
        for &member in others {
            let is_possible = !is_new || !self.has_task(self.process_of[member], task);
            if load(member) < process_load && is_possible && self.task_counts[member] < count {
                (chosen, process_load, count) = (member, load(member), self.task_counts[member]);
            }
        }
        (!is_new || !self.has_task(self.process_of[first], task)).then_some(chosen)
    }

    fn assign_standbys(&mut self, mut tasks: Vec<Task>, replicas: u32) {
        tasks.sort_unstable();
        tasks.reverse();
        let mut left = Vec::new();
        for task in tasks {
            for replica in 0..replicas {
                let Some(member) = self.previous_owner(task) else {
                    left.push((task, replicas - replica));
                    break;
                };
                self.add_to(member, task, Role::Standby);
            }
        }
        left.sort_unstable_by_key(|(task, _)| (task.subtopology, task.partition));
        let mut by_load = self.by_load();
        for (task, missing) in left.into_iter().rev() {
            for _ in 0..missing {
                if !self.add_standby(&mut by_load, task) {
                    break; // every process has the task
                }
            }
        }
    }

    /// A member below its quota that had the task, in a process that does not have it.
    fn previous_owner(&self, task: Task) -> Option<usize> {
        let has_room = |member: &usize| self.task_counts[*member] < self.quota.per_member;
        let active = self.previous_active[self.index(task)];
        let active = active.filter(|&member| !self.has_task(self.process_of[member], task));
        active.filter(has_room).or_else(|| self.least_loaded_standby(task, true).filter(has_room))
    }

    /// Gives a standby to the process with the least load that does not have the task; false if all have it.
    fn add_standby(&mut self, by_load: &mut Queue<f64>, task: Task) -> bool {
        let mut taken = Vec::new();
        let mut is_found = false;
        while let Some(process) = by_load.pop() {
            taken.push(process);
            if !self.has_task(process, task) {
                self.add_to_process(process, task, Role::Standby);
                is_found = true;
                break;
            }
        }
        for process in taken.into_iter().rev() {
            by_load.push(self.processes[process].load(), process);
        }
        is_found
    }
}

/// A binary heap with the smallest key first, and with the order of `java.util.PriorityQueue` among equal keys.
struct Queue<K> {
    items: Vec<(K, usize)>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<K: PartialOrd + Copy> Queue<K> {
    fn push(&mut self, key: K, item: usize) {
        let mut at = self.items.len();
        self.items.push((key, item));
        while at > 0 {
            let parent = (at - 1) / 2;
            if compare(key, self.items[parent].0) != Ordering::Less {
                break;
            }
            self.items.swap(at, parent);
            at = parent;
        }
    }

    fn pop(&mut self) -> Option<usize> {
        if self.items.is_empty() {
            return None;
        }
        let (_, first) = self.items.swap_remove(0);
        let count = self.items.len();
        let mut at = 0;
        while 2 * at + 1 < count {
            let mut child = 2 * at + 1;
            if child + 1 < count && compare(self.items[child].0, self.items[child + 1].0) == Ordering::Greater {
                child += 1;
            }
            if compare(self.items[at].0, self.items[child].0) != Ordering::Greater {
                break;
            }
            self.items.swap(at, child);
            at = child;
        }
        Some(first)
    }
}

fn compare<K: PartialOrd>(first: K, second: K) -> Ordering {
    first.partial_cmp(&second).expect("loads are numbers")
}
