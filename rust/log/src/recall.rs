//! Finds batches of a producer that a restart lost. A snapshot contains only the last batch of each producer, but
//! after a crash a producer may resend the four before it too. They are searched for in the log when a batch would be
//! out of order.

use std::collections::VecDeque;

use klamm_base::LogError;

use super::partition_log::Log;
use super::producers::{Batch, Entry};

/// How many offsets are searched: batches that are in flight together are close to each other.
const RECALL_OFFSETS: i64 = 10_000;

impl Log {
    /// Restores batches of a producer from before the oldest known one; `false` if there are none. Each producer is
    /// searched for only once.
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

    /// Collects the last batches of the producer's epoch in `[from, upto)` of a segment.
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
