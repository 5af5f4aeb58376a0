//! Reads the log of a coordinator's partition, in a thread outside of the event loop.

use std::sync::Mutex;

use klamm_base::ErrorCode;
use klamm_records::control::control_kind;
use klamm_records::{Entry, LatestRecords, RecordsError, batches, records};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::engine::{DECOMPRESSED_BYTES_MAX, RecordRow};

/// A part also ends after this many bytes were read, so that the first records do not wait for long.
const READ_BYTES: usize = 1 << 30;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct LogLoad {
    source: Box<dyn Source>,
    /// A part ends with the read after which it has at least this many bytes.
    part_bytes: usize,
    latest_only: bool,
    /// Offset of the next read.
    next: Mutex<i64>,
}

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct LoadedPart {
    entries: Mutex<Box<dyn Iterator<Item = Entry<Kept>> + Send>>,
}

/// The log of a partition that this node leads.
pub trait Source: Send + Sync {
    /// Complete batches from an offset on, and the offset from which on they count; empty at the end.
    fn read(&self, offset: i64) -> Result<(i64, Vec<u8>), ErrorCode>;

    /// The exception for the caller.
    fn refused(&self, py: Python<'_>, code: ErrorCode, message: Option<String>) -> PyErr;
}

/// A record that stays: of a transactional batch, of a log that is not compacted, of a group in a later part, or a control
/// record, whose key is its type.
struct Kept {
    offset: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    producer_id: i64,
    is_control: bool,
}

enum ReadError {
    Refused(ErrorCode),
    Damaged(i64, RecordsError),
}

impl LogLoad {
    pub fn new(source: Box<dyn Source>, part_bytes: usize, latest_only: bool) -> Self {
        Self { source, part_bytes, latest_only, next: Mutex::new(0) }
    }

    /// The records up to a limit, and whether there were any.
    fn read_part(&self) -> Result<(LatestRecords<Kept>, bool), ReadError> {
        let (mut latest, mut buffer) = (LatestRecords::default(), Vec::new());
        let mut next = self.next.lock().expect("no panic while it was held");
        let (first, mut total) = (*next, 0);
        let is_first = first == 0;
        while latest.bytes() < self.part_bytes && total < READ_BYTES {
            let (from, bytes) = self.source.read(*next).map_err(ReadError::Refused)?;
            let before = *next;
            for batch in batches(&bytes).map_while(Result::ok) {
                self.add(batch, from, is_first, &mut buffer, &mut latest)
                    .map_err(|error| ReadError::Damaged(batch.header().base_offset(), error))?;
                *next = batch.header().next_offset();
            }
            if *next == before {
                break;
            }
            total += bytes.len();
        }
        Ok((latest, *next != first))
    }

    fn add(
        &self,
        batch: klamm_records::Batch<'_>,
        from: i64,
        is_first: bool,
        buffer: &mut Vec<u8>,
        latest: &mut LatestRecords<Kept>,
    ) -> Result<(), RecordsError> {
        let header = batch.header();
        let mut keyed = Vec::new();
        for record in records(batch, buffer, DECOMPRESSED_BYTES_MAX)? {
            let record = record?;
            if record.offset < from {
                continue;
            }
            let is_plain = !header.is_transactional() && !header.is_control();
            if self.latest_only && is_plain && (is_first || stands_alone(record.key)) {
                keyed.push((record.offset, record.key.unwrap_or_default(), record.value));
                continue;
            }
            let key = match header.is_control() {
                true => Some(control_kind(record.key)?.to_be_bytes().to_vec()),
                false => record.key.map(<[u8]>::to_vec),
            };
            let value = record.value.map(<[u8]>::to_vec);
            let bytes = key.as_ref().map_or(0, Vec::len) + value.as_ref().map_or(0, Vec::len);
            let producer_id = if header.is_transactional() { header.producer_id() } else { -1 };
            let kept = Kept { offset: record.offset, key, value, producer_id, is_control: header.is_control() };
            latest.keep(record.offset, kept, bytes);
        }
        latest.add(&keyed);
        Ok(())
    }
}

/// Whether a record says nothing about other records: a committed offset or a transactional id, by its key's version.
///
/// The records of groups depend on each other. Of these a compaction leaves the last ones from the start of the log on,
/// which is what the first part contains. In a later part a tombstone must not be missing: the state already has what it
/// removes.
fn stands_alone(key: Option<&[u8]>) -> bool {
    matches!(key, Some([0, 0 | 1, ..]))
}

#[pymethods]
impl LogLoad {
    fn read(&self, py: Python<'_>) -> PyResult<Option<LoadedPart>> {
        match py.detach(|| self.read_part()) {
            Ok((_, false)) => Ok(None),
            Ok((latest, true)) => Ok(Some(LoadedPart { entries: Mutex::new(Box::new(latest.into_entries())) })),
            Err(ReadError::Refused(code)) => Err(self.source.refused(py, code, None)),
            Err(ReadError::Damaged(offset, error)) => {
                Err(self.source.refused(py, ErrorCode::CORRUPT_MESSAGE, Some(format!("offset {offset}: {error}"))))
            }
        }
    }
}

#[pymethods]
impl LoadedPart {
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        let mut entries = self.entries.lock().expect("no panic while it was held");
        let rows: Vec<RecordRow<'py>> = entries.by_ref().take(count).map(|entry| row(py, entry)).collect();
        PyList::new(py, rows)
    }
}

fn row(py: Python<'_>, entry: Entry<Kept>) -> RecordRow<'_> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    match entry {
        Entry::Latest(record) => (record.offset, Some(bytes(record.key())), record.value().map(bytes), -1, false),
        Entry::Kept(kept) => (
            kept.offset,
            kept.key.as_deref().map(bytes),
            kept.value.as_deref().map(bytes),
            kept.producer_id,
            kept.is_control,
        ),
    }
}
