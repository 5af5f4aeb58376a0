//! `ChannelQueue` and `Channel`: connections for an event loop, and what happens to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use klamm_base::conditions::Conditions as NodeConditions;
use klamm_client::{Channel as OpenChannel, ChannelEvent, ChannelPlan, ChannelQueue as Queue, Versions};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::conditions::Conditions;
use super::errors::link_error;
use super::{channel_plan, versions_dict};
use crate::runtime::SharedRuntime;

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct ChannelQueue {
    queue: Arc<Queue>,
    /// None once it is closed.
    runtime: Mutex<Option<SharedRuntime>>,
    last_id: AtomicU64,
    conditions: Option<Arc<NodeConditions>>,
}

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct Channel {
    channel: Mutex<Option<OpenChannel>>,
    #[pyo3(get)]
    id: u64,
    process_id: u32,
}

/// See `client.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.client")]
pub struct ChannelAccepted {
    address: (String, u16),
}

/// See `client.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.client")]
pub struct ChannelOpened {
    versions: Py<PyDict>,
}

/// See `client.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.client")]
pub struct ChannelAnswered {
    correlation_id: i32,
    body: Py<PyBytes>,
}

/// See `client.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.client")]
pub struct ChannelClosed {
    error: Py<PyAny>,
}

#[pymethods]
impl ChannelQueue {
    #[new]
    #[pyo3(signature = (conditions=None))]
    fn new(conditions: Option<&Conditions>) -> PyResult<Self> {
        let (queue, runtime) = (Arc::new(Queue::new()?), Mutex::new(Some(SharedRuntime::get()?)));
        Ok(Self { queue, runtime, last_id: AtomicU64::new(0), conditions: conditions.map(|given| given.0.clone()) })
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.queue.fd()
    }

    fn open(&self, host: &str, port: u16, config: BTreeMap<String, String>) -> PyResult<Channel> {
        let plan = ChannelPlan { conditions: self.conditions.clone(), ..channel_plan(host, port, &config)? };
        let runtime = self.runtime.lock();
        let Some(runtime) = &*runtime else { return Err(PyRuntimeError::new_err("the queue is closed")) };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let channel = OpenChannel::open(&runtime.handle(), plan, id, self.queue.clone());
        Ok(Channel { channel: Mutex::new(Some(channel)), id, process_id: std::process::id() })
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        self.queue.take().into_iter().map(|(id, event)| Ok((id, to_python(py, event)?))).collect()
    }

    fn close(&self, py: Python<'_>) {
        let runtime = self.runtime.lock().take();
        // The last one ends the runtime's threads.
        py.detach(|| drop(runtime));
    }
}

fn to_python(py: Python<'_>, event: ChannelEvent) -> PyResult<Py<PyAny>> {
    Ok(match event {
        ChannelEvent::Accepted(peer) => {
            ChannelAccepted { address: numbers_of(peer) }.into_pyobject(py)?.into_any().unbind()
        }
        ChannelEvent::Opened(versions) => opened(py, &versions)?.into_pyobject(py)?.into_any().unbind(),
        ChannelEvent::Answered { correlation_id, body } => {
            let body = PyBytes::new(py, &body).unbind();
            ChannelAnswered { correlation_id, body }.into_pyobject(py)?.into_any().unbind()
        }
        ChannelEvent::Closed(error) => {
            let error = link_error(py, &error).into_value(py).into_any();
            ChannelClosed { error }.into_pyobject(py)?.into_any().unbind()
        }
    })
}

fn opened(py: Python<'_>, versions: &Versions) -> PyResult<ChannelOpened> {
    Ok(ChannelOpened { versions: versions_dict(py, versions)?.unbind() })
}

fn numbers_of(peer: SocketAddr) -> (String, u16) {
    (peer.ip().to_string(), peer.port())
}

impl Drop for Channel {
    fn drop(&mut self) {
        // In a fork the connection is the other process's to close.
        if self.process_id != std::process::id() {
            std::mem::forget(self.channel.lock().take());
        }
    }
}

#[pymethods]
impl Channel {
    fn send(&self, api_key: i16, api_version: i16, body: &[u8]) -> i32 {
        self.channel.lock().as_ref().map_or(0, |channel| channel.send(api_key, api_version, body))
    }

    fn close(&self) {
        *self.channel.lock() = None;
    }
}
