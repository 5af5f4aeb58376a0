//! The topic configuration that a partition uses.

use std::sync::Arc;

use super::throttles::ThrottledReplicas;
use klamm_config::{ConfigValue, Settings};
use klamm_log::LogConfig;
use klamm_records::{Codec, Compression, ProduceRules, TimestampType};

/// Configuration of one partition: that of its log, and what its leader validates.
#[derive(Clone, Debug)]
pub struct PartitionConfig {
    pub log: Arc<LogConfig>,
    pub min_insync_replicas: usize,
    /// `compression.type` with its level; `None` keeps the producer's codec.
    pub compression: Option<Compression>,
    /// Whether a transactional batch is appended only after its verification
    /// (`transaction.partition.verification.enable`).
    pub verifies_transactions: bool,
    /// Replicas whose leaders are throttled (`leader.replication.throttled.replicas`).
    pub leader_throttled: ThrottledReplicas,
    /// Replicas that are throttled as followers (`follower.replication.throttled.replicas`).
    pub follower_throttled: ThrottledReplicas,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            log: Arc::new(LogConfig::default()),
            min_insync_replicas: 1,
            compression: None,
            verifies_transactions: true,
            leader_throttled: ThrottledReplicas::None,
            follower_throttled: ThrottledReplicas::None,
        }
    }
}

impl PartitionConfig {
    /// Computes a partition's configuration from the node's configuration and the topic's own values by key (topic
    /// configs and their broker synonyms, Apache Kafka's `LogConfig` and `ServerTopicConfigSynonyms`).
    pub fn of_topic(settings: &Settings, own: &dyn Fn(&str) -> Option<String>) -> Self {
        let topic = Topic { settings, own };
        Self {
            log: Arc::new(topic.log()),
            min_insync_replicas: topic.number("min.insync.replicas") as usize,
            compression: topic.compression(),
            verifies_transactions: settings.is_true("transaction.partition.verification.enable"),
            leader_throttled: ThrottledReplicas::of(&topic.text("leader.replication.throttled.replicas")),
            follower_throttled: ThrottledReplicas::of(&topic.text("follower.replication.throttled.replicas")),
        }
    }

    /// The rules that an append at `now_ms` is validated against. A marker is not subject to the topic's limits: refused, it
    /// would leave its transaction open.
    pub fn produce_rules(&self, origin: klamm_log::Origin, now_ms: i64) -> ProduceRules {
        let rules = self.limited_rules(origin, now_ms);
        match origin {
            klamm_log::Origin::Markers { .. } => ProduceRules {
                timestamp_before_max_ms: i64::MAX,
                timestamp_after_max_ms: i64::MAX,
                batch_bytes_max: usize::MAX,
                ..rules
            },
            _ => rules,
        }
    }

    fn limited_rules(&self, origin: klamm_log::Origin, now_ms: i64) -> ProduceRules {
        ProduceRules {
            origin: match origin.is_client() {
                true => klamm_records::Origin::Client,
                false => klamm_records::Origin::Coordinator,
            },
            timestamp_type: match self.log.timestamp_type {
                klamm_log::TimestampType::CreateTime => TimestampType::CreateTime,
                klamm_log::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
            },
            timestamp_before_max_ms: self.log.timestamp_before_max_ms,
            timestamp_after_max_ms: self.log.timestamp_after_max_ms,
            compacted: self.log.compact,
            batch_bytes_max: self.log.max_message_bytes as usize,
            ..ProduceRules::of_client(now_ms)
        }
    }
}

/// The configuration of a topic: its own value, else the node's, else the default.
struct Topic<'a> {
    settings: &'a Settings,
    own: &'a dyn Fn(&str) -> Option<String>,
}

impl Topic<'_> {
    fn get(&self, name: &str) -> ConfigValue {
        self.settings.topic_value(self.own, name).expect("every topic key here has a default")
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name).whole().expect("a numeric key")
    }

    fn text(&self, name: &str) -> String {
        self.get(name).to_string()
    }

    fn log(&self) -> LogConfig {
        let policy = self.text("cleanup.policy");
        let has = |wanted: &str| policy.split(',').any(|word| word.trim() == wanted);
        LogConfig {
            segment_bytes: self.segment_bytes(),
            segment_ms: self.number("segment.ms"),
            segment_jitter_ms: self.number("segment.jitter.ms"),
            index_interval_bytes: self.number("index.interval.bytes") as u32,
            segment_index_bytes: self.number("segment.index.bytes") as u32,
            retention_ms: self.number("retention.ms"),
            retention_bytes: self.number("retention.bytes"),
            file_delete_delay_ms: self.number("file.delete.delay.ms"),
            max_message_bytes: self.number("max.message.bytes") as u32,
            compact: has("compact"),
            delete: has("delete"),
            delete_retention_ms: self.number("delete.retention.ms"),
            min_compaction_lag_ms: self.number("min.compaction.lag.ms"),
            max_compaction_lag_ms: self.number("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio: self.text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            preallocate: self.get("preallocate") == ConfigValue::Boolean(true),
            timestamp_type: match self.text("message.timestamp.type").as_str() {
                "LogAppendTime" => klamm_log::TimestampType::LogAppendTime,
                _ => klamm_log::TimestampType::CreateTime,
            },
            timestamp_before_max_ms: self.number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: self.number("message.timestamp.after.max.ms"),
            producer_id_expiration_ms: self.settings.number("producer.id.expiration.ms"),
            flush_before_ack: self.flush_before_ack(),
            flush_messages: self.number("flush.messages"),
            flush_ms: self.number("flush.ms"),
            prepare_bytes: LogConfig::default().prepare_bytes,
        }
    }

    /// For tests, a topic may have segments that are smaller than Apache Kafka allows.
    fn segment_bytes(&self) -> u32 {
        let internal = self.settings.topic_value(self.own, "internal.segment.bytes");
        internal.as_ref().and_then(ConfigValue::whole).unwrap_or_else(|| self.number("segment.bytes")) as u32
    }

    fn flush_before_ack(&self) -> bool {
        self.settings.text("klamm.flush.before.ack") != "none"
    }

    fn compression(&self) -> Option<Compression> {
        let name = self.text("compression.type");
        let codec = match name.as_str() {
            "producer" => return None,
            "uncompressed" => Codec::None,
            name => Codec::from_name(name)?,
        };
        let level = match codec {
            Codec::Gzip | Codec::Lz4 | Codec::Zstd => Some(self.number(&format!("compression.{}.level", codec.name()))),
            Codec::None | Codec::Snappy => None,
        };
        level.map_or(Some(Compression::of(codec)), |level| Compression::at_level(codec, level as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let values = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Settings::new(values).expect("valid values")
    }

    fn topic(settings: &Settings, pairs: &[(&str, &str)]) -> PartitionConfig {
        let own = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
        PartitionConfig::of_topic(settings, &own)
    }

    #[test]
    fn defaults_are_those_of_the_log() {
        let config = topic(&Settings::default(), &[]);
        assert_eq!(*config.log, LogConfig::default());
        assert_eq!((config.min_insync_replicas, config.compression), (1, None));
    }

    #[test]
    fn the_topic_wins_over_the_node_and_ms_over_hours() {
        let node = settings(&[("log.retention.hours", "2"), ("log.segment.bytes", "2097152")]);
        assert_eq!(topic(&node, &[]).log.retention_ms, 7_200_000);
        assert_eq!(topic(&node, &[("retention.ms", "5")]).log.retention_ms, 5);
        assert_eq!(topic(&node, &[]).log.segment_bytes, 2_097_152);
        let node = settings(&[("log.retention.hours", "2"), ("log.retention.ms", "-1")]);
        assert_eq!(topic(&node, &[]).log.retention_ms, -1);
    }

    #[test]
    fn policies_and_codecs() {
        let config = topic(&Settings::default(), &[("cleanup.policy", "compact,delete"), ("compression.type", "zstd")]);
        assert!(config.log.compact && config.log.delete);
        assert_eq!(config.compression.map(|compression| compression.codec()), Some(Codec::Zstd));
        let config =
            topic(&Settings::default(), &[("cleanup.policy", "compact"), ("compression.type", "uncompressed")]);
        assert!(config.log.compact && !config.log.delete);
        assert_eq!(config.compression.map(|compression| compression.codec()), Some(Codec::None));
    }

    #[test]
    fn a_topic_for_tests_has_small_segments_and_flush_ms_follows_the_nodes_check() {
        let config = topic(&Settings::default(), &[("internal.segment.bytes", "100"), ("segment.bytes", "2097152")]);
        assert_eq!(config.log.segment_bytes, 100);
        let node = settings(&[("log.flush.scheduler.interval.ms", "50")]);
        assert_eq!(topic(&node, &[]).log.flush_ms, 50);
        let node = settings(&[("log.flush.scheduler.interval.ms", "50"), ("log.flush.interval.ms", "70")]);
        assert_eq!((topic(&node, &[]).log.flush_ms, topic(&node, &[("flush.ms", "9")]).log.flush_ms), (70, 9));
    }
}
