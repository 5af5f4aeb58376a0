//! How many partitions each broker leads, has in sync and could lead. The counts are updated with every change, so
//! that an election knows when it has seen all partitions of a broker, and a heartbeat needs no search.
use std::collections::BTreeMap;

use crate::partition::Partition;
use crate::records::NO_LEADER;

/// Broker ids below this are looked up by index.
const SMALL_IDS: usize = 4096;

/// The partitions of one broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerCounts {
    pub leaders: u32,
    pub in_sync: u32,
    /// Partitions with the broker among the eligible leader replicas.
    pub eligible: u32,
    pub replicas: u32,
}

/// The partitions of every broker, and of all.
#[derive(Clone, Debug, Default)]
pub struct PartitionCounts {
    /// All partitions.
    pub partitions: u32,
    /// Partitions without a leader.
    pub leaderless: u32,
    /// Partitions whose leader is not the first replica.
    pub imbalanced: u32,
    /// Partitions being reassigned.
    pub reassigning: u32,
    small: Vec<BrokerCounts>,
    large: BTreeMap<i32, BrokerCounts>,
}

impl PartitionCounts {
    /// The partitions of a broker.
    pub fn of(&self, broker_id: i32) -> BrokerCounts {
        match usize::try_from(broker_id) {
            Ok(at) if at < SMALL_IDS => self.small.get(at).copied().unwrap_or_default(),
            _ => self.large.get(&broker_id).copied().unwrap_or_default(),
        }
    }

    /// Adds a partition.
    pub(super) fn add(&mut self, partition: &Partition) {
        self.tally(partition, 1);
    }

    /// Subtracts a partition.
    pub(super) fn subtract(&mut self, partition: &Partition) {
        self.tally(partition, u32::MAX);
    }

    /// Updates the counts for a changed partition. The replicas rarely change and need not be counted again.
    pub(super) fn change(&mut self, before: &Partition, after: &Partition) {
        if before.replicas() != after.replicas() || before.is_unusual() || after.is_unusual() {
            self.subtract(before);
            self.add(after);
            return;
        }
        self.subtract_leader(before);
        self.add_leader(after);
        self.subtract_isr(before);
        self.add_isr(after);
    }

    /// Adds the leader of a partition after only its leader was subtracted.
    #[inline]
    pub(super) fn add_leader(&mut self, partition: &Partition) {
        self.tally_leader(partition, 1);
    }

    /// Subtracts the leader of a partition, which is about to change.
    #[inline]
    pub(super) fn subtract_leader(&mut self, partition: &Partition) {
        self.tally_leader(partition, u32::MAX);
    }

    /// Adds the ISR of a partition after only its ISR was subtracted.
    #[inline]
    pub(super) fn add_isr(&mut self, partition: &Partition) {
        self.tally_isr(partition, 1);
    }

    /// Subtracts the ISR of a partition, which is about to change.
    #[inline]
    pub(super) fn subtract_isr(&mut self, partition: &Partition) {
        self.tally_isr(partition, u32::MAX);
    }

    #[inline]
    fn tally_isr(&mut self, partition: &Partition, step: u32) {
        for &id in partition.isr() {
            let broker = self.broker(id);
            broker.in_sync = broker.in_sync.wrapping_add(step);
        }
    }

    /// `step` is 1, or -1 in two's complement, so that adding and subtracting use the same code.
    fn tally(&mut self, partition: &Partition, step: u32) {
        let count = |counter: &mut u32| *counter = counter.wrapping_add(step);
        count(&mut self.partitions);
        self.tally_leader(partition, step);
        self.tally_isr(partition, step);
        if partition.is_reassigning() {
            count(&mut self.reassigning);
        }
        partition.replicas().iter().for_each(|&id| count(&mut self.broker(id).replicas));
        partition.elr().iter().for_each(|&id| count(&mut self.broker(id).eligible));
    }

    fn tally_leader(&mut self, partition: &Partition, step: u32) {
        let count = |counter: &mut u32| *counter = counter.wrapping_add(step);
        match partition.leader() {
            NO_LEADER => count(&mut self.leaderless),
            leader => count(&mut self.broker(leader).leaders),
        }
        if partition.leader() != partition.preferred_leader() {
            count(&mut self.imbalanced);
        }
    }

    #[inline]
    fn broker(&mut self, broker_id: i32) -> &mut BrokerCounts {
        // A negative id is beyond every length.
        let at = broker_id as usize;
        if at < self.small.len() { &mut self.small[at] } else { self.new_broker(broker_id) }
    }

    #[cold]
    fn new_broker(&mut self, broker_id: i32) -> &mut BrokerCounts {
        match usize::try_from(broker_id) {
            Ok(at) if at < SMALL_IDS => {
                self.small.resize(at + 1, BrokerCounts::default());
                &mut self.small[at]
            }
            _ => self.large.entry(broker_id).or_default(),
        }
    }
}
