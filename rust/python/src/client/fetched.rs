//! `FetchedSlice`: fetched records as Arrow columns.

use std::sync::Arc;

use klamm_client::slice::Watermarks;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::export::{Column, capsules};

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct FetchedSlice {
    pub columns: Arc<Column>,
    pub next_offset: i64,
    pub watermarks: Watermarks,
}

#[pymethods]
impl FetchedSlice {
    #[getter]
    fn next_offset(&self) -> i64 {
        self.next_offset
    }

    #[getter]
    fn high_watermark(&self) -> i64 {
        self.watermarks.high_watermark
    }

    #[getter]
    fn last_stable_offset(&self) -> i64 {
        self.watermarks.last_stable_offset
    }

    #[getter]
    fn log_start_offset(&self) -> i64 {
        self.watermarks.log_start_offset
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The protocol allows the producer to ignore the requested schema.
        drop(requested_schema);
        capsules(py, &self.columns)
    }

    fn __len__(&self) -> usize {
        self.columns.length
    }

    fn __repr__(&self) -> String {
        format!("<FetchedSlice {} records, next offset {}>", self.columns.length, self.next_offset)
    }
}
