//! The ISR changes of this broker's leaders as AlterPartition requests, and the controller's answers.

use std::sync::Arc;

use klamm_replica::core::IsrAnswer;
use klamm_replica::{AnsweredIsr, IsrChanges, Replicas};
use klamm_wire::alter_partition::{CommittedIsr, ProposedIsr, read_response, write_request};
use parking_lot::Mutex;

/// The most partitions in a request.
const PARTITIONS_MAX: usize = 1_000;

/// One request is in flight at a time.
pub struct IsrUpdates {
    replicas: Arc<Replicas>,
    changes: Mutex<IsrChanges>,
}

impl IsrUpdates {
    pub fn new(replicas: Arc<Replicas>) -> Self {
        Self { replicas, changes: Mutex::default() }
    }

    /// The body of the next AlterPartition v3; `None` while one is in flight, or if there is nothing to propose.
    pub fn next_request(&self, broker_epoch: i64) -> Option<Vec<u8>> {
        let mut changes = self.changes.lock();
        changes.add(self.replicas.changes().isr.take());
        let mut proposed = changes.next_request(PARTITIONS_MAX)?;
        proposed.sort_by_key(|(id, _)| (id.topic_id, id.index));
        let node_id = self.replicas.node_id();
        let proposals = proposed.into_iter().map(|(id, proposal)| ProposedIsr {
            topic_id: id.topic_id,
            index: id.index,
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            members: (proposal.members.iter())
                .map(|member| (member.id, if member.id == node_id { broker_epoch } else { member.broker_epoch }))
                .collect(),
        });
        Some(write_request(node_id, broker_epoch, &proposals.collect::<Vec<_>>()))
    }

    /// Applies the body of the answer; without one, or with a malformed one, the request is sent again.
    pub fn on_response(&self, body: Option<&[u8]>) {
        let partitions = body.and_then(|body| read_response(body).ok()?.ok());
        let answered = partitions.map(|partitions| partitions.into_iter().map(answered).collect());
        self.changes.lock().on_answer(answered);
    }
}

fn answered(committed: CommittedIsr) -> AnsweredIsr {
    let CommittedIsr { topic_id, index, error, leader_epoch, isr, partition_epoch } = committed;
    let result = if error.is_error() { Err(error) } else { Ok(IsrAnswer { leader_epoch, partition_epoch, isr }) };
    AnsweredIsr { topic_id, index, result }
}
