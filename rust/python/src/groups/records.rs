//! Parts of the records of groups.

use klamm_wire::group_record;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyTuple};

use super::assignors::by_id;
use super::commits::too_large;

/// Adds what this file defines to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(group_record_key, module)?)?;
    module.add_function(wrap_pyfunction!(target_record_value, module)?)
}

/// See `groups.pyi`.
#[pyfunction]
#[pyo3(signature = (record_type, *names))]
fn group_record_key<'py>(
    py: Python<'py>,
    record_type: i16,
    names: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyBytes>> {
    let names = names.extract::<Vec<String>>()?;
    let key = group_record::key(record_type, names.iter().map(String::as_str)).map_err(too_large)?;
    Ok(PyBytes::new(py, &key))
}

/// See `groups.pyi`.
#[pyfunction]
fn target_record_value<'py>(py: Python<'py>, target: &Bound<'py, PyMapping>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &group_record::target_value(&by_id(target)?)))
}
