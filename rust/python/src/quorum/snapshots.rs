//! Snapshot files and `bootstrap.checkpoint`. Each function blocks on disk I/O and releases the GIL.
use std::path::PathBuf;

use klamm_metadata::checkpoint::{self, CheckpointError, CheckpointHeader};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::errors::storage_error;
use crate::metadata::image::Image;
use crate::metadata::records::MetadataRecordError;

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(write_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(load_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(read_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(write_values_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(read_values_snapshot, module)?)
}

/// The exception for an error of a snapshot file.
pub fn python_error(error: CheckpointError) -> PyErr {
    match error {
        CheckpointError::Storage(error) => storage_error(&error),
        CheckpointError::Unwritable(_) | CheckpointError::Record(_) => MetadataRecordError::new_err(error.to_string()),
    }
}

#[pyfunction]
#[pyo3(signature = (path, image, *, epoch, last_contained_log_timestamp_ms, now_ms, control_records = Vec::new()))]
fn write_snapshot(
    py: Python<'_>,
    path: PathBuf,
    image: Image,
    epoch: i32,
    last_contained_log_timestamp_ms: i64,
    now_ms: i64,
    control_records: Vec<(i16, Vec<u8>)>,
) -> PyResult<u64> {
    let header =
        CheckpointHeader { epoch, last_contained_log_timestamp: last_contained_log_timestamp_ms, control_records };
    py.detach(|| checkpoint::write_snapshot(&path, &image.0, &header, now_ms)).map_err(python_error)
}

#[pyfunction]
fn load_snapshot(py: Python<'_>, path: PathBuf, end_offset: i64, epoch: i32) -> PyResult<Image> {
    let image = py.detach(|| checkpoint::load_snapshot(&path, end_offset, epoch));
    image.map(Image::new_from).map_err(python_error)
}

#[pyfunction]
fn read_checkpoint(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    let records = py.detach(|| checkpoint::read_records(&path)).map_err(python_error)?;
    Ok(records.iter().map(|record| PyBytes::new(py, record)).collect())
}

#[pyfunction]
#[pyo3(signature = (path, values, *, epoch, last_contained_log_timestamp_ms, now_ms, control_records = Vec::new()))]
fn write_values_snapshot(
    py: Python<'_>,
    path: PathBuf,
    values: Vec<PyBackedBytes>,
    epoch: i32,
    last_contained_log_timestamp_ms: i64,
    now_ms: i64,
    control_records: Vec<(i16, Vec<u8>)>,
) -> PyResult<u64> {
    let header =
        CheckpointHeader { epoch, last_contained_log_timestamp: last_contained_log_timestamp_ms, control_records };
    py.detach(|| checkpoint::write_values(&path, &values, &header, now_ms)).map_err(python_error)
}

#[pyfunction]
fn read_values_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    let values = py.detach(|| checkpoint::read_values(&path)).map_err(python_error)?;
    Ok(values.iter().map(|value| PyBytes::new(py, value)).collect())
}
