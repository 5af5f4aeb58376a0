//! One partition of this broker: its log, its role, and who waits for it.
//!
//! A partition's lock is taken alone; acknowledgements and wake-ups run after it is released. Invariants: (1) the high
//! watermark lies in `[log start, log end]`; (2) with [`Durability::Flushed`] the leader counts itself only up to its
//! flushed offset, so that nothing is committed that a power cut could take back; (3) whoever waits is told exactly once:
//! by the watermark, or when the partition stops leading.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use klamm_base::LogError;
use klamm_base::{ErrorCode, Uuid};
use klamm_log::{AppendError, FlushEnd, FlushJob, FlushState, Log, LogManager, LogOwner, Origin};
use klamm_records::{ProduceRules, RecordsError, convert, validate_produced};
use parking_lot::Mutex;

use super::acks::{Acks, Due, OnAck};
use super::config::PartitionConfig;
use super::fetch_waiter::FetchWaiter;
use super::results::{Appended, Refused};
use super::watchers::Watchers;
use super::watermark::Watermark;

/// What an acknowledgement of acks=all promises (`klamm.flush.before.ack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The records are on the disk of every member of the ISR (`all`).
    Flushed,
    /// The records are in the page cache of every member of the ISR (`none`, as Apache Kafka).
    PageCache,
}

/// Which partition it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionId {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub index: i32,
}

/// Where a partition's log is: the node's directories, and which of them.
#[derive(Clone)]
pub struct Place {
    pub logs: Arc<LogManager>,
    pub dir: usize,
}

/// What the metadata image says of the partition, as far as its leader needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub leader_epoch: i32,
    /// Members of the ISR other than this broker.
    pub isr_followers: Vec<i32>,
    pub replica_count: usize,
}

pub(super) struct Leader {
    pub(super) leadership: Leadership,
    pub(super) watermark: Watermark,
    pub(super) epoch_start_offset: i64,
}

pub(super) enum Role {
    Leader(Leader),
    /// Not led here (any more), deleted, or its log directory is gone: with what to answer, and the watermark that a
    /// later leadership begins with.
    Offline {
        code: ErrorCode,
        high_watermark: i64,
        /// What was appended needs only this disk, so whoever waits for it is still told.
        settles: bool,
    },
}

pub(super) struct State {
    pub(super) log: Log,
    pub(super) role: Role,
    acks: Acks,
    watchers: Watchers,
}

/// Who must hear of a change, collected under the lock and told after it.
#[must_use = "somebody waits for this"]
#[derive(Default)]
pub(super) struct News {
    due: Due,
    watchers: Vec<Arc<FetchWaiter>>,
}

impl News {
    pub(super) fn tell(self) {
        self.due.tell();
        for waiter in self.watchers {
            waiter.wake();
        }
    }
}

impl State {
    /// The log, its leader's part of the role, or what to answer.
    pub(super) fn leading(&mut self) -> Result<(&mut Log, &mut Leader), ErrorCode> {
        match &mut self.role {
            Role::Leader(leader) => Ok((&mut self.log, leader)),
            Role::Offline { code, .. } => Err(*code),
        }
    }

    /// The newest watermark that was known here.
    fn high_watermark(&self) -> i64 {
        match &self.role {
            Role::Leader(leader) => leader.watermark.get(),
            Role::Offline { high_watermark, .. } => *high_watermark,
        }
    }

    /// Whether what ends at `end_offset` is acknowledged by all that it needs.
    fn has_acked(&self, end_offset: i64) -> bool {
        match &self.role {
            Role::Leader(leader) => leader.watermark.get() >= end_offset && leader.watermark.has_min_isr(),
            Role::Offline { .. } => false,
        }
    }

    /// Moves the watermark up to what is held, and collects who waited for that.
    fn advance(&mut self, durability: Durability) -> News {
        let leader = match &mut self.role {
            Role::Leader(leader) => leader,
            Role::Offline { settles: true, .. } => {
                let due = self.acks.reached(own_offset(durability, &self.log), ErrorCode::NONE);
                return News { due, ..News::default() };
            }
            Role::Offline { .. } => return News::default(),
        };
        if !leader.watermark.advance(own_offset(durability, &self.log)) {
            return News::default();
        }
        let high_watermark = leader.watermark.get();
        assert!(high_watermark <= self.log.log_end_offset(), "{high_watermark} > {}", self.log.log_end_offset());
        let code =
            if leader.watermark.has_min_isr() { ErrorCode::NONE } else { ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND };
        News { due: self.acks.reached(high_watermark, code), watchers: self.watchers.take() }
    }
}

/// A refusal without details.
fn refused(code: ErrorCode) -> Refused {
    Refused { code, message: None, record_errors: Vec::new(), log_start_offset: -1 }
}

/// Apache Kafka tells the log's start beside what is wrong with records, not beside what a batch is refused for unread.
fn told(code: ErrorCode, message: String, record_errors: Vec<(i32, Option<String>)>, log_start_offset: i64) -> Refused {
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

/// How far the leader counts itself.
fn own_offset(durability: Durability, log: &Log) -> i64 {
    match durability {
        Durability::Flushed => log.flushed_offset(),
        Durability::PageCache => log.log_end_offset(),
    }
}

/// A partition that this broker leads or led.
pub struct Partition {
    pub id: PartitionId,
    own: Weak<Partition>,
    durability: Durability,
    pub(super) place: Place,
    flush_state: FlushState,
    config: ArcSwap<PartitionConfig>,
    pub(super) state: Mutex<State>,
}

impl Partition {
    /// Takes over leadership of `log`. `high_watermark` is the checkpointed one; alone in the ISR, all that is durable
    /// is committed.
    pub fn lead(
        id: PartitionId,
        mut log: Log,
        leadership: Leadership,
        high_watermark: i64,
        config: Arc<PartitionConfig>,
        durability: Durability,
        place: Place,
    ) -> Arc<Self> {
        let leader = Self::begin_epoch(&mut log, leadership, high_watermark, &config, durability);
        let role = Role::Leader(leader);
        let state = Mutex::new(State { log, role, acks: Acks::default(), watchers: Watchers::default() });
        let partition = Arc::new_cyclic(|own| Self {
            id,
            own: own.clone(),
            durability,
            place,
            flush_state: FlushState::default(),
            config: ArcSwap::new(config),
            state,
        });
        // What an unclean stop left unflushed, and the new epoch.
        partition.mark_dirty();
        partition
    }

    fn mark_dirty(&self) {
        let owner: Arc<dyn LogOwner> = self.arc();
        self.place.logs.dirs()[self.place.dir].flusher().mark_dirty(&owner);
    }

    fn begin_epoch(
        log: &mut Log,
        leadership: Leadership,
        high_watermark: i64,
        config: &PartitionConfig,
        durability: Durability,
    ) -> Leader {
        if log.latest_epoch().is_none_or(|epoch| epoch < leadership.leader_epoch) {
            log.assign_epoch(leadership.leader_epoch, log.log_end_offset());
        }
        let high_watermark = high_watermark.clamp(log.log_start_offset(), log.log_end_offset());
        let min_isr = config.effective_min_isr(leadership.replica_count);
        let mut watermark = Watermark::new(high_watermark, &leadership.isr_followers, min_isr);
        watermark.advance(own_offset(durability, log));
        Leader { leadership, watermark, epoch_start_offset: log.log_end_offset() }
    }

    /// The number of its log directory.
    pub(super) fn dir(&self) -> usize {
        self.place.dir
    }

    /// A handle on itself.
    fn arc(&self) -> Arc<Self> {
        self.own.upgrade().expect("a method runs on a partition that somebody holds")
    }

    /// The metadata image changed: the same leader goes on, or leads a newer epoch.
    pub fn on_leadership(&self, leadership: Leadership) {
        let news = {
            let mut state = self.state.lock();
            let config = self.config.load();
            let State { log, role, .. } = &mut *state;
            match role {
                Role::Leader(leader) if leader.leadership == leadership => return,
                Role::Leader(leader) => {
                    let high_watermark = leader.watermark.get();
                    *leader = Self::begin_epoch(log, leadership, high_watermark, &config, self.durability);
                }
                // The log directory's end is final; another leader's time is not.
                Role::Offline { code: ErrorCode::KAFKA_STORAGE_ERROR, .. } => return,
                Role::Offline { high_watermark, .. } => {
                    let leader = Self::begin_epoch(log, leadership, *high_watermark, &config, self.durability);
                    *role = Role::Leader(leader);
                }
            }
            state.advance(self.durability)
        };
        news.tell();
    }

    /// New settings of the topic.
    pub fn set_config(&self, config: Arc<PartitionConfig>) {
        let news = {
            let mut state = self.state.lock();
            state.log.set_config(config.log.clone());
            if let Role::Leader(leader) = &mut state.role {
                leader.watermark.set_min_isr(config.effective_min_isr(leader.leadership.replica_count));
            }
            self.config.store(config);
            state.advance(self.durability)
        };
        news.tell();
    }

    /// Stops serving: everyone who waits, and everyone who asks from now on, is told `code`. A failed log directory
    /// stays what they are told, whoever leads meanwhile.
    pub fn stop_leading(&self, code: ErrorCode) {
        let news = {
            let mut state = self.state.lock();
            if matches!(state.role, Role::Offline { code: ErrorCode::KAFKA_STORAGE_ERROR, .. }) {
                return;
            }
            let high_watermark = state.high_watermark();
            state.role = Role::Offline { code, high_watermark, settles: false };
            News { due: state.acks.fail(code), watchers: state.watchers.take() }
        };
        news.tell();
    }

    /// Another broker leads, or none: who asks from now on is told so, and who waits too unless this broker is alone in
    /// the ISR. Then what was appended is kept, and a producer that was told otherwise would send it once more, at worst
    /// to a log that was closed and opened since and looks back only so far for what its snapshot lacks (`log/recall.rs`).
    pub fn resign(&self) {
        let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        let news = {
            let mut state = self.state.lock();
            let settles = match &state.role {
                Role::Leader(leader) => leader.leadership.isr_followers.is_empty() && leader.watermark.has_min_isr(),
                Role::Offline { .. } => return,
            };
            let high_watermark = state.high_watermark();
            state.role = Role::Offline { code, high_watermark, settles };
            let due = if settles { Due::default() } else { state.acks.fail(code) };
            News { due, watchers: state.watchers.take() }
        };
        news.tell();
    }

    /// Appends what a client or a coordinator of this node produced; `batches` is patched in place.
    ///
    /// `required_acks` -1 asks for min.insync.replicas to be there. [`Partition::when_acked`] tells when the result is
    /// acknowledged by all.
    pub fn append(
        &self,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, Refused> {
        let (appended, wants_flush) = self.append_unmarked(batches, required_acks, origin, now_ms)?;
        if wants_flush {
            self.mark_dirty();
        }
        Ok(appended)
    }

    /// The same, but the flusher is not told; whether [`Replicas::mark_dirty`](super::Replicas::mark_dirty) has to.
    pub fn append_unmarked(
        &self,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        now_ms: i64,
    ) -> Result<(Appended, bool), Refused> {
        let config = self.config.load();
        let rules = config.produce_rules(origin, now_ms);
        let produced = validate_produced(batches, &rules).map_err(|error| self.refuse(&error))?;
        let (max_timestamp, stamp) = (produced.max_timestamp, produced.needs_timestamp(rules.timestamp_type));
        let rewritten = convert::rewrite_if_needed(&produced, config.compression, &rules);
        let mut rewritten = rewritten.map_err(|error| self.refuse(&error))?;
        let batches = rewritten.as_deref_mut().unwrap_or(batches);
        if stamp {
            convert::set_max_timestamp(batches, rules.timestamp_type, max_timestamp);
        }
        self.append_checked(batches, required_acks, origin, &rules)
    }

    fn append_checked(
        &self,
        batches: &mut [u8],
        required_acks: i16,
        origin: Origin,
        rules: &ProduceRules,
    ) -> Result<(Appended, bool), Refused> {
        let (appended, wants_flush, news) = {
            let mut state = self.state.lock();
            let (log, leader) = state.leading().map_err(refused)?;
            if required_acks == -1 && !leader.watermark.has_min_isr() {
                return Err(refused(ErrorCode::NOT_ENOUGH_REPLICAS));
            }
            match log.append_as_leader(batches, leader.leadership.leader_epoch, rules.now_ms, origin) {
                Ok(appended) => {
                    let (end_offset, log_start_offset) = (appended.last_offset + 1, log.log_start_offset());
                    let wants_flush = log.wants_flush();
                    let news = state.advance(self.durability);
                    let appended = Appended {
                        base_offset: appended.base_offset,
                        log_append_time_ms: appended.append_time_ms,
                        log_start_offset,
                        end_offset,
                        is_acked: state.has_acked(end_offset),
                    };
                    (appended, wants_flush, news)
                }
                Err(error) => {
                    let log_start_offset = log.log_start_offset();
                    drop(state);
                    return Err(self.append_failed(&error, log_start_offset));
                }
            }
        };
        news.tell();
        Ok((appended, wants_flush))
    }

    fn append_failed(&self, error: &AppendError, log_start_offset: i64) -> Refused {
        if let AppendError::Log(error) = error {
            self.report(error);
        }
        told(error.code(), error.to_string(), Vec::new(), log_start_offset)
    }

    fn refuse(&self, error: &RecordsError) -> Refused {
        let record_errors = error.refused_records().iter().map(|r| (r.index, Some(r.refusal.to_string()))).collect();
        let log_start_offset = self.state.lock().log.log_start_offset();
        told(ErrorCode(error.error_code()), error.to_string(), record_errors, log_start_offset)
    }

    /// Tells the directory of an error that it must not survive, and reports damage.
    pub fn report(&self, error: &LogError) {
        self.place.logs.report_damage(error);
        if error.stops_directory() {
            self.place.logs.fail_dir(self.place.dir, &error.to_string());
        }
    }

    /// Calls `done` once the high watermark is at `end_offset` or beyond, or with an error when the partition stops
    /// leading first. It may be called before this returns.
    pub fn when_acked(&self, end_offset: i64, done: OnAck) {
        let code = {
            let mut state = self.state.lock();
            match &state.role {
                Role::Leader(leader) if leader.watermark.get() < end_offset => {
                    state.acks.push(end_offset, done);
                    return;
                }
                Role::Leader(leader) if leader.watermark.has_min_isr() => ErrorCode::NONE,
                Role::Leader(_) => ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                Role::Offline { settles: true, .. } if own_offset(self.durability, &state.log) < end_offset => {
                    state.acks.push(end_offset, done);
                    return;
                }
                Role::Offline { settles: true, .. } => ErrorCode::NONE,
                Role::Offline { code, .. } => *code,
            }
        };
        done(code);
    }

    /// Wakes `waiter` at the next change that a fetch could see. The caller looks once more after it: what happened
    /// before this call is not told.
    pub fn watch(&self, waiter: Arc<FetchWaiter>) {
        let mut state = self.state.lock();
        if matches!(state.role, Role::Leader(_)) {
            state.watchers.push(waiter);
        } else {
            drop(state);
            waiter.wake();
        }
    }

    /// Runs `work` on the log.
    pub fn with<T>(&self, work: impl FnOnce(&mut Log) -> T) -> T {
        work(&mut self.state.lock().log)
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<PartitionConfig> {
        self.config.load_full()
    }
}

impl LogOwner for Partition {
    fn flush_state(&self) -> &FlushState {
        &self.flush_state
    }

    fn begin_flush(&self) -> Option<FlushJob> {
        self.state.lock().log.begin_flush()
    }

    fn complete_flush(&self, end: FlushEnd) {
        let news = {
            let mut state = self.state.lock();
            state.log.complete_flush(end);
            state.advance(self.durability)
        };
        news.tell();
    }

    fn high_watermark(&self) -> i64 {
        self.state.lock().high_watermark()
    }

    fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
        work(&mut self.state.lock().log);
    }

    fn go_offline(&self) {
        self.stop_leading(ErrorCode::KAFKA_STORAGE_ERROR);
    }
}
