//! Where a read begins: the batch of an offset or of a timestamp, by the indexes and by headers.

use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::Header;

use super::Segment;
use crate::files::FileCache;
use crate::index::{NO_TIMESTAMP, TimestampOffset};
use crate::scan::{BatchAt, HEADER_CHUNK, Headers};

/// A position at which a read can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub base_offset: i64,
    pub last_offset: i64,
    pub position: u64,
    pub size: usize,
}

impl Place {
    fn of(batch: &BatchAt) -> Self {
        let header = batch.header();
        Self {
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            position: batch.position,
            size: batch.size,
        }
    }
}

impl Segment {
    /// The first batch whose last offset is at least `offset`; `None` if all end below it.
    pub fn locate(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        let mut found = self.locate_by_headers(cache, offset)?;
        // Headers that are known to be damaged do not count.
        while let Some(end) = found.and_then(|place| self.end_of_damage_at(place.position)) {
            let file = self.log.open(cache)?;
            let mut headers = self.headers(&file, end);
            let next = headers.find(|header| header.last_offset() >= offset)?;
            self.note_damage(headers.take_damage());
            found = next.as_ref().map(Place::of);
        }
        Ok(found)
    }

    fn end_of_damage_at(&self, position: u64) -> Option<u64> {
        let damage = self.damage.iter().find(|damage| (damage.position..damage.end).contains(&position));
        damage.map(|damage| damage.end)
    }

    fn locate_by_headers(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        if let Some(found) = self.locate_recent(offset) {
            return Ok(found);
        }
        if let Some(found) = self.locate_indexed(cache, offset)? {
            return Ok(Some(found));
        }
        let before = self.batch_before(cache, offset)?;
        let file = self.log.open(cache)?;
        let mut headers = match &before {
            Some(batch) if batch.header().last_offset() >= offset => return Ok(Some(Place::of(batch))),
            Some(batch) => Headers::after(&file, batch, self.size).skipping(self.limit),
            None => self.headers(&file, 0),
        };
        let found = headers.find(|header| header.last_offset() >= offset)?;
        self.note_damage(headers.take_damage());
        Ok(found.as_ref().map(Place::of))
    }

    /// The batch that contains `offset`, if it is the one of the next index entry: a batch that follows a large one
    /// has its own entry, so its header suffices.
    fn locate_indexed(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<Place>, LogError> {
        self.load(cache)?;
        let (before, Some(next)) = self.offsets.around(cache, offset)? else { return Ok(None) };
        if next.position - before.map_or(0, |entry| entry.position.min(next.position)) < HEADER_CHUNK as u32 {
            return Ok(None);
        }
        // If it does not match, the search from the previous entry checks it.
        let found = self.batch_at(cache, next.position).ok().flatten();
        let is_it = |batch: &Header<'_>| batch.base_offset() <= offset && batch.last_offset() == next.offset;
        Ok(found.filter(|batch| is_it(&batch.header())).as_ref().map(Place::of))
    }

    fn locate_recent(&self, offset: i64) -> Option<Option<Place>> {
        let first = self.recent.front()?;
        if offset < first.base_offset {
            return None;
        }
        let at = self.recent.partition_point(|place| place.last_offset < offset);
        Some(self.recent.get(at).copied())
    }

    /// Where a walk to `offset` may begin: a batch whose last offset is at most `offset`.
    pub(crate) fn position_before(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<u64, LogError> {
        Ok(self.batch_before(cache, offset)?.map_or(0, |batch| batch.position))
    }

    /// The batch of the last index entry at or below `offset`, if there is one. This detects a wrong entry, because
    /// the batch that it names contains its own offset.
    fn batch_before(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<Option<BatchAt>, LogError> {
        self.load(cache)?;
        let Some(entry) = self.offsets.lookup(cache, offset)? else { return Ok(None) };
        match self.batch_at(cache, entry.position) {
            Ok(Some(batch)) if batch.header().last_offset() == entry.offset => return Ok(Some(batch)),
            Err(error @ (LogError::Io { .. } | LogError::TooManyOpenFiles { .. })) => return Err(error),
            _ => {}
        }
        self.rebuild_indexes(cache)?;
        match self.offsets.lookup(cache, offset)? {
            Some(entry) => self.batch_at(cache, entry.position),
            None => Ok(None),
        }
    }

    fn batch_at(&self, cache: &Arc<FileCache>, position: u32) -> Result<Option<BatchAt>, LogError> {
        let file = self.log.open(cache)?;
        Headers::new(&file, u64::from(position), self.size, self.base_offset).next()
    }

    /// An offset that no batch below `position` reaches: the next index entry's, if there is one.
    pub fn offset_after(&mut self, cache: &Arc<FileCache>, position: u64) -> Result<Option<i64>, LogError> {
        self.load(cache)?;
        Ok(self.offsets.lookup_position(cache, position)?.map(|entry| entry.offset))
    }

    /// The offset after the last batch; the base offset if there is none.
    pub fn next_offset(&mut self, cache: &Arc<FileCache>) -> Result<i64, LogError> {
        let from = self.position_before(cache, i64::MAX)?;
        let file = self.log.open(cache)?;
        let mut headers = Headers::new(&file, from, self.size, self.base_offset);
        let mut next_offset = self.base_offset;
        while let Some(batch) = headers.next()? {
            next_offset = batch.header().next_offset();
        }
        Ok(next_offset)
    }

    /// Where the last batch ends that ends at or below `offset`, which is not below the base offset; `offset` if damage hides
    /// it.
    pub(crate) fn end_below(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<i64, LogError> {
        if !self.damage().is_empty() {
            return Ok(offset);
        }
        let from = self.position_before(cache, self.base_offset.max(offset - 1))?;
        let file = self.log.open(cache)?;
        let mut headers = Headers::new(&file, from, self.size, self.base_offset);
        let mut end = self.base_offset;
        loop {
            match headers.next() {
                Ok(Some(batch)) if batch.header().next_offset() <= offset => end = batch.header().next_offset(),
                Ok(_) => return Ok(end),
                Err(LogError::Corrupt { .. }) => return Ok(offset),
                Err(error) => return Err(error),
            }
        }
    }

    /// The position at which to start a search for `timestamp` among offsets from `from_offset` on.
    pub fn position_for_timestamp(
        &mut self,
        cache: &Arc<FileCache>,
        timestamp: i64,
        from_offset: i64,
    ) -> Result<u64, LogError> {
        self.load(cache)?;
        let mut entry = self.times.lookup(cache, timestamp)?;
        if entry.timestamp != NO_TIMESTAMP && !self.has_batch_of(cache, entry)? {
            self.rebuild_indexes(cache)?;
            entry = self.times.lookup(cache, timestamp)?;
        }
        self.position_before(cache, entry.offset.max(from_offset))
    }

    /// Whether a time index entry matches a batch; a wrong entry does not.
    pub(super) fn has_batch_of(&mut self, cache: &Arc<FileCache>, entry: TimestampOffset) -> Result<bool, LogError> {
        let Some(place) = self.locate(cache, entry.offset)? else { return Ok(false) };
        let file = self.log.open(cache)?;
        let batch = self.headers(&file, place.position).next()?;
        Ok(batch.is_some_and(|batch| {
            let header = batch.header();
            // Before 4.0, Apache Kafka stored the record's offset instead of its batch's last one.
            header.base_offset() <= entry.offset && header.max_timestamp() == entry.timestamp
        }))
    }
}
