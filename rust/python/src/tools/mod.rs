//! Native functions for tools: reading a metadata log, checking the files of stopped nodes, metadata records as columns.

mod metadata_columns;
mod metadata_reader;
mod storage_check;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    metadata_reader::register(module)?;
    metadata_columns::register(module)?;
    module.add_class::<storage_check::StorageCheck>()
}
