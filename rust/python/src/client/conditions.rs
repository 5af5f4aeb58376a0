//! `Conditions`: what a test does to a node of an embedded cluster.

use std::sync::Arc;
use std::time::Duration;

use klamm_base::conditions::{Conditions as NodeConditions, Cut};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct Conditions(pub Arc<NodeConditions>);

#[pymethods]
impl Conditions {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    #[pyo3(signature = (port, *, sends, receives))]
    fn cut(&self, port: u16, sends: bool, receives: bool) {
        self.0.cut(port, Cut { sends, receives });
    }

    fn is_cut(&self, port: u16) -> bool {
        self.0.is_cut(port)
    }

    fn slow_disk(&self, seconds_per_sync: f64) -> PyResult<()> {
        let takes = Duration::try_from_secs_f64(seconds_per_sync);
        self.0.slow_disk(takes.map_err(|error| PyValueError::new_err(error.to_string()))?);
        Ok(())
    }

    #[pyo3(signature = (*, wall_ms, running_ms))]
    fn advance(&self, py: Python<'_>, wall_ms: i64, running_ms: i64) {
        py.detach(|| self.0.advance(wall_ms, running_ms));
    }

    fn pause(&self) {
        self.0.pause(true);
    }

    fn resume(&self) {
        self.0.pause(false);
    }
}
