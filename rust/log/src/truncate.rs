//! Removes records: at the end after a leader change, at the start after a log start offset moved.

use klamm_base::LogError;

use super::flush::open_if_there;
use super::partition_log::Log;
use super::recovery::Recovery;
use super::segment::Segment;

impl Log {
    /// Announces that everything from `offset` on is about to be removed. Returns where the log will end: no checkpoint may state
    /// more.
    pub(super) fn begin_truncation(&mut self, offset: i64) -> i64 {
        let first = self.segments[0].base_offset();
        self.checkpoint_limit = offset;
        if !self.is_planned() && (first..self.log_end_offset).contains(&offset) {
            let at = self.floor_segment(offset);
            let segment = &mut self.segments[at];
            self.checkpoint_limit = segment.end_below(&self.context.cache, offset).unwrap_or(segment.base_offset());
        }
        self.checkpoint_limit
    }

    /// Ends the announcement.
    pub(super) fn end_truncation(&mut self) {
        self.checkpoint_limit = i64::MAX;
    }

    /// Removes every record at or above `offset`; `false` if there is none. A batch that contains `offset` is removed
    /// completely.
    ///
    /// Segments are removed durably. The end of the new active segment is durable with the next flush, or before the next
    /// append: truncated records must not reappear together with new ones.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<bool, LogError> {
        assert!(offset >= 0, "truncation to {offset}");
        if offset >= self.log_end_offset {
            self.epochs.truncate_from_end(self.log_end_offset);
            return Ok(false);
        }
        if offset < self.segments[0].base_offset() {
            self.truncate_fully_and_start_at(offset, now_ms)?;
            return Ok(true);
        }
        let keep = self.segments.partition_point(|segment| segment.base_offset() <= offset);
        // Open the files to truncate before anything is removed: an error because of too many open files then changes
        // nothing.
        let files = self.segments[keep - 1].files();
        let opened = files.into_iter().map(|file| open_if_there(&self.context.cache, file));
        let _held: Vec<_> = opened.collect::<Result<_, _>>()?;
        let stored_end_offset = self.segments[keep - 1].end_below(&self.context.cache, offset)?;
        if keep < self.segments.len() {
            self.drop_segments_from(keep, now_ms)?;
            self.sync_names()?;
        }
        // Not synced here: thousands of logs are truncated at once when a leader fails, and one flush syncs many.
        self.has_unsynced_cut = true;
        let active = self.segments.last_mut().expect("the first segment begins at or below the offset");
        active.truncate_to(&self.context.cache, offset, now_ms)?;
        // Nothing was cut if the log ended above its last batch, after a truncation inside a batch.
        self.has_unsynced_cut = active.dirty || self.is_syncing_cut;
        self.epochs.truncate_from_end(offset);
        self.end_at(offset);
        self.stored_end_offset = stored_end_offset;
        self.log_start_offset = self.log_start_offset.min(offset);
        self.load_producers(offset, now_ms, &mut Recovery::default())?;
        Ok(true)
    }

    /// Whether a truncation is not durable yet.
    pub fn has_unsynced_cut(&self) -> bool {
        self.has_unsynced_cut
    }

    /// Makes truncations durable.
    pub(super) fn sync_cut(&mut self) -> Result<(), LogError> {
        if self.has_unsynced_cut {
            let active = self.segments.last().expect("at least one segment");
            active.open(&self.context.cache)?.sync()?;
            self.has_unsynced_cut = false;
        }
        Ok(())
    }

    pub(super) fn sync_names(&self) -> Result<(), LogError> {
        self.dir.ignore_if_away(self.dir.at("", |path| self.context.cache.sync_dir(path)))
    }

    /// Removes everything, durably; the log continues at `offset`.
    pub fn truncate_fully_and_start_at(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.make_if_planned(now_ms)?;
        let cache = self.context.cache.clone();
        self.drop_segments_from(0, now_ms)?;
        self.segments.push(Segment::create(&cache, &self.dir, offset, &self.config, now_ms)?);
        self.epochs.clear();
        self.producers.truncate_fully(&cache, &self.dir, offset)?;
        self.sync_names()?;
        self.has_unsynced_cut = false;
        self.log_start_offset = offset;
        self.end_at(offset);
        Ok(())
    }

    fn end_at(&mut self, offset: i64) {
        (self.log_end_offset, self.stored_end_offset) = (offset, offset);
        self.flushed_offset = self.flushed_offset.min(offset);
        self.generation += 1;
        self.marks.retain(|&mark| mark <= offset);
        let active = self.active_base_offset();
        if let Some(remade) = &mut self.remade {
            remade.to = remade.to.min(active);
        }
    }

    /// Moves the log start offset up to `offset` (DeleteRecords, or a leader with a higher log start offset); `false`
    /// if it is there already. The caller has checked that `offset` is at most the high watermark.
    pub fn advance_log_start(&mut self, offset: i64) -> bool {
        assert!(offset <= self.log_end_offset, "log start {offset} beyond the end {}", self.log_end_offset);
        if offset <= self.log_start_offset {
            return false;
        }
        self.log_start_offset = offset;
        self.epochs.truncate_from_start(offset);
        self.producers.on_log_start(offset);
        true
    }
}
