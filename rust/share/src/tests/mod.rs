//! Tests of the core.

mod acknowledging;
mod acquiring;
mod loading;
mod memory;
mod naive;
mod persisting;
mod properties;
mod throttling;
mod timer_wheel;

use crate::{
    AckBatch, AckError, Acquire, AcquireMode, AcquiredRange, Limits, LogBatch, Member, RecordState, SharePartition,
    StateBatch, WriteId,
};

pub const LIMITS: Limits =
    Limits { record_locks_max: 2000, delivery_count: 5, lock_duration_ms: 30_000, is_renew_enabled: true };
pub const NOW: i64 = 1_000_000;

pub fn member(id: &str) -> Member {
    Member::new(id)
}

/// A share partition without history that begins at offset 0.
pub fn fresh() -> SharePartition {
    SharePartition::load(3, 1, 0, &[]).expect("no batch breaks a rule")
}

pub fn batch(first: i64, last: i64) -> LogBatch {
    LogBatch { first, last }
}

pub fn state(first: i64, last: i64, state: RecordState, delivery_count: u16) -> StateBatch {
    StateBatch { first, last, state, delivery_count }
}

/// A fetch of `by` that reads these log batches at the next fetch offset.
pub struct Fetching<'a> {
    pub by: &'a str,
    pub mode: AcquireMode,
    pub batch_size: i64,
    pub records_max: i64,
    pub aborted: &'a [LogBatch],
    pub now_ms: i64,
    pub limits: Limits,
}

pub fn by(by: &str) -> Fetching<'_> {
    let mode = AcquireMode::BatchOptimized;
    Fetching { by, mode, batch_size: 500, records_max: 500, aborted: &[], now_ms: NOW, limits: LIMITS }
}

impl Fetching<'_> {
    /// Acquires from the log batches that a read at the next fetch offset returns.
    pub fn fetch(&self, partition: &mut SharePartition, log: &[LogBatch]) -> Vec<(i64, i64, u16)> {
        let fetch_offset = partition.next_fetch_offset();
        let read: Vec<_> = log.iter().filter(|batch| batch.last >= fetch_offset).copied().collect();
        let acquired = partition.acquire(&Acquire {
            member: &member(self.by),
            mode: self.mode,
            batch_size: self.batch_size,
            records_max: self.records_max,
            fetch_offset,
            batches: &read,
            aborted: self.aborted,
            now_ms: self.now_ms,
            limits: &self.limits,
        });
        partition.check_invariants();
        let counted: i64 = acquired.ranges.iter().map(|range| range.last - range.first + 1).sum();
        assert_eq!(counted, acquired.count);
        acquired
            .ranges
            .iter()
            .map(|AcquiredRange { first, last, delivery_count }| (*first, *last, *delivery_count))
            .collect()
    }
}

/// Acknowledges one range with one type.
pub fn acknowledge(
    partition: &mut SharePartition,
    by: &str,
    first: i64,
    last: i64,
    types: &[u8],
) -> Result<Option<WriteId>, AckError> {
    partition.acknowledge(&member(by), &[AckBatch { first, last, types }], NOW, &LIMITS)
}

/// The share coordinator confirms the next write, whose batches are returned.
pub fn confirm(partition: &mut SharePartition) -> Vec<StateBatch> {
    let write = partition.take_write().expect("something has changed");
    partition.on_written(write.id, true, NOW, &LIMITS);
    partition.check_invariants();
    write.batches
}

pub fn accept(partition: &mut SharePartition, by: &str, first: i64, last: i64) {
    acknowledge(partition, by, first, last, &[1]).expect("acquired by it").expect("it is written");
    confirm(partition);
}

/// A member acquires the records `times` times, and its lock expires each time.
pub fn deliver_without_acknowledgement(partition: &mut SharePartition, log: &[LogBatch], times: usize, limits: Limits) {
    for _ in 0..times {
        Fetching { limits, ..by("gone") }.fetch(partition, log);
        partition.expire(NOW + limits.lock_duration_ms, &limits);
        confirm(partition);
    }
}
