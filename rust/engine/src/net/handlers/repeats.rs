//! Partitions that a Produce names more than once: the last one counts, as in Apache Kafka, and only that is answered.

use std::collections::{HashMap, HashSet};

use crate::wire::produce::{ProduceItem, ProduceRequest};

/// What a walk over the request has to leave out.
#[derive(Default)]
pub struct Repeats {
    /// Numbers of partitions, counted over all topics.
    left_out: HashSet<usize>,
    /// Topics of which nothing is left.
    empty_topics: usize,
}

impl Repeats {
    /// Looks through a request; one partition alone needs no look.
    pub fn of(request: &ProduceRequest, body: &[u8]) -> Self {
        let (mut walk, mut named, mut counts) = (request.walk(), Vec::new(), Vec::new());
        let mut current = None;
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { partition_count: 1, .. } if request.topic_count == 1 => return Self::default(),
                ProduceItem::Topic { topic, partition_count } => {
                    counts.push(partition_count);
                    current = Some(topic);
                }
                ProduceItem::Partition { index, .. } => named.push((current.clone(), index)),
                ProduceItem::TopicEnd => {}
            }
        }
        let mut last = HashMap::with_capacity(named.len());
        let left_out: HashSet<usize> =
            named.iter().enumerate().filter_map(|(at, name)| last.insert(name, at)).collect();
        let mut repeats = Self { left_out, empty_topics: 0 };
        let mut first = 0;
        for count in counts {
            repeats.empty_topics += usize::from(count > 0 && repeats.left_of(first, count) == 0);
            first += count;
        }
        repeats
    }

    /// How many topics are left.
    pub fn topics_left(&self, request: &ProduceRequest) -> usize {
        request.topic_count - self.empty_topics
    }

    /// How many of the `count` partitions from number `first` on are left.
    pub fn left_of(&self, first: usize, count: usize) -> usize {
        match self.left_out.is_empty() {
            true => count,
            false => (first..first + count).filter(|at| !self.left_out.contains(at)).count(),
        }
    }

    pub fn leaves_out(&self, at: usize) -> bool {
        !self.left_out.is_empty() && self.left_out.contains(&at)
    }
}
