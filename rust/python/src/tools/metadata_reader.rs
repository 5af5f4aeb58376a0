//! `MetadataReader`: reads a metadata log while its node may be writing it; `metadata_rows` decodes its batches.

use std::path::PathBuf;

use klamm_base::LogError;
use klamm_quorum::{BATCH_BYTES_MAX, Examination, LogReader};
use klamm_records::control::control_kind;
use klamm_records::{RecordsError, batches, records};
use parking_lot::Mutex;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::quorum::errors::storage_error;
use crate::records::damaged;

/// See `tools.pyi`.
#[pyclass(frozen, module = "klamm._engine.tools")]
pub struct MetadataReader {
    directory: PathBuf,
    reader: Mutex<LogReader>,
}

fn reader_error(error: LogError) -> PyErr {
    match error {
        LogError::OffsetOutOfRange { .. } => PyIndexError::new_err(error.to_string()),
        other => storage_error(&other),
    }
}

#[pymethods]
impl MetadataReader {
    #[new]
    fn new(directory: PathBuf) -> Self {
        let reader = Mutex::new(LogReader::new(&directory));
        Self { directory, reader }
    }

    fn intact_end(&self, py: Python<'_>) -> PyResult<(i64, i32, Option<String>)> {
        let examined = py.detach(|| Examination::of(&self.directory)).map_err(reader_error)?;
        let end = examined.end_with_snapshots();
        Ok((end.end_offset, end.epoch, examined.loss(true).map(|loss| loss.to_string())))
    }

    fn start_offset(&self) -> PyResult<Option<i64>> {
        self.reader.lock().start_offset().map_err(reader_error)
    }

    fn end(&self, py: Python<'_>) -> PyResult<(i64, Option<String>)> {
        let end = py.detach(|| self.reader.lock().end()).map_err(reader_error)?;
        Ok((end.offset, end.torn))
    }

    fn offset_after_time(&self, py: Python<'_>, timestamp_ms: i64) -> PyResult<i64> {
        py.detach(|| self.reader.lock().offset_after_time(timestamp_ms)).map_err(reader_error)
    }

    fn snapshots(&self) -> PyResult<Vec<(i64, i32, String)>> {
        let ids = self.reader.lock().snapshots().map_err(reader_error)?;
        Ok(ids.into_iter().map(|id| (id.end_offset, id.epoch, id.file_name())).collect())
    }

    fn read<'py>(&self, py: Python<'py>, offset: i64, max_bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.reader.lock().read(offset, max_bytes)).map_err(reader_error)?;
        Ok(PyBytes::new(py, &bytes))
    }
}

type Row<'py> = (i64, i64, i32, i64, Option<i16>, Bound<'py, PyBytes>);

/// Offset, base offset of the batch, epoch, timestamp in ms, control type and value of each record in complete batches.
#[pyfunction]
fn metadata_rows<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let rows = rows(py, data).map_err(|error| damaged(py, &error))?;
    PyList::new(py, rows)
}

fn rows<'py>(py: Python<'py>, data: &[u8]) -> Result<Vec<Row<'py>>, RecordsError> {
    let (mut rows, mut scratch) = (Vec::new(), Vec::new());
    for batch in batches(data) {
        let batch = batch?;
        batch.check()?;
        let header = batch.header();
        for record in records(batch, &mut scratch, BATCH_BYTES_MAX)? {
            let record = record?;
            let control = header.is_control().then(|| control_kind(record.key)).transpose()?;
            let value = PyBytes::new(py, record.value.unwrap_or_default());
            let (base_offset, epoch) = (header.base_offset(), header.leader_epoch());
            rows.push((record.offset, base_offset, epoch, record.timestamp, control, value));
        }
    }
    Ok(rows)
}

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MetadataReader>()?;
    module.add_function(wrap_pyfunction!(metadata_rows, module)?)
}
