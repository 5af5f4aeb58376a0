//! All share partitions of a node: which exist, when they are loaded and dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use klamm_base::counters::{Named, mbean_value};
use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_replica::OffsetQuery;
use klamm_share::{AckBatch, AckError, Member, TimerWheel};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::metrics::ShareMetrics;
use super::partition::{LivePartition, LiveState, OnWritten, Phase, ShareKey};
use super::sessions::{Ended, MemberKey, ShareSessions};
use super::settings::{GroupSettings, ShareConfig};
use super::state_calls::Asked;
use crate::core::Core;

/// Locks end at the end of the tick of their deadline.
pub const TICK_MS: i64 = 50;
/// The timestamp of ListOffsets that stands for the high watermark.
pub const LATEST: i64 = -1;

pub struct ShareGroups {
    pub config: ShareConfig,
    pub sessions: Mutex<ShareSessions>,
    pub metrics: ShareMetrics,
    /// No other lock is taken while this one is held.
    partitions: Mutex<HashMap<ShareKey, Arc<LivePartition>>>,
    /// Calls to the share coordinator, by request id.
    pub(super) asked: Mutex<HashMap<u64, Asked>>,
    pub(super) timers: Mutex<Timers>,
    /// Notified when the first lock is held.
    pub has_timers: Arc<Notify>,
    last_id: AtomicU64,
}

pub(super) struct Timers {
    pub wheel: TimerWheel<u64>,
    pub partitions: HashMap<u64, Arc<LivePartition>>,
}

impl ShareGroups {
    pub fn new(config: ShareConfig, now_ms: i64) -> Self {
        let timers = Timers { wheel: TimerWheel::new(TICK_MS, now_ms), partitions: HashMap::new() };
        Self {
            config,
            sessions: Mutex::default(),
            metrics: ShareMetrics::default(),
            partitions: Mutex::default(),
            asked: Mutex::default(),
            timers: Mutex::new(timers),
            has_timers: Arc::default(),
            last_id: AtomicU64::new(0),
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn settings(&self, image: &MetadataImage, group: &str) -> GroupSettings {
        GroupSettings::of(&self.config, image, group)
    }

    /// The share partition, if it is in use and of the current leader epoch.
    pub fn find(&self, image: &MetadataImage, key: &ShareKey) -> Option<Arc<LivePartition>> {
        let found = self.partitions.lock().get(key).cloned()?;
        if !is_stale(image, &found) {
            return Some(found);
        }
        self.drop_partition(&found, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        None
    }

    /// The share partition; begins to load it if it is not in use.
    pub fn find_or_load(
        &self,
        core: &Core,
        image: &MetadataImage,
        key: &ShareKey,
    ) -> Result<Arc<LivePartition>, ErrorCode> {
        if let Some(found) = self.find(image, key) {
            return Ok(found);
        }
        let epoch = leader_epoch(image, key.topic, key.index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        check_leader(core, key, epoch)?;
        let created = LivePartition::new(self.next_id(), key.clone(), epoch);
        let found = self.partitions.lock().entry(key.clone()).or_insert(created.clone()).clone();
        if Arc::ptr_eq(&found, &created) {
            self.ask_for_state(core, &created);
        }
        Ok(found)
    }

    /// Acknowledges records of a member. `done` is called once, with the result.
    pub fn acknowledge(
        &self,
        core: &Core,
        image: &MetadataImage,
        key: &ShareKey,
        member: &Member,
        batches: &[AckBatch<'_>],
        done: OnWritten,
    ) -> Result<(), AckError> {
        let Some(live) = self.find(image, key) else {
            done(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            return Ok(());
        };
        let limits = self.settings(image, &key.group).limits;
        let mut state = live.state.lock();
        let Phase::Active(partition) = &mut state.phase else {
            drop(state);
            done(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            return Ok(());
        };
        let write = partition.acknowledge(member, batches, core.backend.now_ms(), &limits);
        let now = match write? {
            Some(id) => {
                state.on_written.entry(id).or_default().push(done);
                None
            }
            None => Some(done),
        };
        self.after_change(core, &live, &mut state);
        drop(state);
        now.into_iter().for_each(|done| done(ErrorCode::NONE));
        live.wake();
        Ok(())
    }

    /// A session has ended: its member's records are released.
    pub fn release(&self, core: &Core, ended: &Ended) {
        let image = core.backend.image();
        let limits = self.settings(&image, &ended.key.group).limits;
        let member = Member::new(&ended.key.member);
        for target in &ended.targets {
            let key = ShareKey { group: ended.key.group.clone(), topic: target.topic, index: target.index };
            let Some(live) = self.find(&image, &key) else { continue };
            let mut state = live.state.lock();
            if let Phase::Active(partition) = &mut state.phase {
                partition.release(&member, &limits);
                self.after_change(core, &live, &mut state);
            }
        }
    }

    /// Ends a member's session.
    pub fn end_session(&self, core: &Core, key: &MemberKey) {
        let ended = self.sessions.lock().remove(key);
        if let Some(ended) = ended {
            self.release(core, &ended);
        }
    }

    /// A connection was closed: its session ends, and share partitions of a group without sessions are dropped.
    pub fn on_disconnect(&self, core: &Core, connection_id: u64) {
        let Some((group, ended)) = self.sessions.lock().on_disconnect(connection_id) else { return };
        if let Some(ended) = ended {
            self.metrics.evictions.add(1);
            self.release(core, &ended);
        }
        if !self.sessions.lock().has_members(&group) {
            let unused = self.all(|live| live.key.group == group);
            unused.iter().for_each(|live| self.drop_when_written(live));
        }
    }

    fn all(&self, is_it: impl Fn(&LivePartition) -> bool) -> Vec<Arc<LivePartition>> {
        self.partitions.lock().values().filter(|live| is_it(live)).cloned().collect()
    }

    /// Panics unless the invariants of every share partition hold.
    #[cfg(any(test, feature = "testing"))]
    pub fn check_invariants(&self) {
        for live in self.all(|_| true) {
            if let Phase::Active(partition) = &live.state.lock().phase {
                partition.check_invariants();
            }
        }
    }

    /// Sends what must be written, and sets the timer. The caller has the lock of the state.
    pub fn after_change(&self, core: &Core, live: &Arc<LivePartition>, state: &mut LiveState) {
        let Phase::Active(partition) = &mut state.phase else { return };
        if let Some(write) = partition.take_write() {
            self.ask_to_write(core, live, write);
        }
        if let Some(deadline_ms) = partition.deadline_ms() {
            self.set_timer(live, deadline_ms);
        }
    }

    /// A new image: share partitions of other leader epochs and of deleted topics are dropped.
    pub fn on_image(&self, image: &MetadataImage) {
        let is_stale =
            |live: &LivePartition| leader_epoch(image, live.key.topic, live.key.index) != Some(live.leader_epoch);
        for live in self.all(is_stale) {
            self.drop_partition(&live, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if !super::is_enabled(image) && !self.partitions.lock().is_empty() {
            self.sessions.lock().clear();
            self.all(|_| true).iter().for_each(|live| self.drop_partition(live, ErrorCode::UNSUPPORTED_VERSION));
        }
    }

    /// Drops a share partition: what was not written is lost, and requests that wait get the error.
    pub fn drop_partition(&self, live: &Arc<LivePartition>, code: ErrorCode) {
        let mut partitions = self.partitions.lock();
        if partitions.get(&live.key).is_some_and(|known| Arc::ptr_eq(known, live)) {
            partitions.remove(&live.key);
        }
        drop(partitions);
        let mut state = live.state.lock();
        if !matches!(state.phase, Phase::Gone(_)) {
            state.phase = Phase::Gone(code);
        }
        let waiting: Vec<_> = state.on_written.drain().flat_map(|(_, waiting)| waiting).collect();
        drop(state);
        let mut timers = self.timers.lock();
        timers.wheel.cancel(live.id);
        timers.partitions.remove(&live.id);
        drop(timers);
        waiting.into_iter().for_each(|done| done(code));
        live.wake();
    }

    /// Drops a share partition of a group without sessions, once nothing has to be written.
    pub(super) fn drop_when_written(&self, live: &Arc<LivePartition>) {
        let mut state = live.state.lock();
        state.is_unused = true;
        let is_idle = match &state.phase {
            Phase::Active(partition) => !partition.is_writing(),
            Phase::Loading | Phase::Gone(_) => false,
        };
        drop(state);
        if is_idle && !self.sessions.lock().has_members(&live.key.group) {
            self.drop_partition(live, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
    }

    pub(super) fn set_timer(&self, live: &Arc<LivePartition>, deadline_ms: i64) {
        let mut timers = self.timers.lock();
        let is_first = timers.wheel.is_empty();
        timers.wheel.schedule(live.id, deadline_ms);
        timers.partitions.entry(live.id).or_insert_with(|| live.clone());
        drop(timers);
        if is_first {
            self.has_timers.notify_one();
        }
    }

    /// Numbers of the moment.
    pub fn gauges(&self, image: &MetadataImage) -> Vec<Named> {
        let sessions = self.sessions.lock();
        let mut gauges = vec![
            ("kafka.server:type=ShareSessionCache,name=ShareSessionsCount".to_owned(), sessions.len() as u64),
            (
                "kafka.server:type=ShareSessionCache,name=SharePartitionsCount".to_owned(),
                sessions.partition_count() as u64,
            ),
        ];
        drop(sessions);
        for live in self.all(|_| true) {
            let Phase::Active(partition) = &live.state.lock().phase else { continue };
            let (in_flight, batches) = (partition.in_flight_count(), partition.batch_count());
            let topic = image.topics().by_id(live.key.topic).map_or("", |topic| topic.name());
            let (group, topic) = (mbean_value(&live.key.group), mbean_value(topic));
            let of = format!("group={group},topic={topic},partition={}", live.key.index);
            let name = "kafka.server:type=SharePartitionMetrics,name";
            gauges.push((format!("{name}=InFlightMessageCount,{of}"), u64::try_from(in_flight).unwrap_or(0)));
            gauges.push((format!("{name}=InFlightBatchCount,{of}"), batches as u64));
        }
        gauges
    }
}

/// Whether a later leader epoch has begun, or the partition is gone. The image of a request may be older than the share
/// partition.
fn is_stale(image: &MetadataImage, live: &LivePartition) -> bool {
    leader_epoch(image, live.key.topic, live.key.index).is_none_or(|epoch| epoch > live.leader_epoch)
}

fn leader_epoch(image: &MetadataImage, topic: Uuid, index: i32) -> Option<i32> {
    Some(image.topics().by_id(topic)?.partition(index)?.leader_epoch())
}

/// Whether this node leads the partition in that epoch.
fn check_leader(core: &Core, key: &ShareKey, epoch: i32) -> Result<(), ErrorCode> {
    let query =
        OffsetQuery { timestamp: LATEST, current_leader_epoch: epoch, read_committed: None, only_from_leader: true };
    let found = core.backend.partition(key.topic, key.index)?.find_offset(&query);
    found.map(drop).map_err(|code| match code {
        ErrorCode::FENCED_LEADER_EPOCH | ErrorCode::UNKNOWN_LEADER_EPOCH => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        code => code,
    })
}
