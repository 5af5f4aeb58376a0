//! `klamm._engine`: the native seam. One file a class, no decisions here.

mod apis;
mod arrow;
mod boot;
mod bootstrap;
mod checkpoint;
mod client;
mod commit_request;
mod config;
mod delta;
mod distribution;
mod elections;
mod engine;
mod errors;
mod events;
mod fetch_answers;
mod fetch_stream;
mod formats;
mod getters;
mod id;
mod image;
mod message_repeats;
mod message_schema;
mod metadata_columns;
mod metadata_log;
mod metadata_reader;
mod metadata_records;
mod records;
mod registrations;
mod runtime;
mod security;
mod storage_check;

use pyo3::prelude::*;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    apis::register(module)?;
    bootstrap::register(module)?;
    config::register(module)?;
    module.add_class::<boot::Boot>()?;
    engine::register(module)?;
    events::register(module)?;
    distribution::register(module)?;
    module.add("StorageError", module.py().get_type::<errors::StorageError>())?;
    module.add_class::<message_schema::MessageSchema>()?;
    image::register(module)?;
    commit_request::register(module)?;
    registrations::register(module)?;
    security::register(module)?;
    elections::register(module)?;
    checkpoint::register(module)?;
    metadata_records::register(module)?;
    metadata_columns::register(module)?;
    module.add_class::<metadata_log::MetadataLog>()?;
    module.add_class::<fetch_answers::FetchAnswers>()?;
    module.add_class::<fetch_stream::FetchStream>()?;
    metadata_reader::register(module)?;
    storage_check::register(module)?;
    records::register(module)?;
    client::register(module)?;
    formats::register(module)?;
    Ok(())
}
