//! The offset index: maps an offset to the position of a nearby batch.

use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::HEADER_LEN;

use super::store::{Store, number};
use crate::files::{FileCache, LogFile};

const ENTRY_SIZE: usize = 8;

/// A batch: its last offset and the position of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPosition {
    pub offset: i64,
    pub position: u32,
}

/// Entries of `(last offset - base offset, position)`, both int32, both increasing.
pub struct OffsetIndex {
    store: Store<ENTRY_SIZE>,
    base_offset: i64,
    max_entries: u32,
}

impl OffsetIndex {
    /// `entries`: the number of entries in the file, if known.
    pub fn new(file: Arc<LogFile>, base_offset: i64, max_bytes: u32, entries: Option<u32>) -> Self {
        Self { store: Store::new(file, entries), base_offset, max_entries: max_bytes / ENTRY_SIZE as u32 }
    }

    pub fn file(&self) -> &Arc<LogFile> {
        &self.store.file
    }

    pub fn is_loaded(&self) -> bool {
        self.store.is_loaded()
    }

    /// Loads the index; fails if its size or last entry shows damage.
    pub fn load(&mut self, cache: &Arc<FileCache>, log_bytes: u64) -> Result<(), LogError> {
        if self.store.is_loaded() {
            return Ok(());
        }
        if self.store.load()? == 0 {
            return Ok(());
        }
        let last = self.entry(cache, self.len() - 1)?;
        // The last entry may contain the base offset itself if the first batch has one record.
        if last.offset < self.base_offset || u64::from(last.position) >= log_bytes {
            let reason = format!("its last entry is {last:?}, the log has {log_bytes} bytes");
            return Err(self.store.corrupt(u64::from(self.len() - 1) * ENTRY_SIZE as u64, reason));
        }
        Ok(())
    }

    pub fn len(&self) -> u32 {
        self.store.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.max_entries
    }

    /// Whether `offset` fits into an entry.
    pub fn holds(&self, offset: i64) -> bool {
        offset.checked_sub(self.base_offset).is_some_and(|delta| i32::try_from(delta).is_ok_and(|delta| delta >= 0))
    }

    fn parse(&self, entry: &[u8; ENTRY_SIZE]) -> OffsetPosition {
        let offset = self.base_offset.wrapping_add(i64::from(number!(i32, entry, 0)));
        OffsetPosition { offset, position: number!(u32, entry, 4) }
    }

    pub fn entry(&self, cache: &Arc<FileCache>, at: u32) -> Result<OffsetPosition, LogError> {
        Ok(self.parse(&self.store.get(cache, at)?))
    }

    /// The last entry.
    pub fn last(&self, cache: &Arc<FileCache>) -> Result<Option<OffsetPosition>, LogError> {
        if self.is_empty() { Ok(None) } else { self.entry(cache, self.len() - 1).map(Some) }
    }

    /// The entry with the largest offset at or below `offset`; `None` if the search begins at the segment's start.
    pub fn lookup(&self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<OffsetPosition>, LogError> {
        let count = self.store.count_while(cache, |entry| self.parse(entry).offset <= offset)?;
        if count == 0 { Ok(None) } else { self.entry(cache, count - 1).map(Some) }
    }

    /// The result of [`OffsetIndex::lookup`] and the entry after it.
    pub fn around(
        &self,
        cache: &Arc<FileCache>,
        offset: i64,
    ) -> Result<(Option<OffsetPosition>, Option<OffsetPosition>), LogError> {
        let count = self.store.count_while(cache, |entry| self.parse(entry).offset <= offset)?;
        let at = |at: u32| self.entry(cache, at).map(Some);
        Ok((if count == 0 { None } else { at(count - 1)? }, if count == self.len() { None } else { at(count)? }))
    }

    /// The first entry whose position is at least `position`.
    pub fn lookup_position(&self, cache: &Arc<FileCache>, position: u64) -> Result<Option<OffsetPosition>, LogError> {
        let count = self.store.count_while(cache, |entry| u64::from(self.parse(entry).position) < position)?;
        if count == self.len() { Ok(None) } else { self.entry(cache, count).map(Some) }
    }

    /// Adds an entry. The offset must fit, and both fields must be larger than the last entry's.
    pub fn push(&mut self, cache: &Arc<FileCache>, offset: i64, position: u32) -> Result<(), LogError> {
        debug_assert!(self.holds(offset), "{offset} beside base offset {}", self.base_offset);
        let mut entry = [0; ENTRY_SIZE];
        entry[..4].copy_from_slice(&((offset - self.base_offset) as i32).to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.store.push(cache, entry)
    }

    /// Removes entries at or above `offset`.
    pub fn truncate_to(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<(), LogError> {
        let keep = self.store.count_while(cache, |entry| self.parse(entry).offset < offset)?;
        self.store.truncate(cache, keep)
    }

    /// Recovers the entries below `offset` after a crash, and returns the last of them.
    pub fn restore(
        &mut self,
        cache: &Arc<FileCache>,
        offset: i64,
        log_bytes: u64,
    ) -> Result<Option<OffsetPosition>, LogError> {
        let base_offset = self.base_offset;
        let parse = |entry: &[u8; ENTRY_SIZE]| (i64::from(number!(i32, entry, 0)), number!(u32, entry, 4));
        self.store.restore(cache, log_bytes / HEADER_LEN as u64, |before, entry| {
            let (delta, position) = parse(entry);
            let (last_delta, last_position) = before.map_or((-1, 0), parse);
            delta > last_delta
                && (position > last_position || before.is_none())
                && u64::from(position) < log_bytes
                && base_offset + delta < offset
        })?;
        self.last(cache)
    }

    pub fn reset(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.store.reset(cache)
    }

    /// Writes the entries that are only in memory; creates the file if necessary. `true` if the file changed.
    pub fn write(&mut self, cache: &Arc<FileCache>) -> Result<bool, LogError> {
        self.store.write(cache)
    }
}
