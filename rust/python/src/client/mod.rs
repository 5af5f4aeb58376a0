//! The client of brokers: a class for it, one for what it fetched, and its errors.

mod broker_link;
mod columns;
mod errors;
mod fetched;
mod kafka_client;
mod rows;
mod waiting;

use pyo3::prelude::*;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add_class::<broker_link::BrokerLink>()?;
    module.add_class::<kafka_client::KafkaClient>()?;
    module.add_function(wrap_pyfunction!(rows::digest_rows, module)?)?;
    module.add_class::<fetched::FetchedSlice>()
}
