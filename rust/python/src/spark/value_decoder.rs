//! `ValueDecoder`: Avro and Protobuf to Arrow.

use std::sync::Arc;

use klamm_formats::{Decoder, ProgramError, Shape};
use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::columns::exported;
use crate::arrow::export::{Column, capsules};
use crate::arrow::import::Imported;

/// See `spark.pyi`.
#[pyclass(frozen, module = "klamm._engine.spark")]
pub struct ValueDecoder {
    decoder: RwLock<Decoder>,
}

/// See `spark.pyi`.
#[pyclass(frozen, module = "klamm._engine.spark")]
pub struct DecodedValues {
    column: Arc<Column>,
    #[pyo3(get)]
    bad: Vec<usize>,
    #[pyo3(get)]
    why: Option<String>,
}

fn refused(error: ProgramError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl ValueDecoder {
    #[new]
    #[pyo3(signature = (shape, *, framed))]
    fn new(shape: &str, framed: bool) -> PyResult<Self> {
        let decoder = Decoder::new(Shape::parse(shape).map_err(refused)?, framed).map_err(refused)?;
        Ok(Self { decoder: RwLock::new(decoder) })
    }

    #[pyo3(signature = (schema_id, program))]
    fn learn(&self, schema_id: Option<u32>, program: &str) -> PyResult<()> {
        self.decoder.write().learn(schema_id, program).map_err(refused)
    }

    fn unknown(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let imported = Imported::of(values, "values")?;
        let (column, length) = (imported.view().bytes("values")?, imported.view().len());
        Ok(py.detach(|| self.decoder.read().unknown((0..length).map(|at| column.get(at)))))
    }

    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<DecodedValues> {
        let imported = Imported::of(values, "values")?;
        let (column, length) = (imported.view().bytes("values")?, imported.view().len());
        Ok(py.detach(|| {
            let decoder = self.decoder.read();
            let decoded = decoder.decode((0..length).map(|at| column.get(at)));
            let column = exported("", decoder.shape(), decoded.column, true);
            DecodedValues { column: Arc::new(column), bad: decoded.bad, why: decoded.why.map(|why| why.to_string()) }
        }))
    }
}

#[pymethods]
impl DecodedValues {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A request: by the protocol the exporter may keep its own types.
        drop(requested_schema);
        capsules(py, &self.column)
    }

    fn __len__(&self) -> usize {
        self.column.length
    }
}
