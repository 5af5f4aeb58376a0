//! Topics and partitions that a Produce request contains more than once: each is answered once, as in Apache Kafka.
//! For each partition, the last entry that is exactly one batch is appended; the last entry that is not one batch
//! determines the response. A topic without partitions is not answered at all.

use std::collections::{HashMap, HashSet};

use klamm_wire::produce::{ProduceItem, ProduceRequest};
use klamm_wire::topic::TopicRef;

use super::produce::Answered;
use crate::produced::only_batch_len;

/// The entries of a request with repeated partitions that an iteration skips.
pub struct Repeats {
    /// Indexes of partition entries, counted over all topics.
    left_out: HashSet<usize>,
    /// Indexes of entries whose bytes are not one batch.
    malformed: HashSet<usize>,
}

impl Repeats {
    /// `None` if every topic appears once, with partitions that each appear once.
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

    /// Whether the result of this entry takes precedence over that of another entry of the same partition.
    pub fn is_malformed(&self, at: usize) -> bool {
        self.malformed.contains(&at)
    }
}

/// Whether every topic appears once, with partitions that each appear once, as in nearly all requests. A request may
/// contain a hundred partitions with a few records each, so nothing is hashed here.
fn names_each_once(request: &ProduceRequest, body: &[u8]) -> bool {
    if request.topic_count == 1 && request.has_ascending_partitions {
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

/// The results of each topic's partitions, in the order in which topics first appear.
#[derive(Default)]
pub struct ByTopic {
    pub topics: Vec<(TopicRef<'static>, Vec<Answered>)>,
    places: HashMap<TopicRef<'static>, usize>,
}

impl ByTopic {
    /// Adds the result of a partition; if the partition has one already, `is_first` says which of them is kept.
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
