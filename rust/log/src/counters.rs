//! Counters of the logs: one set for all partitions of a node, one for its metadata log.

use klamm_base::counters::{BusyCounter, Counter, Named};

/// Counters of the logs that share a context.
#[derive(Default)]
pub struct LogCounters {
    pub records: BusyCounter,
    pub bytes: BusyCounter,
    /// Writes, each of one or more batches.
    pub appends: BusyCounter,
    pub flushes: Counter,
    /// Duration of the flushes that requests waited for; one flush of many logs counts once.
    pub flush_us: Counter,
    pub rolls: Counter,
    /// Segments deleted by retention or because the log start offset moved past them.
    pub deleted_segments: Counter,
    pub deleted_bytes: Counter,
    /// Logs that were opened after an unclean stop.
    pub recoveries: Counter,
    pub recovered_bytes: Counter,
    pub truncated_bytes: Counter,
    pub cleanings: Counter,
    pub cleaner_read_bytes: Counter,
    pub cleaner_kept_bytes: Counter,
}

const PARTITIONS: [&str; 14] = [
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
    "klamm.log:type=Log,name=Appends",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    "klamm.log:type=Log,name=FlushTimeUs",
    "klamm.log:type=Log,name=Rolls",
    "klamm.log:type=Log,name=DeletedSegments",
    "klamm.log:type=Log,name=DeletedBytes",
    "klamm.log:type=Log,name=Recoveries",
    "klamm.log:type=Log,name=RecoveredBytes",
    "klamm.log:type=Log,name=TruncatedBytes",
    "klamm.log:type=LogCleaner,name=Rounds",
    "klamm.log:type=LogCleaner,name=ReadBytes",
    "klamm.log:type=LogCleaner,name=KeptBytes",
];

/// Those of the metadata log, which is not cleaned and is checked completely at every start.
const METADATA: [&str; 8] = [
    "klamm.raft:type=MetadataLog,name=Records",
    "klamm.raft:type=MetadataLog,name=Bytes",
    "klamm.raft:type=MetadataLog,name=Appends",
    "klamm.raft:type=MetadataLog,name=Flushes",
    "klamm.raft:type=MetadataLog,name=FlushTimeUs",
    "klamm.raft:type=MetadataLog,name=Rolls",
    "klamm.raft:type=MetadataLog,name=DeletedSegments",
    "klamm.raft:type=MetadataLog,name=DeletedBytes",
];

impl LogCounters {
    /// Named for a node's partitions.
    pub fn of_partitions(&self) -> impl Iterator<Item = Named> {
        named(&PARTITIONS, self.values())
    }

    /// Named for its metadata log.
    pub fn of_metadata(&self) -> impl Iterator<Item = Named> {
        named(&METADATA, self.values())
    }

    /// In the order of the names.
    fn values(&self) -> [u64; PARTITIONS.len()] {
        [
            self.records.get(),
            self.bytes.get(),
            self.appends.get(),
            self.flushes.get(),
            self.flush_us.get(),
            self.rolls.get(),
            self.deleted_segments.get(),
            self.deleted_bytes.get(),
            self.recoveries.get(),
            self.recovered_bytes.get(),
            self.truncated_bytes.get(),
            self.cleanings.get(),
            self.cleaner_read_bytes.get(),
            self.cleaner_kept_bytes.get(),
        ]
    }
}

fn named(names: &'static [&'static str], values: [u64; PARTITIONS.len()]) -> impl Iterator<Item = Named> {
    names.iter().map(|name| (*name).to_owned()).zip(values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::tempdir;

    use super::*;
    use crate::testing::{BatchSpec, batch, config};
    use crate::{Log, LogConfig, LogContext, OpenAt, Origin};

    fn append(log: &mut Log) -> u64 {
        let mut bytes = batch(&BatchSpec { records: 3, ..BatchSpec::default() });
        log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append");
        bytes.len() as u64
    }

    #[test]
    fn each_counter_counts_its_event() {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let context = LogContext::new(8);
        let counters = context.counters.clone();
        let config = Arc::new(LogConfig { retention_bytes: 0, delete: true, ..config() });
        let mut log = Log::create(&path, "t", 0, config.clone(), &context, 0, 0).expect("create");
        let size = append(&mut log);
        append(&mut log);
        assert_eq!([counters.records.get(), counters.bytes.get(), counters.appends.get()], [6, 2 * size, 2]);
        log.roll(6, 0).expect("roll");
        append(&mut log);
        assert_eq!([counters.rolls.get(), counters.deleted_segments.get()], [1, 0]);
        log.delete_expired(6, 0).expect("retention");
        assert_eq!([counters.deleted_segments.get(), counters.deleted_bytes.get()], [1, 2 * size]);
        drop(log);

        let at = |clean| OpenAt { recovery_point: 6, log_start_offset: 6, clean, has_gaps: false, ..OpenAt::default() };
        Log::open(&path, "t", 0, config.clone(), &context, at(true), 0).expect("open");
        assert_eq!(counters.recoveries.get(), 0);
        let active = path.join("00000000000000000006.log");
        let mut torn = std::fs::read(&active).expect("written");
        torn.truncate(size as usize);
        torn.extend_from_slice(b"torn");
        std::fs::write(&active, torn).expect("write");
        Log::open(&path, "t", 0, config, &context, at(false), 0).expect("open");
        assert_eq!(counters.recoveries.get(), 1);
        assert_eq!([counters.recovered_bytes.get() >= size, counters.truncated_bytes.get() == 4], [true; 2]);
    }

    #[test]
    fn every_counter_has_a_unique_name() {
        let counters = LogCounters::default();
        let mut names: Vec<_> = counters.of_partitions().chain(counters.of_metadata()).map(|(name, _)| name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
