//! Rebuilds the producers and epochs of a log from its batches.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;

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
    let Some(place) = segment.locate(cache, from)? else { return Ok(aborted) };
    let file = segment.open(cache)?;
    let mut headers = segment.headers(&file, place.position);
    let (mut body, mut next_offset) = (Vec::new(), from);
    // Bytes at or after `upto` may not be batches.
    while next_offset < upto
        && let Some(batch) = headers.next()?
    {
        let header = batch.header();
        if header.base_offset() >= upto {
            break;
        }
        next_offset = header.next_offset();
        body.clear();
        if header.is_control() {
            body.resize(batch.size, 0);
            file.read_at(&mut body, batch.position)?;
        }
        aborted.extend(producers.replay(&body, &header));
    }
    Ok(aborted)
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
