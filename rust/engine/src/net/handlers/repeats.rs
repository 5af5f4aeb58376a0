//! Topics and partitions that a Produce names more than once: of a partition the last one counts, and each topic is
//! answered once, as in Apache Kafka. A topic without partitions is not answered at all.

use std::collections::{HashMap, HashSet};

use super::produce::Answered;
use crate::wire::produce::{ProduceItem, ProduceRequest};
use crate::wire::topic::TopicRef;

/// What a walk over a request that repeats itself has to leave out.
pub struct Repeats {
    /// Numbers of partitions, counted over all topics.
    left_out: HashSet<usize>,
}

impl Repeats {
    /// `None` when every topic is named once and has partitions, each of them once.
    pub fn of(request: &ProduceRequest, body: &[u8]) -> Option<Self> {
        if request.topic_count == 1 && request.partition_count == 1 {
            return None;
        }
        let (mut walk, mut topics) = (request.walk(), HashSet::with_capacity(request.topic_count));
        let mut last = HashMap::with_capacity(request.partition_count);
        let mut left_out = HashSet::new();
        let (mut current, mut at, mut is_plain) = (None, 0, true);
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { topic, partition_count } => {
                    is_plain &= partition_count > 0 && topics.insert(topic.clone());
                    current = Some(topic);
                }
                ProduceItem::Partition { index, .. } => {
                    left_out.extend(last.insert((current.clone(), index), at));
                    at += 1;
                }
                ProduceItem::TopicEnd => {}
            }
        }
        (!is_plain || !left_out.is_empty()).then_some(Self { left_out })
    }

    pub fn leaves_out(&self, at: usize) -> bool {
        self.left_out.contains(&at)
    }
}

/// What became of each topic's partitions, in the order in which topics are named first.
#[derive(Default)]
pub struct ByTopic {
    pub topics: Vec<(TopicRef<'static>, Vec<Answered>)>,
    places: HashMap<TopicRef<'static>, usize>,
}

impl ByTopic {
    pub fn add(&mut self, topic: &TopicRef<'static>, answered: Answered) {
        let place = *self.places.entry(topic.clone()).or_insert_with(|| {
            self.topics.push((topic.clone(), Vec::new()));
            self.topics.len() - 1
        });
        self.topics[place].1.push(answered);
    }
}
