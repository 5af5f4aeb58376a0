//! What is being written to the share coordinator, and what will be written next.

use std::collections::BTreeMap;

use super::model::{RecordState, StateBatch};

/// A write of a share partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteId(pub(crate) u32);

/// The content of a WriteShareGroupState request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub id: WriteId,
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    /// Finished offsets from the start offset on, with those that this write finishes.
    pub delivery_complete_count: i32,
    pub batches: Vec<StateBatch>,
}

/// The changes of one write.
#[derive(Debug)]
pub struct Changes {
    id: u32,
    /// By first offset; they do not overlap, a later change replaces earlier ones.
    batches: BTreeMap<i64, StateBatch>,
    /// Ranges that contain the offsets that wait for the answer.
    waiting: Vec<(i64, i64)>,
}

/// At most one write is in flight.
#[derive(Debug, Default)]
pub struct Writes {
    in_flight: Option<Changes>,
    queued: Option<Changes>,
    last_id: u32,
}

impl Writes {
    /// The write that will contain a change made now.
    pub fn next_id(&self) -> WriteId {
        WriteId(if self.queued.is_some() { self.last_id } else { self.last_id.wrapping_add(1) })
    }

    /// Adds a change to the next write. `is_waiting`: it takes effect with the answer.
    pub fn add(&mut self, change: StateBatch, is_waiting: bool) {
        let WriteId(id) = self.next_id();
        self.last_id = id;
        let empty = || Changes { id, batches: BTreeMap::new(), waiting: Vec::new() };
        let changes = self.queued.get_or_insert_with(empty);
        changes.put(change);
        if is_waiting {
            changes.waiting.push((change.first, change.last));
        }
    }

    pub fn is_any(&self) -> bool {
        self.in_flight.is_some() || self.queued.is_some()
    }

    /// Sends the next write if none is in flight.
    pub fn begin(&mut self) -> Option<&Changes> {
        if self.in_flight.is_some() {
            return None;
        }
        self.in_flight = self.queued.take();
        self.in_flight.as_ref()
    }

    /// The write in flight was answered; returns the ranges that waited for it.
    pub fn end(&mut self, id: WriteId) -> Vec<(i64, i64)> {
        match self.in_flight.take_if(|changes| changes.id == id.0) {
            Some(changes) => changes.waiting,
            None => Vec::new(),
        }
    }
}

impl Changes {
    pub fn id(&self) -> WriteId {
        WriteId(self.id)
    }

    fn put(&mut self, change: StateBatch) {
        let overlapping = self.batches.range(..=change.last).rev().take_while(|(_, batch)| batch.last >= change.first);
        let overlapping: Vec<StateBatch> = overlapping.map(|(_, batch)| *batch).collect();
        for batch in overlapping {
            self.batches.remove(&batch.first);
            if batch.first < change.first {
                self.batches.insert(batch.first, StateBatch { last: change.first - 1, ..batch });
            }
            if batch.last > change.last {
                self.batches.insert(change.last + 1, StateBatch { first: change.last + 1, ..batch });
            }
        }
        self.batches.insert(change.first, change);
    }

    /// The changes at and above `start_offset`; equal neighbours are one.
    pub fn batches_from(&self, start_offset: i64) -> Vec<StateBatch> {
        let mut joined: Vec<StateBatch> = Vec::new();
        for batch in self.batches.values().filter(|batch| batch.last >= start_offset) {
            debug_assert_ne!(batch.state, RecordState::Acquired, "locks are not persisted");
            let batch = StateBatch { first: batch.first.max(start_offset), ..*batch };
            match joined.last_mut() {
                Some(before)
                    if before.last + 1 == batch.first
                        && before.state == batch.state
                        && before.delivery_count == batch.delivery_count =>
                {
                    before.last = batch.last;
                }
                _ => joined.push(batch),
            }
        }
        joined
    }
}
