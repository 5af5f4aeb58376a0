//! `FetchStream`: the fetches of a follower of the quorum, while there is nothing to decide.

use std::io::ErrorKind;
use std::time::Duration;

use klamm_base::Uuid;
use klamm_quorum::{End, FetchPlan, FetchStream as Stream, StreamProgress};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::metadata_log::MetadataLog;
use crate::client::conditions::Conditions;
use crate::id::Id;

/// See `quorum.pyi`.
#[pyclass(frozen, module = "klamm._engine.quorum")]
pub struct FetchStream(Stream);

/// Offset, epoch and high watermark of the request, its age, the age of the last answer, the leader's high watermark, the end.
type Row<'py> = (i64, i32, i64, i64, i64, i64, Option<Bound<'py, PyAny>>);

#[pymethods]
impl FetchStream {
    #[new]
    fn new(log: &MetadataLog) -> PyResult<Self> {
        Ok(Self(Stream::new(log.log.clone())?))
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.0.fd()
    }

    #[pyo3(signature = (host, port, *, version, client_id, cluster_id, replica_id, directory_id, epoch, leader_id,
        high_watermark, max_wait_ms, max_bytes, timeout_ms, flushes, conditions=None))]
    #[expect(clippy::too_many_arguments, reason = "by name, and each once")]
    fn start(
        &self,
        py: Python<'_>,
        host: String,
        port: u16,
        version: i16,
        client_id: String,
        cluster_id: Option<String>,
        replica_id: i32,
        directory_id: Option<Id>,
        epoch: i32,
        leader_id: i32,
        high_watermark: i64,
        max_wait_ms: i32,
        max_bytes: i32,
        timeout_ms: u64,
        flushes: bool,
        conditions: Option<&Conditions>,
    ) -> PyResult<()> {
        let plan = FetchPlan {
            host,
            port,
            version,
            client_id,
            cluster_id,
            replica_id,
            directory_id: directory_id.map_or(Uuid::ZERO, |id| id.0),
            epoch,
            leader_id,
            high_watermark,
            max_wait_ms,
            max_bytes,
            timeout_ms,
            flushes,
            conditions: conditions.map(|given| given.0.clone()),
        };
        py.detach(|| self.0.start(plan)).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
            _ => error.into(),
        })
    }

    fn hold(&self, py: Python<'_>) {
        if !self.0.try_hold() {
            py.detach(|| self.0.hold());
        }
    }

    fn release(&self, py: Python<'_>) {
        py.detach(|| self.0.release());
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let Some(StreamProgress { sent, since_sent, since_heard, leader_high_watermark, end }) = self.0.take() else {
            return Ok(None);
        };
        let (offset, epoch, high_watermark) =
            sent.map_or((-1, -1, -1), |at| (at.end_offset, at.last_epoch, at.high_watermark));
        let end = end.map(|end| end_row(py, end)).transpose()?;
        Ok(Some((offset, epoch, high_watermark, ms(since_sent), ms(since_heard), leader_high_watermark, end)))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

fn end_row(py: Python<'_>, end: End) -> PyResult<Bound<'_, PyAny>> {
    let row = match end {
        End::Answer { version, body } => ("answer", version, PyBytes::new(py, &body)).into_pyobject(py)?,
        End::Failed(text) => ("failed", text).into_pyobject(py)?,
        End::Disk(text) => ("disk", text).into_pyobject(py)?,
    };
    Ok(row.into_any())
}

/// -1 for what was never.
fn ms(age: Option<Duration>) -> i64 {
    age.map_or(-1, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
