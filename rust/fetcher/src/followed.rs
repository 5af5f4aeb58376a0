//! The partitions that one fetcher follows, with their logs: what to fetch, and what an answer does to them. The connection, the
//! clock and the waiting for flushes are the caller's.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_replica::{Diverging, FetchedBatches, Fetching, Following, Partition, Position, Rule, truncate_diverging};

use super::core::{FetcherCore, Key, Plan, SessionRule, Step, Wanted, step};
use super::messages::{FetchedPartition, ReplicaFetchAnswer};

/// How long a throttled partition is not fetched before the rate is checked again.
const THROTTLED_PAUSE_MS: i64 = 50;

/// A change of the partitions of a fetcher.
pub enum Change {
    Add(Arc<Partition>),
    Remove(Key),
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Monotonic.
    pub now_ms: i64,
    /// Since 1970.
    pub wall_ms: i64,
}

/// The partitions of a fetcher of one leader.
pub struct FollowedPartitions {
    leader: i32,
    core: FetcherCore,
    partitions: HashMap<Key, Arc<Partition>>,
    /// Partitions whose log must be flushed before the next request.
    unflushed: Vec<Arc<Partition>>,
    /// Those among them since the last request.
    appended: Vec<Key>,
    /// Partitions that are throttled and not in sync.
    throttled: BTreeSet<Key>,
}

impl FollowedPartitions {
    /// `backoff_ms`: the longest pause after an error of a partition (`replica.fetch.backoff.ms`).
    pub fn new(leader: i32, backoff_ms: i64) -> Self {
        Self::without(leader, backoff_ms, None)
    }

    /// The same without a rule.
    pub fn without(leader: i32, backoff_ms: i64, rule: Option<SessionRule>) -> Self {
        Self {
            leader,
            core: FetcherCore::without(backoff_ms, rule),
            partitions: HashMap::new(),
            unflushed: Vec::new(),
            appended: Vec::new(),
            throttled: BTreeSet::new(),
        }
    }

    pub fn change(&mut self, change: Change, wall_ms: i64) {
        match change {
            Change::Remove(key) => self.remove(key),
            Change::Add(partition) => self.add(partition, wall_ms),
        }
    }

    /// Fetches it no more until a newer leader epoch.
    fn fail(&mut self, key: Key) {
        if let Some(partition) = self.partitions.get(&key) {
            partition.note_fetching(Fetching::Failed);
        }
        self.remove(key);
    }

    fn remove(&mut self, key: Key) {
        self.core.remove(key);
        self.partitions.remove(&key);
        self.throttled.remove(&key);
    }

    fn add(&mut self, partition: Arc<Partition>, wall_ms: i64) {
        let key = partition.key();
        let Some(following) = partition.following().filter(|following| following.leader == self.leader) else {
            return self.remove(key);
        };
        match partition.begin_following(following.leader_epoch, wall_ms) {
            Ok(position) => {
                self.note_unflushed(&partition, position);
                self.core.add(key, following.leader_epoch, position);
                if partition.is_throttled_follower() {
                    self.throttled.insert(key);
                }
                self.partitions.insert(key, partition);
            }
            // Its role changed again, of which it notifies, or its directory failed.
            Err(_) => self.remove(key),
        }
    }

    fn note_unflushed(&mut self, partition: &Arc<Partition>, position: Position) {
        if !position.is_flushed {
            self.unflushed.push(partition.clone());
            self.appended.push(partition.key());
        }
    }

    /// The partitions to wait for before the next request ([`Partition::is_flushed`]).
    pub fn take_unflushed(&mut self) -> Vec<Arc<Partition>> {
        std::mem::take(&mut self.unflushed)
    }

    /// Whether the next request need not wait for a flush.
    pub fn is_flushed(&mut self) -> bool {
        self.unflushed.retain(|partition| !partition.is_flushed());
        self.unflushed.is_empty()
    }

    /// See [`FetcherCore::next_plan`]. Everything that was appended must be flushed.
    pub fn next_plan(&mut self, now_ms: i64) -> Option<Plan> {
        self.drop_if_not_followed();
        let (core, partitions) = (&mut self.core, &self.partitions);
        self.throttled.retain(|&key| {
            let partition = partitions.get(&key).filter(|partition| partition.is_throttled_follower());
            if partition.is_some_and(|partition| partition.is_follower_rate_exceeded()) {
                core.pause(key, now_ms, THROTTLED_PAUSE_MS);
            }
            partition.is_some()
        });
        self.core.next_plan(now_ms)
    }

    /// See [`FetcherCore::in_session`].
    pub fn in_session(&self) -> Vec<Wanted> {
        self.core.in_session()
    }

    /// No flush is awaited for a partition whose role has changed, even if this fetcher does not know yet. The previous leader may not
    /// know either, and would count what is not flushed. A replica that was removed and added again is another one, with a log of
    /// its own.
    fn drop_if_not_followed(&mut self) {
        for key in std::mem::take(&mut self.appended) {
            let Some((partition, leader_epoch)) = self.followed(key) else { continue };
            let expected = Following { leader: self.leader, leader_epoch };
            if partition.following() != Some(expected) && partition.keeps(Rule::FetchInRole) {
                self.remove(key);
            }
        }
    }

    /// When the next delayed partition is due.
    pub fn due_at_ms(&self) -> Option<i64> {
        self.core.due_at_ms()
    }

    /// The request was not answered.
    pub fn on_lost_connection(&mut self) {
        self.core.on_lost_connection();
    }

    /// Appends and truncates as the answer says. Returns the partitions whose offset is not in the leader's log: the caller asks
    /// the leader where its log begins and ends, see [`FollowedPartitions::on_leader_offsets`].
    pub fn on_answer(&mut self, answer: ReplicaFetchAnswer, times: Times) -> Vec<Key> {
        if !self.core.on_session(answer.error, answer.session_id) {
            return Vec::new();
        }
        let (mut lost, mut diverging) = (Vec::new(), Vec::new());
        for fetched in answer.partitions {
            match step(fetched.error, fetched.diverging) {
                Step::FindOffsets => lost.push(fetched.key),
                Step::Truncate(epoch, end_offset) => {
                    diverging.extend(self.followed(fetched.key).map(|(partition, leader_epoch)| Diverging {
                        partition,
                        leader_epoch,
                        leader_end: (epoch, end_offset),
                    }))
                }
                step => self.on_fetched(&fetched, step, times),
            }
        }
        // Together, because thousands of partitions diverge when a leader fails.
        let moved = truncate_diverging(&diverging, times.wall_ms);
        for (Diverging { partition, .. }, moved) in diverging.iter().zip(moved) {
            self.on_moved(partition, moved, times.now_ms);
        }
        lost
    }

    fn on_fetched(&mut self, fetched: &FetchedPartition, step: Step, times: Times) {
        let key = fetched.key;
        let Some((partition, epoch)) = self.followed(key) else { return };
        let moved = match step {
            Step::Append => {
                let FetchedPartition { records, high_watermark, log_start_offset, .. } = fetched;
                let (high_watermark, log_start_offset) = (*high_watermark, *log_start_offset);
                let batches = FetchedBatches { records, high_watermark, log_start_offset };
                let appended = partition.append_fetched(epoch, &batches, times.wall_ms);
                let lags = appended.as_ref().is_ok_and(|position| position.fetch_offset < high_watermark);
                if lags && partition.is_throttled_follower() {
                    self.throttled.insert(key);
                } else {
                    self.throttled.remove(&key);
                }
                appended
            }
            Step::Delay | Step::FindOffsets | Step::Truncate(..) => Err(fetched.error),
            Step::Stop => return self.fail(key),
        };
        self.on_moved(&partition, moved, times.now_ms);
    }

    fn on_moved(&mut self, partition: &Arc<Partition>, moved: Result<Position, ErrorCode>, now_ms: i64) {
        let key = partition.key();
        match moved {
            Ok(position) => {
                self.note_unflushed(partition, position);
                self.core.moved(key, position);
            }
            // The directory has failed.
            Err(ErrorCode::KAFKA_STORAGE_ERROR) => self.fail(key),
            Err(_) => {
                self.look_again(partition);
                self.core.delay(key, now_ms);
            }
        }
    }

    /// The partition's previous fetcher may have appended a response after this one began, which continues at the log
    /// end.
    fn look_again(&mut self, partition: &Arc<Partition>) {
        let key = partition.key();
        let position = self.core.leader_epoch(key).map(|leader_epoch| partition.position(leader_epoch));
        if let Some(Ok(position)) = position {
            self.note_unflushed(partition, position);
            self.core.found(key, position);
        }
    }

    /// The partition, and the leader epoch in which it is fetched; `None` if it is followed no longer.
    pub fn followed(&self, key: Key) -> Option<(Arc<Partition>, i32)> {
        Some((self.partitions.get(&key)?.clone(), self.core.leader_epoch(key)?))
    }

    /// Where the leader's log begins and ends, for a partition that [`FollowedPartitions::on_answer`] returned; `None` if the leader
    /// did not say.
    pub fn on_leader_offsets(&mut self, key: Key, found: Option<(i64, i64)>, times: Times) {
        let Some((partition, epoch)) = self.followed(key) else { return };
        match found {
            Some((start, end)) => {
                let moved = partition.move_into(epoch, start, end, times.wall_ms);
                self.on_moved(&partition, moved, times.now_ms);
            }
            None => self.core.delay(key, times.now_ms),
        }
    }
}
