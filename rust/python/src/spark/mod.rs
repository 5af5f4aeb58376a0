//! Functions for the Spark connector only: decoding of values to columns, and digests of the rows that it writes.

mod columns;
mod digest;
mod value_decoder;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<value_decoder::ValueDecoder>()?;
    module.add_class::<value_decoder::DecodedValues>()?;
    module.add_function(wrap_pyfunction!(digest::digest_rows, module)?)
}
