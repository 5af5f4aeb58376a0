//! A follower's operations: appends of fetched batches and truncations, each only while it follows in the leader epoch of the
//! fetch.
//!
//! Source: `Partition.appendRecordsToFollower`, `ReplicaFetcherThread` and `AbstractFetcherThread` of Apache Kafka 4.3, KIP-101,
//! KIP-279, KIP-595.

use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_log::{AppendError, Log, LogOwner};
use klamm_records::header::Header;

use super::core::Rule;
use super::fetch_waiter::{FetchWaiter, Watcher};
use super::partition::{Effects, Fetching, Partition, PartitionId, State};

/// The leader that a replica follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    pub leader: i32,
    pub leader_epoch: i32,
}

/// Where a follower continues to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The end of the log.
    pub fetch_offset: i64,
    /// The newest epoch in the log; -1: the log has none, and the leader cannot compare.
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    /// Whether all of the log is on the disk, as far as it has to be before the leader counts it.
    pub is_flushed: bool,
}

/// What a leader returned for a partition.
#[derive(Clone, Copy, Debug)]
pub struct FetchedBatches<'a> {
    pub records: &'a [u8],
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

/// A log that contains what its leader's log does not.
pub struct Diverging {
    pub partition: Arc<Partition>,
    pub leader_epoch: i32,
    /// The leader's largest epoch up to the one that was fetched with, and its end offset.
    pub leader_end: (i32, i64),
}

/// Truncates each log at the end of the largest epoch that both logs have. The next fetch finds whether they still differ.
pub fn truncate_diverging(diverging: &[Diverging], now_ms: i64) -> Vec<Result<Position, ErrorCode>> {
    let mut results = Vec::with_capacity(diverging.len());
    let mut planned: BTreeMap<usize, Vec<(usize, Planned<'_>)>> = BTreeMap::new();
    for Diverging { partition, leader_epoch, leader_end: (epoch, leader_end) } in diverging {
        let (leader_epoch, leader_end) = (*leader_epoch, *leader_end);
        let plan = partition.plan(leader_epoch, |state| {
            let end = match state.log.end_offset_for_epoch(*epoch) {
                _ if leader_end < 0 => state.core.high_watermark(),
                Some((_, own_end)) if partition.brokers.keeps(Rule::TruncateToOwnEnd) => own_end.min(leader_end),
                Some(_) => leader_end,
                None => leader_end,
            };
            Some(Truncation::To(end.clamp(0, state.log.log_end_offset())))
        });
        if let Ok((_, Some(truncation))) = plan {
            let entry = (results.len(), Planned { partition, leader_epoch, truncation });
            planned.entry(partition.dir()).or_default().push(entry);
        }
        results.push(plan.map(|(position, _)| position));
    }
    for (dir, of_dir) in planned {
        let (places, of_dir): (Vec<usize>, Vec<Planned<'_>>) = of_dir.into_iter().unzip();
        for (at, truncated) in places.into_iter().zip(truncate_in_dir(dir, &of_dir, now_ms)) {
            results[at] = truncated;
        }
    }
    results
}

/// What a truncation leaves.
#[derive(Clone, Copy)]
pub(super) enum Truncation {
    /// Everything below this offset.
    To(i64),
    /// Nothing: the log continues at this offset.
    StartAt(i64),
}

/// A truncation that is decided.
pub(super) struct Planned<'a> {
    pub(super) partition: &'a Partition,
    pub(super) leader_epoch: i32,
    pub(super) truncation: Truncation,
}

/// Truncates logs of one directory; their number is at least one. The checkpoints are lowered first, without a partition's
/// lock, so that a crash at any point finds none that states what a truncation removes.
pub(super) fn truncate_in_dir(dir: usize, planned: &[Planned<'_>], now_ms: i64) -> Vec<Result<Position, ErrorCode>> {
    let logs = &planned[0].partition.logs;
    let key = |id: &PartitionId| (id.topic.to_string(), id.index);
    let offsets: Vec<_> = planned.iter().map(|planned| (key(&planned.partition.id), planned.first_removed())).collect();
    if let Err(error) = logs.begin_truncation(dir, &offsets) {
        return planned.iter().map(|_| Err(error.code())).collect();
    }
    let truncated: Vec<_> = planned.iter().map(|planned| planned.carry_out(now_ms)).collect();
    // Queued at once, so that one call syncs many.
    let is_unflushed = |result: &Result<Position, ErrorCode>| result.is_ok_and(|position| !position.is_flushed);
    let unflushed = planned.iter().zip(&truncated).filter(|(_, result)| is_unflushed(result));
    let owners = unflushed.map(|(planned, _)| planned.partition.arc() as Arc<dyn LogOwner>);
    logs.dirs()[dir].flusher().mark_all_dirty(owners);
    match logs.end_truncation(&offsets) {
        Ok(()) => truncated,
        Err(error) => planned.iter().map(|_| Err(error.code())).collect(),
    }
}

impl Planned<'_> {
    fn first_removed(&self) -> i64 {
        match self.truncation {
            Truncation::To(offset) => offset,
            Truncation::StartAt(_) => 0,
        }
    }

    fn carry_out(&self, now_ms: i64) -> Result<Position, ErrorCode> {
        let mut is_announced = true;
        let position = self.partition.follow(self.leader_epoch, |state, effects| {
            // Otherwise the log has just moved to another directory, whose checkpoints are not lowered.
            is_announced = state.log.is_truncating();
            if !is_announced {
                return Ok(());
            }
            match self.truncation {
                Truncation::To(offset) => drop(state.log.truncate_to(offset, now_ms)?),
                Truncation::StartAt(offset) => state.log.truncate_fully_and_start_at(offset, now_ms)?,
            }
            state.note_truncation(self.first_removed());
            let offsets = state.offsets(self.partition.durability);
            if self.partition.brokers.keeps(Rule::HighWatermarkInLog) {
                state.core.on_truncated(&offsets, effects);
            }
            Ok(())
        })?;
        if is_announced { Ok(position) } else { Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) }
    }
}

impl Partition {
    /// `None` unless this broker follows a leader.
    pub fn following(&self) -> Option<Following> {
        let state = self.state.lock();
        let leader = state.core.following()?;
        Some(Following { leader, leader_epoch: state.core.leader_epoch() })
    }

    /// Prepares to fetch in this leader epoch. The leader cannot find where a log without epochs diverges:
    ///
    /// - its records above the high watermark are removed;
    /// - without any record, after it began at the start of a leader's log, it begins at 0 and then where the present leader does. After
    ///   an unclean election it would otherwise lack what that leader has below. In the ISR it stays where it is: its end offset says
    ///   what is committed, and the elections since were clean.
    pub fn begin_following(&self, leader_epoch: i32, now_ms: i64) -> Result<Position, ErrorCode> {
        let position = self.truncate(leader_epoch, now_ms, |state| {
            let (log, high_watermark) = (&state.log, state.core.high_watermark());
            let (start, end) = (log.log_start_offset(), log.log_end_offset());
            let begins_outside_isr = state.core.begins_outside_isr() && self.brokers.keeps(Rule::BeginOutsideIsr);
            match log.latest_epoch() {
                None if high_watermark < end => Some(Truncation::To(high_watermark.max(start))),
                None if 0 < start && start == end && begins_outside_isr => Some(Truncation::StartAt(0)),
                _ => None,
            }
        });
        self.state.lock().core.on_following_begun();
        self.note_fetching(Fetching::Begun);
        self.mark_dirty_unless_flushed(&position);
        position
    }

    /// Appends what the leader returned, and applies its high watermark and its log start offset.
    pub fn append_fetched(
        &self,
        leader_epoch: i32,
        fetched: &FetchedBatches<'_>,
        now_ms: i64,
    ) -> Result<Position, ErrorCode> {
        if self.brokers.keeps(Rule::BeginInsideBatch) {
            self.truncate(leader_epoch, now_ms, |state| begin_again(&state.log, fetched, leader_epoch))?;
        }
        let position = self.follow(leader_epoch, |state, effects| {
            append(&mut state.log, fetched.records, leader_epoch, now_ms)?;
            self.counters().replication_bytes_in.add(fetched.records.len() as u64);
            if self.is_throttled_follower() {
                self.throttles().follower.count(self.brokers.now_ms(), fetched.records.len());
            }
            let offsets = state.offsets(self.durability);
            state.core.on_leader_high_watermark(fetched.high_watermark, &offsets, effects);
            if !fetched.records.is_empty() {
                state.core.on_fetched(effects);
            }
            if state.log.advance_log_start(fetched.log_start_offset.min(state.core.high_watermark())) {
                state.core.on_log_start(effects);
            }
            Ok(())
        });
        if let Ok(position) = &position {
            let lag = fetched.high_watermark.saturating_sub(position.fetch_offset);
            self.note_fetching(Fetching::Behind(u64::try_from(lag).unwrap_or(0)));
        }
        self.mark_dirty_unless_flushed(&position);
        position
    }

    /// Continues within the leader's log, which does not have the offset that was fetched: truncates to its end, or begins at its
    /// start after removing everything.
    pub fn move_into(
        &self,
        leader_epoch: i32,
        leader_start: i64,
        leader_end: i64,
        now_ms: i64,
    ) -> Result<Position, ErrorCode> {
        self.truncate(leader_epoch, now_ms, |state| {
            let end = state.log.log_end_offset();
            match (leader_end < end, leader_start > end) {
                (true, _) => Some(Truncation::To(leader_end.max(0))),
                (false, true) if self.brokers.keeps(Rule::BeginAtLeaderStart) => {
                    Some(Truncation::StartAt(leader_start))
                }
                (false, _) => None,
            }
        })
    }

    /// Truncates the log as `plan` decides.
    fn truncate(
        &self,
        leader_epoch: i32,
        now_ms: i64,
        plan: impl Fn(&State) -> Option<Truncation>,
    ) -> Result<Position, ErrorCode> {
        loop {
            let (position, truncation) = self.plan(leader_epoch, &plan)?;
            let Some(truncation) = truncation else { return Ok(position) };
            let planned = Planned { partition: self, leader_epoch, truncation };
            match truncate_in_dir(self.dir(), &[planned], now_ms).remove(0) {
                // While it still follows, the log was on its way to another directory.
                Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) => std::thread::yield_now(),
                truncated => return truncated,
            }
        }
    }

    /// The truncation that is necessary.
    fn plan(
        &self,
        leader_epoch: i32,
        plan: impl FnOnce(&State) -> Option<Truncation>,
    ) -> Result<(Position, Option<Truncation>), ErrorCode> {
        let mut planned = None;
        let position = self.follow(leader_epoch, |state, _| {
            planned = plan(state);
            Ok(())
        })?;
        Ok((position, planned))
    }

    /// Wakes `waiter` at the next flush, or when the replica stops. The caller looks once more after this, because earlier flushes
    /// are not notified.
    pub fn watch_flush(&self, waiter: Arc<FetchWaiter>) {
        self.state.lock().flush_waiters.push(Watcher::Fetch(waiter));
    }

    /// Whether all of this replica's log is flushed as far as the leader requires; true if it follows no leader any more.
    pub fn is_flushed(&self) -> bool {
        let state = self.state.lock();
        state.core.following().is_none() || state.is_flushed(self.durability)
    }

    /// Where the log is now, while the leader epoch lasts.
    pub fn position(&self, leader_epoch: i32) -> Result<Position, ErrorCode> {
        self.follow(leader_epoch, |_, _| Ok(()))
    }

    /// Changes the log while this replica follows in this epoch; NOT_LEADER_OR_FOLLOWER if it no longer does.
    fn follow(
        &self,
        leader_epoch: i32,
        change: impl FnOnce(&mut State, &mut Effects) -> Result<(), AppendError>,
    ) -> Result<Position, ErrorCode> {
        let mut effects = self.effects();
        let mut state = self.state.lock();
        let is_of_epoch = state.core.leader_epoch() == leader_epoch || !self.brokers.keeps(Rule::FollowEpoch);
        if state.core.following().is_none() || !is_of_epoch {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let changed = change(&mut state, &mut effects);
        let position = Position {
            fetch_offset: state.log.log_end_offset(),
            last_fetched_epoch: state.log.latest_epoch().unwrap_or(-1),
            log_start_offset: state.log.log_start_offset(),
            high_watermark: state.core.high_watermark(),
            is_flushed: state.is_flushed(self.durability),
        };
        drop(state);
        self.carry_out(effects);
        changed.map(|()| position).map_err(|error| {
            if let AppendError::Log(error) = &error {
                self.report(error);
            }
            error.code()
        })
    }

    fn mark_dirty_unless_flushed(&self, position: &Result<Position, ErrorCode>) {
        if position.as_ref().is_ok_and(|position| !position.is_flushed) {
            self.mark_dirty();
        }
    }
}

/// Appends batches of the leader, or of the log that this one copies. An answer may be larger than a segment, so it is appended in parts.
pub(super) fn append(log: &mut Log, mut records: &[u8], leader_epoch: i32, now_ms: i64) -> Result<(), AppendError> {
    while !records.is_empty() {
        let (part, rest) = records.split_at(part_len(records, log.config().segment_bytes as usize));
        if log.append_as_follower(part, leader_epoch, now_ms)?.is_none() {
            // An incomplete batch, or one of a newer epoch: the next fetch returns it.
            return Ok(());
        }
        records = rest;
    }
    Ok(())
}

/// How many of these bytes to append together: complete batches up to the size of a segment, at least one.
fn part_len(records: &[u8], bytes_max: usize) -> usize {
    let mut len = 0;
    while let Some(size) = Header::at_start_of(&records[len..]).and_then(|header| header.size()) {
        if size > records.len() - len || (len > 0 && len + size > bytes_max) {
            break;
        }
        len += size;
    }
    if len == 0 { records.len() } else { len }
}

/// A log of which the leader has nothing, after DeleteRecords or retention, begins again with the leader's first batch:
///
/// - if it ends inside that batch, because the leader's log begins inside it;
/// - if the batch is of another epoch than its last one. Then its records below may differ from those that the leader deleted, and
///   after a crash they could be read again, unless the new log start was written.
fn begin_again(log: &Log, fetched: &FetchedBatches<'_>, leader_epoch: i32) -> Option<Truncation> {
    let (header, end) = (Header::at_start_of(fetched.records)?, log.log_end_offset());
    let (base, is_empty) = (header.base_offset(), log.log_start_offset() == end);
    let is_inside = base < end && header.last_offset() >= end && (is_empty || base < fetched.log_start_offset);
    let is_other_epoch = log.latest_epoch().is_some_and(|latest| latest != header.leader_epoch());
    let is_unknown = base == end && base == fetched.log_start_offset && !is_empty && is_other_epoch;
    // What a log is removed for must be a batch of this leader's or an earlier one's, and not what a fault left of one.
    let is_intact = || {
        let first = klamm_records::batches(fetched.records).next();
        base >= 0
            && header.leader_epoch() <= leader_epoch
            && first.is_some_and(|batch| batch.is_ok_and(|batch| batch.check_crc().is_ok()))
    };
    ((is_inside || is_unknown) && is_intact()).then_some(Truncation::StartAt(base))
}
