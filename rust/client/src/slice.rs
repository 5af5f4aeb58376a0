//! The records of a response that are visible to the reader of a range.
//!
//! A fetched batch may begin before the requested offset and end after the range; control batches contain no data;
//! with read_committed, batches of aborted transactions are skipped (KIP-98): a producer's aborted transaction begins
//! at the first offset in the response's list and ends with the producer's ABORT marker.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use klamm_records::control::control_kind;
use klamm_records::{Batch, RecordsError, records};

const ABORT: i16 = 0;

/// The unread records of one response.
#[derive(Debug)]
pub struct Slice {
    bytes: Bytes,
    /// The position of the next batch.
    at: usize,
    next_offset: i64,
    end: i64,
    aborted: Aborted,
    decompressed_bytes_max: usize,
    pub watermarks: Watermarks,
}

/// The offsets that the leader sent with the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// -1: not sent.
    pub log_start_offset: i64,
}

/// A batch whose records in `[first, end)` are data.
pub struct DataBatch<'a> {
    pub batch: Batch<'a>,
    pub first: i64,
    pub end: i64,
}

impl Slice {
    /// `aborted`: producer id and first offset of each aborted transaction, whose records are skipped.
    pub fn new(
        bytes: Bytes,
        start: i64,
        end: i64,
        aborted: Vec<(i64, i64)>,
        decompressed_bytes_max: usize,
        watermarks: Watermarks,
    ) -> Self {
        let aborted = Aborted::new(aborted);
        Self { bytes, at: 0, next_offset: start, end, aborted, decompressed_bytes_max, watermarks }
    }

    /// Where to continue: every record before it was read, or is not data.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Whether the range, or the response, is read completely.
    pub fn is_spent(&self) -> bool {
        self.next_offset >= self.end || self.at >= self.bytes.len()
    }

    /// Changes the end of the range.
    pub fn set_end(&mut self, end: i64) {
        self.end = end;
    }

    /// Limit on the decompressed size of a batch.
    pub fn decompressed_bytes_max(&self) -> usize {
        self.decompressed_bytes_max
    }

    /// The bytes, from which batches can be borrowed while the slice advances.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The next batch with data, verified; `None` at the end. [`Slice::passed`] advances past it.
    ///
    /// `bytes` is the result of [`Slice::bytes`]. An incomplete batch at the end of the response is left for the next
    /// one.
    pub fn next_batch<'a>(&mut self, bytes: &'a Bytes) -> Result<Option<DataBatch<'a>>, RecordsError> {
        while !self.is_spent() {
            let batch = match Batch::at_start_of(&bytes[self.at..]) {
                Err(RecordsError::Incomplete { .. }) => {
                    self.at = self.bytes.len();
                    return Ok(None);
                }
                batch => batch?,
            };
            batch.check()?;
            let header = batch.header();
            if header.next_offset() <= self.next_offset || !self.is_data(batch)? {
                self.passed(batch);
                continue;
            }
            if header.base_offset() >= self.end {
                self.next_offset = self.end;
                return Ok(None);
            }
            return Ok(Some(DataBatch { batch, first: self.next_offset, end: self.end }));
        }
        Ok(None)
    }

    /// The number of batches of the size of `batch`, which is the next one, in the remaining bytes, rounded up.
    pub fn batches_left_like(&self, batch: Batch<'_>) -> usize {
        (self.bytes.len() - self.at).div_ceil(batch.bytes().len())
    }

    /// Advances past a batch.
    pub fn passed(&mut self, batch: Batch<'_>) {
        self.at += batch.bytes().len();
        self.next_offset = batch.header().next_offset().clamp(self.next_offset, self.end.max(self.next_offset));
    }

    /// Moves to an offset within the batch that was returned last.
    pub fn stop_at(&mut self, offset: i64) {
        self.next_offset = offset.max(self.next_offset);
    }

    fn is_data(&mut self, batch: Batch<'_>) -> Result<bool, RecordsError> {
        let header = batch.header();
        self.aborted.reach(header.last_offset());
        if header.is_control() {
            if header.is_transactional() && marker_kind(batch, self.decompressed_bytes_max)? == Some(ABORT) {
                self.aborted.end(header.producer_id());
            }
            return Ok(false);
        }
        Ok(!(header.is_transactional() && self.aborted.contains(header.producer_id())))
    }
}

/// The type of the marker in a control batch; `None` if compaction removed it.
fn marker_kind(batch: Batch<'_>, decompressed_bytes_max: usize) -> Result<Option<i16>, RecordsError> {
    let mut buffer = Vec::new();
    let first = records(batch, &mut buffer, decompressed_bytes_max)?.next().transpose()?;
    first.map(|record| control_kind(record.key)).transpose()
}

/// The aborted transactions at the reader's position.
#[derive(Debug)]
struct Aborted {
    /// First offset and producer id, in ascending order.
    to_come: VecDeque<(i64, i64)>,
    producers: HashSet<i64>,
}

impl Aborted {
    fn new(aborted: Vec<(i64, i64)>) -> Self {
        let mut to_come: Vec<_> =
            aborted.into_iter().map(|(producer_id, first_offset)| (first_offset, producer_id)).collect();
        to_come.sort_unstable();
        Self { to_come: to_come.into(), producers: HashSet::new() }
    }

    /// The reader is at a batch that ends at `last_offset`.
    fn reach(&mut self, last_offset: i64) {
        while let Some(&(first_offset, producer_id)) = self.to_come.front()
            && first_offset <= last_offset
        {
            self.to_come.pop_front();
            self.producers.insert(producer_id);
        }
    }

    fn end(&mut self, producer_id: i64) {
        self.producers.remove(&producer_id);
    }

    fn contains(&self, producer_id: i64) -> bool {
        self.producers.contains(&producer_id)
    }
}
