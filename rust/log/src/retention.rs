//! Removes the oldest segments: those below the log start offset, and those beyond the size or time limit.

use std::fs;

use klamm_base::LogError;

use super::partition_log::{Log, Moving};

/// The result of a round of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    pub segments: usize,
    pub bytes: u64,
}

impl Log {
    /// Removes segments, oldest first, as far as retention allows: all offsets of a removed segment are below the
    /// high watermark.
    ///
    /// The active segment is removed too if it is due and contains records; the log then continues in an empty one.
    pub fn delete_expired(&mut self, high_watermark: i64, now_ms: i64) -> Result<Expired, LogError> {
        self.producers.forget_ended_below(high_watermark);
        let mut expired = Expired::default();
        self.drop_below_log_start(high_watermark, now_ms, &mut expired)?;
        if self.config.delete && self.moving != Some(Moving::To) {
            self.drop_too_many_bytes(high_watermark, now_ms, &mut expired)?;
            self.drop_too_old(high_watermark, now_ms, &mut expired)?;
        }
        Ok(expired)
    }

    fn drop_below_log_start(&mut self, hw: i64, now_ms: i64, expired: &mut Expired) -> Result<(), LogError> {
        let start = self.log_start_offset;
        let count =
            self.segments.windows(2).take_while(|pair| pair[1].base_offset() <= start && pair[1].base_offset() <= hw);
        let count = count.count();
        self.drop_oldest(count, now_ms, expired)
    }

    fn drop_too_many_bytes(&mut self, hw: i64, now_ms: i64, expired: &mut Expired) -> Result<(), LogError> {
        let Ok(limit) = u64::try_from(self.config.retention_bytes) else { return Ok(()) };
        let mut over = self.size().saturating_sub(limit);
        let count = (0..self.segments.len())
            .take_while(|&at| {
                let size = self.segments[at].size();
                let due = self.may_drop(at, hw) && over >= size;
                over = over.saturating_sub(size);
                due
            })
            .count();
        self.drop_oldest(count, now_ms, expired)
    }

    fn drop_too_old(&mut self, hw: i64, now_ms: i64, expired: &mut Expired) -> Result<(), LogError> {
        if self.config.retention_ms < 0 {
            return Ok(());
        }
        let mut count = 0;
        while count < self.segments.len()
            && self.may_drop(count, hw)
            && now_ms.saturating_sub(self.largest_timestamp(count)?) > self.config.retention_ms
        {
            count += 1;
        }
        self.drop_oldest(count, now_ms, expired)
    }

    /// Whether segment number `at` is below the high watermark and not an empty active one.
    fn may_drop(&self, at: usize, high_watermark: i64) -> bool {
        match self.segments.get(at + 1) {
            Some(next) => next.base_offset() <= high_watermark,
            None => self.log_end_offset <= high_watermark && self.segments[at].size() > 0,
        }
    }

    /// The largest timestamp of a segment's records; without timestamps, the modification time of its file.
    pub(super) fn largest_timestamp(&mut self, at: usize) -> Result<i64, LogError> {
        let largest = self.segments[at].max_timestamp(&self.context.cache)?.timestamp;
        if largest >= 0 {
            return Ok(largest);
        }
        let path = self.segments[at].log_file().path();
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        let modified = modified.map_err(LogError::io("cannot stat", &path))?;
        Ok(modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
    }

    fn drop_oldest(&mut self, count: usize, now_ms: i64, expired: &mut Expired) -> Result<(), LogError> {
        if count == 0 {
            return Ok(());
        }
        if count == self.segments.len() {
            self.roll(self.log_end_offset, now_ms)?;
        }
        let bytes = self.segments[..count].iter().map(|segment| segment.size()).sum::<u64>();
        expired.segments += count;
        expired.bytes += bytes;
        self.advance_log_start(self.segments[count].base_offset());
        self.drop_segments(0..count, now_ms)?;
        self.context.counters.deleted_segments.add(count as u64);
        self.context.counters.deleted_bytes.add(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use crate::testing::{BatchSpec, batch, config, create};
    use crate::{Log, LogConfig, Origin};

    /// A log of one-record segments of about 900 bytes.
    fn log_of(segments: usize, settings: LogConfig, path: &std::path::Path) -> Log {
        let mut log = create(path, LogConfig { segment_bytes: 1000, ..settings });
        for _ in 0..segments {
            let spec = BatchSpec { value_bytes: 800, ..BatchSpec::default() };
            log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client).expect("append");
        }
        log
    }

    #[test]
    fn retention_by_size_never_leaves_less_than_the_limit() {
        let dir = tempdir().expect("temporary directory");
        let settings = LogConfig { retention_bytes: 3000, retention_ms: -1, ..config() };
        let mut log = log_of(10, settings, &dir.path().join("t-0"));
        let segment = log.size() / 10;
        let expired = log.delete_expired(log.log_end_offset(), 0).expect("retention");
        assert!(log.size() >= 3000 && log.size() - segment < 3000, "{} bytes", log.size());
        assert_eq!((expired.segments, log.log_start_offset()), (6, 6));
    }

    #[test]
    fn a_segment_that_reaches_above_the_high_watermark_stays() {
        let dir = tempdir().expect("temporary directory");
        let settings = LogConfig { retention_ms: -1, ..config() };
        let mut log = log_of(10, settings, &dir.path().join("t-0"));
        // A follower receives the leader's log start before a high watermark that reached it.
        log.advance_log_start(6);
        assert_eq!(log.delete_expired(3, 0).expect("retention").segments, 3);
        assert_eq!(log.delete_expired(8, 0).expect("retention").segments, 3);
        assert_eq!(log.log_start_offset(), 6);
    }
}
