//! What a leader knows of another replica (`Replica` of Apache Kafka).

use super::waiting::FollowerSession;
use super::{Context, FollowerFetch};

/// An offset that is not known.
const UNKNOWN: i64 = -1;

/// The progress of one follower.
#[derive(Clone, Debug)]
pub(super) struct Progress<S> {
    pub(super) id: i32,
    /// Everything below is in the follower's log.
    pub(super) end_offset: i64,
    pub(super) start_offset: i64,
    /// The epoch in its last fetch; -1: it sends none.
    pub(super) broker_epoch: Option<i64>,
    /// The end of the leader's log at the last fetch.
    leader_end_offset: i64,
    last_fetch_ms: Option<i64>,
    /// When it last held everything that the leader held, as far as its visits tell.
    caught_up_ms: Option<i64>,
    /// The follower's session, while the partition is quiet in it. Then the follower holds all of the log, and each fetch of the
    /// session says that it still does.
    quiet: Option<S>,
}

impl<S: FollowerSession> Progress<S> {
    pub(super) fn new(id: i32) -> Self {
        Self {
            id,
            end_offset: UNKNOWN,
            start_offset: UNKNOWN,
            broker_epoch: None,
            leader_end_offset: UNKNOWN,
            last_fetch_ms: None,
            caught_up_ms: None,
            quiet: None,
        }
    }

    /// The follower holds all of the log, and its session visits this partition only after the next change.
    pub(super) fn become_quiet(&mut self, session: &S) {
        self.quiet = Some(session.clone());
    }

    pub(super) fn is_quiet_in(&self, session: &S) -> bool {
        self.quiet.as_ref().is_some_and(|quiet| quiet.is_same(session))
    }

    /// The last fetch of the session in which the partition is quiet.
    #[inline]
    pub(super) fn quiet_fetch_ms(&self) -> Option<i64> {
        self.quiet.as_ref().map(S::last_fetch_ms)
    }

    /// Counts the fetches of the session up to now, and none from now on.
    pub(super) fn end_quiet(&mut self) {
        if let Some(session) = self.quiet.take() {
            self.caught_up_ms = self.caught_up_ms.max(Some(session.last_fetch_ms()));
        }
    }

    /// When it last held everything that the leader held.
    #[inline]
    pub(super) fn caught_up_ms(&self) -> Option<i64> {
        self.caught_up_ms.max(self.quiet_fetch_ms())
    }

    /// A new leader epoch begins. Members of the ISR have until `replica.lag.time.max.ms` from now to fetch.
    pub(super) fn begin_epoch(&mut self, is_in_sync: bool, leader_end_offset: i64, now_ms: i64, forgets: bool) {
        if forgets {
            self.end_offset = UNKNOWN;
        }
        self.leader_end_offset = if self.end_offset == UNKNOWN { UNKNOWN } else { leader_end_offset };
        self.quiet = None;
        let now = is_in_sync.then_some(now_ms);
        (self.last_fetch_ms, self.caught_up_ms) = (now.filter(|_| self.end_offset != UNKNOWN), now);
    }

    /// A fetch; true if the end of the follower's log has changed.
    pub(super) fn on_fetch(&mut self, fetch: &FollowerFetch, now_ms: i64) -> bool {
        self.end_quiet();
        let caught_up_ms = if fetch.fetch_offset >= fetch.leader_end_offset {
            Some(now_ms)
        } else if fetch.fetch_offset >= self.leader_end_offset {
            // It holds everything that existed at its last fetch.
            self.last_fetch_ms
        } else {
            None
        };
        let has_moved = self.end_offset != fetch.fetch_offset;
        self.caught_up_ms = self.caught_up_ms.max(caught_up_ms);
        self.end_offset = fetch.fetch_offset;
        self.start_offset = fetch.log_start_offset;
        self.broker_epoch = Some(fetch.broker_epoch);
        self.leader_end_offset = fetch.leader_end_offset;
        self.last_fetch_ms = Some(now_ms);
        has_moved
    }

    /// Whether it holds all of the log, or did so within `replica.lag.time.max.ms`.
    #[inline]
    pub(super) fn is_caught_up(&self, leader_end_offset: i64, context: Context<'_>) -> bool {
        self.end_offset == leader_end_offset
            || self.caught_up_ms().is_some_and(|at| context.now_ms - at <= context.lag_max_ms)
    }

    /// Whether its broker may be in an ISR: active, with the epoch that it fetched with (KIP-903).
    pub(super) fn is_eligible(&self, context: Context<'_>) -> bool {
        let Some(fetched_with) = self.broker_epoch else { return false };
        let standing = context.brokers.standing(self.id);
        standing.is_some_and(|broker| broker.is_active && (fetched_with == -1 || fetched_with == broker.epoch))
    }
}
