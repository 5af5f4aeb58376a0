//! What a node was configured with, and what follows from it for a topic: settings by key, defaults from the table.

use std::collections::HashMap;
use std::sync::Arc;

use klamm_records::{Codec, Compression};

use crate::config::{ConfigError, ConfigKey, ConfigValue, Scope, find, parse_value};
use crate::log::{LogConfig, TimestampType};
use crate::replica::PartitionConfig;

fn whole(value: &ConfigValue) -> Option<i64> {
    match value {
        ConfigValue::Int(number) => Some(*number),
        _ => None,
    }
}

/// Values by key as they were written. Keys that are absent have the table's default.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: HashMap<String, String>,
}

impl Settings {
    /// Checks every value; unknown keys are refused.
    pub fn new(values: HashMap<String, String>) -> Result<Self, ConfigError> {
        for (name, text) in &values {
            crate::config::parse(Scope::Node, name, text)?;
        }
        Ok(Self { values })
    }

    /// The value of a node's key: as set, else its default, else `None`.
    pub fn get(&self, name: &str) -> Option<ConfigValue> {
        let key = find(Scope::Node, name).expect("the engine asks for keys of the table");
        let text = self.values.get(name).map(String::as_str).or(key.default)?;
        Some(parse_value(key, text).expect("values are checked when they are set, defaults by a test"))
    }

    /// A whole number: of a key that always has one.
    pub fn number(&self, name: &str) -> i64 {
        self.get(name).as_ref().and_then(whole).expect("a numeric key with a default")
    }

    /// A truth value: of a key that always has one.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(ConfigValue::Boolean(true))
    }

    /// The value as text; empty when there is none.
    pub fn text(&self, name: &str) -> String {
        self.get(name).map(|value| value.to_string()).unwrap_or_default()
    }

    /// Whether the key was set, not left to its default.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a topic's key: its own, else what the node says, else the default.
    fn topic_value(&self, own: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<ConfigValue> {
        let key = find(Scope::Topic, name).expect("a topic's key of the table");
        if let Some(value) = own(name).and_then(|text| parse_value(key, &text).ok()) {
            return Some(value);
        }
        self.inherited(key).or_else(|| key.default.and_then(|text| parse_value(key, text).ok()))
    }

    fn inherited(&self, key: &'static ConfigKey) -> Option<ConfigValue> {
        key.synonyms.iter().filter(|synonym| self.is_set(synonym.name)).find_map(|synonym| {
            let value = self.get(synonym.name)?;
            match whole(&value) {
                // -1 hours is no limit, as -1 ms is.
                Some(number) if synonym.factor != 1 && number >= 0 => {
                    parse_value(key, &number.saturating_mul(synonym.factor).to_string()).ok()
                }
                _ => parse_value(key, &value.to_string()).ok(),
            }
        })
    }

    /// What the partitions of a topic obey, given its own settings by key (facts 12: topic keys and their synonyms).
    pub fn of_topic(&self, own: &dyn Fn(&str) -> Option<String>) -> PartitionConfig {
        let topic = Topic { settings: self, own };
        PartitionConfig {
            log: Arc::new(topic.log()),
            min_insync_replicas: topic.number("min.insync.replicas") as usize,
            compression: topic.compression(),
        }
    }
}

struct Topic<'a> {
    settings: &'a Settings,
    own: &'a dyn Fn(&str) -> Option<String>,
}

impl Topic<'_> {
    fn get(&self, name: &str) -> ConfigValue {
        self.settings.topic_value(self.own, name).expect("every topic key here has a default")
    }

    fn number(&self, name: &str) -> i64 {
        whole(&self.get(name)).expect("a numeric key")
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
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
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

    /// For tests a topic may have segments that are smaller than Apache Kafka allows.
    fn segment_bytes(&self) -> u32 {
        let internal = self.settings.topic_value(self.own, "internal.segment.bytes");
        internal.as_ref().and_then(whole).unwrap_or_else(|| self.number("segment.bytes")) as u32
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
        settings.of_topic(&own)
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

    #[test]
    fn wrong_values_are_refused() {
        assert!(Settings::new(HashMap::from([("log.segment.bytes".to_owned(), "x".to_owned())])).is_err());
        assert!(Settings::new(HashMap::from([("no.such.key".to_owned(), "x".to_owned())])).is_err());
    }
}
