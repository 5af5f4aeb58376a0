//! The requests that wait for a partition: appends for the high watermark, fetches for data.

use std::collections::VecDeque;

use klamm_base::ErrorCode;

use super::Effects;

/// The offset that a fetch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaits {
    /// A consumer: the high watermark, and with it the last stable offset. Every change of the high watermark counts.
    HighWatermark,
    /// A follower: the end of the log, or a higher high watermark.
    LogEnd,
}

/// A fetch that may end before it is woken: it has entries on several partitions.
pub trait Waiter {
    /// That of a follower in which a partition is quiet.
    type Session: FollowerSession;

    fn has_ended(&self) -> bool;
}

/// A follower's fetch session, as its quiet partitions see it. Each of its fetches counts for all of them.
pub trait FollowerSession: Clone {
    /// The time of its last fetch.
    fn last_fetch_ms(&self) -> i64;

    fn is_same(&self, other: &Self) -> bool;
}

pub(super) struct Waiting<A, F> {
    /// Ascending by the offset that each waits for.
    acks: VecDeque<(i64, A)>,
    fetches: Vec<(Awaits, F)>,
    sweep_at: usize,
}

impl<A, F> Default for Waiting<A, F> {
    fn default() -> Self {
        Self { acks: VecDeque::new(), fetches: Vec::new(), sweep_at: 0 }
    }
}

impl<A, F: Waiter> Waiting<A, F> {
    const LEAST_SWEEP: usize = 16;

    pub(super) fn push_ack(&mut self, end_offset: i64, ack: A) {
        // Appends happen in offset order, but two workers may register in the reverse order: search from the back.
        let at = self.acks.iter().rposition(|entry| entry.0 <= end_offset).map_or(0, |before| before + 1);
        self.acks.insert(at, (end_offset, ack));
    }

    /// The high watermark has reached `offset`.
    pub(super) fn reach(&mut self, offset: i64, code: ErrorCode, effects: &mut Effects<A, F>) {
        while self.acks.front().is_some_and(|entry| entry.0 <= offset) {
            effects.acks.extend(self.acks.pop_front().map(|entry| (entry.1, code)));
        }
    }

    pub(super) fn fail_acks(&mut self, code: ErrorCode, effects: &mut Effects<A, F>) {
        effects.acks.extend(self.acks.drain(..).map(|entry| (entry.1, code)));
    }

    /// Adds a fetch. Entries of fetches that ended elsewhere are removed when the list doubles.
    pub(super) fn push_fetch(&mut self, awaits: Awaits, fetch: F) {
        if self.fetches.len() >= self.sweep_at.max(Self::LEAST_SWEEP) {
            self.fetches.retain(|(_, fetch)| !fetch.has_ended());
            self.sweep_at = self.fetches.len() * 2;
        }
        self.fetches.push((awaits, fetch));
    }

    /// Takes the fetches that a change concerns: a higher high watermark concerns all, a longer log only those that read
    /// up to its end.
    #[inline]
    pub(super) fn wake_fetches(&mut self, changed: Awaits, effects: &mut Effects<A, F>) {
        if self.fetches.is_empty() {
            return;
        }
        let woken = self.fetches.extract_if(.., |(awaits, _)| *awaits >= changed);
        effects.fetches.extend(woken.map(|(_, fetch)| fetch));
    }

    /// Removes a fetch, without waking it.
    pub(super) fn remove_fetch(&mut self, is_it: impl Fn(&F) -> bool) {
        if let Some(at) = self.fetches.iter().position(|(_, fetch)| is_it(fetch)) {
            self.fetches.swap_remove(at);
        }
    }

    pub(super) fn take_fetches(&mut self) -> impl Iterator<Item = F> + '_ {
        self.fetches.drain(..).map(|(_, fetch)| fetch)
    }
}
