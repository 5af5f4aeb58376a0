//! How many bytes of a log follow an offset.

use klamm_base::LogError;

use super::partition_log::Log;

impl Log {
    /// Bytes of the batches at or above `offset`; the batch that contains it counts completely. 0 at the log's end.
    pub fn bytes_from(&mut self, offset: i64) -> Result<u64, LogError> {
        if offset >= self.log_end_offset {
            return Ok(0);
        }
        let cache = self.context.cache.clone();
        let at = self.floor_segment(offset.max(self.log_start_offset));
        let before = self.segments[at].locate(&cache, offset)?.map_or(self.segments[at].size(), |place| place.position);
        let from_there: u64 = self.segments[at..].iter().map(|segment| segment.size()).sum();
        Ok(from_there - before)
    }
}
