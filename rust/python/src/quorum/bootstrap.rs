//! The content of the snapshot files that formatting a directory writes.

use klamm_metadata::bootstrap;
use klamm_records::control::{Endpoint, Voter};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyfunction]
fn bootstrap_checkpoint<'py>(
    py: Python<'py>,
    records: Vec<Bound<'py, PyBytes>>,
    now_ms: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let records: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
    let file = bootstrap::bootstrap_checkpoint(&records, now_ms);
    Ok(PyBytes::new(py, &file.map_err(|error| PyValueError::new_err(error.to_string()))?))
}

#[pyfunction]
fn voters_checkpoint(
    py: Python<'_>,
    kraft_version: i16,
    voters: Vec<(i32, [u8; 16], String, String, u16)>,
    now_ms: i64,
) -> PyResult<Bound<'_, PyBytes>> {
    let voters = voters
        .into_iter()
        .map(|(id, directory_id, name, host, port)| Voter {
            id,
            directory_id,
            endpoints: vec![Endpoint { name, host, port }],
            kraft_version_min: 0,
            kraft_version_max: 1,
        })
        .collect();
    let file = bootstrap::voters_checkpoint(kraft_version, voters, now_ms);
    Ok(PyBytes::new(py, &file.map_err(|error| PyValueError::new_err(error.to_string()))?))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(bootstrap_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(voters_checkpoint, module)?)?;
    Ok(())
}
