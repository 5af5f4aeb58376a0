//! `klamm._engine.groups`: what the group coordinator leaves to the engine.

mod assignors;
mod commits;
mod patterns;
mod records;
mod tasks;

pub use commits::CommitRequest;
use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    commits::register(module)?;
    assignors::register(module)?;
    patterns::register(module)?;
    records::register(module)?;
    tasks::register(module)
}
