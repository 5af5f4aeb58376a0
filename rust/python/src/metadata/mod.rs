//! The metadata of a cluster: records, images, their content, and the difference between two.

mod delta;
pub(crate) mod image;
pub(crate) mod records;
mod registrations;
mod security;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    records::register(module)?;
    image::register(module)?;
    module.add_class::<delta::Delta>()?;
    registrations::register(module)?;
    security::register(module)
}
