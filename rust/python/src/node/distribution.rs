//! `Distribution`: the distribution of one metric's values.

use klamm_net::RequestDistribution;
use pyo3::prelude::*;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct Distribution(pub RequestDistribution);

#[pymethods]
impl Distribution {
    #[getter]
    fn count(&self) -> u64 {
        self.0.values.count
    }

    #[getter]
    fn sum(&self) -> f64 {
        self.0.values.sum as f64 * self.0.unit
    }

    fn quantile(&self, share: f64) -> f64 {
        self.0.values.quantile(share) as f64 * self.0.unit
    }
}
