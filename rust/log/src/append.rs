//! Appending: assigns offsets and epochs in place, checks producers, and writes once.

use klamm_base::LogError;
use klamm_records::header::{Header, compute_crc, set_position};

use super::error::AppendError;
use super::partition_log::Log;
use super::producers::{Batch, Origin, Update};
use super::segment::{RollCheck, Segment};

/// So many offsets are not in the leader's compacted log that a segment that begins before them could not contain what
/// follows them: the indexes have 32 bits.
pub(super) const FAR: i64 = 1 << 30;

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    /// Largest timestamp of the batches, -1 if they have none.
    pub max_timestamp: i64,
    /// The append time that the broker assigned, -1 if the records kept the producer's timestamps.
    pub append_time_ms: i64,
    /// Nothing was written: the offsets are those of the earlier batch that this one duplicates.
    pub duplicate: bool,
}

/// A sequence of consecutive batches.
#[derive(Clone, Copy)]
struct Summary {
    first_offset: i64,
    last_offset: i64,
    max_timestamp: i64,
    append_time: bool,
}

impl Log {
    /// Appends batches that the leader accepted and `klamm_records` validated; assigns them the next offsets and
    /// `leader_epoch`.
    ///
    /// On an error nothing was appended, but the offsets in `batches` may have been changed.
    pub fn append_as_leader(
        &mut self,
        batches: &mut [u8],
        leader_epoch: i32,
        now_ms: i64,
        origin: Origin,
    ) -> Result<Appended, AppendError> {
        let summary = assign(batches, self.log_end_offset, leader_epoch)?;
        self.check_size(batches.len())?;
        let mut update = Update::default();
        if let Some(batch) = self.check_producers(batches, origin, &mut update)? {
            return Ok(Appended {
                base_offset: batch.first_offset(),
                last_offset: batch.last_offset,
                max_timestamp: summary.max_timestamp,
                append_time_ms: batch.timestamp,
                duplicate: true,
            });
        }
        let appended = self.write(batches, summary, now_ms, &update)?;
        let counters = &self.context.counters;
        counters.appends.add(1);
        counters.bytes.add(batches.len() as u64);
        counters.records.add((summary.last_offset + 1 - summary.first_offset) as u64);
        Ok(appended)
    }

    /// Adds what an append changes to `update`; returns the earlier batch that it duplicates.
    fn check_producers(
        &mut self,
        batches: &[u8],
        origin: Origin,
        update: &mut Update,
    ) -> Result<Option<Batch>, AppendError> {
        match self.producers.check(batches, origin, update) {
            Err(AppendError::OutOfOrderSequence { producer_id, .. }) if self.recall(producer_id)? => {
                *update = Update::default();
                self.producers.check(batches, origin, update)
            }
            checked => checked,
        }
    }

    /// Appends the leader's batches with their offsets and epochs unchanged. An incomplete batch at the end is left
    /// out, and so is everything from the first batch whose epoch is newer than `leader_epoch`. Returns `None` if
    /// nothing is left.
    pub fn append_as_follower(
        &mut self,
        batches: &[u8],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Option<Appended>, AppendError> {
        let (len, summary) = check_replicated(batches, leader_epoch)?;
        let Some(summary) = summary else { return Ok(None) };
        if summary.first_offset < self.log_end_offset {
            return Err(AppendError::UnexpectedOffset { offset: summary.first_offset, end: self.log_end_offset });
        }
        self.check_size(len)?;
        let batches = &batches[..len];
        let mut update = Update::default();
        self.producers.check(batches, Origin::Replication, &mut update)?;
        self.write(batches, summary, now_ms, &update).map(Some)
    }

    fn check_size(&self, size: usize) -> Result<(), AppendError> {
        let segment_bytes = self.config.segment_bytes;
        if size as u64 > u64::from(segment_bytes) {
            return Err(AppendError::LargerThanSegment { size, segment_bytes });
        }
        Ok(())
    }

    fn write(
        &mut self,
        batches: &[u8],
        summary: Summary,
        now_ms: i64,
        update: &Update,
    ) -> Result<Appended, AppendError> {
        self.make_if_planned(now_ms)?;
        self.sync_cut()?;
        self.maybe_roll(batches.len(), &summary, now_ms)?;
        self.note_epochs(batches);
        let active = self.segments.last_mut().expect("at least one segment");
        active.append(&self.context.cache, batches)?;
        if !self.config.flush_before_ack {
            let end = active.size();
            active.write_back_mut().on_append(now_ms, end, self.config.segment_bytes);
        }
        self.log_end_offset = summary.last_offset + 1;
        self.stored_end_offset = self.log_end_offset;
        for aborted in self.producers.apply(update) {
            // Recovery does not miss an index whose name was lost.
            self.dir_dirty |= !active.txns().has_file(&self.context.cache)?;
            active.txns().push(&self.context.cache, aborted)?;
        }
        self.producers.set_map_end_offset(self.log_end_offset);
        Ok(Appended {
            base_offset: summary.first_offset,
            last_offset: summary.last_offset,
            max_timestamp: summary.max_timestamp,
            append_time_ms: if summary.append_time { summary.max_timestamp } else { -1 },
            duplicate: false,
        })
    }

    fn note_epochs(&mut self, batches: &[u8]) {
        let mut at = 0;
        while let Some(header) = Header::at_start_of(&batches[at..]) {
            // A batch without an epoch belongs to the epoch of the batch before it.
            if header.leader_epoch() >= 0 {
                self.epochs.assign(header.leader_epoch(), header.base_offset());
            }
            at += header.size().expect("whole batches");
        }
    }

    fn maybe_roll(&mut self, bytes: usize, summary: &Summary, now_ms: i64) -> Result<(), LogError> {
        let jitter_ms = self.jitter_ms();
        let check = RollCheck { bytes, max_timestamp: summary.max_timestamp, last_offset: summary.last_offset, now_ms };
        let active = self.segments.last_mut().expect("at least one segment");
        if active.should_roll(&self.context.cache, &self.config, &check, jitter_ms)? {
            let base_offset = self.next_base_offset(summary);
            self.roll(base_offset, now_ms)?;
        }
        Ok(())
    }

    /// Where the next segment begins: where the last batch ends, although a leader's compacted log may continue later. A gap
    /// between segments then shows a recovery that records are missing (`recovery::lacks_records`).
    fn next_base_offset(&self, summary: &Summary) -> i64 {
        let end = self.stored_end_offset;
        let is_far = summary.first_offset - end >= FAR || summary.last_offset - end > i64::from(i32::MAX);
        if is_far { summary.first_offset } else { end }
    }

    /// A jitter of up to `segment.jitter.ms`, constant for each segment, so that not all logs roll at once.
    fn jitter_ms(&self) -> i64 {
        let most = self.config.segment_jitter_ms.min(self.config.segment_ms);
        if most <= 0 {
            return 0;
        }
        let seed =
            crc32c::crc32c(format!("{}-{}-{}", self.topic, self.partition, self.active_base_offset()).as_bytes());
        i64::from(seed) % most
    }

    /// Starts a new segment at `base_offset`, below which all batches end.
    pub fn roll(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.sync_cut()?;
        let cache = self.context.cache.clone();
        let active = self.segments.last_mut().expect("at least one segment");
        if active.base_offset() == base_offset {
            assert_eq!(active.size(), 0, "a segment with batches cannot begin where the next one does");
            return Ok(());
        }
        active.become_inactive(&cache)?;
        self.rolled_offset = self.rolled_offset.or(Some(active.base_offset()));
        self.producers.set_map_end_offset(base_offset);
        self.take_snapshot()?;
        self.segments.push(Segment::create(&cache, &self.dir, base_offset, &self.config, now_ms)?);
        self.stored_end_offset = base_offset;
        self.dir_dirty = true;
        self.context.counters.rolls.add(1);
        Ok(())
    }
}

/// The batch at `batches[at..]`, which must be complete and contain at least one offset.
fn whole_batch(batches: &[u8], at: usize) -> Result<(Header<'_>, usize), AppendError> {
    let malformed = AppendError::Malformed { position: at, len: batches.len() };
    let header = Header::at_start_of(&batches[at..]);
    match header.and_then(|header| Some((header, header.size()?))) {
        Some((header, size)) if size <= batches.len() - at && header.last_offset_delta() >= 0 => Ok((header, size)),
        _ => Err(malformed),
    }
}

/// Assigns offsets to all batches, starting at `next_offset`.
fn assign(batches: &mut [u8], next_offset: i64, leader_epoch: i32) -> Result<Summary, AppendError> {
    let mut summary =
        Summary { first_offset: next_offset, last_offset: next_offset - 1, max_timestamp: -1, append_time: false };
    let mut at = 0;
    while at < batches.len() {
        let (header, size) = whole_batch(batches, at)?;
        let base_offset = summary.last_offset + 1;
        summary.last_offset = base_offset + i64::from(header.last_offset_delta());
        summary.max_timestamp = summary.max_timestamp.max(header.max_timestamp());
        summary.append_time |= header.is_log_append_time();
        set_position(&mut batches[at..at + size], base_offset, leader_epoch);
        at += size;
    }
    if batches.is_empty() { Err(AppendError::Malformed { position: 0, len: 0 }) } else { Ok(summary) }
}

/// Validates batches from the leader: how many bytes are complete batches of an epoch that is not newer, and a
/// summary of them.
fn check_replicated(batches: &[u8], leader_epoch: i32) -> Result<(usize, Option<Summary>), AppendError> {
    let mut summary: Option<Summary> = None;
    let mut at = 0;
    while at < batches.len() {
        let malformed = || AppendError::Malformed { position: at, len: batches.len() };
        let Some(header) = Header::at_start_of(&batches[at..]) else { break };
        let size = header.size().filter(|_| header.magic() == 2).ok_or_else(malformed)?;
        let Some(batch) = batches.get(at..at + size) else { break };
        if header.leader_epoch() > leader_epoch {
            break;
        }
        let in_order = header.last_offset_delta() >= 0
            && header.base_offset() >= 0
            && header.base_offset().checked_add(i64::from(header.last_offset_delta())).is_some()
            && summary.is_none_or(|before| header.base_offset() > before.last_offset);
        if !in_order || header.crc() != compute_crc(batch) {
            return Err(malformed());
        }
        let before = summary.get_or_insert(Summary {
            first_offset: header.base_offset(),
            last_offset: -1,
            max_timestamp: -1,
            append_time: false,
        });
        before.last_offset = header.last_offset();
        before.max_timestamp = before.max_timestamp.max(header.max_timestamp());
        at += size;
    }
    Ok((at, summary))
}
