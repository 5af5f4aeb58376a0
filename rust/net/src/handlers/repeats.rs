//! Topics and partitions that a Produce names more than once: each is answered once, as in Apache Kafka. Of a partition the
//! last of those is appended whose bytes are one batch; where others are not, the last of them is what is answered. A topic
//! without partitions is not answered at all.

use std::collections::{HashMap, HashSet};

use klamm_wire::produce::{ProduceItem, ProduceRequest};
use klamm_wire::topic::TopicRef;

use super::produce::Answered;
use crate::produced::only_batch_len;

/// What a walk over a request that repeats itself has to leave out.
pub struct Repeats {
    /// Numbers of partitions, counted over all topics.
    left_out: HashSet<usize>,
    /// Of those that are named with bytes that are no batch.
    malformed: HashSet<usize>,
}

impl Repeats {
    /// `None` when every topic is named once and has partitions, each of them once.
    pub fn of(request: &ProduceRequest, body: &[u8], version: i16) -> Option<Self> {
        if names_each_once(request, body) { None } else { Some(Self::found(request, body, version)) }
    }

    fn found(request: &ProduceRequest, body: &[u8], version: i16) -> Self {
        let mut walk = request.walk();
        let mut last = HashMap::with_capacity(request.partition_count);
        let (mut left_out, mut malformed) = (HashSet::new(), HashSet::new());
        let (mut current, mut at) = (None, 0);
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { topic, .. } => current = Some(topic),
                ProduceItem::Partition { index, records } => {
                    let is_malformed = records.is_some_and(|range| only_batch_len(&body[range], version).is_err());
                    malformed.extend(is_malformed.then_some(at));
                    left_out.extend(last.insert((current.clone(), index, is_malformed), at));
                    at += 1;
                }
                ProduceItem::TopicEnd => {}
            }
        }
        Self { left_out, malformed }
    }

    pub fn leaves_out(&self, at: usize) -> bool {
        self.left_out.contains(&at)
    }

    /// Whether the answer to this one counts before that to another of the same partition.
    pub fn is_malformed(&self, at: usize) -> bool {
        self.malformed.contains(&at)
    }
}

/// Whether every topic is named once and has partitions, each of them once, as in nearly all requests. A request may name a
/// hundred partitions with a few records each, so nothing is hashed for that.
fn names_each_once(request: &ProduceRequest, body: &[u8]) -> bool {
    if request.topic_count == 1 && request.partition_count == 1 {
        return true;
    }
    let (mut walk, mut topics) = (request.walk(), Vec::new());
    let mut indexes = Vec::with_capacity(request.partition_count);
    while let Some(item) = walk.next(body) {
        match item {
            ProduceItem::Topic { partition_count: 0, .. } => return false,
            ProduceItem::Topic { topic, .. } => topics.push(topic),
            ProduceItem::Partition { index, .. } => indexes.push(index),
            ProduceItem::TopicEnd if has_repeats(&mut indexes) => return false,
            ProduceItem::TopicEnd => indexes.clear(),
        }
    }
    !has_repeats(&mut topics)
}

fn has_repeats<T: Ord>(values: &mut [T]) -> bool {
    let rises = |values: &[T]| values.is_sorted_by(|before, after| before < after);
    !rises(values) && {
        values.sort_unstable();
        !rises(values)
    }
}

/// What became of each topic's partitions, in the order in which topics are named first.
#[derive(Default)]
pub struct ByTopic {
    pub topics: Vec<(TopicRef<'static>, Vec<Answered>)>,
    places: HashMap<TopicRef<'static>, usize>,
}

impl ByTopic {
    /// What became of a partition; of one that has an answer already, `is_first` says which of them is kept.
    pub fn add(&mut self, topic: &TopicRef<'static>, answered: Answered, is_first: bool) {
        let place = *self.places.entry(topic.clone()).or_insert_with(|| {
            self.topics.push((topic.clone(), Vec::new()));
            self.topics.len() - 1
        });
        let partitions = &mut self.topics[place].1;
        match partitions.iter_mut().find(|other| other.index == answered.index) {
            None => partitions.push(answered),
            Some(other) if is_first => *other = answered,
            Some(_) => {}
        }
    }
}
