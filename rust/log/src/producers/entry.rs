//! The state of one producer: its epoch, its last five batches, its open transaction.

use klamm_records::header::Header;

/// Batches that are kept for each producer to detect duplicates.
pub const BATCHES_MAX: usize = 5;
pub const NO_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl Batch {
    pub fn of(header: &Header<'_>) -> Self {
        Self {
            last_sequence: last_sequence(header),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta(),
            timestamp: header.max_timestamp(),
        }
    }

    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }

    /// The first sequence number; sequence numbers wrap from 2^31 - 1 to 0.
    pub fn first_sequence(&self) -> i32 {
        if self.last_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        (if first < 0 { first + (1 << 31) } else { first }) as i32
    }
}

/// The sequence number of a batch's last record.
pub fn last_sequence(header: &Header<'_>) -> i32 {
    if header.base_sequence() == NO_SEQUENCE {
        return NO_SEQUENCE;
    }
    let last = i64::from(header.base_sequence()) + i64::from(header.last_offset_delta());
    (last & i64::from(i32::MAX)) as i32
}

/// The state of a producer in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub producer_epoch: i16,
    /// Epoch of the coordinator that wrote the last marker, -1 if there was none.
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    /// First offset of the open transaction, -1 if there is none.
    pub txn_first_offset: i64,
    /// Oldest first; `count` of them are used.
    batches: [Batch; BATCHES_MAX],
    count: u8,
}

const NO_BATCH: Batch = Batch { last_sequence: NO_SEQUENCE, last_offset: -1, offset_delta: 0, timestamp: -1 };

impl Entry {
    /// The state of an unknown producer.
    pub const UNKNOWN: Entry = Entry {
        producer_epoch: NO_EPOCH,
        coordinator_epoch: -1,
        last_timestamp: -1,
        txn_first_offset: -1,
        batches: [NO_BATCH; BATCHES_MAX],
        count: 0,
    };

    /// The same producer without its batches: the base to which an append adds.
    pub fn without_batches(&self) -> Self {
        Self { count: 0, ..*self }
    }

    pub fn batches(&self) -> &[Batch] {
        &self.batches[..usize::from(self.count)]
    }

    pub fn last_batch(&self) -> Option<&Batch> {
        self.batches().last()
    }

    /// Sequence number of the last record, -1 if no batch is kept.
    pub fn last_sequence(&self) -> i32 {
        self.last_batch().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// The batch that `header` duplicates.
    pub fn duplicate_of(&self, header: &Header<'_>) -> Option<Batch> {
        if header.producer_epoch() != self.producer_epoch {
            return None;
        }
        let (first, last) = (header.base_sequence(), last_sequence(header));
        self.batches().iter().find(|batch| batch.first_sequence() == first && batch.last_sequence == last).copied()
    }

    /// Changes the epoch; batches of another epoch are removed.
    pub fn set_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.producer_epoch = epoch;
            self.count = 0;
        }
    }

    pub fn push(&mut self, batch: Batch) {
        if usize::from(self.count) == BATCHES_MAX {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[usize::from(self.count)] = batch;
        self.count += 1;
    }

    /// How many more batches can be kept.
    pub fn room(&self) -> usize {
        BATCHES_MAX - usize::from(self.count)
    }

    /// Adds batches from before the others, as many as fit.
    pub fn push_older(&mut self, older: &[Batch]) {
        let newer = *self;
        self.count = 0;
        older.iter().chain(newer.batches()).for_each(|batch| self.push(*batch));
    }

    /// Applies the changes of an append.
    pub fn merge(&mut self, added: &Entry) {
        self.set_epoch(added.producer_epoch);
        for batch in added.batches() {
            self.push(*batch);
        }
        self.coordinator_epoch = added.coordinator_epoch;
        self.txn_first_offset = added.txn_first_offset;
        self.last_timestamp = added.last_timestamp;
    }

    /// Whether the producer has expired.
    pub fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.txn_first_offset < 0 && now_ms.saturating_sub(self.last_timestamp) >= expiration_ms
    }
}
