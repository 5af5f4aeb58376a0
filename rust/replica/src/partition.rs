//! One partition of this broker: its log, its replication state, and the lock around both.
//!
//! [`PartitionCore`] decides; this is the shell that passes it the offsets of the log and carries its effects out. No other
//! lock is acquired while a partition's lock is held; acknowledgements and wake-ups run after it is released. With
//! [`Durability::Flushed`] the leader counts itself only up to its flushed offset, so that a power cut cannot undo a commit.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use klamm_base::LogError;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::{
    AppendError, Claim, DamagedRange, FlushEnd, FlushJob, FlushState, Guard, Log, LogManager, LogOwner, Origin,
};
use klamm_records::{ProduceRules, RecordsError, convert, validate_produced};
use parking_lot::Mutex;

use super::changes::Changes;
use super::config::PartitionConfig;
use super::core::{self, Assignment, Awaits, IsrAnswer, IsrProposal, LogOffsets, PartitionCore, RoleChange, Rule};
use super::fetch_waiter::{FetchWaiter, Watcher};
use super::following::Following;
use super::image_brokers::ImageBrokers;
use super::metrics::ReplicaCounters;
use super::moving::Move;
use super::results::{Appended, Refused, Standing};
use super::session_news::SessionEntry;
use super::throttles::Throttles;

/// Called once with the result of an append, without the partition's lock.
pub type OnAck = Box<dyn FnOnce(ErrorCode) + Send>;

pub(super) type Effects = core::Effects<OnAck, Watcher>;

/// What an acknowledgement with acks=all guarantees (`klamm.flush.before.ack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The records are on the disk of every member of the ISR (`all`).
    Flushed,
    /// The records are in the page cache of every member of the ISR (`none`, as Apache Kafka).
    PageCache,
}

impl Durability {
    /// What a node's configuration asks for.
    pub fn of(settings: &Settings) -> Self {
        match settings.text("klamm.flush.before.ack").as_str() {
            "none" => Self::PageCache,
            _ => Self::Flushed,
        }
    }
}

/// Identifies a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionId {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub index: i32,
}

/// The log directory in which a partition is opened: the node's directories, and which of them.
#[derive(Clone)]
pub struct Place {
    pub logs: Arc<LogManager>,
    pub dir: usize,
}

pub(super) struct State {
    pub(super) log: Log,
    pub(super) core: PartitionCore<OnAck, Watcher>,
    /// Woken by the next flush.
    pub(super) flush_waiters: Vec<Watcher>,
    pub(super) moving: Option<Box<Move>>,
    /// No flush begins: the log is about to be replaced.
    pub(super) holds_flushes: bool,
}

/// The requests for which a thread keeps room.
const KEPT_MAX: usize = 1024;

thread_local! {
    /// Of this thread's last event, so that notifying a waiting request allocates nothing.
    static EFFECTS: Cell<Option<Box<Effects>>> = const { Cell::new(None) };
}

impl State {
    /// The log, if this broker leads; otherwise the error to return.
    pub(super) fn leading(&mut self) -> Result<(&mut Log, &mut PartitionCore<OnAck, Watcher>), ErrorCode> {
        self.core.check_leader()?;
        Ok((&mut self.log, &mut self.core))
    }

    /// The log, of a leader or a follower; otherwise the error to return.
    pub(super) fn serving(&mut self) -> Result<(&mut Log, &mut PartitionCore<OnAck, Watcher>), ErrorCode> {
        self.core.check_online()?;
        Ok((&mut self.log, &mut self.core))
    }

    /// Whether a follower may send its next fetch: its records are flushed as far as the leader requires, and truncated
    /// ones cannot reappear.
    pub(super) fn is_flushed(&self, durability: Durability) -> bool {
        let is_durable = durability == Durability::PageCache || self.log.flushed_offset() >= self.log.log_end_offset();
        is_durable && !self.log.has_unsynced_cut()
    }

    pub(super) fn offsets(&self, durability: Durability) -> LogOffsets {
        let (start, end) = (self.log.log_start_offset(), self.log.log_end_offset());
        let counted = match durability {
            Durability::Flushed => self.log.flushed_offset(),
            Durability::PageCache => end,
        };
        LogOffsets { start, end, counted }
    }
}

/// A rejection without details.
fn refused(code: ErrorCode) -> Refused {
    Refused { code, message: None, record_errors: Vec::new(), log_start_offset: -1 }
}

/// Like Apache Kafka, include the log start offset with errors of records, but not with errors of a whole batch.
fn rejected(
    code: ErrorCode,
    message: String,
    record_errors: Vec<(i32, Option<String>)>,
    log_start_offset: i64,
) -> Refused {
    let is_unread = [
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::MESSAGE_TOO_LARGE,
        ErrorCode::RECORD_LIST_TOO_LARGE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ]
    .contains(&code);
    let log_start_offset = if is_unread { -1 } else { log_start_offset };
    Refused { code, message: Some(message), record_errors, log_start_offset }
}

/// A partition of which this broker has a replica.
pub struct Partition {
    pub id: PartitionId,
    own: Weak<Partition>,
    pub(super) durability: Durability,
    pub(super) brokers: Arc<ImageBrokers>,
    changes: Arc<Changes>,
    pub(super) logs: Arc<LogManager>,
    /// The index of the log directory.
    pub(super) dir: AtomicUsize,
    flush_state: FlushState,
    config: ArcSwap<PartitionConfig>,
    /// Of a follower, see [`Partition::fetching`].
    fetching: AtomicI64,
    pub(super) state: Mutex<State>,
}

/// What is measured of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGauges {
    pub is_leader: bool,
    /// Offsets below the high watermark that a read_committed consumer does not get yet.
    pub last_stable_offset_lag: u64,
    pub producers: usize,
    /// See `Log::oldest_txn_timestamp`.
    pub oldest_txn_timestamp: Option<i64>,
}

/// How far a follower's fetches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// Nothing was fetched yet in this leader epoch.
    Begun,
    /// The records below the leader's high watermark that the last fetch did not return yet.
    Behind(u64),
    /// It is not fetched until a newer leader epoch.
    Failed,
}

const BEGUN: i64 = -1;
const FAILED: i64 = -2;

/// What a partition shares with the others of its broker.
#[derive(Clone)]
pub struct Shared {
    pub durability: Durability,
    pub brokers: Arc<ImageBrokers>,
    pub changes: Arc<Changes>,
}

impl Partition {
    /// A replica with `log` and the checkpointed high watermark, in the role that the image assigns.
    pub fn open(
        id: PartitionId,
        log: Log,
        high_watermark: i64,
        assignment: &Assignment,
        config: Arc<PartitionConfig>,
        place: Place,
        shared: Shared,
    ) -> Arc<Self> {
        let is_planned = log.is_planned();
        let Shared { durability, brokers, changes } = shared;
        let core = PartitionCore::new(brokers.node_id, brokers.lag_max_ms, high_watermark, config.min_insync_replicas)
            .without(brokers.without);
        let state = Mutex::new(State { log, core, flush_waiters: Vec::new(), moving: None, holds_flushes: false });
        let partition = Arc::new_cyclic(|own| Self {
            id,
            own: own.clone(),
            durability,
            brokers,
            changes,
            logs: place.logs,
            dir: AtomicUsize::new(place.dir),
            flush_state: FlushState::default(),
            config: ArcSwap::new(config),
            fetching: AtomicI64::new(BEGUN),
            state,
        });
        partition.on_assignment(assignment);
        // For records that an unclean stop left unflushed, and for the new epoch. A log that is not on disk has neither:
        // its first flush, or a recovery from its batches, includes the epoch.
        if !is_planned {
            partition.mark_dirty();
        }
        partition
    }

    /// Notifies the flusher.
    pub fn mark_dirty(&self) {
        let owner: Arc<dyn LogOwner> = self.arc();
        self.logs.dirs()[self.dir()].flusher().mark_dirty(&owner);
    }

    /// Runs an event of the core under the lock, and carries its effects out without it.
    pub(super) fn event<T>(&self, event: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = self.effects();
        let result = event(&mut self.state.lock(), &mut effects);
        self.carry_out(effects);
        result
    }

    /// Room for the effects of an event.
    pub(super) fn effects(&self) -> Box<Effects> {
        EFFECTS.take().unwrap_or_default()
    }

    /// Notifies the requests that an event concerns, and the broker; call it without a partition's lock.
    #[inline]
    pub(super) fn carry_out(&self, mut effects: Box<Effects>) {
        if !effects.is_empty() {
            self.notify(&mut effects);
        }
        // A burst of requests must not keep its memory.
        if effects.acks.capacity().max(effects.fetches.capacity()) <= KEPT_MAX {
            EFFECTS.set(Some(effects));
        }
    }

    fn notify(&self, effects: &mut Effects) {
        for (ack, code) in effects.acks.drain(..) {
            ack(code);
        }
        for waiter in effects.fetches.drain(..) {
            waiter.notify();
        }
        if effects.role.take().is_some() {
            self.changes.roles.push(self.arc());
        }
        if effects.proposal.take().is_some() {
            self.changes.isr.push(self.arc());
        }
    }

    /// How far its fetches are, if this broker follows.
    pub fn fetching(&self) -> Option<(Following, Fetching)> {
        let following = self.following()?;
        let fetching = match self.fetching.load(Ordering::Relaxed) {
            FAILED => Fetching::Failed,
            lag => u64::try_from(lag).map_or(Fetching::Begun, Fetching::Behind),
        };
        Some((following, fetching))
    }

    pub fn note_fetching(&self, fetching: Fetching) {
        let value = match fetching {
            Fetching::Begun => BEGUN,
            Fetching::Behind(lag) => i64::try_from(lag).unwrap_or(i64::MAX),
            Fetching::Failed => FAILED,
        };
        self.fetching.store(value, Ordering::Relaxed);
    }

    /// The topic's id and the partition's index.
    pub fn key(&self) -> (Uuid, i32) {
        (self.id.topic_id, self.id.index)
    }

    /// The index of its log directory.
    pub(super) fn dir(&self) -> usize {
        self.dir.load(Ordering::Acquire)
    }

    /// A reference to itself.
    pub(super) fn arc(&self) -> Arc<Self> {
        self.own.upgrade().expect("a method runs on a partition with a reference")
    }

    /// Whether this broker leads; otherwise the error to return.
    pub fn check_leader(&self) -> Result<(), ErrorCode> {
        self.state.lock().core.check_leader()
    }

    /// Whether this replica serves; otherwise the error to return.
    pub(super) fn check_online(&self) -> Result<(), ErrorCode> {
        self.state.lock().core.check_online()
    }

    /// Applies the partition of a newer image.
    pub fn on_assignment(&self, assignment: &Assignment) {
        let now_ms = self.brokers.now_ms();
        self.event(|state, effects| {
            let offsets = state.offsets(self.durability);
            let (proposed, before) = (state.core.pending_isr().map(|isr| isr.members.len()), state.core.isr().len());
            state.core.on_assignment(assignment, &offsets, now_ms, &*self.brokers, effects);
            if state.core.pending_isr().is_none() && proposed == Some(state.core.isr().len()) {
                // The image came before the answer.
                self.counters().isr_changed(before, state.core.isr().len());
            }
            if effects.role.is_some() {
                effects.fetches.append(&mut state.flush_waiters);
            }
            if let Some(RoleChange::Lead { epoch, start_offset }) = effects.role
                && state.log.latest_epoch().is_none_or(|latest| latest < epoch)
            {
                state.log.assign_epoch(epoch, start_offset);
            }
        });
    }

    /// Its current role and epochs.
    pub fn standing(&self) -> Standing {
        let state = self.state.lock();
        Standing {
            is_leader: state.core.check_leader().is_ok(),
            leader_epoch: state.core.leader_epoch(),
            partition_epoch: state.core.partition_epoch(),
            isr: state.core.isr().to_vec(),
            high_watermark: state.core.high_watermark(),
        }
    }

    /// Numbers of its log; `None` while it is offline.
    pub fn log_gauges(&self) -> Option<LogGauges> {
        let state = self.state.lock();
        state.core.check_online().ok()?;
        let high_watermark = state.core.high_watermark();
        let lag = high_watermark - state.log.last_stable_offset(high_watermark);
        Some(LogGauges {
            is_leader: state.core.check_leader().is_ok(),
            last_stable_offset_lag: u64::try_from(lag).unwrap_or(0),
            producers: state.log.producer_count(),
            oldest_txn_timestamp: state.log.oldest_txn_timestamp(),
        })
    }

    /// The ISR that this leader proposes.
    pub fn pending_isr(&self) -> Option<IsrProposal> {
        self.state.lock().core.pending_isr().cloned()
    }

    pub(super) fn throttles(&self) -> &Throttles {
        &self.changes.throttles
    }

    /// Whether this replica is throttled as a follower.
    pub fn is_throttled_follower(&self) -> bool {
        self.config.load().follower_throttled.contains(self.id.index, self.brokers.node_id)
    }

    /// Whether throttled followers of this broker have fetched more than their rate.
    pub fn is_follower_rate_exceeded(&self) -> bool {
        self.throttles().follower.is_exceeded(self.brokers.now_ms())
    }

    pub(super) fn counters(&self) -> &ReplicaCounters {
        &self.changes.counters
    }

    /// Applies the controller's answer to a proposal; true if it must be sent again.
    pub fn on_isr_answer(&self, proposal: &IsrProposal, answer: Result<&IsrAnswer, ErrorCode>) -> bool {
        let counters = self.counters();
        self.event(|state, effects| {
            let offsets = state.offsets(self.durability);
            let (is_pending, before) = (state.core.is_pending(proposal), state.core.isr().len());
            let must_repeat = state.core.on_isr_answer(proposal, answer, &offsets, &*self.brokers, effects);
            let after = state.core.isr().len();
            counters.failed_isr_updates.add(u64::from(is_pending && answer.is_err()));
            counters.isr_changed(before, after);
            must_repeat
        })
    }

    /// Proposes to remove replicas that lag from the ISR.
    pub fn check_lag(&self) {
        let now_ms = self.brokers.now_ms();
        self.event(|state, effects| {
            let offsets = state.offsets(self.durability);
            state.core.on_lag_check(&offsets, now_ms, &*self.brokers, effects);
        });
    }

    /// Applies a new topic configuration.
    pub fn set_config(&self, config: Arc<PartitionConfig>) {
        self.event(|state, effects| {
            state.log.set_config(config.log.clone());
            if let Some(moving) = &state.moving {
                moving.set_config(config.log.clone());
            }
            let min_insync_replicas = config.min_insync_replicas;
            self.config.store(config);
            let offsets = state.offsets(self.durability);
            state.core.on_min_isr(min_insync_replicas, &offsets, &*self.brokers, effects);
        });
    }

    /// Stops serving for good: waiting requests and all later ones receive `code`. After a failure of the log directory
    /// this error stays.
    pub fn stop(&self, code: ErrorCode) {
        self.event(|state, effects| {
            state.core.go_offline(code, effects);
            effects.fetches.append(&mut state.flush_waiters);
        });
    }

    /// Appends the batches of a client or of a coordinator on this node; `batches` is modified in place.
    ///
    /// With `required_acks` -1, min.insync.replicas must be satisfied. [`Partition::when_acked`] notifies when the
    /// result is acknowledged by all.
    pub fn append(
        &self,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, Refused> {
        self.append_with(&self.config.load(), batches, required_acks, origin, now_ms)
    }

    fn append_with(
        &self,
        config: &PartitionConfig,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, Refused> {
        let (appended, wants_flush) = self.append_validated(config, batches, required_acks, origin, None, now_ms)?;
        if wants_flush {
            self.mark_dirty();
        }
        Ok(appended)
    }

    /// Appends the batch of a produce request. `guard` is that of its verification, if it was asked for.
    pub fn append_produced(
        &self,
        batch: &mut [u8],
        required_acks: i16,
        guard: Option<Guard>,
        now_ms: i64,
    ) -> Result<Appended, Refused> {
        let config = self.config.load();
        let origin = match config.verifies_transactions {
            true => Origin::VerifiedClient(guard),
            false => Origin::Client,
        };
        self.append_with(&config, batch, required_acks, origin, now_ms)
    }

    /// A produce request has a transactional batch: returns the guard with which it may be appended once the transaction
    /// coordinator has verified the partition, or added it if `is_adding`; `None` if there is nothing to ask. A
    /// producer that adds partitions so has its own epoch for each transaction.
    pub fn begin_verification(&self, claim: Claim, is_adding: bool, now_ms: i64) -> Result<Option<Guard>, ErrorCode> {
        if !is_adding && !self.config.load().verifies_transactions {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let (log, _) = state.leading()?;
        log.begin_verification(claim, is_adding, now_ms).map_err(|error| error.code())
    }

    /// Appends a batch of this node's own, without notifying the flusher; the result says whether to call
    /// [`Replicas::mark_dirty`](super::Replicas::mark_dirty). With `leader_epoch` only in that one.
    pub fn append_own(
        &self,
        batch: &mut [u8],
        required_acks: i16,
        origin: Origin,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> Result<(Appended, bool), Refused> {
        self.append_validated(&self.config.load(), batch, required_acks, origin, leader_epoch, now_ms)
    }

    fn append_validated(
        &self,
        config: &PartitionConfig,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> Result<(Appended, bool), Refused> {
        let rules = config.produce_rules(origin, now_ms);
        let produced = validate_produced(batches, &rules).map_err(|error| self.refuse(&error))?;
        let (max_timestamp, stamp) = (produced.max_timestamp, produced.needs_timestamp(rules.timestamp_type));
        let rewritten = convert::rewrite_if_needed(&produced, config.compression, &rules);
        let mut rewritten = rewritten.map_err(|error| self.refuse(&error))?;
        let batches = rewritten.as_deref_mut().unwrap_or(batches);
        if stamp {
            convert::set_max_timestamp(batches, rules.timestamp_type, max_timestamp);
        }
        self.append_checked(batches, required_acks, origin, leader_epoch, &rules)
    }

    fn append_checked(
        &self,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        leader_epoch: Option<i32>,
        rules: &ProduceRules,
    ) -> Result<(Appended, bool), Refused> {
        let appended = self.event(|state, effects| {
            match required_acks {
                -1 => state.core.check_min_isr().map_err(|code| Ok(refused(code)))?,
                _ => state.core.check_leader().map_err(|code| Ok(refused(code)))?,
            }
            if leader_epoch.is_some_and(|epoch| epoch != state.core.leader_epoch()) {
                return Err(Ok(refused(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
            }
            let appended = state.log.append_as_leader(batches, state.core.leader_epoch(), rules.now_ms, origin);
            let appended = appended.map_err(|error| Err((error, state.log.log_start_offset())))?;
            let offsets = state.offsets(self.durability);
            state.core.on_appended(&offsets, &*self.brokers, effects);
            let end_offset = appended.last_offset + 1;
            let result = Appended {
                base_offset: appended.base_offset,
                log_append_time_ms: appended.append_time_ms,
                log_start_offset: offsets.start,
                end_offset,
                is_acked: state.core.ack_result(end_offset) == Some(ErrorCode::NONE),
            };
            Ok((result, state.log.wants_flush()))
        });
        appended.map_err(|failed: Result<Refused, (AppendError, i64)>| {
            failed.unwrap_or_else(|(error, log_start_offset)| self.append_failed(&error, log_start_offset))
        })
    }

    fn append_failed(&self, error: &AppendError, log_start_offset: i64) -> Refused {
        if let AppendError::Log(error) = error {
            self.report(error);
        }
        rejected(error.code(), error.to_string(), Vec::new(), log_start_offset)
    }

    fn refuse(&self, error: &RecordsError) -> Refused {
        let record_errors = error.refused_records().iter().map(|r| (r.index, Some(r.refusal.to_string()))).collect();
        let log_start_offset = self.state.lock().log.log_start_offset();
        rejected(ErrorCode(error.error_code()), error.to_string(), record_errors, log_start_offset)
    }

    /// Reports an error to the log directory, which fails if it must not survive the error, and reports damage.
    pub fn report(&self, error: &LogError) {
        self.logs.report_damage(error);
        if let LogError::Corrupt { .. } = error {
            self.changes.damaged.push(self.arc());
        }
        // An error of the directory that the log has left concerns that one.
        let place = match error {
            LogError::Io { path, .. } => self.logs.dir_of(path).unwrap_or_else(|| self.dir()),
            _ => self.dir(),
        };
        if error.stops_directory() {
            self.logs.fail_dir(place, &error.to_string());
        }
    }

    /// Whether the product's rule holds here: a simulation leaves one out.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.brokers.keeps(rule)
    }

    /// Whether this replica leads or follows.
    pub fn is_serving(&self) -> bool {
        self.check_online().is_ok()
    }

    /// The damage of its log that is known.
    pub fn damaged(&self) -> Vec<DamagedRange> {
        self.with(|log| log.damaged())
    }

    /// Replaces damage by the batches of another replica; false if they are not the same ones. It waits for the disk.
    pub fn repair(&self, range: &DamagedRange, batches: &[u8]) -> bool {
        let repaired = self.event(|state, effects| {
            let repaired = state.log.repair(range, batches);
            state.core.on_repaired(effects);
            repaired
        });
        repaired.unwrap_or_else(|error| {
            self.report(&error);
            false
        })
    }

    /// Other replicas in sync, the leader first.
    pub fn others_in_sync(&self) -> Vec<i32> {
        let image = self.brokers.image.load();
        let topic = image.topics().by_id(self.id.topic_id);
        let Some(record) = topic.and_then(|topic| topic.partition(self.id.index)) else { return Vec::new() };
        let mut others: Vec<i32> = record.isr().iter().copied().filter(|&id| id != self.brokers.node_id).collect();
        others.sort_by_key(|&id| id != record.leader());
        others
    }

    /// Calls `done` once the high watermark reaches `end_offset`, or with an error if the partition stops leading
    /// first. It may be called before this returns.
    pub fn when_acked(&self, end_offset: i64, done: OnAck) {
        let due = self.state.lock().core.await_ack(end_offset, done);
        if let Some((done, code)) = due {
            done(code);
        }
    }

    /// Wakes `waiter` at the next change that is visible to a fetch that waits for `awaits`. The caller must check once more
    /// after this call, because earlier changes are not notified.
    pub fn watch(&self, awaits: Awaits, waiter: Arc<FetchWaiter>) {
        let refused = self.state.lock().core.await_data(awaits, Watcher::Fetch(waiter));
        if let Some(waiter) = refused {
            waiter.notify();
        }
    }

    /// The session with this entry visits the partition from now on, or does not have it any more.
    pub fn end_quiet(&self, entry: &SessionEntry) {
        self.state.lock().core.end_quiet(&entry.news, |watcher| watcher.is_of(entry));
    }

    /// Runs `work` on the log.
    pub fn with<T>(&self, work: impl FnOnce(&mut Log) -> T) -> T {
        work(&mut self.state.lock().log)
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<PartitionConfig> {
        self.config.load_full()
    }
}

impl LogOwner for Partition {
    fn flush_state(&self) -> &FlushState {
        &self.flush_state
    }

    fn begin_flush(&self) -> Option<FlushJob> {
        let mut state = self.state.lock();
        if state.holds_flushes { None } else { state.log.begin_flush() }
    }

    fn complete_flush(&self, end: FlushEnd) {
        self.event(|state, effects| {
            state.log.complete_flush(end);
            let offsets = state.offsets(self.durability);
            state.core.on_flushed(&offsets, &*self.brokers, effects);
            effects.fetches.append(&mut state.flush_waiters);
        });
    }

    fn high_watermark(&self) -> i64 {
        self.state.lock().core.high_watermark()
    }

    fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
        self.event(|state, effects| {
            let start = state.log.log_start_offset();
            work(&mut state.log);
            if state.log.log_start_offset() != start {
                state.core.on_log_start(effects);
            }
        });
    }

    fn go_offline(&self) {
        self.stop(ErrorCode::KAFKA_STORAGE_ERROR);
    }

    fn place(&self) -> Option<usize> {
        Some(self.dir())
    }
}
