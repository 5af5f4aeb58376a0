//! The ISR changes that this broker's leaders propose, batched for the controller (AlterPartition).
//!
//! One request is in flight at a time: the first change is sent at once, and those that come meanwhile follow together.
//!
//! Source: `DefaultAlterPartitionManager` of Apache Kafka 4.3, KIP-497.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};

use super::core::{IsrAnswer, IsrProposal, Rule};
use super::partition::{Partition, PartitionId};

/// The controller's answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredIsr {
    pub topic_id: Uuid,
    pub index: i32,
    pub result: Result<IsrAnswer, ErrorCode>,
}

/// Changes that wait, and those of the request in flight.
#[derive(Default)]
pub struct IsrChanges {
    waiting: Vec<Arc<Partition>>,
    in_flight: Vec<(Arc<Partition>, IsrProposal)>,
}

impl IsrChanges {
    pub fn add(&mut self, partitions: Vec<Arc<Partition>>) {
        self.waiting.extend(partitions);
    }

    /// The next request, of at most `max` partitions; `None` while one is in flight, or if nothing is to be proposed.
    pub fn next_request(&mut self, max: usize) -> Option<Vec<(PartitionId, IsrProposal)>> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let mut proposed: HashSet<(Uuid, i32)> = HashSet::new();
        let count = self.waiting.len().min(max);
        for partition in self.waiting.drain(..count) {
            // A newer image may have ended the proposal, and a partition may have proposed again meanwhile.
            if let Some(proposal) = partition.pending_isr()
                && proposed.insert((partition.id.topic_id, partition.id.index))
            {
                self.in_flight.push((partition, proposal));
            }
        }
        if self.in_flight.is_empty() && !self.waiting.is_empty() {
            return self.next_request(max);
        }
        let request: Vec<_> = self.in_flight.iter().map(|(at, proposal)| (at.id.clone(), proposal.clone())).collect();
        (!request.is_empty()).then_some(request)
    }

    /// Applies the answer to the request in flight; `None` after a top-level error, or without an answer: all of it is sent
    /// again.
    pub fn on_answer(&mut self, answer: Option<Vec<AnsweredIsr>>) {
        let sent = std::mem::take(&mut self.in_flight);
        let Some(answers) = answer else {
            let repeated = sent.into_iter().map(|(partition, _)| partition);
            self.waiting.extend(repeated.filter(|partition| partition.brokers.keeps(Rule::RepeatProposals)));
            return;
        };
        let mut answers: HashMap<_, _> = answers.into_iter().map(|it| ((it.topic_id, it.index), it.result)).collect();
        for (partition, proposal) in sent {
            // A partition that the controller left out is asked for again.
            let answer = answers.remove(&(partition.id.topic_id, partition.id.index));
            if answer.is_none_or(|answer| partition.on_isr_answer(&proposal, answer.as_ref().map_err(|code| *code))) {
                self.waiting.push(partition);
            }
        }
    }
}
