//! Tracks transactions while a log is cleaned: records of aborted ones are removed, and a marker is removed with the
//! last record of its transaction.

use std::collections::{HashMap, HashSet};

use klamm_records::Header;

use crate::index::AbortedTxn;
use crate::producers::Marker;

struct Ongoing {
    txn: AbortedTxn,
    /// Whether a batch of the transaction is still in the log.
    seen: bool,
}

/// The transactions that are open at the cleaner's position.
#[derive(Default)]
pub(super) struct Transactions {
    /// Aborted transactions after the position, the last one first.
    ahead: Vec<AbortedTxn>,
    aborted: HashMap<i64, Ongoing>,
    committed: HashSet<i64>,
    /// Aborted transactions with remaining batches: the index of the new segment.
    kept: Vec<AbortedTxn>,
}

impl Transactions {
    pub(super) fn new(aborted: &[AbortedTxn]) -> Self {
        let mut ahead = aborted.to_vec();
        ahead.sort_unstable_by_key(|txn| (std::cmp::Reverse(txn.first_offset), txn.producer_id));
        ahead.dedup();
        Self { ahead, ..Self::default() }
    }

    fn advance(&mut self, offset: i64) {
        while let Some(txn) = self.ahead.pop_if(|txn| txn.first_offset <= offset) {
            self.aborted.entry(txn.producer_id).or_insert(Ongoing { txn, seen: false });
        }
    }

    /// Whether a data batch belongs to an aborted transaction.
    pub(super) fn on_data(&mut self, header: &Header<'_>) -> bool {
        self.advance(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id()) {
            Some(ongoing) => {
                ongoing.seen = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id());
                false
            }
        }
    }

    /// Whether no batch remains of the transaction that a control batch ends.
    pub(super) fn on_control(&mut self, batch: &[u8], header: &Header<'_>) -> bool {
        self.advance(header.last_offset());
        let producer_id = header.producer_id();
        if header.record_count() == 0 {
            return true;
        }
        match Marker::parse(batch) {
            Some(marker) if marker.aborted => match self.aborted.remove(&producer_id) {
                Some(ongoing) if ongoing.seen => {
                    self.kept.push(ongoing.txn);
                    false
                }
                _ => true,
            },
            Some(_) => !self.committed.remove(&producer_id),
            None => false,
        }
    }

    /// Takes the aborted transactions whose markers were visited since the last call.
    pub(super) fn take_kept(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.kept)
    }
}
