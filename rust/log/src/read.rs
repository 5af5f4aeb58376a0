//! Locates the bytes for a fetch. The bytes themselves are read without the lock.

use std::sync::Arc;

use klamm_base::LogError;

use super::files::OpenFile;
use super::index::AbortedTxn;
use super::partition_log::Log;
use super::verify::Unverified;

/// A range of a segment's file that starts with a batch; the last batch may be incomplete.
#[derive(Clone)]
pub struct Slice {
    /// `None` if there is nothing to read.
    pub file: Option<Arc<OpenFile>>,
    pub position: u64,
    pub len: usize,
    /// Base offset of the first batch, at or below the requested offset; equal to that offset if there is nothing to
    /// read.
    pub first_batch_offset: i64,
    /// The first batch is larger than the limit.
    pub first_batch_cut: bool,
    /// What must be checked before the bytes are served.
    pub unverified: Option<Box<Unverified>>,
}

impl Slice {
    fn nothing(offset: i64) -> Self {
        Self { file: None, position: 0, len: 0, first_batch_offset: offset, first_batch_cut: false, unverified: None }
    }

    /// Reads the bytes; may block on the disk.
    pub fn read(&self) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; self.len];
        if let Some(file) = &self.file {
            file.read_at(&mut bytes, self.position)?;
        }
        Ok(bytes)
    }
}

impl Log {
    /// Locates the bytes from the batch that contains `offset` on, below offset `upto`, at most `max_bytes` of them.
    ///
    /// `at_least_one`: a first batch larger than `max_bytes` is returned as a whole. An offset in `[upto, log end]`
    /// returns nothing; an offset outside of the log is an error.
    pub fn read(&mut self, offset: i64, max_bytes: usize, upto: i64, at_least_one: bool) -> Result<Slice, LogError> {
        let (start, end) = (self.log_start_offset, self.log_end_offset);
        if offset < start || offset > end {
            return Err(LogError::OffsetOutOfRange { offset, start, end });
        }
        let upto = upto.min(end);
        if offset >= upto {
            return Ok(Slice::nothing(offset));
        }
        let cache = self.context.cache.clone();
        let mut at = self.floor_segment(offset);
        while let Some(segment) = self.segments.get_mut(at) {
            // Compaction leaves segments that end before the next one begins.
            let place = segment.locate(&cache, offset)?;
            if let Some(damage) = segment.damage_of(offset) {
                return Err(damage.error(&segment.log_file().path()));
            }
            let Some(place) = place else {
                at += 1;
                continue;
            };
            let limit = match self.segments.get(at + 1) {
                Some(next) if next.base_offset() < upto => self.segments[at].size(),
                _ => self.limit_in(at, upto)?,
            };
            let limit = limit.min(self.segments[at].intact_end(place.position));
            let available = usize::try_from(limit.saturating_sub(place.position)).unwrap_or(usize::MAX);
            let allowed = if at_least_one { max_bytes.max(place.size) } else { max_bytes };
            let len = available.min(allowed);
            if len == 0 {
                return Ok(Slice::nothing(offset));
            }
            let unverified = match place.position < self.segments[at].unverified_end() {
                true => self.unverified(at, place.position, len, place.base_offset)?,
                false => None,
            };
            return Ok(Slice {
                unverified,
                file: Some(self.segments[at].open(&cache)?),
                position: place.position,
                len,
                first_batch_offset: place.base_offset,
                first_batch_cut: allowed < place.size,
            });
        }
        Ok(Slice::nothing(offset))
    }

    /// The position in segment number `at` where offsets from `upto` on begin.
    fn limit_in(&mut self, at: usize, upto: i64) -> Result<u64, LogError> {
        let cache = self.context.cache.clone();
        let is_active = at + 1 == self.segments.len();
        let segment = &mut self.segments[at];
        if is_active && upto >= self.log_end_offset {
            return Ok(segment.size());
        }
        Ok(segment.locate(&cache, upto)?.map_or(segment.size(), |place| place.position))
    }

    /// The segment whose range contains `offset`: the last one that begins at or before it.
    pub(super) fn floor_segment(&self, offset: i64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1)
    }

    /// The aborted transactions that overlap `slice` from `offset` on, which a read_committed consumer skips.
    pub fn aborted_transactions(&mut self, offset: i64, slice: &Slice) -> Result<Vec<AbortedTxn>, LogError> {
        if slice.len == 0 {
            return Ok(Vec::new());
        }
        let cache = self.context.cache.clone();
        let at = self.floor_segment(slice.first_batch_offset);
        let next_base = self.segments.get(at + 1).map_or(self.log_end_offset, |next| next.base_offset());
        let after = self.segments[at].offset_after(&cache, slice.position + slice.len as u64)?;
        self.aborted_between(offset, after.unwrap_or(next_base))
    }

    /// The aborted transactions that overlap `[from, to)`.
    pub fn aborted_between(&mut self, from: i64, to: i64) -> Result<Vec<AbortedTxn>, LogError> {
        let cache = self.context.cache.clone();
        let mut found = Vec::new();
        let first = self.floor_segment(from);
        for segment in &mut self.segments[first..] {
            if segment.txns().collect(&cache, from, to, &mut found)? {
                break;
            }
        }
        Ok(found)
    }
}
