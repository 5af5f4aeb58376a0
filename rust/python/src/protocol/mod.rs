//! The native part of `klamm.protocol`: encoding and decoding of messages, and the table of APIs.

mod apis;
mod error_codes;
mod message_repeats;
mod message_schema;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    apis::register(module)?;
    module.add_class::<message_schema::MessageSchema>()
}
