//! One fetch session (KIP-227): the partitions that a client fetches, with their last request and their last
//! response.
//!
//! A fetch visits the partitions that are due; the others are quiet, and become due when they change. A quiet partition has the
//! session's entry, and none that is due has it. So a fetch costs in proportion to what changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use imbl::OrdMap;
use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::cluster::BrokerRegistration;
use klamm_replica::{Change, FetchWaiter, SessionEntry, SessionNews};
use klamm_wire::fetch::{FetchPartition, FetchResult};

use crate::backend::Partition;
use crate::fetch_read::{ReadBy, Sent};

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
pub struct Cached {
    pub wanted: Wanted,
    /// The high watermark in the last response; -1: include the partition in the next response in any case.
    high_watermark: i64,
    log_start_offset: i64,
    /// Its place in the order of visits.
    turn: u64,
    /// The number of its visits, so that a change that an earlier entry noticed is known as such.
    visits: u64,
    /// Where the session's entry is while the partition is quiet.
    quiet_on: Option<Weak<dyn Partition>>,
}

/// The partitions of a session. Those that had data move to the end, so that none is starved by others.
#[derive(Default)]
pub struct SessionPartitions {
    by_number: HashMap<u64, Cached>,
    numbers: HashMap<(TopicKey, i32), u64>,
    /// Numbers of the partitions that are not quiet, by turn.
    due: BTreeMap<u64, u64>,
    /// The last number or turn that was given out; none is reused.
    last: u64,
    news: Arc<SessionNews>,
    /// Empty between uses; it keeps its memory.
    changed: Vec<Change>,
}

/// First epoch of a session, which the response that creates it contains.
const FIRST_EPOCH: i32 = 1;

pub struct Session {
    pub id: i32,
    pub uses_topic_ids: bool,
    /// The epoch that the next request must have.
    pub epoch: i32,
    pub partitions: SessionPartitions,
    /// What the last fetch depended on besides its partitions.
    by: Option<ReadBy>,
    brokers: OrdMap<i32, Arc<BrokerRegistration>>,
}

impl Session {
    pub fn new(id: i32, uses_topic_ids: bool, partitions: SessionPartitions) -> Self {
        Self { id, uses_topic_ids, epoch: FIRST_EPOCH, partitions, by: None, brokers: OrdMap::new() }
    }

    /// A fetch begins, after its changes of the partitions. A follower's counts for all quiet partitions.
    pub fn begin_fetch(&mut self, by: ReadBy, image: &MetadataImage, now_ms: i64) {
        self.see_brokers(image);
        if self.by.as_ref() != Some(&by) {
            self.partitions.visit_all();
        }
        if by.is_follower() {
            self.partitions.news.on_fetch(now_ms);
        }
        self.by = Some(by);
    }

    /// Every response may depend on the brokers: on the follower's epoch, and on live brokers in the consumer's rack.
    pub fn see_brokers(&mut self, image: &MetadataImage) {
        if !self.brokers.ptr_eq(image.brokers()) {
            self.partitions.visit_all();
            self.brokers = image.brokers().clone();
        }
    }

    /// Whether a request may use this session. Without an `epoch` every epoch is accepted.
    pub fn check(&self, epoch: Option<i32>, uses_topic_ids: bool) -> Result<(), ErrorCode> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
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
        if let Some(&number) = self.numbers.get(&key) {
            self.end_quiet(number);
            let cached = self.cached(number);
            // A follower names what it knows (KIP-1166), which is less if it could not use a response.
            cached.high_watermark = cached.high_watermark.min(wanted.partition.high_watermark);
            cached.wanted.partition = wanted.partition;
            return;
        }
        let number = self.next();
        self.numbers.insert(key, number);
        let cached =
            Cached { wanted, high_watermark: -1, log_start_offset: -1, turn: number, visits: 0, quiet_on: None };
        self.by_number.insert(number, cached);
        self.due.insert(number, number);
        self.news.reserve(self.by_number.len());
    }

    /// Adds a partition whose `result` is in the response that opens the session.
    pub fn want_sent(&mut self, wanted: Wanted, result: &FetchResult) {
        let key = (wanted.topic.clone(), wanted.partition.index);
        self.want(wanted);
        let number = self.numbers[&key];
        self.cached(number).record(result);
    }

    pub fn forget(&mut self, topic: &TopicKey, index: i32) {
        if let Some(number) = self.numbers.remove(&(topic.clone(), index)) {
            self.end_quiet(number);
            if let Some(cached) = self.by_number.remove(&number) {
                self.due.remove(&cached.turn);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// The number of quiet partitions.
    pub fn quiet_len(&self) -> usize {
        self.by_number.len() - self.due.len()
    }

    /// All partitions with their parameters.
    pub fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.by_number.values().map(|cached| &cached.wanted)
    }

    /// The numbers of the partitions to visit, in order.
    pub fn due(&mut self) -> Vec<u64> {
        let mut changed = std::mem::take(&mut self.changed);
        self.news.take(&mut changed);
        for (number, visit) in changed.drain(..) {
            if let Some(cached) = self.by_number.get_mut(&number)
                && cached.visits == visit
                && cached.quiet_on.take().is_some()
            {
                self.due.insert(cached.turn, number);
            }
        }
        self.changed = changed;
        self.due.values().copied().collect()
    }

    /// A partition that is visited, and the session's entry for it in case that it is quiet.
    pub fn visit(&mut self, number: u64) -> (&Cached, SessionEntry) {
        let news = self.news.clone();
        let cached = self.cached(number);
        cached.visits += 1;
        let change = (number, cached.visits);
        (cached, SessionEntry { news, change })
    }

    /// The visit found that the partition is quiet: it has the session's entry.
    pub fn become_quiet(&mut self, number: u64, on: &Arc<dyn Partition>) {
        let cached = self.cached(number);
        cached.quiet_on = Some(Arc::downgrade(on));
        let turn = cached.turn;
        self.due.remove(&turn);
    }

    /// Wakes `waiter` when a quiet partition changes.
    pub fn wake_at_change(&self, waiter: &Arc<FetchWaiter>) {
        self.news.wake_at_change(waiter);
    }

    /// Records the partition's result in the response.
    pub fn record(&mut self, number: u64, result: &FetchResult) {
        let Some(cached) = self.by_number.get_mut(&number) else { return };
        cached.record(result);
        if result.records_len > 0 {
            self.last += 1;
            self.due.remove(&std::mem::replace(&mut cached.turn, self.last));
            self.due.insert(self.last, number);
        }
    }

    /// Makes all partitions due.
    fn visit_all(&mut self) {
        let quiet = self.by_number.iter().filter(|(_, cached)| cached.quiet_on.is_some());
        let quiet: Vec<u64> = quiet.map(|(number, _)| *number).collect();
        quiet.into_iter().for_each(|number| self.end_quiet(number));
    }

    /// Makes a partition due, and takes the session's entry from it.
    fn end_quiet(&mut self, number: u64) {
        let news = self.news.clone();
        let cached = self.cached(number);
        let Some(on) = cached.quiet_on.take() else { return };
        let (turn, change) = (cached.turn, (number, cached.visits));
        if let Some(partition) = on.upgrade() {
            partition.end_quiet(&SessionEntry { news, change });
        }
        self.due.insert(turn, number);
    }

    fn cached(&mut self, number: u64) -> &mut Cached {
        self.by_number.get_mut(&number).expect("each number is of a partition")
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Drop for SessionPartitions {
    fn drop(&mut self) {
        self.visit_all();
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
        // After an error or a divergence, which leaves the follower's high watermark as it is, the partition is included in the
        // next response in any case.
        let is_used = !result.error.is_error() && result.diverging.is_none();
        self.high_watermark = if is_used { result.high_watermark } else { -1 };
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

    fn order(partitions: &mut SessionPartitions) -> Vec<(i32, i64)> {
        let due = partitions.due().into_iter();
        let wanted = due.map(|number| partitions.by_number[&number].wanted.partition);
        wanted.map(|partition| (partition.index, partition.fetch_offset)).collect()
    }

    #[test]
    fn data_moves_a_partition_to_the_end_and_a_change_does_not() {
        let mut partitions = SessionPartitions::default();
        for index in 0..3 {
            partitions.want(wanted("t", index, 0));
        }
        let first = partitions.due()[0];
        partitions.record(first, &result(5, 10, ErrorCode::NONE));
        assert_eq!(order(&mut partitions), [(1, 0), (2, 0), (0, 0)]);
        partitions.want(wanted("t", 1, 7));
        partitions.forget(&TopicKey::Name("t".into()), 2);
        partitions.forget(&TopicKey::Name("other".into()), 0);
        assert_eq!(order(&mut partitions), [(1, 7), (0, 0)]);
    }

    #[test]
    fn only_changes_are_returned() {
        let mut partitions = SessionPartitions::default();
        partitions.want(wanted("t", 0, 0));
        let mut step = |result: FetchResult, expected: bool| {
            let number = partitions.due()[0];
            assert_eq!(partitions.visit(number).0.must_send(&result), expected, "{result:?}");
            partitions.record(number, &result);
        };
        step(result(5, 0, ErrorCode::NONE), true);
        step(result(5, 0, ErrorCode::NONE), false);
        step(result(6, 0, ErrorCode::NONE), true);
        step(result(6, 1, ErrorCode::NONE), true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, false);
        step(FetchResult { diverging: Some((1, 2)), log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, true);
        step(FetchResult { log_start_offset: 2, ..result(6, 0, ErrorCode::NONE) }, false);
        step(result(-1, 0, ErrorCode::NOT_LEADER_OR_FOLLOWER), true);
        step(result(6, 0, ErrorCode::NONE), true);
    }

    #[test]
    fn a_follower_that_names_a_lower_high_watermark_is_sent_it_again() {
        let mut partitions = SessionPartitions::default();
        let named = |high_watermark| {
            let mut wanted = wanted("t", 0, 0);
            wanted.partition.high_watermark = high_watermark;
            wanted
        };
        partitions.want(named(0));
        let (number, same) = (partitions.due()[0], result(5, 0, ErrorCode::NONE));
        partitions.record(number, &same);
        for (high_watermark, expected) in [(5, false), (i64::MAX, false), (3, true)] {
            partitions.want(named(high_watermark));
            assert_eq!(partitions.visit(number).0.must_send(&same), expected, "{high_watermark}");
        }
    }

    #[test]
    fn epochs_wrap_around_without_special_values() {
        assert_eq!(next_epoch(1), 2);
        assert_eq!(next_epoch(i32::MAX), 1);
    }
}
