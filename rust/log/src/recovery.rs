//! Opens a log that is on disk: completes swaps, checks unflushed segments, and restores the producers.
//!
//! Only segments from the recovery point on are read completely. Bytes there that are not a valid batch are either
//! the end of the log, torn by a kill or a power cut before it was acknowledged, or damage to data that was complete
//! once (see `keeps`). Damage is left in place, reported and skipped. Zeroes at the end of a segment are an unused
//! prepared tail.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::Header;

use super::append::FAR;
use super::checkpoint::{LOG_START_OFFSET, PARTITION_METADATA};
use super::clean_stop::ClosedLog;
use super::config::LogConfig;
use super::damage::{Bounds, Damage, Piece, Pieces, first_epoch, offsets};
use super::epochs::EpochFile;
use super::files::PartitionDir;
use super::listing::{finish_swaps, list, load_segments, note_missing, snapshots_of};
use super::names::{FileName, Kind};
use super::partition_log::{Log, LogContext, Remade};
use super::producers::{Producers, snapshot_path};
use super::replay::read_epochs;
use super::segment::Segment;
use super::stray_segment::find_strays;

/// What the checkpoints of the log directory say about a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenAt {
    /// Everything below was flushed.
    pub recovery_point: i64,
    pub log_start_offset: i64,
    /// The last shutdown was clean: no check is needed.
    pub clean: bool,
    /// The log was compacted, or may have been, whatever its current policy: offsets may be missing.
    pub has_gaps: bool,
    /// The offset below which a segment of such a log may end before the next one begins.
    pub gaps_below: i64,
    /// Damage does not end the log if intact batches follow it, or acknowledged ones did.
    pub keeps_damage: bool,
    /// The log contained everything below this offset: the checkpointed high watermark, or how far it was flushed when damage was
    /// known in it.
    pub proven_end: i64,
    /// No write is torn, because the machine did not reboot.
    pub kept_power: bool,
    /// Nothing but klamm has written to the log since everything in it was flushed.
    pub has_sole_writer: bool,
    /// The closed state of the log after a clean stop of klamm.
    pub closed: Option<Arc<ClosedLog>>,
}

impl OpenAt {
    /// Whether the power was cut, and nothing shows that klamm had flushed the log once.
    pub(super) fn may_be_unflushed(&self) -> bool {
        let is_marked =
            [self.recovery_point, self.log_start_offset, self.proven_end].into_iter().any(|offset| offset > 0);
        !self.clean && !self.kept_power && self.has_sole_writer && !is_marked
    }
}

/// The findings and actions of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments that were read; the first one possibly from the recovery point on.
    pub segments_checked: usize,
    pub bytes_checked: u64,
    /// Bytes that were not valid batches and were truncated.
    pub bytes_truncated: u64,
    /// Prepared zeroes that were truncated.
    pub zeroes_cut: u64,
    /// Segments after a truncation, which were removed.
    pub segments_dropped: usize,
    /// Damage that was found and left in place, by segment file.
    pub damage: Vec<(PathBuf, Damage)>,
    /// Offset ranges `[from, to)` of records that are lost, in addition to those in `damage`.
    pub lost: Vec<(i64, i64)>,
    /// Base offsets of segment files that belonged to another log and were set aside.
    pub strays: BTreeSet<i64>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl Log {
    /// Opens a log that is on disk.
    pub fn open(
        path: &Path,
        topic: &str,
        partition: i32,
        config: Arc<LogConfig>,
        context: &LogContext,
        at: OpenAt,
        now_ms: i64,
    ) -> Result<(Log, Recovery), LogError> {
        let mut recovery = Recovery::default();
        let dir = PartitionDir::new(path);
        let mut dropped = finish_swaps(&context.cache, path)?;
        if let Some(closed) = &at.closed {
            for stray in find_strays(&context.cache, path, closed)? {
                recovery.warnings.push(stray.set_aside(&context.cache, path)?);
                recovery.strays.insert(stray.base_offset);
            }
        }
        dropped.extend(&recovery.strays);
        let listing = list(path)?;
        note_missing(path, &listing, &dropped, &mut recovery);
        let snapshots = snapshots_of(&listing);
        let segments = load_segments(&context.cache, &dir, &config, listing)?;
        let epochs = read_epochs(path, &mut recovery);
        let rebuild_epochs = epochs.is_none();
        let mut log = Log {
            planned: None,
            dir: dir.clone(),
            topic: topic.to_owned(),
            partition,
            config,
            context: context.clone(),
            segments,
            epochs: epochs.unwrap_or_default(),
            epoch_file: EpochFile::new(&dir),
            producers: Producers::new(snapshots),
            log_start_offset: at.log_start_offset,
            log_end_offset: at.log_start_offset,
            stored_end_offset: at.log_start_offset,
            flushed_offset: 0,
            generation: 0,
            has_unsynced_cut: false,
            is_syncing_cut: false,
            checkpoint_limit: i64::MAX,
            rolled_offset: None,
            marks: Vec::new(),
            remade: None,
            syncing_rolled: None,
            is_flushing: false,
            flushed_ms: now_ms,
            flush_asked: false,
            idle_end_offset: -1,
            unsynced: Vec::new(),
            is_new: false,
            dir_dirty: false,
            moving: None,
        };
        let (is_clean, recovery_point) = (at.clean, at.recovery_point);
        log.recover(at, rebuild_epochs, now_ms, &mut recovery)?;
        if !is_clean {
            // A killed process may have written and named files that it did not sync.
            log.unsynced.push(path.join(PARTITION_METADATA));
            let snapshots = log.producers.snapshots().range(recovery_point..);
            log.unsynced.extend(snapshots.map(|&offset| snapshot_path(&dir, offset)));
            (log.is_new, log.dir_dirty) = (true, true);
            context.counters.recoveries.add(1);
            context.counters.recovered_bytes.add(recovery.bytes_checked);
            context.counters.truncated_bytes.add(recovery.bytes_truncated);
        }
        Ok((log, recovery))
    }

    fn recover(
        &mut self,
        at: OpenAt,
        rebuild_epochs: bool,
        now_ms: i64,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        if let Some(first) = self.segments.first() {
            self.log_start_offset = at.log_start_offset.max(first.base_offset());
        }
        let cache = self.context.cache.clone();
        let closed_epoch = at.closed.as_ref().map(|closed| closed.last_epoch);
        if rebuild_epochs || closed_epoch.is_some_and(|epoch| epoch != self.epochs.latest().unwrap_or(-1)) {
            self.rebuild_epochs()?;
        } else if at.closed.is_none() {
            self.restore_first_epochs()?;
        }
        let (at, is_as_closed) = self.compare(at, recovery);
        let clean_end = if at.clean && is_as_closed { self.clean_end(&at)? } else { None };
        let end = match (clean_end, self.segments.is_empty()) {
            (Some(end), _) => end,
            (None, true) => self.log_start_offset,
            (None, false) => self.check_unflushed(&at, now_ms, recovery)?,
        };
        (self.log_end_offset, self.stored_end_offset) = (end, end);
        let next_offset = self.next_offset_after_loss(&at, recovery);
        if self.segments.is_empty() || next_offset < self.log_start_offset {
            self.start_again(at.log_start_offset.max(next_offset), now_ms)?;
        } else if next_offset > end || self.ends_with_damage() {
            // Bytes without readable offsets contained at least one record.
            let next_offset = next_offset.max(self.active_base_offset() + 1);
            self.roll(next_offset, now_ms)?;
            self.log_end_offset = next_offset;
        }
        self.epochs.truncate_from_end(self.log_end_offset);
        self.epochs.truncate_from_start(self.log_start_offset);
        self.flushed_offset =
            if clean_end.is_some() { self.log_end_offset } else { at.recovery_point.min(self.log_end_offset) };
        self.flushed_offset = self.flushed_offset.max(self.log_start_offset);
        if clean_end.is_some() {
            self.check_txn_indexes(self.segments.len(), at.closed.as_deref(), recovery)?;
            self.marks.push(self.log_end_offset);
            self.load_producers(self.log_end_offset, now_ms, recovery)?;
        }
        self.producers.set_map_end_offset(self.log_end_offset);
        let base_offsets: Vec<i64> = self.segments.iter().map(Segment::base_offset).collect();
        self.producers.remove_stray_snapshots(&cache, &self.dir, &base_offsets)
    }

    /// The epoch file follows a log start sooner than its checkpoint, so after a crash the log may begin below its first
    /// epoch. The epochs of these batches are read from them: a follower that diverges there has to notice it.
    fn restore_first_epochs(&mut self) -> Result<(), LogError> {
        let first = self.epochs.entries().first().map_or(i64::MIN, |&(_, start)| start);
        for segment in &self.segments {
            if first <= self.log_start_offset.max(segment.base_offset()) {
                break;
            }
            let file = segment.open(&self.context.cache)?;
            let mut headers = segment.headers(&file, 0);
            while let Some(batch) = headers.next()?
                && batch.header().base_offset() < first
            {
                let header = batch.header();
                // A batch that was written before there were epochs has none.
                if header.leader_epoch() >= 0 && header.last_offset() >= self.log_start_offset {
                    self.epochs.confirm(header.leader_epoch(), header.base_offset(), header.last_offset());
                }
            }
        }
        Ok(())
    }

    /// Compares the segments with the closed state: returns what must be checked, and whether everything matches.
    fn compare(&mut self, at: OpenAt, recovery: &mut Recovery) -> (OpenAt, bool) {
        let mut at = at;
        // Everything was synced before a clean stop.
        at.kept_power |= at.clean;
        at.proven_end = at.proven_end.max(at.recovery_point);
        let Some(closed) = at.closed.clone() else { return (at, true) };
        at.proven_end = closed.log_end_offset;
        let first_offset = self.segments.first().map_or(closed.log_end_offset, Segment::base_offset);
        if at.log_start_offset.max(first_offset) != closed.log_start_offset.max(first_offset) {
            recovery.warnings.push(format!(
                "{}-{} begins at offset {}, not at {} as {LOG_START_OFFSET} says",
                self.topic, self.partition, closed.log_start_offset, at.log_start_offset
            ));
        }
        at.log_start_offset = closed.log_start_offset;
        self.log_start_offset = closed.log_start_offset.max(first_offset);
        if first_offset > closed.log_start_offset {
            recovery.lost.push((closed.log_start_offset, first_offset));
        }
        let found: Vec<_> = self.segments.iter().map(|segment| (segment.base_offset(), segment.size())).collect();
        let differences = closed.differences(&found);
        for (base_offset, why) in differences.iter().filter(|(base, _)| !recovery.strays.contains(base)) {
            let file = self.dir.join(FileName::live(*base_offset, Kind::Log).to_string());
            recovery.warnings.push(format!(
                "{} {why} when the node stopped cleanly; {}-{} is recovered as after a crash",
                file.display(),
                self.topic,
                self.partition
            ));
        }
        let first = differences.first().map(|&(base_offset, _)| base_offset);
        at.recovery_point = at.recovery_point.min(first.unwrap_or(i64::MAX));
        (at, first.is_none())
    }

    /// The next offset after a loss: the offsets of lost records are not assigned again.
    fn next_offset_after_loss(&self, at: &OpenAt, recovery: &mut Recovery) -> i64 {
        let end = self.log_end_offset;
        if !at.keeps_damage || end >= at.proven_end {
            return end;
        }
        let base_offset = self.segments.last().map_or(at.log_start_offset, Segment::base_offset);
        let size = self.segments.last().map_or(0, Segment::size);
        let file = self.dir.join(FileName::live(base_offset, Kind::Log).to_string());
        recovery.lost.push((end, at.proven_end));
        recovery.warnings.push(format!(
            "{}-{} has lost {}: {} ends at byte {size}, and the log once ended at offset {}; it continues there",
            self.topic,
            self.partition,
            offsets(end, at.proven_end),
            file.display(),
            at.proven_end,
        ));
        at.proven_end
    }

    /// Whether the active segment ends with bytes that no batch may follow.
    fn ends_with_damage(&self) -> bool {
        let active = self.segments.last();
        active.is_some_and(|segment| segment.damage().last().is_some_and(|damage| damage.end >= segment.size()))
    }

    /// The log's end after a clean shutdown; `None` if the last segment does not end where it did: the check then reports
    /// what is damaged or lost.
    fn clean_end(&mut self, at: &OpenAt) -> Result<Option<i64>, LogError> {
        let Some(active) = self.segments.last_mut() else { return Ok(None) };
        let closed_end = at.closed.as_ref().map(|closed| closed.log_end_offset);
        match active.next_offset(&self.context.cache) {
            Ok(end) if at.keeps_damage && (end < at.proven_end || closed_end.is_some_and(|closed| closed != end)) => {
                Ok(None)
            }
            Err(LogError::Corrupt { .. }) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Reads the segments from the recovery point on; returns the log end offset.
    fn check_unflushed(&mut self, open_at: &OpenAt, now_ms: i64, recovery: &mut Recovery) -> Result<i64, LogError> {
        let (recovery_point, has_gaps) = (open_at.recovery_point, open_at.has_gaps || self.config.compact);
        let first = self.floor_segment(recovery_point);
        let closed = open_at.closed.as_deref();
        self.check_txn_indexes(first, closed, recovery)?;
        let resumed = self.resume_segment(first, open_at, recovery)?;
        let from = resumed.map_or(self.segments[first].base_offset(), |_| recovery_point);
        self.load_producers(from, now_ms, recovery)?;
        let mut end = from;
        let mut at = first;
        while at < self.segments.len() {
            let base_offset = self.segments[at].base_offset();
            if at > first {
                self.producers.set_map_end_offset(base_offset);
                self.take_snapshot()?;
            }
            let checked = match resumed.filter(|_| at == first) {
                Some(position) => self.check_segment(at, position, recovery_point, open_at, recovery)?,
                None => self.check_whole_segment(at, open_at, recovery)?,
            };
            end = checked.next_offset.max(base_offset);
            at += 1;
            let Some(next_base) = self.segments.get(at).map(Segment::base_offset) else { break };
            // A segment that lost its last bytes may still end with a complete batch.
            let is_hole = lacks_records(end, next_base, has_gaps, open_at);
            if is_hole && !checked.cut && open_at.keeps_damage && (open_at.kept_power || end < open_at.proven_end) {
                let file = self.segments[at - 1].log_file().path();
                recovery.lost.push((end, next_base));
                recovery.warnings.push(format!(
                    "{}-{} has lost {}: they were after byte {} of {}, or in a missing file",
                    self.topic,
                    self.partition,
                    offsets(end, next_base),
                    self.segments[at - 1].size(),
                    file.display(),
                ));
                end = next_base;
            } else if is_hole || checked.cut && next_base != end {
                recovery.warnings.push(format!(
                    "{}-{} ends at offset {end}: {} segments from offset {next_base} on are removed",
                    self.topic,
                    self.partition,
                    self.segments.len() - at
                ));
                recovery.segments_dropped = self.segments.len() - at;
                self.drop_segments_from(at, now_ms)?;
            }
        }
        self.producers.set_map_end_offset(end);
        if first + 1 < self.segments.len() {
            // Syncing each one would cost more than reading them, so only the records delay the start.
            let snapshots = std::mem::take(&mut self.unsynced);
            self.remade = Some(Remade { from, to: self.active_base_offset(), snapshots });
            self.dir_dirty = true;
        } else if resumed.is_some() {
            self.marks.push(from);
        }
        Ok(end)
    }

    /// The position at which the check of the first segment begins, so that flushed data is not read again.
    fn resume_segment(
        &mut self,
        at: usize,
        open_at: &OpenAt,
        recovery: &mut Recovery,
    ) -> Result<Option<u64>, LogError> {
        let cache = self.context.cache.clone();
        if let Some(reason) = self.wrong_txn_index(at, open_at.recovery_point, open_at.closed.as_deref())? {
            // The whole segment is read then, and the index is rebuilt with it.
            recovery.warnings.push(self.txn_index_warning(at, &reason));
            return Ok(None);
        }
        if open_at.clean {
            // What was flushed is not as it was.
            return Ok(None);
        }
        let segment = &mut self.segments[at];
        segment.txns().truncate_to(&cache, open_at.recovery_point)?;
        segment.resume_at(&cache, open_at.recovery_point)
    }

    /// Rebuilds a segment's indexes while it is checked from its first byte on.
    fn check_whole_segment(
        &mut self,
        at: usize,
        open_at: &OpenAt,
        recovery: &mut Recovery,
    ) -> Result<Checked, LogError> {
        let cache = self.context.cache.clone();
        let segment = &mut self.segments[at];
        segment.reset_indexes(&cache)?;
        segment.txns().reset(&cache)?;
        let base_offset = segment.base_offset();
        self.check_segment(at, 0, base_offset, open_at, recovery)
    }

    /// Reads a segment from a batch's position and offset on, and truncates it where the batches end.
    fn check_segment(
        &mut self,
        at: usize,
        from: u64,
        from_offset: i64,
        open_at: &OpenAt,
        recovery: &mut Recovery,
    ) -> Result<Checked, LogError> {
        let cache = self.context.cache.clone();
        let is_active = at + 1 == self.segments.len();
        let bounds = self.bounds(at, from_offset, open_at)?;
        let segment = &mut self.segments[at];
        let size = segment.size();
        // A killed process may have truncated it.
        segment.dirty = true;
        let file = segment.open(&cache)?;
        let mut pieces = Pieces::new(&file, from, size, bounds);
        let why = loop {
            let (position, batch) = match pieces.next_piece()? {
                Some(Piece::Batch(position, batch)) => (position, batch),
                Some(Piece::Damage(damage)) if keeps(&damage, open_at, &bounds, size) => {
                    recovery.warnings.push(format!("{}", damage.error(file.path())));
                    recovery.damage.push((file.path().to_owned(), damage.clone()));
                    self.producers.pass_damage(damage.next_offset);
                    segment.note_damage(vec![damage]);
                    continue;
                }
                Some(Piece::Damage(damage)) => break Some(damage),
                None => break None,
            };
            let header = Header::at_start_of(batch).expect("a whole batch");
            segment.note_batch(&cache, &header, position, batch.len())?;
            if header.leader_epoch() >= 0 {
                self.epochs.confirm(header.leader_epoch(), header.base_offset(), header.last_offset());
            }
            if let Some(aborted) = self.producers.replay(batch, &header) {
                segment.txns().push(&cache, aborted)?;
                self.dir_dirty = true;
            }
        };
        recovery.segments_checked += 1;
        recovery.bytes_checked += size - from;
        segment.note_checked_from(from);
        let Some(damage) = why else {
            let next_offset = pieces.next_offset();
            segment.write_indexes(&cache, !is_active)?;
            return Ok(Checked { next_offset, cut: false });
        };
        let (valid, next_offset) = (damage.position, damage.first_offset);
        if damage.is_zero_tail {
            recovery.zeroes_cut += size - valid;
        } else {
            recovery.bytes_truncated += size - valid;
            recovery.warnings.push(format!(
                "{} is cut from {size} to {valid} bytes, offset {next_offset}: {}",
                file.path().display(),
                damage.reason,
            ));
        }
        segment.cut_to(&cache, valid)?;
        segment.write_indexes(&cache, !is_active)?;
        // Erased bytes contained offsets; torn bytes are the end.
        let is_end = bounds.next_base.is_none() || !may_keep(&damage, open_at);
        Ok(Checked { next_offset, cut: is_end })
    }

    /// What the neighbours of a segment show about its offsets.
    fn bounds(&self, at: usize, next_offset: i64, open_at: &OpenAt) -> Result<Bounds, LogError> {
        let next_base = self.segments.get(at + 1).map(Segment::base_offset);
        let end = open_at.closed.as_ref().map(|closed| closed.log_end_offset);
        let limit = self.segments[at].base_offset().saturating_add(1 << 31);
        let limit = next_base.or(end.filter(|&end| end > next_offset)).map_or(limit, |end| end.min(limit));
        let epoch_limit = open_at.closed.as_ref().map_or(i32::MAX, |closed| closed.last_epoch);
        let cached_epoch = self.epochs.epoch_for(next_offset);
        let has_gaps = open_at.has_gaps || self.config.compact;
        let next_epoch = match self.segments.get(at + 1) {
            Some(next) => {
                let file = next.open(&self.context.cache)?;
                first_epoch(&file)?
            }
            None => None,
        };
        let cached_upto = self.epochs.latest().map(|newest| (open_at.proven_end, newest));
        Ok(Bounds {
            limit,
            next_base,
            has_gaps,
            cached_epoch,
            epoch_limit,
            next_epoch,
            cached_upto,
            next_offset,
            epoch: -1,
        })
    }

    /// No existing record may be read: the log restarts empty at its start offset.
    fn start_again(&mut self, start_offset: i64, now_ms: i64) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        self.drop_segments_from(0, now_ms)?;
        self.segments.push(Segment::create(&cache, &self.dir, start_offset, &self.config, now_ms)?);
        self.epochs.clear();
        self.producers.truncate_fully(&cache, &self.dir, start_offset)?;
        self.log_start_offset = start_offset;
        (self.log_end_offset, self.stored_end_offset) = (start_offset, start_offset);
        self.dir_dirty = true;
        Ok(())
    }
}

/// Whether records are missing between a segment that ends at `end` and the next one. In a log with gaps, a segment that
/// klamm has rolled ends where the next one begins, until the cleaner rewrites it; and the cleaner rewrites only what is below
/// the recovery point (docs/decisions/0073).
pub(super) fn lacks_records(end: i64, next_base: i64, has_gaps: bool, open_at: &OpenAt) -> bool {
    let may_lack_offsets = has_gaps && (next_base <= open_at.gaps_below || next_base - end >= FAR);
    next_base != end && !may_lack_offsets
}

struct Checked {
    next_offset: i64,
    /// The log ended here when the process did.
    cut: bool,
}

/// Whether an invalid range was a complete batch once: then it is kept, and so is everything after it.
pub(super) fn keeps(damage: &Damage, open_at: &OpenAt, bounds: &Bounds, size: u64) -> bool {
    let is_tail = damage.end >= size;
    // Nothing is missing, or nothing about it can be known.
    let holds_nothing = is_tail && (bounds.next_base == Some(damage.first_offset) || damage.is_zero_tail);
    // A kill leaves the first bytes of a write; a power cut may leave any of its sectors.
    let may_be_unfinished = if open_at.kept_power { damage.may_be_cut_short } else { damage.may_be_torn };
    let is_unfinished =
        is_tail && bounds.next_base.is_none() && may_be_unfinished && damage.first_offset >= open_at.proven_end;
    !holds_nothing && !is_unfinished && may_keep(damage, open_at)
}

/// Whether the damage may be something other than a power cut's effect on unsynced bytes.
fn may_keep(damage: &Damage, open_at: &OpenAt) -> bool {
    let is_proven = damage.first_offset < open_at.proven_end || open_at.kept_power;
    open_at.keeps_damage && (is_proven || !damage.may_be_torn)
}
