//! A replica of the metadata quorum: its log and snapshots, a follower's fetches, and a leader's answers.

mod bootstrap;
pub(crate) mod errors;
mod fetch_answers;
mod fetch_stream;
pub(crate) mod metadata_log;
pub(crate) mod snapshots;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("StorageError", module.py().get_type::<errors::StorageError>())?;
    module.add_class::<metadata_log::MetadataLog>()?;
    module.add_class::<fetch_answers::FetchAnswers>()?;
    module.add_class::<fetch_stream::FetchStream>()?;
    snapshots::register(module)?;
    bootstrap::register(module)
}
