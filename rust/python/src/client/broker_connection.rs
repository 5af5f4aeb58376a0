//! `BrokerConnection`: one connection for a caller that waits, for messages that Python wrote.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use klamm_client::ChannelPlan;
use klamm_client::blocking::{BlockingConnection, Unfinished, Until};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::channel_plan;
use super::errors::{ClientError, link_error};
use super::versions_dict;

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct BrokerConnection {
    address: String,
    versions: Py<PyDict>,
    /// None while it is used, and after an error.
    connection: Mutex<Option<BlockingConnection>>,
    process_id: u32,
}

impl Drop for BrokerConnection {
    fn drop(&mut self) {
        // In a fork the connection is the other process's to close.
        if self.process_id != std::process::id() {
            std::mem::forget(self.connection.lock().take());
        }
    }
}

#[pymethods]
impl BrokerConnection {
    #[new]
    fn new(py: Python<'_>, host: &str, port: u16, config: BTreeMap<String, String>, timeout_s: f64) -> PyResult<Self> {
        let plan = channel_plan(host, port, &config)?;
        let within = duration(timeout_s);
        let opened = wait(py, |until| BlockingConnection::open(&plan, within, until))?;
        let ChannelPlan { address, .. } = plan;
        let versions = versions_dict(py, opened.versions())?.unbind();
        Ok(Self { address, versions, connection: Mutex::new(Some(opened)), process_id: std::process::id() })
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    #[getter]
    fn versions(&self, py: Python<'_>) -> Py<PyDict> {
        self.versions.clone_ref(py)
    }

    fn request<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        api_version: i16,
        body: &[u8],
        timeout_s: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(mut connection) = self.connection.lock().take() else {
            return Err(ClientError::new_err(format!("the connection to {} is closed, or in use", self.address)));
        };
        let within = duration(timeout_s);
        let answer = wait(py, |until| connection.call(api_key, api_version, body, within, until))?;
        *self.connection.lock() = Some(connection);
        Ok(PyBytes::new(py, &answer))
    }

    fn close(&self) {
        *self.connection.lock() = None;
    }

    fn __repr__(&self) -> String {
        format!("<BrokerConnection to {}>", self.address)
    }
}

/// Zero for what is no time.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// Waits without the GIL, and looks for signals meanwhile.
fn wait<T: Send>(py: Python<'_>, call: impl FnOnce(&Until<'_>) -> Result<T, Unfinished> + Send) -> PyResult<T> {
    let (outcome, raised) = py.detach(|| {
        let raised = RefCell::new(None);
        let may_go_on = || match Python::attach(|py| py.check_signals()) {
            Ok(()) => true,
            Err(error) => {
                raised.replace(Some(error));
                false
            }
        };
        let outcome = call(&Until::Refused(&may_go_on));
        (outcome, raised.into_inner())
    });
    match (outcome, raised) {
        (Ok(answer), _) => Ok(answer),
        (Err(_), Some(raised)) => Err(raised),
        (Err(Unfinished::Failed(error)), None) => Err(link_error(py, &error)),
        (Err(Unfinished::Interrupted), None) => unreachable!("only a signal interrupts"),
    }
}
