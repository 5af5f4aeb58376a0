//! The state that a replica has only while it leads.

use klamm_base::ErrorCode;

use super::isr::{Isr, IsrMember};
use super::progress::Progress;
use super::waiting::FollowerSession;
use super::{Assignment, Context, FollowerFetch, LogOffsets, Rule};

pub(super) struct Leader<S> {
    /// The end of the log when this leadership's epoch began.
    pub(super) epoch_start_offset: i64,
    pub(super) isr: Isr,
    /// All replicas but this one.
    others: Vec<Progress<S>>,
}

impl<S: FollowerSession> Leader<S> {
    pub(super) fn new(node_id: i32, assignment: &Assignment, end_offset: i64, now_ms: i64) -> Self {
        let mut leader = Self { epoch_start_offset: end_offset, isr: Isr::default(), others: Vec::new() };
        leader.on_assignment(node_id, assignment);
        leader.begin_epoch(end_offset, now_ms, true);
        leader
    }

    /// Applies replicas and ISR of an image. The progress of replicas that stay is kept.
    pub(super) fn on_assignment(&mut self, node_id: i32, assignment: &Assignment) {
        self.isr = Isr::new(&assignment.isr);
        self.others.retain(|progress| assignment.replicas.contains(&progress.id));
        for &id in assignment.replicas.iter().filter(|&&id| id != node_id) {
            if self.progress_of(id).is_none() {
                self.others.push(Progress::new(id));
            }
        }
    }

    /// A new leader epoch begins. Another broker may have led in between without this one hearing of it, and followers may have
    /// truncated what they had fetched from here: nothing is known of them, until they fetch in this epoch.
    pub(super) fn begin_epoch(&mut self, end_offset: i64, now_ms: i64, forgets: bool) {
        self.epoch_start_offset = end_offset;
        for progress in &mut self.others {
            let is_in_sync = self.isr.committed().contains(&progress.id);
            progress.begin_epoch(is_in_sync, end_offset, now_ms, forgets);
        }
    }

    pub(super) fn progress_of(&self, id: i32) -> Option<&Progress<S>> {
        self.others.iter().find(|progress| progress.id == id)
    }

    /// A fetch of a replica; true if the end of its log has changed. A fetch from an earlier life of the broker is refused.
    pub(super) fn on_fetch(&mut self, fetch: &FollowerFetch, context: Context<'_>) -> Result<bool, ErrorCode> {
        let progress = self.others.iter_mut().find(|progress| progress.id == fetch.replica_id);
        let progress = progress.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        if fetch.broker_epoch != -1 {
            let registered = context.brokers.standing(fetch.replica_id).map(|broker| broker.epoch);
            if registered.max(progress.broker_epoch) > Some(fetch.broker_epoch) {
                return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
            }
        }
        Ok(progress.on_fetch(fetch, context.now_ms))
    }

    /// Whether the partition is quiet in this follower's session from now on. It is not while the follower is out of the ISR:
    /// then each of its fetches may propose it.
    pub(super) fn become_quiet(&mut self, id: i32, end_offset: i64, session: &S) -> bool {
        let is_in_sync = self.isr.committed().contains(&id);
        let progress = self.others.iter_mut().find(|progress| progress.id == id);
        let Some(progress) = progress.filter(|it| is_in_sync && it.end_offset == end_offset) else { return false };
        progress.become_quiet(session);
        true
    }

    /// The newest fetch of a session in which the partition is quiet.
    #[inline]
    pub(super) fn quiet_fetch_ms(&self) -> Option<i64> {
        self.others.iter().filter_map(Progress::quiet_fetch_ms).max()
    }

    /// The partition is not quiet any more: in the follower's session with this last fetch, or in any.
    #[inline]
    pub(super) fn end_quiet(&mut self, session: Option<&S>) {
        let others = self.others.iter_mut();
        let others = others.filter(|progress| session.is_none_or(|session| progress.is_quiet_in(session)));
        others.for_each(Progress::end_quiet);
    }

    /// Whether a replica that fetched should join the ISR: it holds everything that is committed, and everything that
    /// existed when this leader began, and nothing below the start of the leader's log, which could not be compared.
    pub(super) fn may_join(&self, id: i32, high_watermark: i64, log_start: i64, context: Context<'_>) -> bool {
        let start_offset = if context.keeps(Rule::JoinFromEpochStart) { self.epoch_start_offset } else { 0 };
        let high_watermark = if context.keeps(Rule::JoinFromHighWatermark) { high_watermark } else { 0 };
        !self.isr.is_pending()
            && !self.isr.committed().contains(&id)
            && self.progress_of(id).is_some_and(|progress| {
                progress.end_offset >= high_watermark.max(start_offset)
                    && (progress.start_offset >= log_start || !context.keeps(Rule::JoinFromLogStart))
                    && (progress.is_eligible(context) || !context.keeps(Rule::JoinEligible))
            })
    }

    pub(super) fn isr_with(&self, id: i32) -> Vec<i32> {
        self.isr.committed().iter().copied().chain([id]).collect()
    }

    /// The ISR without the members that lag; `None` if none does.
    pub(super) fn isr_without_lagging(&self, node_id: i32, end_offset: i64, context: Context<'_>) -> Option<Vec<i32>> {
        let lags = |id: i32| {
            id != node_id && self.progress_of(id).is_none_or(|progress| !progress.is_caught_up(end_offset, context))
        };
        let left: Vec<_> = self.isr.committed().iter().copied().filter(|&id| !lags(id)).collect();
        (left.len() < self.isr.committed().len()).then_some(left)
    }

    /// The member of a proposal, with the broker epoch of its last fetch. The sender adds its own.
    pub(super) fn member(&self, node_id: i32, id: i32) -> IsrMember {
        let fetched_with = self.progress_of(id).and_then(|progress| progress.broker_epoch);
        IsrMember { id, broker_epoch: if id == node_id { -1 } else { fetched_with.unwrap_or(-1) } }
    }

    /// The offset below which every replica that counts has the log: the maximal ISR, and replicas that are about to join.
    #[inline]
    pub(super) fn held_by_all(&self, offsets: &LogOffsets, context: Context<'_>) -> i64 {
        let is_member = |id| match context.keeps(Rule::CountMaximalIsr) {
            true => self.isr.is_maximal_member(id),
            false => self.isr.is_proposed(id) || !self.isr.is_pending() && self.isr.committed().contains(&id),
        };
        let counts = |progress: &Progress<S>| {
            is_member(progress.id) || (progress.is_caught_up(offsets.end, context) && progress.is_eligible(context))
        };
        let behind = |held: i64, progress: &Progress<S>| {
            if progress.end_offset < held && counts(progress) { progress.end_offset } else { held }
        };
        self.others.iter().fold(offsets.counted, behind)
    }

    /// The follower that is furthest, of those in the ISR that hold this offset.
    pub(super) fn most_caught_up(&self, offset: i64, is_wanted: impl Fn(i32) -> bool) -> Option<i32> {
        let holds = |progress: &&Progress<S>| (progress.start_offset..=progress.end_offset).contains(&offset);
        let in_sync = self.others.iter().filter(|progress| self.isr.committed().contains(&progress.id));
        let found = in_sync.filter(holds).filter(|progress| is_wanted(progress.id));
        found.max_by_key(|progress| (progress.end_offset, progress.caught_up_ms(), progress.id)).map(|found| found.id)
    }

    pub(super) fn low_watermark(&self, offsets: &LogOffsets, context: Context<'_>) -> i64 {
        if !context.keeps(Rule::DeleteEverywhere) {
            return offsets.start;
        }
        let is_alive = |id| context.brokers.standing(id).is_some_and(|broker| broker.is_active);
        let others = self.others.iter().filter(|progress| is_alive(progress.id));
        others.fold(offsets.start, |least, progress| least.min(progress.start_offset))
    }
}
