//! Which records of an answer a reader of a range may see.
//!
//! A fetched batch may begin before the offset asked for and end behind the range; control batches are nobody's data;
//! under read_committed, batches of aborted transactions are passed over (KIP-98): an aborted transaction of
//! a producer begins at the first offset that the answer tells and ends with the producer's ABORT marker.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use klamm_records::control::control_kind;
use klamm_records::{Batch, RecordsError, records};

const ABORT: i16 = 0;

/// What is left to read of the records of one answer.
#[derive(Debug)]
pub struct Slice {
    bytes: Bytes,
    /// Where the next batch begins.
    at: usize,
    next_offset: i64,
    end: i64,
    aborted: Aborted,
    decompressed_bytes_max: usize,
    pub watermarks: Watermarks,
}

/// What the leader told with the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// -1: not told.
    pub log_start_offset: i64,
}

/// A batch whose records in `[first, end)` are data.
pub struct DataBatch<'a> {
    pub batch: Batch<'a>,
    pub first: i64,
    pub end: i64,
}

impl Slice {
    /// `aborted`: producer id and first offset of each aborted transaction, to pass over its records.
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

    /// Where to read on: every record before it was seen, or is no data.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Whether the range is read to its end, or these bytes are.
    pub fn is_spent(&self) -> bool {
        self.next_offset >= self.end || self.at >= self.bytes.len()
    }

    /// Reads on to another end.
    pub fn set_end(&mut self, end: i64) {
        self.end = end;
    }

    /// What a batch may decompress to.
    pub fn decompressed_bytes_max(&self) -> usize {
        self.decompressed_bytes_max
    }

    /// The bytes, to borrow batches from while the slice moves on.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The next batch with data, checked; `None` at the end. [`Slice::passed`] moves behind it.
    ///
    /// `bytes` is what [`Slice::bytes`] gave. A batch that is cut by the end of the answer is left for the next one.
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

    /// How many batches of the size of `batch`, which is the next one, the bytes have from there on, rounded up.
    pub fn batches_left_like(&self, batch: Batch<'_>) -> usize {
        (self.bytes.len() - self.at).div_ceil(batch.bytes().len())
    }

    /// Moves behind a batch.
    pub fn passed(&mut self, batch: Batch<'_>) {
        self.at += batch.bytes().len();
        self.next_offset = batch.header().next_offset().clamp(self.next_offset, self.end.max(self.next_offset));
    }

    /// Moves to an offset within the batch that was given out last.
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

/// The kind of the marker that a control batch holds; `None` when compaction took it.
fn marker_kind(batch: Batch<'_>, decompressed_bytes_max: usize) -> Result<Option<i16>, RecordsError> {
    let mut buffer = Vec::new();
    let first = records(batch, &mut buffer, decompressed_bytes_max)?.next().transpose()?;
    first.map(|record| control_kind(record.key)).transpose()
}

/// The aborted transactions that the reader is inside of.
#[derive(Debug)]
struct Aborted {
    /// First offset and producer id, ascending.
    to_come: VecDeque<(i64, i64)>,
    producers: HashSet<i64>,
}

impl Aborted {
    fn new(told: Vec<(i64, i64)>) -> Self {
        let mut to_come: Vec<_> =
            told.into_iter().map(|(producer_id, first_offset)| (first_offset, producer_id)).collect();
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
