//! The client of brokers: connections, the client of a cluster with what it fetched, and its errors.

mod broker_connection;
mod channel;
mod columns;
pub(crate) mod conditions;
mod errors;
mod fetched;
mod kafka_client;
pub(crate) mod rows;
mod waiting;

use std::collections::BTreeMap;

use klamm_client::{ChannelPlan, ClientConfig, Versions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::config::ConfigError;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add_class::<broker_connection::BrokerConnection>()?;
    module.add_class::<conditions::Conditions>()?;
    module.add_class::<channel::ChannelQueue>()?;
    module.add_class::<channel::Channel>()?;
    module.add_class::<channel::ChannelAccepted>()?;
    module.add_class::<channel::ChannelOpened>()?;
    module.add_class::<channel::ChannelAnswered>()?;
    module.add_class::<channel::ChannelClosed>()?;
    module.add_class::<kafka_client::KafkaClient>()?;
    module.add_class::<fetched::FetchedSlice>()
}

/// Where a connection goes to, by the keys of a client.
fn channel_plan(host: &str, port: u16, config: &BTreeMap<String, String>) -> PyResult<ChannelPlan> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let config = ClientConfig::new(&address, config).map_err(|error| ConfigError::new_err(error.to_string()))?;
    Ok(ChannelPlan { address, client_id: config.client_id, security: config.security, conditions: None })
}

/// Lowest and highest version by API key.
fn versions_dict<'py>(py: Python<'py>, versions: &Versions) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (api, lowest, highest) in versions.all() {
        found.set_item(api, (lowest, highest))?;
    }
    Ok(found)
}
