//! A group as its assignor sees it, and the assignors by name.
//!
//! Members and topics are numbered. The numbers of topics follow Apache Kafka's order of ids, those of members the
//! order of the caller. An assignment is the sorted list of a member's partitions.
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use klamm_base::Uuid;

use crate::{range, simple, uniform, uniform_heterogeneous};

/// Number of a topic in [`Group::topics`], and a partition of it.
pub type TopicPartition = (usize, i32);

/// The partitions of a member, in ascending order.
pub type Assignment = Vec<TopicPartition>;

/// Apache Kafka's assignors of the group coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignor {
    /// Balanced and sticky; a partition has one owner.
    Uniform,
    /// Contiguous ranges of each topic; a partition has one owner.
    Range,
    /// For share groups: members share partitions when there are more members than partitions.
    Simple,
}

impl Assignor {
    /// By the name in `group.consumer.assignors` and `group.share.assignors`.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::Uniform),
            "range" => Some(Self::Range),
            "simple" => Some(Self::Simple),
            _ => None,
        }
    }
}

/// A member as the coordinator knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub id: String,
    pub instance_id: Option<String>,
    /// Ids of subscribed topics. Topics that the group does not know are ignored.
    pub subscribed: Vec<Uuid>,
    /// Its present target.
    pub target: BTreeMap<Uuid, Vec<i32>>,
}

/// A topic that members subscribe to.
#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    pub id: Uuid,
    pub partition_count: i32,
    /// The partitions that may be assigned, in ascending order; `None`: all.
    pub assignable: Option<Vec<i32>>,
}

/// What an assignor decides about.
///
/// 1. `topics` is in Apache Kafka's order of ids.
/// 2. A member's `subscribed` is in ascending order without repetition.
/// 3. `owned` has only existing partitions of `topics`, in ascending order without repetition.
#[derive(Debug)]
pub struct Group {
    pub topics: Vec<Topic>,
    pub members: Vec<GroupMember>,
}

/// A member with numbers in place of ids.
#[derive(Debug)]
pub struct GroupMember {
    pub id: String,
    pub instance_id: Option<String>,
    pub subscribed: Vec<usize>,
    pub owned: Assignment,
}

impl GroupMember {
    /// Whether it subscribes to a topic.
    pub fn is_subscribed(&self, topic: usize) -> bool {
        self.subscribed.binary_search(&topic).is_ok()
    }
}

impl Group {
    /// Numbers the topics and members. Partitions that do not exist any more are dropped from the targets.
    pub fn new(members: &[Member], mut topics: Vec<Topic>) -> Self {
        topics.sort_by(|left, right| compare_ids(left.id, right.id));
        let numbers: BTreeMap<Uuid, usize> = topics.iter().enumerate().map(|(at, topic)| (topic.id, at)).collect();
        let members = members.iter().map(|member| {
            let subscribed: BTreeSet<usize> =
                member.subscribed.iter().filter_map(|id| numbers.get(id).copied()).collect();
            let owned = member.target.iter().filter_map(|(id, partitions)| Some((*numbers.get(id)?, partitions)));
            let owned = owned.flat_map(|(at, partitions)| partitions.iter().map(move |partition| (at, *partition)));
            let exists = |(at, partition): &TopicPartition| (0..topics[*at].partition_count).contains(partition);
            let owned: BTreeSet<TopicPartition> = owned.filter(exists).collect();
            GroupMember {
                id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                subscribed: subscribed.into_iter().collect(),
                owned: owned.into_iter().collect(),
            }
        });
        let members = members.collect();
        Self { topics, members }
    }

    /// The new assignment of each member. In a homogeneous group all members subscribe to the same topics, which are
    /// those of the first.
    pub fn assign(&self, assignor: Assignor, homogeneous: bool) -> Vec<Assignment> {
        if self.members.is_empty() {
            return Vec::new();
        }
        match (assignor, homogeneous) {
            (Assignor::Range, _) => range::assign(self),
            (Assignor::Uniform, true) => uniform::assign(self, &self.owned_once()),
            (Assignor::Uniform, false) => uniform_heterogeneous::assign(self, &self.owned_once()),
            (Assignor::Simple, true) => simple::assign_homogeneous(self),
            (Assignor::Simple, false) => simple::assign_heterogeneous(self),
        }
    }

    /// What each member owns, where a partition that several own is the first one's.
    fn owned_once(&self) -> Vec<Assignment> {
        let mut taken: Vec<Vec<bool>> =
            self.topics.iter().map(|topic| vec![false; topic.partition_count as usize]).collect();
        let mut is_first =
            |(topic, partition): &TopicPartition| !std::mem::replace(&mut taken[*topic][*partition as usize], true);
        self.members.iter().map(|member| member.owned.iter().copied().filter(&mut is_first).collect()).collect()
    }
}

/// Apache Kafka compares the two halves of an id as signed numbers.
fn compare_ids(left: Uuid, right: Uuid) -> Ordering {
    let halves = |id: Uuid| {
        let number = u128::from_be_bytes(id.0);
        ((number >> 64) as i64, number as i64)
    };
    halves(left).cmp(&halves(right))
}
