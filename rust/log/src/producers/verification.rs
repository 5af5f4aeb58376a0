//! The producers whose transactional batches wait for their transaction coordinator (KIP-890).
//!
//! A batch that begins a transaction in a partition is appended only after the coordinator has confirmed, or added, the
//! partition. A marker that is appended meanwhile ends that transaction, so the confirmation no longer holds: the guard
//! that was handed out with the question is not the current one any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::Change;

/// Identifies one verification in this process; other logs, and a log that is opened again, have other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard(u64);

impl Guard {
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The producer of a transactional batch, as its header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

/// A producer that was, or will be, verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verification {
    pub(super) guard: Guard,
    pub(super) producer_epoch: i16,
    /// The batches of the epoch may be retried in any order, but the first one that is appended must be the first one
    /// that was sent.
    pub(super) lowest_sequence: i32,
    /// Each transaction of the producer has its own epoch (transaction.version 2).
    pub(super) bumps_epoch: bool,
    begun_ms: i64,
}

/// Those of one log, by producer id.
#[derive(Clone, Default)]
pub(super) struct Verifications(HashMap<i64, Verification>);

impl Verifications {
    pub(super) fn get(&self, producer_id: i64) -> Option<&Verification> {
        self.0.get(&producer_id)
    }

    /// The guard for another batch of this producer.
    pub(super) fn begin(&mut self, claim: Claim, bumps_epoch: bool, now_ms: i64) -> Guard {
        let Claim { producer_id, producer_epoch, base_sequence } = claim;
        let entry = self.0.entry(producer_id).or_insert_with(|| Verification {
            guard: Guard::next(),
            producer_epoch,
            lowest_sequence: base_sequence,
            bumps_epoch,
            begun_ms: now_ms,
        });
        if producer_epoch == entry.producer_epoch {
            entry.lowest_sequence = entry.lowest_sequence.min(base_sequence);
        } else if producer_epoch > entry.producer_epoch {
            (entry.producer_epoch, entry.lowest_sequence) = (producer_epoch, base_sequence);
        }
        entry.guard
    }

    /// An append of a transactional batch or a marker needs no verification any more, or voids it. Only the marker that
    /// began the epoch of the verification belongs to the transaction before it.
    pub(super) fn on_append(&mut self, change: &Change) {
        if let Some(marker_epoch) = change.transactional
            && let Some(entry) = self.0.get(&change.producer_id)
            && !(entry.bumps_epoch && marker_epoch == Some(entry.producer_epoch))
        {
            self.0.remove(&change.producer_id);
        }
    }

    pub(super) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.0.retain(|_, entry| now_ms.saturating_sub(entry.begun_ms) < expiration_ms);
    }
}
