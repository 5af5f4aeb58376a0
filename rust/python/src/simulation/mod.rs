//! Brokers of the simulator.

mod broker;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<broker::SimulatedBroker>()?;
    module.add_class::<broker::ReplicaGauges>()
}
