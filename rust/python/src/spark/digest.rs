//! Digests of rows, by which two attempts of a task are compared.

use klamm_client::digest;
use pyo3::prelude::*;

use crate::client::rows::Columns;

/// See `spark.pyi`.
#[pyfunction]
#[pyo3(signature = (topic, partition, keys, values, headers = None, timestamps = None))]
pub fn digest_rows(
    py: Python<'_>,
    topic: &str,
    partition: Option<&Bound<'_, PyAny>>,
    keys: Option<&Bound<'_, PyAny>>,
    values: Option<&Bound<'_, PyAny>>,
    headers: Option<&Bound<'_, PyAny>>,
    timestamps: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let columns = Columns::new(partition, keys, values, headers, timestamps)?;
    let rows = columns.views()?;
    Ok(py.detach(|| digest(topic, &rows)))
}
