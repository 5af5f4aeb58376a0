//! The topic configuration that a log uses (Apache Kafka's `LogConfig`).

/// Which timestamp a batch carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// Configuration of one log; the defaults are Apache Kafka's. Durations in ms, sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub index_interval_bytes: u32,
    pub segment_index_bytes: u32,
    /// -1: no limit.
    pub retention_ms: i64,
    /// -1: no limit.
    pub retention_bytes: i64,
    pub file_delete_delay_ms: i64,
    pub max_message_bytes: u32,
    pub compact: bool,
    pub delete: bool,
    pub delete_retention_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub preallocate: bool,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// A producer without an open transaction expires after this time (`producer.id.expiration.ms`).
    pub producer_id_expiration_ms: i64,
    /// Everything is flushed immediately, because acknowledgements wait for it (`klamm.flush.before.ack=all`).
    /// Otherwise only rolled segments are flushed, and the operating system writes back the rest, as with Apache
    /// Kafka.
    pub flush_before_ack: bool,
    /// This number of unflushed records triggers a flush (`flush.messages`).
    pub flush_messages: i64,
    /// Unflushed records of this age trigger a flush (`flush.ms`), checked every `log.flush.scheduler.interval.ms`.
    pub flush_ms: i64,
    /// Bytes that are zero-filled ahead of a log that is being flushed; 0 turns it off (klamm's own).
    pub prepare_bytes: u32,
}

impl LogConfig {
    /// The age in ms at which a segment rolls. Only inactive segments can be compacted, so `max.compaction.lag.ms`
    /// bounds the age too.
    pub fn segment_ms_max(&self) -> i64 {
        match self.max_compaction_lag_ms {
            lag_ms if self.compact && lag_ms > 0 => lag_ms.min(self.segment_ms),
            _ => self.segment_ms,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            max_message_bytes: 1_048_588,
            compact: false,
            delete: true,
            delete_retention_ms: DAY_MS,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            preallocate: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            producer_id_expiration_ms: DAY_MS,
            flush_before_ack: true,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            prepare_bytes: 4 << 20,
        }
    }
}
