//! `RecordBatch`: the header of a batch; its records are decoded on demand.

use klamm_records::{Batch, Header, RecordsError, batches, records};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::columns::{self, RecordColumns};
use super::record::Record;
use super::{DecodeOptions, damaged};

/// The limit of `klamm.records` too. Records of other brokers may be larger than klamm accepts from a producer.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// See `records.pyi`.
#[pyclass(frozen, module = "klamm._engine.records")]
pub struct RecordBatch {
    /// The position of this batch in `data`.
    data: Py<PyBytes>,
    at: usize,
}

/// The complete batches in `data`; fetched records may end inside a batch.
pub fn whole_batches(data: &[u8]) -> impl Iterator<Item = Result<Batch<'_>, RecordsError>> {
    batches(data).filter(|batch| !matches!(batch, Err(RecordsError::Incomplete { .. })))
}

/// Adds the records of a batch to `out`.
fn append_records<'py>(
    py: Python<'py>,
    batch: Batch<'_>,
    options: DecodeOptions,
    buffer: &mut Vec<u8>,
    out: &mut Vec<Bound<'py, Record>>,
) -> PyResult<()> {
    let failed = |error: RecordsError| damaged(py, &error);
    let records = py.detach(|| records(batch, buffer, options.decompressed_bytes_max)).map_err(failed)?;
    let no_headers = PyTuple::empty(py);
    out.reserve(records.size_hint().1.unwrap_or(0));
    for record in records {
        let record = record.map_err(failed)?;
        if record.offset >= options.first_offset {
            out.push(Bound::new(py, Record::copy_of(&record, &no_headers)?)?);
        }
    }
    Ok(())
}

#[pyfunction]
pub fn record_batches(py: Python<'_>, data: Bound<'_, PyBytes>) -> PyResult<Vec<RecordBatch>> {
    let mut out = Vec::new();
    let mut at = 0;
    for batch in whole_batches(data.as_bytes()) {
        let batch = batch.map_err(|error| damaged(py, &error))?;
        out.push(RecordBatch { data: data.clone().unbind(), at });
        at += batch.bytes().len();
    }
    Ok(out)
}

#[pyfunction]
#[pyo3(signature = (data, *, first_offset = i64::MIN, check_crc = true, decompressed_bytes_max))]
pub fn decode_records<'py>(
    py: Python<'py>,
    data: &[u8],
    first_offset: i64,
    check_crc: bool,
    decompressed_bytes_max: usize,
) -> PyResult<Bound<'py, PyList>> {
    let options = DecodeOptions { first_offset, check_crc, decompressed_bytes_max };
    let failed = |error: RecordsError| damaged(py, &error);
    let (mut out, mut buffer) = (Vec::new(), Vec::new());
    for batch in whole_batches(data) {
        let batch = batch.map_err(failed)?;
        if check_crc {
            batch.check().map_err(failed)?;
        }
        if !batch.header().is_control() {
            append_records(py, batch, options, &mut buffer, &mut out)?;
        }
    }
    PyList::new(py, out)
}

#[pyfunction]
pub fn next_offset(py: Python<'_>, data: &[u8]) -> PyResult<Option<i64>> {
    let mut next = None;
    for batch in whole_batches(data) {
        next = Some(batch.map_err(|error| damaged(py, &error))?.header().next_offset());
    }
    Ok(next)
}

impl RecordBatch {
    fn batch<'a>(&'a self, py: Python<'a>) -> Batch<'a> {
        Batch::at_start_of(&self.data.as_bytes(py)[self.at..]).expect("the batch was found in these bytes")
    }

    fn header<'a>(&'a self, py: Python<'a>) -> Header<'a> {
        self.batch(py).header()
    }
}

#[pymethods]
impl RecordBatch {
    #[getter]
    fn base_offset(&self, py: Python<'_>) -> i64 {
        self.header(py).base_offset()
    }

    #[getter]
    fn last_offset(&self, py: Python<'_>) -> i64 {
        self.header(py).last_offset()
    }

    #[getter]
    fn leader_epoch(&self, py: Python<'_>) -> i32 {
        self.header(py).leader_epoch()
    }

    #[getter]
    fn compression(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.batch(py).codec().map(|codec| codec.name()).map_err(|error| damaged(py, &error))
    }

    #[getter]
    fn is_log_append_time(&self, py: Python<'_>) -> bool {
        self.header(py).is_log_append_time()
    }

    #[getter]
    fn is_transactional(&self, py: Python<'_>) -> bool {
        self.header(py).is_transactional()
    }

    #[getter]
    fn is_control(&self, py: Python<'_>) -> bool {
        self.header(py).is_control()
    }

    #[getter]
    fn base_timestamp_ms(&self, py: Python<'_>) -> i64 {
        self.header(py).base_timestamp()
    }

    #[getter]
    fn max_timestamp_ms(&self, py: Python<'_>) -> i64 {
        self.header(py).max_timestamp()
    }

    #[getter]
    fn delete_horizon_ms(&self, py: Python<'_>) -> Option<i64> {
        let header = self.header(py);
        header.has_delete_horizon().then(|| header.base_timestamp())
    }

    #[getter]
    fn producer_id(&self, py: Python<'_>) -> i64 {
        self.header(py).producer_id()
    }

    #[getter]
    fn producer_epoch(&self, py: Python<'_>) -> i16 {
        self.header(py).producer_epoch()
    }

    #[getter]
    fn base_sequence(&self, py: Python<'_>) -> i32 {
        self.header(py).base_sequence()
    }

    #[getter]
    fn record_count(&self, py: Python<'_>) -> i32 {
        self.header(py).record_count()
    }

    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> usize {
        self.batch(py).bytes().len()
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let batch = self.batch(py);
        py.detach(|| batch.check()).map_err(|error| damaged(py, &error))
    }

    #[pyo3(signature = (*, decompressed_bytes_max = DECOMPRESSED_BYTES_MAX))]
    fn records<'py>(&self, py: Python<'py>, decompressed_bytes_max: usize) -> PyResult<Bound<'py, PyList>> {
        let mut out = Vec::new();
        append_records(py, self.batch(py), DecodeOptions::all(decompressed_bytes_max), &mut Vec::new(), &mut out)?;
        PyList::new(py, out)
    }

    #[pyo3(signature = (*, decompressed_bytes_max = DECOMPRESSED_BYTES_MAX))]
    fn columns(&self, py: Python<'_>, decompressed_bytes_max: usize) -> PyResult<RecordColumns> {
        let batch = self.batch(py);
        columns::columns_of(py, || [Ok(batch)].into_iter(), DecodeOptions::all(decompressed_bytes_max))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.batch(py).bytes())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        usize::try_from(self.header(py).record_count()).unwrap_or(0)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let header = self.header(py);
        let (first, last, count) = (header.base_offset(), header.last_offset(), header.record_count());
        format!("<RecordBatch offsets {first} to {last}, {count} records>")
    }
}
