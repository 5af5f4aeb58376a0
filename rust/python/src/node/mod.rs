//! The engine of one node: its start, partitions, network, events and metrics.

pub(crate) mod boot;
mod distribution;
pub(crate) mod engine;
mod events;
pub(crate) mod log_load;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<boot::Boot>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<distribution::Distribution>()?;
    module.add_class::<log_load::LogLoad>()?;
    module.add_class::<log_load::LoadedPart>()?;
    events::register(module)
}
