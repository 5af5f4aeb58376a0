//! Decides whether producers may append their batches, and computes their new state.
//!
//! The check changes nothing: it returns an [`Update`], which is applied after the bytes are written.

use klamm_records::header::{HEADER_LEN, Header};

use super::entry::{Batch, Entry, NO_EPOCH, NO_SEQUENCE};
use super::verification::{Guard, Verification};
use crate::error::AppendError;

/// The source of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A produce request whose transactional batch begins a transaction without verification.
    Client,
    /// A produce request whose transactional batch begins a transaction only with the guard of its verification.
    VerifiedClient(Option<Guard>),
    /// A coordinator's records.
    Coordinator,
    /// Transaction markers of a coordinator.
    Markers {
        /// From 2 on each transaction has its own epoch, so that a late marker cannot end the next transaction (KIP-1228).
        transaction_version: i8,
    },
    /// The leader's batches, or our own during recovery: accepted unchanged.
    Replication,
    /// The metadata log.
    RaftLeader,
}

impl Origin {
    /// Whether it is a produce request.
    pub fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::VerifiedClient(_))
    }
}

/// A transaction that a marker completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    pub aborted: bool,
}

/// A transaction began or ended in an append.
#[derive(Clone, Copy, Debug)]
pub(super) enum TxnChange {
    Began { producer_id: i64, first_offset: i64 },
    Completed(CompletedTxn),
}

/// The changes to one producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) producer_id: i64,
    current: Entry,
    /// The producer with only the added batches.
    pub(super) updated: Entry,
    /// Whether a transactional batch was added; of a marker its epoch.
    pub(super) transactional: Option<Option<i16>>,
    verification: Option<Verification>,
}

/// What is known of a producer before an append.
pub(super) struct Known {
    pub(super) entry: Entry,
    pub(super) verification: Option<Verification>,
}

/// The changes of an append. For one producer whose transaction neither begins nor ends, nothing is allocated.
#[derive(Debug, Default)]
pub struct Update {
    first: Option<Change>,
    more: Vec<Change>,
    /// In order: a follower's append may contain many, and what the index of aborted transactions says of one depends
    /// on those that were open at its marker.
    pub(super) transactions: Vec<TxnChange>,
}

impl Update {
    /// Whether there is no batch of a producer.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.first.iter().chain(&self.more)
    }

    /// The change of `producer_id`; a new one starts from the state that `known` returns.
    fn change_of(&mut self, producer_id: i64, known: impl FnOnce() -> Known) -> &mut Change {
        let begin = || {
            let Known { entry: current, verification } = known();
            let updated = current.without_batches();
            Change { producer_id, current, updated, transactional: None, verification }
        };
        if self.first.is_none() {
            return self.first.insert(begin());
        }
        if self.first.is_some_and(|change| change.producer_id == producer_id) {
            return self.first.as_mut().expect("checked above");
        }
        let at = match self.more.iter().position(|change| change.producer_id == producer_id) {
            Some(at) => at,
            None => {
                self.more.push(begin());
                self.more.len() - 1
            }
        };
        &mut self.more[at]
    }

    /// Adds one batch of a producer, with its offsets assigned; `known` returns the producer's state.
    pub(super) fn add(
        &mut self,
        batch: &[u8],
        header: &Header<'_>,
        origin: Origin,
        known: impl FnOnce() -> Known,
    ) -> Result<(), AppendError> {
        let producer_id = header.producer_id();
        let change = self.change_of(producer_id, known);
        if !header.is_control() {
            if change.add_data(header, origin)? {
                self.transactions.push(TxnChange::Began { producer_id, first_offset: header.base_offset() });
            }
            return Ok(());
        }
        // Compaction may leave an empty control batch of a marker.
        let Some(marker) = Marker::parse(batch) else { return Ok(()) };
        change.transactional = Some(Some(header.producer_epoch()));
        if let Some(completed) = change.add_marker(header, &marker, origin)? {
            self.transactions.push(TxnChange::Completed(completed));
        }
        Ok(())
    }
}

impl Change {
    /// Returns whether a transaction begins.
    fn add_data(&mut self, header: &Header<'_>, origin: Origin) -> Result<bool, AppendError> {
        // Before the guard: a producer of an older epoch must learn that it is fenced.
        self.check_epoch(header.producer_epoch(), origin)?;
        if header.is_transactional() {
            self.check_guard(header, origin)?;
            self.transactional = Some(None);
        }
        if origin.is_client() {
            self.check_sequence(header)?;
        }
        self.updated.set_epoch(header.producer_epoch());
        self.updated.push(Batch::of(header));
        self.updated.last_timestamp = header.max_timestamp();
        let in_transaction = self.updated.txn_first_offset >= 0;
        if in_transaction && !header.is_transactional() {
            return Err(AppendError::InvalidTransactionState { producer_id: self.producer_id });
        }
        let begins = !in_transaction && header.is_transactional();
        if begins {
            self.updated.txn_first_offset = header.base_offset();
        }
        Ok(begins)
    }

    fn check_epoch(&self, found: i16, origin: Origin) -> Result<(), AppendError> {
        let current = self.updated.producer_epoch;
        if found < current && origin != Origin::Replication {
            return Err(AppendError::InvalidProducerEpoch { producer_id: self.producer_id, found, current });
        }
        Ok(())
    }

    /// A batch that begins a transaction must have been verified since the last marker.
    fn check_guard(&self, header: &Header<'_>, origin: Origin) -> Result<(), AppendError> {
        let Origin::VerifiedClient(guard) = origin else { return Ok(()) };
        let is_open = self.updated.txn_first_offset >= 0 && self.updated.producer_epoch == header.producer_epoch();
        if is_open || (guard.is_some() && guard == self.verification.map(|it| it.guard)) {
            return Ok(());
        }
        Err(AppendError::NotVerified { producer_id: self.producer_id })
    }

    /// A marker of the open transaction's own epoch is a late one of the transaction before it; without an open
    /// transaction it is written again for a coordinator that did not learn of the first one. The epochs of a producer
    /// that has used them all do not rise any more.
    fn check_marker_epoch(&self, found: i16, origin: Origin) -> Result<(), AppendError> {
        let current = self.updated.producer_epoch;
        let is_open = self.updated.txn_first_offset >= 0;
        let is_strict = matches!(origin, Origin::Markers { transaction_version: 2.. });
        if is_strict && found == current && is_open && found != i16::MAX {
            return Err(AppendError::InvalidProducerEpoch { producer_id: self.producer_id, found, current });
        }
        Ok(())
    }

    fn check_sequence(&self, header: &Header<'_>) -> Result<(), AppendError> {
        let (epoch, found) = (header.producer_epoch(), header.base_sequence());
        let in_order = |last: i32| {
            if found == last.wrapping_add(1) && last != i32::MAX || found == 0 && last == i32::MAX {
                return Ok(());
            }
            Err(AppendError::OutOfOrderSequence { producer_id: self.producer_id, found, last })
        };
        if let Some(verification) = self.verification {
            let is_first = self.current.batches().is_empty() && self.updated.batches().is_empty();
            if verification.bumps_epoch && is_first && found != 0 {
                return in_order(NO_SEQUENCE);
            }
            if found > verification.lowest_sequence {
                let (producer_id, lowest) = (self.producer_id, verification.lowest_sequence);
                return Err(AppendError::OvertakingSequence { producer_id, found, lowest });
            }
        }
        if epoch != self.updated.producer_epoch {
            // A new epoch starts at sequence 0; a producer that is not known (any more) may continue at any sequence.
            return if self.updated.producer_epoch == NO_EPOCH { Ok(()) } else { in_order(NO_SEQUENCE) };
        }
        if self.current.producer_epoch == NO_EPOCH {
            return Ok(());
        }
        if !self.updated.batches().is_empty() {
            in_order(self.updated.last_sequence())
        } else if epoch == self.current.producer_epoch {
            in_order(self.current.last_sequence())
        } else {
            in_order(NO_SEQUENCE)
        }
    }

    fn add_marker(
        &mut self,
        header: &Header<'_>,
        marker: &Marker,
        origin: Origin,
    ) -> Result<Option<CompletedTxn>, AppendError> {
        self.check_epoch(header.producer_epoch(), origin)?;
        self.check_marker_epoch(header.producer_epoch(), origin)?;
        let (found, current) = (marker.coordinator_epoch, self.updated.coordinator_epoch);
        if found < current && origin != Origin::Replication {
            return Err(AppendError::CoordinatorFenced { producer_id: self.producer_id, found, current });
        }
        // A marker without data before it completes nothing that a consumer could see.
        let completed = (self.updated.txn_first_offset >= 0).then(|| CompletedTxn {
            producer_id: self.producer_id,
            first_offset: self.updated.txn_first_offset,
            last_offset: header.base_offset(),
            aborted: marker.aborted,
        });
        self.updated.set_epoch(header.producer_epoch());
        self.updated.coordinator_epoch = found;
        self.updated.txn_first_offset = -1;
        self.updated.last_timestamp = header.max_timestamp();
        Ok(completed)
    }
}

/// The marker that ends a transaction (Apache Kafka's `EndTransactionMarker`).
pub struct Marker {
    pub aborted: bool,
    pub coordinator_epoch: i32,
}

impl Marker {
    /// The first record of a control batch if it is a marker.
    pub fn parse(batch: &[u8]) -> Option<Self> {
        let header = Header::at_start_of(batch)?;
        if header.record_count() < 1 || header.compression_id() != 0 {
            return None;
        }
        let mut record = Fields(batch.get(HEADER_LEN..)?);
        record.varint()?; // length
        record.take(1)?; // attributes
        record.varint()?; // timestamp delta
        record.varint()?; // offset delta
        let key = record.sized()?;
        let value = record.sized()?;
        let aborted = match i16::from_be_bytes(*key.get(2..)?.first_chunk()?) {
            0 => true,
            1 => false,
            _ => return None,
        };
        let coordinator_epoch = i32::from_be_bytes(*value.get(2..)?.first_chunk()?);
        Some(Self { aborted, coordinator_epoch })
    }
}

/// The unread bytes of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).ok()?)
    }
}
