//! Values decoded to columns: a class that decodes, one for what it made.

mod columns;
mod decoder;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<decoder::ValueDecoder>()?;
    module.add_class::<decoder::DecodedValues>()
}
