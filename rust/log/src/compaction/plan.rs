//! Decides which logs need cleaning, and up to which offset they may be cleaned.

use klamm_base::LogError;

use crate::partition_log::Log;

/// The cost and benefit of cleaning a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanPlan {
    /// All records below this offset are clean.
    pub first_dirty_offset: i64,
    /// Base offset of the first segment that must not be cleaned.
    pub first_uncleanable_offset: i64,
    /// The checkpoint was outside of the log's range and must be rewritten.
    pub reset_checkpoint: bool,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// A dirty record is older than `max.compaction.lag.ms`.
    pub overdue: bool,
}

impl CleanPlan {
    /// Ratio of dirty cleanable bytes to all cleanable bytes.
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 { 0.0 } else { self.cleanable_bytes as f64 / total as f64 }
    }
}

impl Log {
    /// Computes what could be cleaned. `checkpoint` is the first dirty offset after the last round.
    pub fn clean_plan(
        &mut self,
        checkpoint: Option<i64>,
        high_watermark: i64,
        now_ms: i64,
    ) -> Result<CleanPlan, LogError> {
        let checkpoint = checkpoint.unwrap_or(self.log_start_offset);
        let reset_checkpoint = checkpoint < self.log_start_offset || checkpoint > self.log_end_offset;
        let first_dirty_offset = if reset_checkpoint { self.log_start_offset } else { checkpoint };
        // Above the recovery point, a recovery takes a gap between segments for a loss.
        let cleanable = self.active_base_offset().min(self.recovery_point());
        let mut uncleanable = self.last_stable_offset(high_watermark).min(cleanable);
        let lag_ms = self.config.min_compaction_lag_ms.max(0);
        if lag_ms > 0
            && let Some(young) = self.first_younger_segment(first_dirty_offset, now_ms.saturating_sub(lag_ms))?
        {
            uncleanable = uncleanable.min(young);
        }
        let uncleanable = uncleanable.max(first_dirty_offset);
        // Segments are cleaned as a whole: the segment that contains the bound is not cleaned.
        let end = self.floor_segment(uncleanable);
        let dirty = self.floor_segment(first_dirty_offset).min(end);
        let clean = self.segments.partition_point(|segment| segment.base_offset() < first_dirty_offset);
        let bytes = |range: std::ops::Range<usize>| self.segments[range].iter().map(|segment| segment.size()).sum();
        Ok(CleanPlan {
            first_dirty_offset,
            first_uncleanable_offset: self.segments[end].base_offset(),
            reset_checkpoint,
            clean_bytes: bytes(0..clean),
            cleanable_bytes: bytes(dirty..end),
            overdue: self.is_overdue(first_dirty_offset, now_ms)?,
        })
    }

    /// Base offset of the first dirty segment with records younger than `limit_ms`.
    fn first_younger_segment(&mut self, first_dirty_offset: i64, limit_ms: i64) -> Result<Option<i64>, LogError> {
        for at in self.floor_segment(first_dirty_offset)..self.segments.len() - 1 {
            if self.largest_timestamp(at)? > limit_ms {
                return Ok(Some(self.segments[at].base_offset()));
            }
        }
        Ok(None)
    }

    fn is_overdue(&mut self, first_dirty_offset: i64, now_ms: i64) -> Result<bool, LogError> {
        let limit_ms = now_ms.saturating_sub(self.config.max_compaction_lag_ms.max(0));
        let cache = self.context.cache.clone();
        for at in self.floor_segment(first_dirty_offset)..self.segments.len() - 1 {
            let first = self.segments[at].first_timestamp(&cache)?;
            if first > 0 && first < limit_ms {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
