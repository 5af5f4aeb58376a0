//! The indexes of a segment: loaded on demand, extended by each batch, rebuilt from the headers if they are damaged.

use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::Header;

use super::{Place, Segment};
use crate::files::FileCache;
use crate::index::{NO_TIMESTAMP, TimestampOffset};
use crate::scan::Headers;

/// The positions of this many appended batches are kept, so that a read near the end needs no index lookup.
const RECENT_MAX: usize = 64;

impl Segment {
    /// Loads both indexes; damaged ones are rebuilt from the log.
    #[inline]
    pub fn load(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let is_loaded = self.max_timestamp.is_some() && self.offsets.is_loaded() && self.times.is_loaded();
        if is_loaded && !self.indexes_lost { Ok(()) } else { self.load_now(cache) }
    }

    fn load_now(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        if self.indexes_lost {
            return self.rebuild_indexes(cache);
        }
        let loaded = self.offsets.load(cache, self.size).and_then(|()| self.times.load(cache));
        match loaded {
            Err(LogError::Corrupt { .. }) => self.rebuild_indexes(cache)?,
            result => result?,
        }
        if self.max_timestamp.is_none() {
            self.max_timestamp = Some(self.times.last());
            self.max_unchecked = true;
        }
        Ok(())
    }

    /// Size in bytes of the larger of the two indexes.
    pub fn index_bytes(&mut self, cache: &Arc<FileCache>) -> Result<u64, LogError> {
        self.load(cache)?;
        Ok((u64::from(self.offsets.len()) * 8).max(u64::from(self.times.len()) * 12))
    }

    /// Largest timestamp and the last offset of its batch; -1 if there is none.
    pub fn max_timestamp(&mut self, cache: &Arc<FileCache>) -> Result<TimestampOffset, LogError> {
        self.load(cache)?;
        let largest = self.max_timestamp.expect("set by load");
        // Retention removes segments by this timestamp, so verify the index entry first.
        if std::mem::take(&mut self.max_unchecked)
            && largest.timestamp != NO_TIMESTAMP
            && !self.has_batch_of(cache, largest)?
        {
            self.rebuild_indexes(cache)?;
        }
        Ok(self.max_timestamp.expect("set by load"))
    }

    /// Adds a batch that is in the log file to the indexes.
    pub(crate) fn note_batch(
        &mut self,
        cache: &Arc<FileCache>,
        header: &Header<'_>,
        position: u64,
        size: usize,
    ) -> Result<(), LogError> {
        let last_offset = header.last_offset();
        if !self.offsets.holds(last_offset) {
            let reason = format!("offset {last_offset} in the segment of offset {}", self.base_offset);
            return Err(LogError::Corrupt { path: self.log.path(), position, reason });
        }
        let largest = self.max_timestamp.unwrap_or(self.times.last());
        if header.max_timestamp() > largest.timestamp {
            self.max_timestamp = Some(TimestampOffset { timestamp: header.max_timestamp(), offset: last_offset });
        }
        if position == 0 {
            self.first_crc = Some(header.crc());
        }
        if self.first_timestamp.is_none() && position == 0 {
            self.first_timestamp = Some(header.max_timestamp());
        }
        if self.bytes_since_index > u64::from(self.index_interval_bytes) {
            self.offsets.push(cache, last_offset, position as u32)?;
            if let Some(largest) = self.max_timestamp.filter(|largest| largest.timestamp >= 0) {
                self.times.maybe_push(cache, largest)?;
            }
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += size as u64;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Place { base_offset: header.base_offset(), last_offset, position, size });
        Ok(())
    }

    /// Rebuilds the indexes from the headers in the log.
    pub fn rebuild_indexes(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let rebuilt = self.try_rebuild(cache);
        // An incomplete index is not usable.
        self.indexes_lost = rebuilt.is_err();
        rebuilt
    }

    fn try_rebuild(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.reset_indexes(cache)?;
        let file = self.log.open(cache)?;
        let mut headers = self.headers(&file, 0);
        while let Some(batch) = headers.next()? {
            self.note_batch(cache, &batch.header(), batch.position, batch.size)?;
        }
        self.note_damage(headers.take_damage());
        self.write_indexes(cache, true)
    }

    /// Empties the indexes and what was derived from them; the aborted transactions stay.
    pub(crate) fn reset_indexes(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.offsets.reset(cache)?;
        self.times.reset(cache)?;
        self.max_timestamp = Some(self.times.last());
        self.indexes_lost = false;
        self.first_timestamp = None;
        self.bytes_since_index = 0;
        self.recent.clear();
        Ok(())
    }

    /// Restores the segment to its state when everything below `offset` was flushed, without reading all of it: the
    /// index entries up to there are recovered, and the headers from the last entry on are walked. Returns the
    /// position of `offset`; `None` if the files do not allow it, and then everything must be read.
    pub(crate) fn resume_at(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<u64>, LogError> {
        if self.indexes_lost || offset <= self.base_offset {
            return Ok(None);
        }
        let last = self.offsets.restore(cache, offset, self.size)?;
        self.times.restore(cache, offset, self.size)?;
        self.max_timestamp = Some(self.times.last());
        (self.first_timestamp, self.bytes_since_index) = (None, 0);
        let file = self.log.open(cache)?;
        let mut headers =
            Headers::new(&file, last.map_or(0, |entry| u64::from(entry.position)), self.size, self.base_offset);
        let mut expected = last.map(|entry| entry.offset);
        loop {
            let batch = match headers.next() {
                Err(LogError::Corrupt { .. }) | Ok(None) => return Ok(None),
                result => result?.expect("matched above"),
            };
            let header = batch.header();
            if expected.take().is_some_and(|expected| header.last_offset() != expected) {
                return Ok(None);
            }
            if header.last_offset() >= offset {
                return Ok(None);
            }
            let largest = self.max_timestamp.expect("set above");
            if header.max_timestamp() > largest.timestamp {
                let (timestamp, offset) = (header.max_timestamp(), header.last_offset());
                self.max_timestamp = Some(TimestampOffset { timestamp, offset });
            }
            self.bytes_since_index += batch.size as u64;
            if header.next_offset() == offset {
                // Only the checksum shows whether it ends there: no batch may follow.
                return Ok(batch.is_intact(&file)?.then_some(batch.position + batch.size as u64));
            }
        }
    }

    /// Writes the index entries that are only in memory; `last` adds the final entry of the time index.
    pub fn write_indexes(&mut self, cache: &Arc<FileCache>, last: bool) -> Result<(), LogError> {
        self.load(cache)?;
        if let Some(largest) = self.max_timestamp.filter(|largest| last && largest.timestamp >= 0) {
            self.times.maybe_push(cache, largest)?;
        }
        self.dirty |= self.offsets.write(cache)?;
        self.dirty |= self.times.write(cache)?;
        self.txns.write(cache)
    }

    /// Determines the largest timestamp: the last entry's, or that of a batch after it.
    pub(super) fn read_max_timestamp(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let mut largest = self.times.last();
        let from = self.position_before(cache, largest.offset)?;
        let file = self.log.open(cache)?;
        let mut headers = self.headers(&file, from);
        while let Some(batch) = headers.next()? {
            let header = batch.header();
            if header.max_timestamp() > largest.timestamp {
                largest = TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
            }
        }
        self.max_timestamp = Some(largest);
        Ok(())
    }
}
