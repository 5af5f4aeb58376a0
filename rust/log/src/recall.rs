//! What a start forgot of a producer: a snapshot holds the last batch of each, and a producer that goes on after a crash may
//! repeat the four before it too. They are in the log, so they are looked up when one is sent that would be out of order.

use std::collections::VecDeque;

use klamm_base::LogError;

use super::partition_log::Log;
use super::producers::{Batch, Entry};

/// How many offsets are looked through: batches that are under way together lie near each other.
const RECALL_OFFSETS: i64 = 10_000;

impl Log {
    /// Brings back batches of a producer from before the oldest that is remembered; `false` when there is nothing new. A
    /// producer is looked for once.
    pub(super) fn recall(&mut self, producer_id: i64) -> Result<bool, LogError> {
        let Some(entry) = self.producers.begin_recall(producer_id) else { return Ok(false) };
        let Some(oldest) = entry.batches().first().map(Batch::first_offset) else { return Ok(false) };
        let from = oldest.saturating_sub(RECALL_OFFSETS).max(self.log_start_offset);
        let mut found = VecDeque::new();
        for at in self.floor_segment(from)..self.segments.len() {
            if self.segments[at].base_offset() >= oldest {
                break;
            }
            self.look_through(at, (from, oldest), (producer_id, &entry), &mut found)?;
        }
        Ok(self.producers.recall(producer_id, found.make_contiguous()))
    }

    /// Keeps the last batches of the producer's epoch in `[from, upto)` of a segment.
    fn look_through(
        &mut self,
        at: usize,
        (from, upto): (i64, i64),
        (producer_id, entry): (i64, &Entry),
        found: &mut VecDeque<Batch>,
    ) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        let segment = &mut self.segments[at];
        let Some(place) = segment.locate(&cache, from)? else { return Ok(()) };
        let file = segment.open(&cache)?;
        let mut headers = segment.headers(&file, place.position);
        while let Some(batch) = headers.next()? {
            let header = batch.header();
            if header.base_offset() >= upto {
                break;
            }
            let is_theirs = header.producer_id() == producer_id && header.producer_epoch() == entry.producer_epoch;
            if is_theirs && !header.is_control() && header.base_sequence() >= 0 {
                found.push_back(Batch::of(&header));
                if found.len() > entry.room() {
                    found.pop_front();
                }
            }
        }
        Ok(())
    }
}
