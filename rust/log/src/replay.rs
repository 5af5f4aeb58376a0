//! Rebuilds the producers and epochs of a log from its batches.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{Header, compute_crc};

use super::checkpoint::LEADER_EPOCH;
use super::epochs::EpochCache;
use super::files::FileCache;
use super::index::AbortedTxn;
use super::partition_log::Log;
use super::producers::Producers;
use super::recovery::Recovery;
use super::segment::Segment;

impl Log {
    /// Restores the producers before `upto` from a snapshot and the batches after it.
    pub(super) fn load_producers(&mut self, upto: i64, now_ms: i64, recovery: &mut Recovery) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        let range = self.segments[0].base_offset()..=upto;
        let expiration_ms = self.config.producer_id_expiration_ms;
        let warnings = &mut recovery.warnings;
        self.producers.truncate_and_reload(&cache, &self.dir, range, now_ms, expiration_ms, warnings)?;
        let from = self.producers.map_end_offset();
        if from >= upto {
            return Ok(());
        }
        for at in self.floor_segment(from)..self.segments.len() {
            if self.segments[at].base_offset() >= upto {
                break;
            }
            replay_segment(&cache, &mut self.segments[at], &mut self.producers, from, upto)?;
        }
        self.producers.set_map_end_offset(upto);
        Ok(())
    }

    /// The aborted transactions of segment number `at`, derived from its control batches and the producers before it.
    pub(super) fn read_aborted(&mut self, at: usize) -> Result<Vec<AbortedTxn>, LogError> {
        let cache = self.context.cache.clone();
        let base_offset = self.segments[at].base_offset();
        let mut producers = Producers::before(&self.dir, base_offset, self.producers.snapshots())?;
        let from = producers.map_end_offset();
        for before in self.floor_segment(from)..at {
            replay_segment(&cache, &mut self.segments[before], &mut producers, from, base_offset)?;
        }
        replay_segment(&cache, &mut self.segments[at], &mut producers, base_offset, i64::MAX)
    }

    /// Restores the producers, their snapshots and the indexes of aborted transactions as they are once the damaged offsets are
    /// replaced by `batches`. The files are durable, and precede the batches: a crash in between leaves what is true of both.
    pub(super) fn restore_producers(&mut self, damaged: Range<i64>, batches: &[u8]) -> Result<(), LogError> {
        if self.producers.entries().is_empty() && !has_producers(batches) {
            return Ok(());
        }
        let cache = self.context.cache.clone();
        let mut producers = Producers::before(&self.dir, damaged.start, self.producers.snapshots())?;
        // Those above may lack the batches.
        self.producers.remove_snapshots_above(&cache, &self.dir, damaged.start)?;
        let from = producers.map_end_offset();
        let at_damage = self.floor_segment(damaged.start);
        for at in self.floor_segment(from)..self.segments.len() {
            let segment = &mut self.segments[at];
            let base_offset = segment.base_offset();
            if at > at_damage {
                producers.set_map_end_offset(base_offset);
                producers.take_snapshot(&cache, &self.dir, true)?;
            }
            let mut aborted = Vec::new();
            if at == at_damage {
                aborted.extend(replay_segment(&cache, segment, &mut producers, from, damaged.start)?);
                aborted.extend(replay_batches(batches, &mut producers));
                aborted.extend(replay_segment(&cache, segment, &mut producers, damaged.end, i64::MAX)?);
            } else {
                aborted.extend(replay_segment(&cache, segment, &mut producers, from, i64::MAX)?);
            }
            if at >= at_damage {
                let before = segment.txns().load(&cache)?.iter().filter(|entry| entry.last_offset < from).copied();
                let entries = before.chain(aborted).collect();
                segment.txns().exchange(&cache, entries)?;
            }
        }
        self.sync_names()?;
        producers.set_map_end_offset(self.log_end_offset);
        self.producers.replay_as(producers);
        Ok(())
    }

    /// Rebuilds the epochs from the headers of all batches.
    pub(super) fn rebuild_epochs(&mut self) -> Result<(), LogError> {
        self.epochs.clear();
        for segment in &self.segments {
            let file = segment.open(&self.context.cache)?;
            // The check of the segments handles damage.
            let mut headers = segment.headers(&file, 0);
            while let Some(batch) = headers.next()? {
                let header = batch.header();
                if header.leader_epoch() >= 0
                    && self.epochs.latest().is_none_or(|latest| header.leader_epoch() > latest)
                {
                    self.epochs.assign(header.leader_epoch(), header.base_offset());
                }
            }
        }
        Ok(())
    }
}

/// Replays the producers of one segment's batches in `[from, upto)`, reading the bodies of control batches only.
/// Returns the transactions that were aborted there.
fn replay_segment(
    cache: &Arc<FileCache>,
    segment: &mut Segment,
    producers: &mut Producers,
    from: i64,
    upto: i64,
) -> Result<Vec<AbortedTxn>, LogError> {
    let mut aborted = Vec::new();
    let found = segment.locate(cache, from)?;
    let position = found.map_or_else(|| segment.size(), |place| place.position);
    let file = segment.open(cache)?;
    let mut headers = segment.headers(&file, position);
    let (mut body, mut next_offset) = (Vec::new(), from);
    // Bytes at or after `upto` may not be batches.
    while next_offset < upto
        && let Some(batch) = headers.next()?
    {
        segment.note_damage(headers.take_damage());
        let header = batch.header();
        if header.base_offset() >= upto {
            break;
        }
        if segment.damage_of(header.base_offset()).is_some() {
            continue;
        }
        body.clear();
        if header.is_control() {
            body.resize(batch.size, 0);
            file.read_at(&mut body, batch.position)?;
            if header.crc() != compute_crc(&body) {
                headers.skip_damaged(&batch, next_offset.min(header.base_offset()))?;
                continue;
            }
        }
        pass_damage(segment, producers, next_offset..header.base_offset());
        next_offset = header.next_offset();
        aborted.extend(producers.replay(&body, &header));
    }
    segment.note_damage(headers.take_damage());
    pass_damage(segment, producers, next_offset..upto);
    Ok(aborted)
}

/// Notes the damage that begins in `passed`.
fn pass_damage(segment: &Segment, producers: &mut Producers, passed: Range<i64>) {
    let damage = segment.damage().iter().filter(|damage| passed.contains(&damage.first_offset));
    damage.for_each(|damage| producers.pass_damage(damage.next_offset));
}

fn has_producers(batches: &[u8]) -> bool {
    klamm_records::batches(batches).any(|batch| batch.is_ok_and(|batch| batch.header().has_producer_id()))
}

/// Replays batches that are about to be written. Returns the transactions that were aborted there.
fn replay_batches(batches: &[u8], producers: &mut Producers) -> Vec<AbortedTxn> {
    let mut aborted = Vec::new();
    let mut at = 0;
    while let Some(header) = Header::at_start_of(&batches[at..]) {
        let batch = &batches[at..at + header.size().expect("whole batches")];
        aborted.extend(producers.replay(batch, &header));
        at += batch.len();
    }
    aborted
}

pub(super) fn read_epochs(path: &Path, recovery: &mut Recovery) -> Option<EpochCache> {
    match EpochCache::read(path) {
        Ok(epochs) => Some(epochs),
        // Apache Kafka creates the file before it has anything to write into it.
        Err(_) if fs::metadata(path.join(LEADER_EPOCH)).is_ok_and(|file| file.len() == 0) => None,
        Err(error) => {
            recovery.warnings.push(format!("{error}; the epochs are read from the log instead"));
            None
        }
    }
}
