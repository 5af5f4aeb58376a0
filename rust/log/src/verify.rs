//! Verifies data that existed on disk at the start before it is served for the first time.
//!
//! Data that this process appended, or read during recovery, is known to be right. The rest is verified batch by
//! batch, once, without the partition's lock: no consumer receives bytes or offsets that the disk has altered.

use std::sync::Arc;

use klamm_base::LogError;

use super::damage::{Bounds, Damage, Piece, Pieces, first_epoch};
use super::files::{LogFile, OpenFile};
use super::partition_log::Log;
use super::segment::Segment;

/// A range of a segment's file that was not verified since the start.
#[derive(Clone)]
pub struct Unverified {
    segment: Arc<LogFile>,
    file: Arc<OpenFile>,
    /// The log's generation: after a truncation, the bytes that were read may be inconsistent.
    generation: u64,
    from: u64,
    to: u64,
    /// The end of the bytes that existed at the start.
    end: u64,
    bounds: Bounds,
}

/// The result of a verification.
pub struct Verified {
    segment: Arc<LogFile>,
    generation: u64,
    from: u64,
    to: u64,
    damage: Vec<Damage>,
}

impl Unverified {
    /// Reads and verifies the range; may block on the disk.
    pub fn check(&self) -> Result<Verified, LogError> {
        let mut pieces = Pieces::new(&self.file, self.from, self.end, self.bounds);
        let mut damage = Vec::new();
        while pieces.position() < self.to {
            match pieces.next_piece()? {
                Some(Piece::Batch(..)) => {}
                Some(Piece::Damage(found)) => damage.push(found),
                None => break,
            }
        }
        let (segment, generation) = (self.segment.clone(), self.generation);
        Ok(Verified { segment, generation, from: self.from, to: pieces.position(), damage })
    }
}

impl Log {
    /// The part of `[position, position + len)` of segment number `at` that must be verified first. A batch that
    /// contains `first_offset` begins at `position`.
    pub(super) fn unverified(
        &self,
        at: usize,
        position: u64,
        len: usize,
        first_offset: i64,
    ) -> Result<Option<Box<Unverified>>, LogError> {
        let segment = &self.segments[at];
        let end = segment.unverified_end();
        let to = (position + len as u64).min(end);
        if position >= end || segment.is_verified(position, to) {
            return Ok(None);
        }
        let file = segment.open(&self.context.cache)?;
        let next_base = self.segments.get(at + 1).map(|next| next.base_offset());
        let limit = next_base.unwrap_or(self.log_end_offset);
        let next_epoch = match self.segments.get(at + 1) {
            Some(next) => {
                let file = next.open(&self.context.cache)?;
                first_epoch(&file)?
            }
            None => None,
        };
        let bounds = Bounds {
            next_offset: first_offset,
            limit,
            has_gaps: true,
            next_epoch,
            cached_epoch: self.epochs.epoch_for(first_offset),
            cached_upto: self.epochs.epoch_for(limit - 1).map(|newest| (limit, newest)),
            ..Bounds::default()
        };
        let (segment, generation) = (segment.log_file().clone(), self.generation);
        Ok(Some(Box::new(Unverified { segment, file, generation, from: position, to, end, bounds })))
    }

    /// Applies the result of a verification.
    pub fn note_verified(&mut self, verified: Verified) {
        let is_it = |segment: &&mut Segment| Arc::ptr_eq(segment.log_file(), &verified.segment);
        if verified.generation == self.generation
            && let Some(segment) = self.segments.iter_mut().find(is_it)
        {
            segment.note_verified(verified.from, verified.to, verified.damage);
        }
    }

    /// The offset after the damage that contains `offset`.
    pub fn after_damage(&self, offset: i64) -> Option<i64> {
        let damage = self.segments[self.floor_segment(offset)].damage_of(offset)?;
        Some(damage.next_offset)
    }
}
