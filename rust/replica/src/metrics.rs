//! What a broker's replicas count and what they measure, under the names of Apache Kafka's MBeans.

use std::sync::Arc;

use klamm_base::counters::{Counter, Named, mbean_value};

use super::partition::Partition;
use super::replicas::Replicas;

/// Counters of replication since the start.
#[derive(Default)]
pub struct ReplicaCounters {
    pub isr_shrinks: Counter,
    pub isr_expands: Counter,
    /// Partitions whose proposed ISR the controller refused.
    pub failed_isr_updates: Counter,
    /// Bytes of batches that followers appended.
    pub replication_bytes_in: Counter,
    /// Bytes of batches that were copied to other log directories.
    pub moved_bytes: Counter,
}

impl ReplicaCounters {
    /// An ISR that this broker proposed is committed.
    pub(super) fn isr_changed(&self, before: usize, after: usize) {
        self.isr_shrinks.add(u64::from(after < before));
        self.isr_expands.add(u64::from(after > before));
    }

    /// All of them.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let own = [
            ("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", &self.isr_shrinks),
            ("kafka.server:type=ReplicaManager,name=IsrExpandsPerSec", &self.isr_expands),
            ("kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec", &self.failed_isr_updates),
            ("kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec", &self.replication_bytes_in),
            ("kafka.server:type=AlterLogDirsReplication,name=byte-rate", &self.moved_bytes),
        ];
        own.into_iter().map(|(name, counter)| (name.to_owned(), counter.get()))
    }
}

/// The partitions of a broker, as the image describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Replicas on this broker.
    pub partitions: u64,
    /// Those in a log directory that failed.
    pub offline_replicas: u64,
    /// Partitions that this broker leads, and of these:
    pub leaders: u64,
    /// fewer replicas are in sync than there are without those that a reassignment adds (`isUnderReplicated`),
    pub under_replicated: u64,
    /// fewer replicas than `min.insync.replicas` are in sync,
    pub under_min_isr: u64,
    /// exactly as many are,
    pub at_min_isr: u64,
    /// replicas are being added or removed,
    pub reassigning: u64,
    /// a transaction is open although its coordinator must have ended it.
    pub late_transactions: u64,
    /// Producers of all open logs.
    pub producer_ids: u64,
}

/// How much longer than `transaction.max.timeout.ms` a transaction is open that is late (`ProducerStateManager`).
const LATE_TRANSACTION_BUFFER_MS: i64 = 5 * 60_000;

impl Gauges {
    /// All of them.
    pub fn named(&self) -> impl Iterator<Item = Named> {
        let own = [
            ("PartitionCount", self.partitions),
            ("OfflineReplicaCount", self.offline_replicas),
            ("LeaderCount", self.leaders),
            ("UnderReplicatedPartitions", self.under_replicated),
            ("UnderMinIsrPartitionCount", self.under_min_isr),
            ("AtMinIsrPartitionCount", self.at_min_isr),
            ("ReassigningPartitions", self.reassigning),
            ("PartitionsWithLateTransactionsCount", self.late_transactions),
            ("ProducerIdCount", self.producer_ids),
        ];
        own.into_iter().map(|(name, value)| (format!("kafka.server:type=ReplicaManager,name={name}"), value))
    }
}

impl Replicas {
    /// Visits every partition of the image.
    pub fn gauges(&self) -> Gauges {
        let (image, node_id) = (self.image(), self.node_id());
        let failed = self.logs().dirs().iter().filter(|dir| dir.check_online().is_err());
        let failed: Vec<u32> = failed.filter_map(|dir| image.topics().directory_table().find(dir.id())).collect();
        let mut gauges = Gauges::default();
        for topic in image.topics().iter() {
            let mut min_insync_replicas = None;
            for (_, partition) in topic.partitions() {
                let Some(directory) = partition.directory_of(node_id) else { continue };
                gauges.partitions += 1;
                gauges.offline_replicas += u64::from(failed.contains(&directory));
                if partition.leader() != node_id {
                    continue;
                }
                let (in_sync, replicas) = (partition.isr().len(), partition.replicas().len());
                let least = *min_insync_replicas
                    .get_or_insert_with(|| self.config_of(&image, topic.name()).min_insync_replicas);
                gauges.leaders += 1;
                gauges.under_replicated += u64::from(in_sync < replicas - partition.adding().len());
                gauges.under_min_isr += u64::from(in_sync < least.min(replicas));
                gauges.at_min_isr += u64::from(in_sync == least.min(replicas));
                gauges.reassigning += u64::from(!partition.adding().is_empty() || !partition.removing().is_empty());
            }
        }
        let open_max_ms = self.settings().number("transaction.max.timeout.ms") + LATE_TRANSACTION_BUFFER_MS;
        let late_below = self.wall_ms() - open_max_ms;
        for partition in self.opened() {
            let Some(of_log) = partition.log_gauges() else { continue };
            let is_late = of_log.oldest_txn_timestamp.is_some_and(|timestamp| (1..late_below).contains(&timestamp));
            gauges.late_transactions += u64::from(of_log.is_leader && is_late);
            gauges.producer_ids += of_log.producers as u64;
        }
        gauges
    }

    /// Numbers of each open partition.
    pub fn partition_gauges(&self) -> Vec<Named> {
        let of = |partition: &Arc<Partition>| {
            let lag = partition.log_gauges()?.last_stable_offset_lag;
            let (topic, index) = (mbean_value(&partition.id.topic), partition.id.index);
            let name = format!("kafka.cluster:type=Partition,name=LastStableOffsetLag,topic={topic},partition={index}");
            Some((name, lag))
        };
        self.opened().iter().filter_map(of).collect()
    }
}
