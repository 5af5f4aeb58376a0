//! One fetch session (KIP-227): the partitions that a client fetches, with their last request and their last
//! response.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_wire::fetch::{FetchPartition, FetchResult};

use crate::fetch_read::Sent;

/// A topic by name or by id; all topics of a session use the same kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    Name(Arc<str>),
    Id(Uuid),
}

/// A partition that is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub topic: TopicKey,
    pub partition: FetchPartition,
}

/// The session's state of a partition.
#[derive(Clone, Debug)]
pub struct Cached {
    pub wanted: Wanted,
    /// The high watermark in the last response; -1: include the partition in the next response in any case.
    high_watermark: i64,
    log_start_offset: i64,
}

/// The partitions of a session. Those that had data move to the end, so that none is starved by others.
#[derive(Default)]
pub struct SessionPartitions {
    /// By turn; a turn is never reused.
    by_turn: BTreeMap<u64, Cached>,
    turns: HashMap<(TopicKey, i32), u64>,
    next_turn: u64,
}

/// First epoch of a session, which the response that creates it contains.
const FIRST_EPOCH: i32 = 1;

pub struct Session {
    pub id: i32,
    pub uses_topic_ids: bool,
    /// The epoch that the next request must have.
    pub epoch: i32,
    pub partitions: SessionPartitions,
}

impl Session {
    pub fn new(id: i32, uses_topic_ids: bool, partitions: SessionPartitions) -> Self {
        Self { id, uses_topic_ids, epoch: FIRST_EPOCH, partitions }
    }

    /// Whether a request may use this session.
    pub fn check(&self, epoch: i32, uses_topic_ids: bool) -> Result<(), ErrorCode> {
        if epoch != self.epoch {
            Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH)
        } else if uses_topic_ids != self.uses_topic_ids {
            Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
        } else {
            Ok(())
        }
    }
}

/// The epoch after `epoch`: 0 and negative epochs have special meanings.
pub fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(FIRST_EPOCH)
}

impl SessionPartitions {
    /// Adds a partition, or changes its parameters; then it keeps its turn.
    pub fn want(&mut self, wanted: Wanted) {
        let key = (wanted.topic.clone(), wanted.partition.index);
        match self.turns.get(&key) {
            Some(turn) => {
                let cached = self.by_turn.get_mut(turn).expect("every turn is of a partition");
                cached.wanted.partition = wanted.partition;
            }
            None => {
                let turn = self.take_turn();
                self.turns.insert(key, turn);
                self.by_turn.insert(turn, Cached { wanted, high_watermark: -1, log_start_offset: -1 });
            }
        }
    }

    /// Adds a partition whose `result` is in the response that opens the session.
    pub fn want_sent(&mut self, wanted: Wanted, result: &FetchResult) {
        let key = (wanted.topic.clone(), wanted.partition.index);
        self.want(wanted);
        if let Some(cached) = self.turns.get(&key).and_then(|turn| self.by_turn.get_mut(turn)) {
            cached.record(result);
        }
    }

    pub fn forget(&mut self, topic: &TopicKey, index: i32) {
        if let Some(turn) = self.turns.remove(&(topic.clone(), index)) {
            self.by_turn.remove(&turn);
        }
    }

    pub fn len(&self) -> usize {
        self.by_turn.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// Turn and state of each partition, in reading order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Cached)> {
        self.by_turn.iter().map(|(turn, cached)| (*turn, cached))
    }

    /// Records the partition's result in the response.
    pub fn record(&mut self, turn: u64, result: &FetchResult) {
        let Some(cached) = self.by_turn.get_mut(&turn) else { return };
        cached.record(result);
        if result.records_len > 0
            && let Some(cached) = self.by_turn.remove(&turn)
        {
            let key = (cached.wanted.topic.clone(), cached.wanted.partition.index);
            let last = self.take_turn();
            self.turns.insert(key, last);
            self.by_turn.insert(last, cached);
        }
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

impl Cached {
    /// What the last response said.
    pub fn sent(&self) -> Sent {
        Sent { high_watermark: self.high_watermark, log_start_offset: self.log_start_offset }
    }

    /// Whether the response must include the partition.
    pub fn must_send(&self, result: &FetchResult) -> bool {
        result.records_len > 0
            || result.high_watermark != self.high_watermark
            || result.log_start_offset != self.log_start_offset
            || result.preferred_read_replica != -1
            || result.error.is_error()
            || result.diverging.is_some()
    }

    fn record(&mut self, result: &FetchResult) {
        // After an error the partition is included in the next response in any case.
        self.high_watermark = if result.error.is_error() { -1 } else { result.high_watermark };
        self.log_start_offset = result.log_start_offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn wanted(topic: &str, index: i32, fetch_offset: i64) -> Wanted {
        let partition = FetchPartition {
            index,
            current_leader_epoch: -1,
            fetch_offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: 100,
            replica_directory: Uuid::ZERO,
            high_watermark: i64::MAX,
        };
        Wanted { topic: TopicKey::Name(topic.into()), partition }
    }

    fn result(high_watermark: i64, records_len: usize, error: ErrorCode) -> FetchResult {
        FetchResult { high_watermark, log_start_offset: 0, records_len, error, ..FetchResult::refused(error) }
    }

    fn order(partitions: &SessionPartitions) -> Vec<(i32, i64)> {
        let key = |(_, cached): (u64, &Cached)| (cached.wanted.partition.index, cached.wanted.partition.fetch_offset);
        partitions.iter().map(key).collect()
    }

    #[test]
    fn data_moves_a_partition_to_the_end_and_a_change_does_not() {
        let mut partitions = SessionPartitions::default();
        for index in 0..3 {
            partitions.want(wanted("t", index, 0));
        }
        let first = partitions.iter().next().expect("three").0;
        partitions.record(first, &result(5, 10, ErrorCode::NONE));
        assert_eq!(order(&partitions), [(1, 0), (2, 0), (0, 0)]);
        partitions.want(wanted("t", 1, 7));
        partitions.forget(&TopicKey::Name("t".into()), 2);
        partitions.forget(&TopicKey::Name("other".into()), 0);
        assert_eq!(order(&partitions), [(1, 7), (0, 0)]);
    }

    #[test]
    fn only_changes_are_returned() {
        let mut partitions = SessionPartitions::default();
        partitions.want(wanted("t", 0, 0));
        let mut step = |result: FetchResult, expected: bool| {
            let (turn, cached) = partitions.iter().next().expect("one");
            assert_eq!(cached.must_send(&result), expected, "{result:?}");
            partitions.record(turn, &result);
        };
        step(result(5, 0, ErrorCode::NONE), true);
        step(result(5, 0, ErrorCode::NONE), false);
        step(result(6, 0, ErrorCode::NONE), true);
        step(result(6, 1, ErrorCode::NONE), true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, false);
        step(FetchResult { diverging: Some((1, 2)), log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, true);
        step(result(-1, 0, ErrorCode::NOT_LEADER_OR_FOLLOWER), true);
        step(result(6, 0, ErrorCode::NONE), true);
    }

    #[test]
    fn epochs_wrap_around_without_special_values() {
        assert_eq!(next_epoch(1), 2);
        assert_eq!(next_epoch(i32::MAX), 1);
    }
}
