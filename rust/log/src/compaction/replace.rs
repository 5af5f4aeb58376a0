//! The steps of a round of cleaning under the partition's lock: handing out segments and replacing them.

use std::collections::HashMap;
use std::sync::Arc;

use klamm_base::LogError;

use super::filter::LastBatch;
use super::job::{CleanJob, Cleaned, Source};
use super::plan::CleanPlan;
use crate::names::Stage;
use crate::partition_log::Log;

/// Default size of a job's read and write buffers, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

impl Log {
    /// Hands out the segments that a plan found cleanable.
    pub fn begin_clean(&mut self, plan: &CleanPlan, now_ms: i64) -> Result<CleanJob, LogError> {
        let cache = self.context.cache.clone();
        let count = self.segments.partition_point(|segment| segment.base_offset() < plan.first_uncleanable_offset);
        let mut sources = Vec::with_capacity(count);
        for at in 0..count {
            let end_offset = self.segments[at + 1].base_offset();
            let segment = &mut self.segments[at];
            sources.push(Source {
                base_offset: segment.base_offset(),
                file: segment.log_file().clone(),
                size: segment.size(),
                index_bytes: segment.index_bytes(&cache)?,
                end_offset,
            });
        }
        let aborted = self.aborted_between(self.log_start_offset, plan.first_uncleanable_offset)?;
        Ok(CleanJob {
            cache,
            dir: self.dir.clone(),
            config: self.config.clone(),
            sources,
            aborted,
            last_batches: self.last_batches(),
            first_dirty_offset: plan.first_dirty_offset,
            end_offset: plan.first_uncleanable_offset,
            now_ms,
            buffer_bytes: BUFFER_BYTES,
        })
    }

    fn last_batches(&self) -> HashMap<i64, LastBatch> {
        let last = |(producer_id, entry): (i64, &crate::producers::Entry)| {
            let last_offset = entry.last_batch().map_or(-1, |batch| batch.last_offset);
            (producer_id, LastBatch { last_offset, producer_epoch: entry.producer_epoch })
        };
        self.producers().map(last).collect()
    }

    /// Replaces the segments that a cleaned segment was made from. Returns `false` if some of them no longer exist;
    /// then the cleaned segment is removed.
    pub fn replace_segments(&mut self, cleaned: Cleaned, now_ms: i64) -> Result<bool, LogError> {
        let cache = self.context.cache.clone();
        let Cleaned { segment, sources } = cleaned;
        let first = self.floor_segment(sources[0].base_offset);
        let range = first..first + sources.len();
        let unchanged = !self.is_away()
            && self.moving.is_none()
            && range.end < self.segments.len()
            && self.segments[range.clone()].iter().zip(&sources).all(|(segment, source)| {
                Arc::ptr_eq(segment.log_file(), &source.file) && segment.size() == source.size
            });
        if !unchanged {
            segment.remove(&cache)?;
            return Ok(false);
        }
        // From here on, a start after a crash completes the swap: journaling file systems preserve the order of
        // renames.
        segment.change_stage(&cache, Stage::Swap)?;
        self.drop_cleaned(range, Some(sources[0].base_offset), now_ms)?;
        segment.change_stage(&cache, Stage::Live)?;
        self.segments.insert(first, segment);
        self.dir_dirty = true;
        Ok(true)
    }
}
