//! The log batches of a slice: their offsets, read from their headers.

use std::io;
use std::os::unix::fs::FileExt;

use klamm_log::FileSlice;
use klamm_records::header::{HEADER_LEN, Header};
use klamm_share::{AcquiredRange, LogBatch};

/// Bytes that are read at a time: several headers of small batches.
const WINDOW_BYTES: usize = 8 << 10;

/// The batches of a slice, up to some offset.
#[derive(Debug, Default)]
pub struct LogBatches {
    pub batches: Vec<LogBatch>,
    /// Those of aborted transactions.
    pub aborted: Vec<LogBatch>,
    /// Where each batch ends in the slice.
    ends: Vec<usize>,
}

/// Reads the batches of a slice that begin at or below `last_offset`, and the first one in any case: compaction may leave a
/// gap of any length before it. `aborted` has producer id and first offset of each aborted transaction in it.
pub fn read_batches(slice: &FileSlice, last_offset: i64, aborted: &[(i64, i64)]) -> io::Result<LogBatches> {
    let mut found = LogBatches::default();
    let mut transactions = Transactions::new(aborted);
    let mut window = Vec::new();
    let (mut window_start, mut position) = (0, 0);
    while position + HEADER_LEN <= slice.len {
        if position < window_start || position + HEADER_LEN > window_start + window.len() {
            window.resize(WINDOW_BYTES.min(slice.len - position), 0);
            slice.file.file().read_exact_at(&mut window, slice.position + position as u64)?;
            window_start = position;
        }
        let Some(header) = Header::at_start_of(&window[position - window_start..]) else { break };
        let Some(size) = header.size() else { break };
        let is_too_far = header.base_offset() > last_offset && !found.batches.is_empty();
        if is_too_far || position + size > slice.len {
            break;
        }
        let batch = LogBatch { first: header.base_offset(), last: header.last_offset() };
        if transactions.is_aborted(&header) {
            found.aborted.push(batch);
        }
        found.batches.push(batch);
        position += size;
        found.ends.push(position);
    }
    Ok(found)
}

impl LogBatches {
    /// The part of the slice with the batches that have any of the acquired offsets.
    pub fn cut(&self, slice: &FileSlice, acquired: &[AcquiredRange]) -> Option<FileSlice> {
        let (first, last) = (acquired.first()?.first, acquired.last()?.last);
        let from = self.batches.partition_point(|batch| batch.last < first);
        let to = self.batches.partition_point(|batch| batch.first <= last);
        let start = from.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = to.checked_sub(1).map(|at| self.ends[at]).filter(|end| *end > start)?;
        Some(FileSlice { file: slice.file.clone(), position: slice.position + start as u64, len: end - start })
    }
}

/// The aborted transactions while batches are read in order (`SharePartition.fetchAbortedTransactionRecordBatches`).
struct Transactions {
    /// First offset and producer id, the next one last.
    later: Vec<(i64, i64)>,
    /// Producers whose transaction at this point is aborted.
    producers: Vec<i64>,
}

impl Transactions {
    fn new(aborted: &[(i64, i64)]) -> Self {
        let mut later: Vec<_> =
            aborted.iter().map(|(producer_id, first_offset)| (*first_offset, *producer_id)).collect();
        later.sort_unstable_by(|one, other| other.cmp(one));
        Self { later, producers: Vec::new() }
    }

    fn is_aborted(&mut self, header: &Header<'_>) -> bool {
        if !header.has_producer_id() {
            return false;
        }
        while let Some((_, producer_id)) = self.later.pop_if(|(first_offset, _)| *first_offset <= header.last_offset())
        {
            self.producers.push(producer_id);
        }
        let is_its = |producer_id: &i64| *producer_id == header.producer_id();
        if header.is_control() {
            // Its marker ends the transaction.
            self.producers.retain(|producer_id| !is_its(producer_id));
            return false;
        }
        header.is_transactional() && self.producers.iter().any(is_its)
    }
}
