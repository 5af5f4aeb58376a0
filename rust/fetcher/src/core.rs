//! What one fetcher asks its leader for: the decisions, without clock, socket or log.
//!
//! A partition that is delayed after an error leaves the session and joins it again later, so that a leader never answers for it
//! meanwhile.
//!
//! Source: `AbstractFetcherThread` and `FetchSessionHandler` of Apache Kafka 4.3, KIP-227.

use std::collections::{BTreeSet, HashMap, HashSet};

use klamm_base::{ErrorCode, Uuid};
use klamm_replica::Position;

/// Topic id and index.
pub type Key = (Uuid, i32);

/// One partition of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: Key,
    pub leader_epoch: i32,
    pub position: Position,
}

/// The next Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub session_id: i32,
    /// 0: opens a session with all partitions.
    pub session_epoch: i32,
    pub wanted: Vec<Wanted>,
    pub forgotten: Vec<Key>,
}

/// What to do about the answer for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Append its records, and apply its offsets.
    Append,
    /// Truncate where the logs diverge: the leader's epoch and its end offset.
    Truncate(i32, i64),
    /// Ask the leader where its log begins and ends.
    FindOffsets,
    /// Fetch again after a pause.
    Delay,
    /// Fetch no more until a newer leader epoch.
    Stop,
}

/// What a fetcher keeps to in its session, so that the leader's session contains what this fetcher fetches. A simulation leaves one
/// out, and must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRule {
    /// A request without an answer is followed by a new session, because the leader may have handled it or not.
    NewSession,
    /// A request names the partitions that are not fetched any more.
    NameForgotten,
    /// A partition that left the session and joins it again in the same request is not forgotten.
    KeepNamed,
}

/// The first pause after an error of a partition; it doubles up to `replica.fetch.backoff.ms`.
const FIRST_PAUSE_MS: i64 = 20;
const PAUSE_DOUBLINGS_MAX: u32 = 20;

struct Followed {
    leader_epoch: i32,
    position: Position,
    /// Fetched no earlier than this time in ms.
    delayed_until: Option<i64>,
    /// Errors since its last success.
    failures: u32,
    is_in_session: bool,
}

/// The partitions of one leader.
pub struct FetcherCore {
    backoff_ms: i64,
    without: Option<SessionRule>,
    session_id: i32,
    session_epoch: i32,
    partitions: HashMap<Key, Followed>,
    /// The partitions whose parameters the session does not have yet.
    changed: HashSet<Key>,
    forgotten: HashSet<Key>,
    delayed: BTreeSet<(i64, Key)>,
}

impl FetcherCore {
    /// `backoff_ms`: the longest pause after an error of a partition (`replica.fetch.backoff.ms`).
    pub fn new(backoff_ms: i64) -> Self {
        Self::without(backoff_ms, None)
    }

    /// The same without a rule.
    pub fn without(backoff_ms: i64, rule: Option<SessionRule>) -> Self {
        Self {
            backoff_ms,
            without: rule,
            session_id: 0,
            session_epoch: 0,
            partitions: HashMap::new(),
            changed: HashSet::new(),
            forgotten: HashSet::new(),
            delayed: BTreeSet::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Fetches a partition from `position` on, in this leader epoch.
    pub fn add(&mut self, key: Key, leader_epoch: i32, position: Position) {
        self.remove(key);
        let followed = Followed { leader_epoch, position, delayed_until: None, failures: 0, is_in_session: false };
        self.partitions.insert(key, followed);
        self.changed.insert(key);
    }

    /// Stops fetching a partition.
    pub fn remove(&mut self, key: Key) {
        let Some(followed) = self.partitions.remove(&key) else { return };
        self.changed.remove(&key);
        self.leave_session(key, followed.is_in_session, followed.delayed_until);
    }

    fn leave_session(&mut self, key: Key, is_in_session: bool, delayed_until: Option<i64>) {
        if is_in_session {
            self.forgotten.insert(key);
        }
        if let Some(until) = delayed_until {
            self.delayed.remove(&(until, key));
        }
    }

    /// The leader epoch in which a partition is fetched.
    pub fn leader_epoch(&self, key: Key) -> Option<i32> {
        self.partitions.get(&key).map(|followed| followed.leader_epoch)
    }

    /// A partition was fetched, and its log is now at `position`.
    pub fn moved(&mut self, key: Key, position: Position) {
        if let Some(followed) = self.partitions.get_mut(&key) {
            followed.failures = 0;
        }
        self.found(key, position);
    }

    /// The log of a partition is at `position`.
    pub fn found(&mut self, key: Key, position: Position) {
        let Some(followed) = self.partitions.get_mut(&key) else { return };
        if followed.position != position {
            followed.position = position;
            self.changed.insert(key);
        }
    }

    /// Fetches a partition again after a pause. The first one is short: the leader may not have applied the newest metadata yet.
    pub fn delay(&mut self, key: Key, now_ms: i64) {
        let Some(followed) = self.partitions.get_mut(&key) else { return };
        let pause_ms =
            FIRST_PAUSE_MS.saturating_mul(1 << followed.failures.min(PAUSE_DOUBLINGS_MAX)).min(self.backoff_ms);
        followed.failures += 1;
        self.leave_until(key, now_ms.saturating_add(pause_ms));
    }

    /// Does not fetch a partition for some time, which is no failure: its replication is throttled.
    pub fn pause(&mut self, key: Key, now_ms: i64, pause_ms: i64) {
        let is_paused = |followed: &Followed| followed.delayed_until.is_some_and(|until| until > now_ms);
        if self.partitions.get(&key).is_some_and(|followed| !is_paused(followed)) {
            self.leave_until(key, now_ms.saturating_add(pause_ms));
        }
    }

    fn leave_until(&mut self, key: Key, until: i64) {
        let Some(followed) = self.partitions.get_mut(&key) else { return };
        let was_in_session = std::mem::take(&mut followed.is_in_session);
        let before = followed.delayed_until.replace(until);
        self.leave_session(key, was_in_session, before);
        self.changed.remove(&key);
        self.delayed.insert((until, key));
    }

    /// When the next delayed partition is due.
    pub fn due_at_ms(&self) -> Option<i64> {
        self.delayed.first().map(|(until, _)| *until)
    }

    /// The next request; `None` if there is nothing to fetch now.
    pub fn next_plan(&mut self, now_ms: i64) -> Option<Plan> {
        while let Some(&(until, key)) = self.delayed.first().filter(|(until, _)| *until <= now_ms) {
            self.delayed.remove(&(until, key));
            if let Some(followed) = self.partitions.get_mut(&key) {
                followed.delayed_until = None;
                self.changed.insert(key);
            }
        }
        if self.partitions.len() == self.delayed.len() {
            return None;
        }
        let keys: Vec<Key> = match self.session_epoch {
            0 => self.partitions.iter().filter(|(_, it)| it.delayed_until.is_none()).map(|(key, _)| *key).collect(),
            _ => self.changed.iter().copied().collect(),
        };
        self.changed.clear();
        let mut wanted = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(followed) = self.partitions.get_mut(&key) else { continue };
            followed.is_in_session = true;
            if self.without != Some(SessionRule::KeepNamed) {
                self.forgotten.remove(&key);
            }
            wanted.push(Wanted { key, leader_epoch: followed.leader_epoch, position: followed.position });
        }
        // Partitions of a topic are adjacent in a request.
        wanted.sort_unstable_by_key(|wanted| wanted.key);
        let mut forgotten: Vec<Key> = self.forgotten.drain().collect();
        forgotten.sort_unstable();
        if self.session_epoch == 0 || self.without == Some(SessionRule::NameForgotten) {
            forgotten.clear();
        }
        Some(Plan { session_id: self.session_id, session_epoch: self.session_epoch, wanted, forgotten })
    }

    /// The partitions that the leader's session contains after the request of the last plan, in order.
    pub fn in_session(&self) -> Vec<Wanted> {
        let in_session = self.partitions.iter().filter(|(_, followed)| followed.is_in_session);
        let in_session = in_session.map(|(key, followed)| Wanted {
            key: *key,
            leader_epoch: followed.leader_epoch,
            position: followed.position,
        });
        let mut in_session: Vec<_> = in_session.collect();
        in_session.sort_unstable_by_key(|wanted| wanted.key);
        in_session
    }

    /// The answer's session; false if its error ends the session, so that nothing else is in it.
    pub fn on_session(&mut self, error: ErrorCode, session_id: i32) -> bool {
        match error {
            ErrorCode::NONE if self.session_epoch == 0 => {
                self.session_id = session_id;
                // A leader without room for a session returns id 0: every request is a full one.
                self.session_epoch = i32::from(session_id != 0);
                true
            }
            ErrorCode::NONE => {
                self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
                true
            }
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND => {
                self.session_id = 0;
                self.session_epoch = 0;
                false
            }
            _ => {
                self.session_epoch = 0;
                false
            }
        }
    }

    /// The request was not answered: the next one opens a new session, on a new connection.
    pub fn on_lost_connection(&mut self) {
        if self.without == Some(SessionRule::NewSession) {
            return;
        }
        self.session_id = 0;
        self.session_epoch = 0;
    }
}

/// What an error code, or a diverging epoch, of a partition's answer means.
pub fn step(error: ErrorCode, diverging: Option<(i32, i64)>) -> Step {
    match (error, diverging) {
        (ErrorCode::NONE, None) => Step::Append,
        (ErrorCode::NONE, Some((epoch, end_offset))) => Step::Truncate(epoch, end_offset),
        (ErrorCode::OFFSET_OUT_OF_RANGE, _) => Step::FindOffsets,
        (ErrorCode::FENCED_LEADER_EPOCH, _) => Step::Stop,
        _ => Step::Delay,
    }
}
