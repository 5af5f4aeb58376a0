//! The time index: maps a timestamp to an offset before which all timestamps are smaller or equal.

use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::HEADER_LEN;

use super::store::{Store, number};
use crate::files::{FileCache, LogFile};

const ENTRY_SIZE: usize = 12;
/// No timestamp.
pub const NO_TIMESTAMP: i64 = -1;

/// The largest timestamp so far and the last offset of the batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

/// Entries of `(timestamp int64, offset - base offset int32)`, both increasing.
pub struct TimeIndex {
    store: Store<ENTRY_SIZE>,
    base_offset: i64,
    max_entries: u32,
    last: TimestampOffset,
}

impl TimeIndex {
    /// `entries`: the number of entries in the file, if known (0 or unknown).
    pub fn new(file: Arc<LogFile>, base_offset: i64, max_bytes: u32, entries: Option<u32>) -> Self {
        debug_assert!(entries.is_none_or(|entries| entries == 0));
        let last = TimestampOffset { timestamp: NO_TIMESTAMP, offset: base_offset };
        Self { store: Store::new(file, entries), base_offset, max_entries: max_bytes / ENTRY_SIZE as u32, last }
    }

    pub fn file(&self) -> &Arc<LogFile> {
        &self.store.file
    }

    pub fn is_loaded(&self) -> bool {
        self.store.is_loaded()
    }

    /// Loads the index; fails if its size or its first or last entry shows damage.
    pub fn load(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        if self.store.is_loaded() {
            return Ok(());
        }
        if self.store.load()? == 0 {
            return Ok(());
        }
        let (first, last) = (self.entry(cache, 0)?, self.entry(cache, self.len() - 1)?);
        if last.timestamp < first.timestamp || last.offset < self.base_offset {
            let reason = format!("its first entry is {first:?}, its last {last:?}");
            return Err(self.store.corrupt(u64::from(self.len() - 1) * ENTRY_SIZE as u64, reason));
        }
        self.last = last;
        Ok(())
    }

    pub fn len(&self) -> u32 {
        self.store.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One entry is reserved for the final one when the segment rolls.
    pub fn is_full(&self) -> bool {
        self.len() + 1 >= self.max_entries
    }

    fn parse(&self, entry: &[u8; ENTRY_SIZE]) -> TimestampOffset {
        let offset = self.base_offset.wrapping_add(i64::from(number!(i32, entry, 8)));
        TimestampOffset { timestamp: number!(i64, entry, 0), offset }
    }

    pub fn entry(&self, cache: &Arc<FileCache>, at: u32) -> Result<TimestampOffset, LogError> {
        Ok(self.parse(&self.store.get(cache, at)?))
    }

    /// The last entry; timestamp -1 at the base offset if there is none.
    pub fn last(&self) -> TimestampOffset {
        self.last
    }

    /// The entry with the largest timestamp at or below `timestamp`; timestamp -1 at the base offset if there is
    /// none.
    pub fn lookup(&self, cache: &Arc<FileCache>, timestamp: i64) -> Result<TimestampOffset, LogError> {
        let count = self.store.count_while(cache, |entry| self.parse(entry).timestamp <= timestamp)?;
        if count == 0 {
            return Ok(TimestampOffset { timestamp: NO_TIMESTAMP, offset: self.base_offset });
        }
        self.entry(cache, count - 1)
    }

    /// Adds an entry if its timestamp is larger than the last one's.
    pub fn maybe_push(&mut self, cache: &Arc<FileCache>, entry: TimestampOffset) -> Result<(), LogError> {
        if entry.timestamp <= self.last.timestamp || entry.offset < self.last.offset {
            return Ok(());
        }
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..8].copy_from_slice(&entry.timestamp.to_be_bytes());
        bytes[8..].copy_from_slice(&((entry.offset - self.base_offset) as i32).to_be_bytes());
        self.last = entry;
        self.store.push(cache, bytes)
    }

    /// Removes entries at or above `offset`.
    pub fn truncate_to(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<(), LogError> {
        let keep = self.store.count_while(cache, |entry| self.parse(entry).offset < offset)?;
        self.store.truncate(cache, keep)?;
        self.last = match keep {
            0 => TimestampOffset { timestamp: NO_TIMESTAMP, offset: self.base_offset },
            keep => self.entry(cache, keep - 1)?,
        };
        Ok(())
    }

    /// Recovers the entries below `offset` after a crash.
    pub fn restore(&mut self, cache: &Arc<FileCache>, offset: i64, log_bytes: u64) -> Result<(), LogError> {
        let base_offset = self.base_offset;
        let parse = |entry: &[u8; ENTRY_SIZE]| (number!(i64, entry, 0), i64::from(number!(i32, entry, 8)));
        self.store.restore(cache, log_bytes / HEADER_LEN as u64, |before, entry| {
            let (timestamp, delta) = parse(entry);
            let (last_timestamp, last_delta) = before.map_or((NO_TIMESTAMP, 0), parse);
            timestamp > last_timestamp && delta >= last_delta && base_offset + delta < offset
        })?;
        self.last = match self.len() {
            0 => TimestampOffset { timestamp: NO_TIMESTAMP, offset: base_offset },
            len => self.entry(cache, len - 1)?,
        };
        Ok(())
    }

    pub fn reset(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.last = TimestampOffset { timestamp: NO_TIMESTAMP, offset: self.base_offset };
        self.store.reset(cache)
    }

    /// Writes the entries that are only in memory; creates the file if necessary. `true` if the file changed.
    pub fn write(&mut self, cache: &Arc<FileCache>) -> Result<bool, LogError> {
        self.store.write(cache)
    }
}
