//! `TopicPattern`.

use klamm_groups::pattern::TopicPattern as Compiled;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyList;

use crate::metadata::image::Image;

/// Adds what this file defines to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TopicPattern>()
}

/// See `groups.pyi`.
#[pyclass(frozen, module = "klamm._engine.groups")]
pub struct TopicPattern(Compiled);

#[pymethods]
impl TopicPattern {
    #[new]
    fn new(py: Python<'_>, pattern: &str) -> PyResult<Self> {
        let compiled = py.detach(|| Compiled::new(pattern));
        compiled.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    #[getter]
    fn pattern(&self) -> &str {
        self.0.source()
    }

    fn matches(&self, py: Python<'_>, name: &str) -> bool {
        py.detach(|| self.0.matches(name))
    }

    fn matching<'py>(&self, py: Python<'py>, image: &Image) -> PyResult<Bound<'py, PyList>> {
        let names = py.detach(|| self.0.matching(&image.0));
        PyList::new(py, names)
    }

    fn among<'py>(&self, py: Python<'py>, names: Vec<PyBackedStr>) -> PyResult<Bound<'py, PyList>> {
        let matched: Vec<bool> = py.detach(|| names.iter().map(|name| self.0.matches(name)).collect());
        PyList::new(py, names.iter().zip(matched).filter_map(|(name, matched)| matched.then_some(name)))
    }

    fn __repr__(&self) -> String {
        format!("TopicPattern({:?})", self.0.source())
    }
}
