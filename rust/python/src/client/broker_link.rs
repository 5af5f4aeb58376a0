//! `BrokerLink`: a connection that is agreed on as the client's keys say, for frames that Python wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use klamm_client::{ClientConfig, Link};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::{ClientError, link_error};
use super::waiting::wait;
use crate::config::ConfigError;
use crate::runtime::SharedRuntime;

/// See `_engine.pyi`.
#[pyclass(frozen, module = "klamm._engine")]
pub struct BrokerLink {
    address: String,
    /// None while it is used, and after an error.
    link: Mutex<Option<Link>>,
    runtime: SharedRuntime,
    process_id: u32,
}

impl Drop for BrokerLink {
    fn drop(&mut self) {
        // As for `KafkaClient`: in a fork, the connection is the other process's to close.
        if self.process_id != std::process::id() {
            std::mem::forget(self.link.lock().take());
        }
    }
}

#[pymethods]
impl BrokerLink {
    #[new]
    fn new(py: Python<'_>, address: String, config: BTreeMap<String, String>) -> PyResult<Self> {
        let config = ClientConfig::new(&address, &config).map_err(|error| ConfigError::new_err(error.to_string()))?;
        let runtime = SharedRuntime::get()?;
        let opened = wait(py, &runtime, Link::open(&config, &address))?.map_err(|error| link_error(py, &error))?;
        Ok(Self { address, link: Mutex::new(Some(opened)), runtime, process_id: std::process::id() })
    }

    fn exchange<'py>(&self, py: Python<'py>, frame: &[u8], timeout_s: f64) -> PyResult<Bound<'py, PyBytes>> {
        let within = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::ZERO);
        let Some(mut link) = self.link.lock().take() else {
            return Err(ClientError::new_err(format!("the connection to {} is closed, or in use", self.address)));
        };
        let answer = wait(py, &self.runtime, link.exchange(frame, within))?.map_err(|error| link_error(py, &error))?;
        *self.link.lock() = Some(link);
        Ok(PyBytes::new(py, &answer))
    }

    fn close(&self) {
        *self.link.lock() = None;
    }

    fn __repr__(&self) -> String {
        format!("<BrokerLink to {}>", self.address)
    }
}
