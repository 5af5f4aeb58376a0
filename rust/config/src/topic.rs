//! The keys of a topic, as in Apache Kafka 4.3.1 (`TopicConfig`), and the node's keys that give their defaults.

use super::allowed::Allowed;
use super::key::{
    ConfigKey,
    ConfigType::{self, Boolean, Double, Int, List, Long, String},
    Scope, same, times,
};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

const fn topic(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::Topic, name, value_type)
}

/// Sorted by name.
pub(super) const KEYS: &[ConfigKey] = &[
    topic("cleanup.policy", List)
        .default("delete")
        .allowed(Allowed::ListOf { entries: &["compact", "delete"], may_be_empty: true })
        .synonyms(&[same("log.cleanup.policy")])
        .doc(
            "What happens to old data: `delete` drops old segments, `compact` keeps the last record of each key, \
             both do both; empty keeps everything.",
        ),
    topic("compression.gzip.level", Int)
        .default("-1")
        .allowed(Allowed::GzipLevel)
        .synonyms(&[same("compression.gzip.level")])
        .doc("The gzip level for batches that are recompressed because `compression.type` is gzip."),
    topic("compression.lz4.level", Int)
        .default("9")
        .between(1, 17)
        .synonyms(&[same("compression.lz4.level")])
        .doc("The lz4 level for batches that are recompressed because `compression.type` is lz4."),
    topic("compression.type", String)
        .default("producer")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .synonyms(&[same("compression.type")])
        .doc(
            "How batches are stored. `producer` keeps what the producer chose; any other value converts what \
             differs.",
        ),
    topic("compression.zstd.level", Int)
        .default("3")
        .between(-131072, 22)
        .synonyms(&[same("compression.zstd.level")])
        .doc("The zstd level for batches that are recompressed because `compression.type` is zstd."),
    topic("delete.retention.ms", Long)
        .default("86400000")
        .at_least(0)
        .synonyms(&[same("log.cleaner.delete.retention.ms")])
        .doc("How long a tombstone outlives its compaction, so that a reader that began earlier sees it."),
    topic("file.delete.delay.ms", Long)
        .default("60000")
        .at_least(0)
        .synonyms(&[same("log.segment.delete.delay.ms")])
        .doc("How long the files of a deleted segment stay before they are removed."),
    topic("flush.messages", Long)
        .default("9223372036854775807")
        .at_least(1)
        .synonyms(&[same("log.flush.interval.messages")])
        .doc(
            "The log is flushed at the latest after so many records. What was acknowledged is flushed earlier: \
             see `klamm.flush.before.ack`.",
        ),
    topic("flush.ms", Long)
        .default("9223372036854775807")
        .at_least(0)
        .synonyms(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")])
        .doc("The longest time until the log is flushed."),
    topic("follower.replication.throttled.replicas", List)
        .default("")
        .allowed(Allowed::ThrottledReplicas)
        .doc("The replicas, as partition:broker,..., whose fetches by the follower are throttled; * means all."),
    topic("index.interval.bytes", Int)
        .default("4096")
        .at_least(0)
        .synonyms(&[same("log.index.interval.bytes")])
        .doc("The bytes of log between two entries of an index."),
    topic("internal.segment.bytes", Int)
        .internal()
        .doc("The size at which a segment rolls, without the lower bound of `segment.bytes`; for tests."),
    topic("leader.replication.throttled.replicas", List)
        .default("")
        .allowed(Allowed::ThrottledReplicas)
        .doc("The replicas, as partition:broker,..., to which the leader's sending is throttled; * means all."),
    topic("local.retention.bytes", Long).default("-2").at_least(-2).synonyms(&[same("log.local.retention.bytes")]),
    topic("local.retention.ms", Long).default("-2").at_least(-2).synonyms(&[same("log.local.retention.ms")]),
    topic("max.compaction.lag.ms", Long)
        .default("9223372036854775807")
        .at_least(1)
        .synonyms(&[same("log.cleaner.max.compaction.lag.ms")])
        .doc("The longest time that a record may wait for compaction."),
    topic("max.message.bytes", Int)
        .default("1048588")
        .at_least(0)
        .synonyms(&[same("message.max.bytes")])
        .doc("The largest batch, after compression, that is accepted."),
    topic("message.timestamp.after.max.ms", Long)
        .default("3600000")
        .at_least(0)
        .synonyms(&[same("log.message.timestamp.after.max.ms")])
        .doc("How far a producer's timestamp may lie in the future."),
    topic("message.timestamp.before.max.ms", Long)
        .default("9223372036854775807")
        .at_least(0)
        .synonyms(&[same("log.message.timestamp.before.max.ms")])
        .doc("How far a producer's timestamp may lie in the past."),
    topic("message.timestamp.type", String)
        .default("CreateTime")
        .one_of(&["CreateTime", "LogAppendTime"])
        .synonyms(&[same("log.message.timestamp.type")])
        .doc(
            "Whether a record keeps its producer's time (CreateTime) or gets the time of its append \
             (LogAppendTime).",
        ),
    topic("min.cleanable.dirty.ratio", Double)
        .default("0.5")
        .between(0, 1)
        .synonyms(&[same("log.cleaner.min.cleanable.ratio")])
        .doc("The share of the log that must be dirty before it is compacted."),
    topic("min.compaction.lag.ms", Long)
        .default("0")
        .at_least(0)
        .synonyms(&[same("log.cleaner.min.compaction.lag.ms")])
        .doc("The shortest time that a record stays as it was written."),
    topic("min.insync.replicas", Int)
        .default("1")
        .at_least(1)
        .synonyms(&[same("min.insync.replicas")])
        .doc("The number of in-sync replicas below which a produce with acks=all is refused."),
    topic("preallocate", Boolean)
        .default("false")
        .synonyms(&[same("log.preallocate")])
        .doc("Whether a new segment is given its full size at once."),
    topic("remote.log.copy.disable", Boolean).default("false"),
    topic("remote.log.delete.on.disable", Boolean).default("false"),
    topic("remote.storage.enable", Boolean).default("false"),
    topic("retention.bytes", Long)
        .default("-1")
        .synonyms(&[same("log.retention.bytes")])
        .doc("The size up to which a partition keeps old segments; -1 is no limit."),
    topic("retention.ms", Long)
        .default("604800000")
        .at_least(-1)
        .synonyms(&[
            same("log.retention.ms"),
            times("log.retention.minutes", MINUTE_MS),
            times("log.retention.hours", HOUR_MS),
        ])
        .doc("How long segments are kept; -1 is no limit."),
    topic("segment.bytes", Int)
        .default("1073741824")
        .at_least(1048576)
        .synonyms(&[same("log.segment.bytes")])
        .doc("The size at which a segment rolls."),
    topic("segment.index.bytes", Int)
        .default("10485760")
        .at_least(4)
        .synonyms(&[same("log.index.size.max.bytes")])
        .doc("The largest size of an offset or time index. A segment rolls when one is full."),
    topic("segment.jitter.ms", Long)
        .default("0")
        .at_least(0)
        .synonyms(&[same("log.roll.jitter.ms"), times("log.roll.jitter.hours", HOUR_MS)])
        .doc("The largest random reduction of `segment.ms`, so that logs do not all roll at once."),
    topic("segment.ms", Long)
        .default("604800000")
        .at_least(1)
        .synonyms(&[same("log.roll.ms"), times("log.roll.hours", HOUR_MS)])
        .doc("The age of a segment's first record at which the segment rolls."),
    topic("unclean.leader.election.enable", Boolean)
        .default("false")
        .synonyms(&[same("unclean.leader.election.enable")])
        .doc("Whether a replica that is not in sync may become leader when no other is left, losing records."),
];
