//! The replication state of one partition on this broker, without clock, file, lock or socket.
//!
//! [`PartitionCore`] holds role, leader epoch, partition epoch, assignment, ISR, the progress of the other replicas, the
//! high watermark, and the requests that wait for it. Events come in with the time and with the offsets of the log, and
//! [`Effects`] go out. The caller owns the log, and carries the effects out after it has released its lock.
//!
//! Invariants, as in the model of KIP-966:
//! 1. The high watermark never decreases, except when the log is truncated below it.
//! 2. A leader's high watermark is at most what each member of the maximal ISR (committed and proposed) is known to hold.
//! 3. Only a new leader epoch resets the start offset of the epoch and the progress of replicas.
//! 4. Without leadership no append is acknowledged.
//! 5. At most one change of the ISR is proposed at a time, and it holds until the controller's answer or a newer image.
//! 6. An image with an older or the same partition epoch and the same leader changes nothing.
//!
//! Source: `Partition` and `Replica` of Apache Kafka 4.3, KIP-497, KIP-903, KIP-966.

mod events;
mod isr;
mod leader;
mod progress;
mod rule;
#[cfg(test)]
mod tests;
mod waiting;

use klamm_base::ErrorCode;

pub use events::{Assignment, BrokerStanding, Brokers, Effects, FollowerFetch, IsrAnswer, LogOffsets, RoleChange};
pub use isr::{IsrMember, IsrProposal};
use leader::Leader;
pub use rule::Rule;
use waiting::Waiting;
pub use waiting::{Awaits, FollowerSession, Waiter};

/// The time and the brokers of the image at an event.
#[derive(Clone, Copy)]
struct Context<'a> {
    now_ms: i64,
    brokers: &'a dyn Brokers,
    /// `replica.lag.time.max.ms`
    lag_max_ms: i64,
    without: Option<Rule>,
}

impl Context<'_> {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

enum Role<S> {
    Leader(Leader<S>),
    /// The leader, or -1.
    Follower {
        leader: i32,
    },
    /// Deleted, or its log directory failed: final.
    Offline(ErrorCode),
}

/// One partition. `A` answers an append, `F` wakes a fetch.
pub struct PartitionCore<A, F: Waiter> {
    node_id: i32,
    /// `replica.lag.time.max.ms`
    lag_max_ms: i64,
    /// The latest time of an event, monotonic. An append reads no clock: a replica that is about to join the ISR then holds
    /// the high watermark back for longer, at most until the next lag check.
    now_ms: i64,
    leader_epoch: i32,
    partition_epoch: i32,
    replicas: Vec<i32>,
    role: Role<F::Session>,
    begins_outside_isr: bool,
    high_watermark: i64,
    /// `min.insync.replicas`
    min_insync_replicas: usize,
    waiting: Waiting<A, F>,
    without: Option<Rule>,
}

impl<A, F: Waiter> PartitionCore<A, F> {
    /// A replica that has no role yet. `high_watermark` is the checkpointed one.
    pub fn new(node_id: i32, lag_max_ms: i64, high_watermark: i64, min_insync_replicas: usize) -> Self {
        Self {
            node_id,
            lag_max_ms,
            now_ms: i64::MIN,
            leader_epoch: -1,
            partition_epoch: -1,
            replicas: Vec::new(),
            role: Role::Follower { leader: -1 },
            begins_outside_isr: false,
            high_watermark,
            min_insync_replicas,
            waiting: Waiting::default(),
            without: None,
        }
    }

    /// The same without a rule, for a simulation that must notice it.
    pub fn without(self, rule: Option<Rule>) -> Self {
        Self { without: rule, ..self }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The newest leader epoch of an image.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The leader that this replica follows.
    pub fn following(&self) -> Option<i32> {
        match self.role {
            Role::Follower { leader } if leader >= 0 => Some(leader),
            _ => None,
        }
    }

    /// Whether this replica was not in the ISR when the leader epoch began, and does not fetch in it yet. Nothing of its log counts.
    pub fn begins_outside_isr(&self) -> bool {
        self.begins_outside_isr
    }

    /// This replica begins to fetch, which may bring it into the ISR.
    pub fn on_following_begun(&mut self) {
        self.begins_outside_isr = false;
    }

    /// `None` unless this broker leads.
    pub fn epoch_start_offset(&self) -> Option<i64> {
        self.leader().ok().map(|leader| leader.epoch_start_offset)
    }

    /// The committed ISR; empty unless this broker leads.
    pub fn isr(&self) -> &[i32] {
        self.leader().map_or(&[], |leader| leader.isr.committed())
    }

    /// Whether this broker leads; otherwise the error to return.
    pub fn check_leader(&self) -> Result<(), ErrorCode> {
        self.leader().map(drop)
    }

    /// Whether this replica has a log to read from; otherwise the error to return.
    pub fn check_online(&self) -> Result<(), ErrorCode> {
        if let Role::Offline(code) = self.role { Err(code) } else { Ok(()) }
    }

    /// The replica that a consumer in `rack` reads from instead of this leader (KIP-392, `RackAwareReplicaSelector`).
    pub fn replica_in_rack(&self, rack: &str, fetch_offset: i64, brokers: &dyn Brokers) -> Option<i32> {
        let leader = self.leader().ok()?;
        if rack.is_empty() || brokers.is_in_rack(self.node_id, rack) {
            return None;
        }
        leader.most_caught_up(fetch_offset, |id| {
            brokers.is_in_rack(id, rack) && brokers.standing(id).is_some_and(|broker| broker.is_active)
        })
    }

    /// Checks the leader epoch that a request expects (-1: none).
    pub fn check_epoch(&self, expected: i32) -> Result<(), ErrorCode> {
        match expected {
            -1 => Ok(()),
            epoch if epoch < self.leader_epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
            epoch if epoch > self.leader_epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            _ => Ok(()),
        }
    }

    /// Whether an append with acks=all may begin.
    pub fn check_min_isr(&self) -> Result<(), ErrorCode> {
        let has_min_isr = self.leader()?.isr.committed().len() >= self.min_isr();
        if has_min_isr || !self.keeps(Rule::AppendWithMinIsr) { Ok(()) } else { Err(ErrorCode::NOT_ENOUGH_REPLICAS) }
    }

    /// The replica of a follower's fetch, or the error: with a leader epoch in its request it knows this leadership, so
    /// that its assignment is one that this broker does not know yet.
    pub fn check_follower(&self, replica_id: i32, has_epoch: bool) -> Result<(), ErrorCode> {
        match self.leader()?.progress_of(replica_id) {
            Some(_) => Ok(()),
            None if has_epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            None => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    /// The smallest log start offset of this replica and of all others whose broker is alive (DeleteRecords).
    pub fn low_watermark(&self, offsets: &LogOffsets, brokers: &dyn Brokers) -> Result<i64, ErrorCode> {
        Ok(self.leader()?.low_watermark(offsets, self.context(brokers)))
    }

    /// Applies a partition of a newer image.
    pub fn on_assignment(
        &mut self,
        assignment: &Assignment,
        offsets: &LogOffsets,
        now_ms: i64,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) {
        self.now_ms = self.now_ms.max(now_ms);
        let leads = assignment.leader == self.node_id;
        let is_same_role = match &self.role {
            Role::Offline(_) => return,
            Role::Leader(_) => leads,
            Role::Follower { leader } => *leader == assignment.leader,
        };
        let is_newer = assignment.partition_epoch > self.partition_epoch;
        let is_old = assignment.leader_epoch < self.leader_epoch || !is_newer && is_same_role;
        if is_old && self.keeps(Rule::NewerAssignment) {
            return;
        }
        let is_new_epoch = assignment.leader_epoch > self.leader_epoch;
        self.leader_epoch = assignment.leader_epoch;
        self.partition_epoch = assignment.partition_epoch;
        self.replicas.clone_from(&assignment.replicas);
        self.begins_outside_isr = !assignment.isr.contains(&self.node_id) && (self.begins_outside_isr || is_new_epoch);
        if leads {
            self.lead(assignment, is_new_epoch, offsets, brokers, effects);
        } else {
            self.follow(assignment.leader, is_new_epoch, effects);
        }
    }

    fn lead(
        &mut self,
        assignment: &Assignment,
        is_new_epoch: bool,
        offsets: &LogOffsets,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) {
        let forgets = self.keeps(Rule::ForgetProgress);
        match &mut self.role {
            Role::Leader(leader) => {
                leader.end_quiet(None);
                leader.on_assignment(self.node_id, assignment);
                if is_new_epoch {
                    leader.begin_epoch(offsets.end, self.now_ms, forgets);
                }
            }
            role => {
                *role = Role::Leader(Leader::new(self.node_id, assignment, offsets.end, self.now_ms));
                self.high_watermark = self.high_watermark.clamp(offsets.start, offsets.end);
            }
        }
        effects.fetches.extend(self.waiting.take_fetches());
        if is_new_epoch {
            effects.role = Some(RoleChange::Lead { epoch: self.leader_epoch, start_offset: offsets.end });
        }
        self.advance(offsets, brokers, effects);
    }

    fn follow(&mut self, leader: i32, is_new_epoch: bool, effects: &mut Effects<A, F>) {
        let had_role = std::mem::replace(&mut self.role, Role::Follower { leader });
        let is_same = matches!(had_role, Role::Follower { leader: before } if before == leader);
        if is_same && !is_new_epoch {
            return;
        }
        let code = if self.keeps(Rule::FailAcks) { ErrorCode::NOT_LEADER_OR_FOLLOWER } else { ErrorCode::NONE };
        self.waiting.fail_acks(code, effects);
        effects.fetches.extend(self.waiting.take_fetches());
        effects.role = Some(match leader {
            -1 => RoleChange::Stop,
            leader => RoleChange::Follow { leader, epoch: self.leader_epoch },
        });
    }

    /// Stops serving for good: waiting requests and all later ones receive `code`. An error of the log directory is not
    /// replaced by another one.
    pub fn go_offline(&mut self, code: ErrorCode, effects: &mut Effects<A, F>) {
        if matches!(self.role, Role::Offline(ErrorCode::KAFKA_STORAGE_ERROR)) {
            return;
        }
        self.role = Role::Offline(code);
        self.waiting.fail_acks(code, effects);
        effects.fetches.extend(self.waiting.take_fetches());
        effects.role = Some(RoleChange::Stop);
    }

    /// The leader appended: fetches of followers look again, and the high watermark may advance.
    pub fn on_appended(&mut self, offsets: &LogOffsets, brokers: &dyn Brokers, effects: &mut Effects<A, F>) {
        self.wake(Awaits::LogEnd, effects);
        self.advance(offsets, brokers, effects);
    }

    /// The log start moved up: followers learn it at once, because a deletion waits for them.
    pub fn on_log_start(&mut self, effects: &mut Effects<A, F>) {
        self.wake(Awaits::HighWatermark, effects);
    }

    /// Damage was replaced: the last stable offset may have changed.
    pub fn on_repaired(&mut self, effects: &mut Effects<A, F>) {
        self.wake(Awaits::HighWatermark, effects);
    }

    /// More of the log is flushed.
    pub fn on_flushed(&mut self, offsets: &LogOffsets, brokers: &dyn Brokers, effects: &mut Effects<A, F>) {
        self.advance(offsets, brokers, effects);
    }

    /// A follower fetched: everything below the offset of its fetch is in its log.
    pub fn on_follower_fetch(
        &mut self,
        fetch: &FollowerFetch,
        offsets: &LogOffsets,
        now_ms: i64,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) -> Result<(), ErrorCode> {
        self.now_ms = self.now_ms.max(now_ms);
        let (high_watermark, context) = (self.high_watermark, self.context(brokers));
        let leader = self.leader_mut()?;
        let end_before = leader.progress_of(fetch.replica_id).map_or(0, |progress| progress.end_offset);
        let has_moved = leader.on_fetch(fetch, context)?;
        let may_join = leader.may_join(fetch.replica_id, high_watermark, offsets.start, context);
        if may_join {
            self.propose(|leader| leader.isr_with(fetch.replica_id), effects);
        }
        if has_moved || may_join {
            self.advance(offsets, brokers, effects);
        }
        if (end_before + 1..=fetch.fetch_offset).contains(&high_watermark) {
            // A consumer in its rack may read from it from now on.
            self.wake(Awaits::HighWatermark, effects);
        }
        Ok(())
    }

    /// A fetch in a session found nothing new. Whether it visits this partition only after the next change, at which `fetch`
    /// is woken. `session` is that of a follower.
    pub fn become_quiet(
        &mut self,
        (awaits, fetch): (Awaits, F),
        follower: Option<(i32, &F::Session)>,
        offsets: &LogOffsets,
    ) -> bool {
        if let Some((id, session)) = follower
            && !self.leader_mut().is_ok_and(|leader| leader.become_quiet(id, offsets.end, session))
        {
            return false;
        }
        self.await_data(awaits, fetch).is_none()
    }

    /// The session ends, or no longer has the partition, or visits it. A follower's `session` counts up to now.
    pub fn end_quiet(&mut self, session: &F::Session, is_entry: impl Fn(&F) -> bool) {
        self.waiting.remove_fetch(is_entry);
        if let Ok(leader) = self.leader_mut() {
            leader.end_quiet(Some(session));
        }
    }

    /// Time passed: replicas that lag leave the ISR, and no longer hold back the high watermark. Called every half of
    /// `replica.lag.time.max.ms`.
    pub fn on_lag_check(
        &mut self,
        offsets: &LogOffsets,
        now_ms: i64,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) {
        self.now_ms = self.now_ms.max(now_ms);
        let context = self.context(brokers);
        let Role::Leader(leader) = &mut self.role else { return };
        if !leader.isr.is_pending()
            && context.keeps(Rule::ShrinkIsr)
            && let Some(left) = leader.isr_without_lagging(self.node_id, offsets.end, context)
        {
            self.propose(|_| left, effects);
        }
        self.advance(offsets, brokers, effects);
    }

    fn propose(&mut self, isr: impl FnOnce(&Leader<F::Session>) -> Vec<i32>, effects: &mut Effects<A, F>) {
        let (node_id, leader_epoch, partition_epoch) = (self.node_id, self.leader_epoch, self.partition_epoch);
        let Role::Leader(leader) = &mut self.role else { return };
        let members = isr(leader).into_iter().map(|id| leader.member(node_id, id)).collect();
        let proposal = IsrProposal { leader_epoch, partition_epoch, members };
        leader.isr.propose(proposal.clone());
        effects.proposal = Some(proposal);
    }

    /// The proposed change, as long as neither an answer nor a newer image has ended it.
    pub fn pending_isr(&self) -> Option<&IsrProposal> {
        self.leader().ok().and_then(|leader| leader.isr.pending())
    }

    /// Whether this is the proposed change.
    pub fn is_pending(&self, proposal: &IsrProposal) -> bool {
        self.leader().is_ok_and(|leader| leader.isr.pending() == Some(proposal))
    }

    /// The controller answered a proposal. True if it must be sent again.
    pub fn on_isr_answer(
        &mut self,
        proposal: &IsrProposal,
        answer: Result<&IsrAnswer, ErrorCode>,
        offsets: &LogOffsets,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) -> bool {
        if !self.is_pending(proposal) {
            return false;
        }
        let (leader_epoch, partition_epoch) = (self.leader_epoch, self.partition_epoch);
        let (keeps_refused, withdraws) = (self.keeps(Rule::KeepRefused), self.keeps(Rule::WithdrawIneligible));
        let Role::Leader(leader) = &mut self.role else { return false };
        match answer {
            Ok(answer) if answer.leader_epoch == leader_epoch && answer.partition_epoch >= partition_epoch => {
                leader.isr.commit(&answer.isr);
                self.partition_epoch = answer.partition_epoch;
                // A follower that left the ISR is visited until it has returned.
                self.wake(Awaits::HighWatermark, effects);
                self.advance(offsets, brokers, effects);
                false
            }
            // Of another leadership: the image will say.
            Ok(_) => false,
            Err(ErrorCode::INELIGIBLE_REPLICA | ErrorCode::OPERATION_NOT_ATTEMPTED) => {
                if withdraws {
                    leader.isr.withdraw();
                }
                false
            }
            // What this broker knows of the partition is old: the proposal may have been committed, so that it counts
            // until a newer image arrives.
            Err(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                | ErrorCode::UNKNOWN_TOPIC_ID
                | ErrorCode::FENCED_LEADER_EPOCH
                | ErrorCode::INVALID_UPDATE_VERSION
                | ErrorCode::INVALID_REQUEST
                | ErrorCode::NEW_LEADER_ELECTED,
            ) => {
                if !keeps_refused {
                    leader.isr.withdraw();
                }
                false
            }
            Err(_) => true,
        }
    }

    /// Applies a new `min.insync.replicas`.
    pub fn on_min_isr(
        &mut self,
        min_insync_replicas: usize,
        offsets: &LogOffsets,
        brokers: &dyn Brokers,
        effects: &mut Effects<A, F>,
    ) {
        self.min_insync_replicas = min_insync_replicas;
        self.advance(offsets, brokers, effects);
    }

    /// A follower received the leader's high watermark.
    pub fn on_leader_high_watermark(&mut self, high_watermark: i64, offsets: &LogOffsets, effects: &mut Effects<A, F>) {
        let end = if self.keeps(Rule::HighWatermarkInLog) { offsets.end } else { i64::MAX };
        if matches!(self.role, Role::Follower { .. }) && high_watermark.min(end) > self.high_watermark {
            self.high_watermark = high_watermark.min(end);
            self.wake(Awaits::HighWatermark, effects);
        }
    }

    /// A follower appended what its leader returned.
    pub fn on_fetched(&mut self, effects: &mut Effects<A, F>) {
        self.wake(Awaits::LogEnd, effects);
    }

    /// A follower truncated its log.
    pub fn on_truncated(&mut self, offsets: &LogOffsets, effects: &mut Effects<A, F>) {
        self.high_watermark = self.high_watermark.clamp(offsets.start.min(offsets.end), offsets.end);
        self.wake(Awaits::HighWatermark, effects);
    }

    /// Registers an append that waits until the high watermark reaches `end_offset`; returns it with its result if there
    /// is nothing to wait for.
    pub fn await_ack(&mut self, end_offset: i64, ack: A) -> Option<(A, ErrorCode)> {
        match self.ack_result(end_offset) {
            Some(code) => Some((ack, code)),
            None => {
                self.waiting.push_ack(end_offset, ack);
                None
            }
        }
    }

    /// The result of an append with acks=all that ends at `end_offset`; `None` while it must wait.
    pub fn ack_result(&self, end_offset: i64) -> Option<ErrorCode> {
        match self.leader() {
            Err(code) => Some(code),
            Ok(_) if self.high_watermark < end_offset => None,
            Ok(leader) => Some(self.acked_code(leader)),
        }
    }

    fn acked_code(&self, leader: &Leader<F::Session>) -> ErrorCode {
        if leader.isr.maximal_len() >= self.min_isr() {
            ErrorCode::NONE
        } else {
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        }
    }

    /// Registers a fetch; returns it if this replica does not serve. The caller looks once more at the log after this,
    /// because earlier changes are not notified.
    pub fn await_data(&mut self, awaits: Awaits, fetch: F) -> Option<F> {
        if let Role::Offline(_) = self.role {
            return Some(fetch);
        }
        self.waiting.push_fetch(awaits, fetch);
        None
    }

    fn leader(&self) -> Result<&Leader<F::Session>, ErrorCode> {
        match &self.role {
            Role::Leader(leader) => Ok(leader),
            Role::Follower { .. } => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Role::Offline(code) => Err(*code),
        }
    }

    fn leader_mut(&mut self) -> Result<&mut Leader<F::Session>, ErrorCode> {
        match &mut self.role {
            Role::Leader(leader) => Ok(leader),
            Role::Follower { .. } => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Role::Offline(code) => Err(*code),
        }
    }

    fn context<'a>(&self, brokers: &'a dyn Brokers) -> Context<'a> {
        Context { now_ms: self.now_ms, brokers, lag_max_ms: self.lag_max_ms, without: self.without }
    }

    /// The effective min ISR (KIP-966): at most the number of replicas.
    fn min_isr(&self) -> usize {
        self.min_insync_replicas.min(self.replicas.len())
    }

    /// Wakes the fetches that a change concerns. Those of followers are always among them, so that the partition is quiet in no
    /// follower's session any more.
    fn wake(&mut self, changed: Awaits, effects: &mut Effects<A, F>) {
        self.pass_quiet_time();
        self.waiting.wake_fetches(changed, effects);
        if let Role::Leader(leader) = &mut self.role {
            leader.end_quiet(None);
        }
    }

    /// A fetch in whose session the partition is quiet is an event, too.
    #[inline]
    fn pass_quiet_time(&mut self) {
        if let Role::Leader(leader) = &self.role
            && let Some(fetched_ms) = leader.quiet_fetch_ms()
        {
            self.now_ms = self.now_ms.max(fetched_ms);
        }
    }

    /// Advances the leader's high watermark, and notifies what waited for it.
    fn advance(&mut self, offsets: &LogOffsets, brokers: &dyn Brokers, effects: &mut Effects<A, F>) {
        self.pass_quiet_time();
        let (min_isr, context) = (self.min_isr(), self.context(brokers));
        let Role::Leader(leader) = &self.role else { return };
        // KIP-966: below the min ISR nothing is committed, so that each committed record is on that many replicas.
        if leader.isr.committed().len() < min_isr && self.keeps(Rule::CommitWithMinIsr) {
            return;
        }
        let held_by_all = leader.held_by_all(offsets, context);
        if held_by_all <= self.high_watermark {
            return;
        }
        assert!(held_by_all <= offsets.end, "{held_by_all} > {}", offsets.end);
        self.high_watermark = held_by_all;
        let code = self.acked_code(leader);
        self.waiting.reach(held_by_all, code, effects);
        self.wake(Awaits::HighWatermark, effects);
    }
}
