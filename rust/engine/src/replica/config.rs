//! The topic's settings as its partitions use them.

use std::sync::Arc;

use klamm_records::{Compression, ProduceRules, TimestampType};

use crate::log::{self, LogConfig};

/// Settings of one partition: those of its log, and those that its leader checks.
#[derive(Clone, Debug)]
pub struct PartitionConfig {
    pub log: Arc<LogConfig>,
    pub min_insync_replicas: usize,
    /// `compression.type` with its level; `None` keeps the producer's codec.
    pub compression: Option<Compression>,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self { log: Arc::new(LogConfig::default()), min_insync_replicas: 1, compression: None }
    }
}

impl PartitionConfig {
    /// KIP-966: no more replicas can be asked for than there are.
    pub fn effective_min_isr(&self, replica_count: usize) -> usize {
        self.min_insync_replicas.min(replica_count)
    }

    /// What an append of now is checked against.
    pub fn produce_rules(&self, origin: log::Origin, now_ms: i64) -> ProduceRules {
        ProduceRules {
            origin: match origin {
                log::Origin::Client => klamm_records::Origin::Client,
                _ => klamm_records::Origin::Coordinator,
            },
            timestamp_type: match self.log.timestamp_type {
                log::TimestampType::CreateTime => TimestampType::CreateTime,
                log::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
            },
            timestamp_before_max_ms: self.log.timestamp_before_max_ms,
            timestamp_after_max_ms: self.log.timestamp_after_max_ms,
            compacted: self.log.compact,
            batch_bytes_max: self.log.max_message_bytes as usize,
            ..ProduceRules::of_client(now_ms)
        }
    }
}
