//! What a log is expected to contain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use klamm_base::Uuid;
use klamm_records::{Header, records};

use crate::log_dir::Key;

pub type Batch = Arc<[u8]>;

pub fn offsets_of(batch: &[u8]) -> (i64, i64) {
    let header = Header::at_start_of(batch).expect("a batch");
    (header.base_offset(), header.next_offset())
}

pub fn epoch_of(batch: &[u8]) -> i32 {
    Header::at_start_of(batch).expect("a batch").leader_epoch()
}

pub fn count_of(batch: &[u8]) -> i32 {
    Header::at_start_of(batch).expect("a batch").record_count()
}

/// The key of the only record of a batch.
fn key_of(batch: &[u8]) -> Vec<u8> {
    let batch = klamm_records::Batch::at_start_of(batch).expect("a batch");
    let mut scratch = Vec::new();
    let mut found = records(batch, &mut scratch, 1 << 20).expect("readable");
    found.next().expect("a record").expect("whole").key.expect("a key").to_vec()
}

/// A log of one topic id.
#[derive(Clone, Debug)]
pub struct Expected {
    pub topic_id: Uuid,
    pub dir: usize,
    /// All batches since the log began, also those below its start.
    pub batches: Vec<Batch>,
    /// What it contained before truncations that neither a flush nor an append has made durable.
    pub earlier: Vec<Vec<Batch>>,
    pub start: i64,
    /// The largest start that the log ever had: what is below it may have no epochs.
    pub start_max: i64,
    pub end: i64,
    /// Everything below was reported as durable.
    pub flushed: i64,
    /// Something was written once: the log exists after a kill.
    pub is_created: bool,
    /// The log was flushed once: it exists after a power cut.
    pub is_durable: bool,
    pub high_watermark: i64,
    pub epoch: i32,
    /// Epochs of which the leader's log has no further records: this node led and wrote nothing, or its records were
    /// truncated.
    pub void: BTreeSet<i32>,
    /// Batches that a round of cleaning may have removed.
    pub removable: BTreeSet<Batch>,
}

impl Expected {
    pub fn new(topic_id: Uuid, dir: usize) -> Self {
        let (batches, earlier, is_durable) = (Vec::new(), Vec::new(), false);
        let (start, start_max, end, flushed, high_watermark, epoch) = (0, 0, 0, 0, 0, 0);
        Self {
            topic_id,
            dir,
            batches,
            earlier,
            start,
            start_max,
            end,
            flushed,
            is_created: false,
            is_durable,
            high_watermark,
            epoch,
            void: BTreeSet::new(),
            removable: BTreeSet::new(),
        }
    }

    /// Whether the log is not on disk yet.
    pub fn is_planned(&self) -> bool {
        !self.is_created
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let (base_offset, next_offset) = offsets_of(bytes);
        assert!(base_offset >= self.end);
        self.is_created = true;
        self.batches.push(bytes.into());
        self.end = next_offset;
        self.earlier.clear();
    }

    /// Of what is below `offset`, the newest record of each key stays.
    pub fn clean(&mut self, offset: i64) {
        let mut keys = BTreeSet::new();
        for batch in self.batches.iter().rev().filter(|batch| offsets_of(batch).0 < offset) {
            if !keys.insert(key_of(batch)) {
                self.removable.insert(batch.clone());
            }
        }
    }

    /// Removes all batches from `to` on; until a flush or an append they may reappear.
    pub fn truncate(&mut self, to: i64) {
        self.void.extend(self.batches.iter().filter(|batch| offsets_of(batch).0 >= to).map(|batch| epoch_of(batch)));
        self.epoch += 1;
        self.earlier.push(self.batches.clone());
        self.batches.retain(|batch| offsets_of(batch).0 < to);
        self.end = to;
        self.flushed = self.flushed.min(to);
        self.high_watermark = self.high_watermark.min(to);
    }

    /// Everything up to `flushed` is durable, and so are all truncations and deletions.
    pub fn on_flushed(&mut self, flushed: i64) {
        self.flushed = flushed;
        self.is_durable = true;
        self.earlier.clear();
    }

    /// The contents that may be found.
    pub fn contents(&self) -> impl Iterator<Item = &Vec<Batch>> {
        std::iter::once(&self.batches).chain(&self.earlier)
    }

    /// The batches that must be readable after a power cut.
    pub fn promised(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| {
            let (_, next_offset) = offsets_of(batch);
            next_offset > self.start && next_offset <= self.flushed && !self.removable.contains(*batch)
        })
    }
}

/// What a node promises.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    pub logs: BTreeMap<Key, Expected>,
    /// Topics that were deleted: their logs may still exist.
    pub deleted: BTreeSet<Uuid>,
}
