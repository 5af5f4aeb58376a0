//! What the engine hands to Python: a class for each kind of event.

use klamm_metadata::MetadataImage;
use klamm_net::{Asker, Event, LogLevel, Principal, Request, ShareStateCall, Verify};
use klamm_wire::api::OFFSET_COMMIT;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::groups::CommitRequest;
use crate::id::Id;

/// Larger bodies may find no memory.
const LARGE_BYTES: usize = 64 << 10;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct RequestEvent {
    /// Without its body.
    request: Request,
    #[pyo3(get)]
    body: Py<PyBytes>,
}

#[pymethods]
impl RequestEvent {
    #[getter]
    fn handle(&self) -> u64 {
        self.request.handle
    }

    #[getter]
    fn connection_id(&self) -> u64 {
        self.request.connection_id
    }

    #[getter]
    fn api_key(&self) -> i16 {
        self.request.api_key
    }

    #[getter]
    fn api_version(&self) -> i16 {
        self.request.api_version
    }

    #[getter]
    fn client_id(&self) -> &str {
        &self.request.client_id
    }

    #[getter]
    fn listener(&self) -> &str {
        &self.request.listener
    }

    #[getter]
    fn on_controller(&self) -> bool {
        self.request.is_on_controller
    }

    #[getter]
    fn principal(&self) -> PrincipalParts<'_> {
        principal_parts(&self.request.principal)
    }

    #[getter]
    fn address(&self) -> String {
        self.request.address.to_string()
    }

    #[getter]
    fn age_ms(&self) -> u64 {
        u64::try_from(self.request.arrived.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    #[getter]
    fn timeout_ms(&self) -> u64 {
        u64::try_from((self.request.deadline - self.request.arrived).as_millis()).unwrap_or(u64::MAX)
    }
}

/// See `node.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.node")]
pub struct CommitEvent {
    handle: u64,
    address: String,
    request: Py<CommitRequest>,
}

/// See `node.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.node")]
pub struct AckedEvent {
    token: u64,
    error_code: i16,
}

/// See `node.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.node")]
pub struct VerifyEvent {
    handle: u64,
    transactional_id: String,
    producer_id: i64,
    producer_epoch: i16,
    is_adding: bool,
    version: i16,
    partitions: Vec<(String, i32)>,
}

impl VerifyEvent {
    fn of(verify: Verify) -> Self {
        let Verify { handle, transactional_id, producer_id, producer_epoch, is_adding, version, partitions } = verify;
        Self { handle, transactional_id, producer_id, producer_epoch, is_adding, version, partitions }
    }
}

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct ShareStateEvent(ShareStateCall);

#[pymethods]
impl ShareStateEvent {
    #[getter]
    fn request_id(&self) -> u64 {
        self.0.request_id
    }

    #[getter]
    fn api_key(&self) -> i16 {
        self.0.api_key
    }

    #[getter]
    fn group_id(&self) -> &str {
        &self.0.group_id
    }

    #[getter]
    fn topic_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.topic.0)
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.index
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }
}

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct AutoCreateEvent {
    topics: Vec<(String, Asker)>,
}

/// Type and name of a principal, and whether a delegation token authenticated it; `None` for User:ANONYMOUS.
type PrincipalParts<'a> = Option<(&'a str, &'a str, bool)>;

#[pymethods]
impl AutoCreateEvent {
    #[getter]
    fn topics(&self) -> Vec<(&str, PrincipalParts<'_>, &str, String)> {
        let asked = self.topics.iter();
        asked
            .map(|(topic, asker)| {
                (topic.as_str(), principal_parts(&asker.principal), &*asker.client_id, asker.address.to_string())
            })
            .collect()
    }
}

fn principal_parts(principal: &Principal) -> PrincipalParts<'_> {
    let Principal { kind, name, is_token_authenticated } = principal;
    (*principal != Principal::ANONYMOUS).then_some((kind, name, *is_token_authenticated))
}

/// See `node.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.node")]
pub struct ConnectionClosedEvent {
    connection_id: u64,
}

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct DirFailedEvent(Id);

#[pymethods]
impl DirFailedEvent {
    #[getter]
    fn directory_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.0.0)
    }
}

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct IsrChangedEvent;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct DirectoriesChangedEvent;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct LogEvent {
    level: LogLevel,
    #[pyo3(get)]
    message: String,
}

#[pymethods]
impl LogEvent {
    #[getter]
    fn level<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        match self.level {
            LogLevel::Info => intern!(py, "info"),
            LogLevel::Warn => intern!(py, "warning"),
            LogLevel::Error => intern!(py, "error"),
        }
        .clone()
    }
}

/// An event as Python sees it. MemoryError where there is no memory for a large body.
pub fn event<'py>(py: Python<'py>, event: Event, image: &MetadataImage) -> PyResult<Bound<'py, PyAny>> {
    let made = match event {
        Event::Request(request) => return self::request(py, *request, image),
        Event::AutoCreate { topics } => Bound::new(py, AutoCreateEvent { topics })?.into_any(),
        Event::Closed { connection_id } => Bound::new(py, ConnectionClosedEvent { connection_id })?.into_any(),
        Event::Acked { token, code } => Bound::new(py, AckedEvent { token, error_code: code.0 })?.into_any(),
        Event::Verify(verify) => Bound::new(py, VerifyEvent::of(*verify))?.into_any(),
        Event::ShareState(call) => Bound::new(py, ShareStateEvent(*call))?.into_any(),
        Event::IsrChanged => Bound::new(py, IsrChangedEvent)?.into_any(),
        Event::DirectoriesChanged => Bound::new(py, DirectoriesChangedEvent)?.into_any(),
        Event::DirFailed { id } => Bound::new(py, DirFailedEvent(Id(id)))?.into_any(),
        Event::Log { level, message } => Bound::new(py, LogEvent { level, message })?.into_any(),
    };
    Ok(made)
}

/// An OffsetCommit is read here; one that cannot be read is a request like others, which is refused by its handler.
fn request<'py>(py: Python<'py>, mut request: Request, image: &MetadataImage) -> PyResult<Bound<'py, PyAny>> {
    if request.api_key == OFFSET_COMMIT
        && let Ok(read) = CommitRequest::read_from(py, request.api_version, &request.body, image)
    {
        let (handle, address) = (request.handle, request.address.to_string());
        return Ok(Bound::new(py, CommitEvent { handle, address, request: Py::new(py, read)? })?.into_any());
    }
    let body = bytes_or_error(py, &std::mem::take(&mut request.body))?.unbind();
    Ok(Bound::new(py, RequestEvent { request, body })?.into_any())
}

/// A copy; MemoryError, and no panic, where there is no memory for a large one.
fn bytes_or_error<'py>(py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if body.len() < LARGE_BYTES {
        return Ok(PyBytes::new(py, body));
    }
    PyBytes::new_with(py, body.len(), |room| {
        room.copy_from_slice(body);
        Ok(())
    })
}

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RequestEvent>()?;
    module.add_class::<CommitEvent>()?;
    module.add_class::<AckedEvent>()?;
    module.add_class::<VerifyEvent>()?;
    module.add_class::<ShareStateEvent>()?;
    module.add_class::<AutoCreateEvent>()?;
    module.add_class::<ConnectionClosedEvent>()?;
    module.add_class::<DirFailedEvent>()?;
    module.add_class::<IsrChangedEvent>()?;
    module.add_class::<DirectoriesChangedEvent>()?;
    module.add_class::<LogEvent>()
}
