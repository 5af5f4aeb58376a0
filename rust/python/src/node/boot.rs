//! `Boot`: the first half of a node's start, on a thread that needs no GIL.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::JoinHandle;

use klamm_config::Settings;
use klamm_engine::boot::{self, BootError, BootOptions, Booted, ImageUpTo};
use klamm_engine::engine::{EngineError, EngineOptions};
use klamm_net::ListenerOptions;
use klamm_quorum::QuorumLogConfig;
use klamm_wire::api::ListenerKind;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use super::engine::Engine;
use crate::client::conditions::Conditions;
use crate::config::ConfigError;
use crate::id::Id;
use crate::metadata::image::Image;
use crate::quorum::errors::{StorageError, storage_error};
use crate::quorum::metadata_log::MetadataLog;
use crate::quorum::snapshots::python_error;
use crate::runtime::SharedRuntime;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct Boot {
    running: Mutex<Option<Running>>,
}

struct Running {
    thread: JoinHandle<Result<Booted, BootError>>,
    runtime: SharedRuntime,
}

/// Name, host, port, and whether it is a controller's.
pub(crate) type ListenerRow = (String, String, u16, bool);
type ImageRow = (Image, i64);
type BootedRow = (Engine, MetadataLog, ImageRow, Option<ImageRow>, Vec<(String, u16)>);

#[pymethods]
impl Boot {
    #[new]
    #[pyo3(signature = (
        *, node_id, cluster_id, log_dirs, settings, metadata_dir, segment_bytes, segment_ms, listeners, features,
        static_voters, is_volatile=false, is_missing_dirs=false, conditions=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "a constructor's arguments are what Python gives it")]
    fn new(
        node_id: i32,
        cluster_id: String,
        log_dirs: Vec<(PathBuf, Id)>,
        settings: HashMap<String, String>,
        metadata_dir: PathBuf,
        segment_bytes: u32,
        segment_ms: i64,
        listeners: Vec<ListenerRow>,
        features: Vec<(String, i16, i16)>,
        static_voters: Vec<i32>,
        is_volatile: bool,
        is_missing_dirs: bool,
        conditions: Option<&Conditions>,
    ) -> PyResult<Self> {
        let settings = Settings::new(settings).map_err(|error| ConfigError::new_err(error.to_string()))?;
        let runtime = SharedRuntime::get()?;
        let log_dirs = log_dirs.into_iter().map(|(path, id)| (path, id.0)).collect();
        let conditions = conditions.map(|given| given.0.clone());
        let engine =
            EngineOptions { node_id, cluster_id, log_dirs, settings, is_volatile, is_missing_dirs, conditions };
        let metadata_log = QuorumLogConfig { segment_bytes, segment_ms, advice: None };
        let listeners = listeners.into_iter().map(listener).collect();
        let options = BootOptions { engine, metadata_dir, metadata_log, listeners, features, static_voters };
        let thread = boot::start(options, runtime.handle())?;
        Ok(Self { running: Mutex::new(Some(Running { thread, runtime })) })
    }

    fn finish(&self, py: Python<'_>, partition_error: Py<PyAny>) -> PyResult<BootedRow> {
        let Some(Running { thread, runtime }) = self.take() else {
            return Err(PyRuntimeError::new_err("finished or abandoned before"));
        };
        let booted = py.detach(|| thread.join()).expect("what a boot does never panics").map_err(boot_error)?;
        let row = |up_to: ImageUpTo| (Image(up_to.image), up_to.end_offset);
        let addresses = booted.addresses.iter().map(|address| (address.ip().to_string(), address.port())).collect();
        let engine = Engine::new_from(booted.engine, runtime, partition_error);
        Ok((engine, MetadataLog::over(booted.log)?, row(booted.snapshot), booted.whole.map(row), addresses))
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Running { thread, runtime }) = self.take() else { return Ok(()) };
        py.detach(|| {
            let closed = match thread.join() {
                Ok(Ok(booted)) => booted.abandon(),
                // It left nothing on disk, and the caller that abandons it reports another error.
                Ok(Err(_)) | Err(_) => Ok(()),
            };
            drop(runtime);
            closed
        })
        .map_err(|error| storage_error(&error))
    }
}

impl Boot {
    fn take(&self) -> Option<Running> {
        self.running.lock().expect("nothing panics with it").take()
    }
}

pub(crate) fn listener((name, host, port, controller): ListenerRow) -> ListenerOptions {
    let kind = if controller { ListenerKind::Controller } else { ListenerKind::Broker };
    ListenerOptions { name, kind, host, port }
}

fn boot_error(error: BootError) -> PyErr {
    match error {
        BootError::Engine(EngineError::Log(error)) | BootError::Log(error) => storage_error(&error),
        BootError::Engine(EngineError::Net(_)) => StorageError::new_err(error.to_string()),
        BootError::Listen { number, .. } => PyOSError::new_err((number, error.to_string())),
        BootError::Snapshot(error) => python_error(error),
    }
}
