//! `MetadataLog`: the log of the quorum, with its snapshots.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use klamm_base::{Inbox, LogError};
use klamm_log::{AppendError, LogContext};
use klamm_quorum::{Answering, OnLoss, QuorumLog, QuorumLogConfig, ReceiveError, ReplayFailed, SnapshotId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::errors::storage_error;
use crate::metadata::image::{Image, MetadataReplayError};

/// See `quorum.pyi`.
#[pyclass(frozen, module = "klamm._engine.quorum")]
pub struct MetadataLog {
    pub log: Arc<QuorumLog>,
    flushes: Arc<Flushes>,
    /// Told of what the log becomes, once there is one.
    pub answering: Arc<OnceLock<Arc<Answering>>>,
}

/// What came of flushes and was not taken yet. The flusher's thread tells by a descriptor: for a call it would have to wait
/// until Python's other threads let it.
type Flushes = Inbox<Vec<Result<i64, LogError>>>;

impl MetadataLog {
    pub fn over(log: Arc<QuorumLog>) -> std::io::Result<Self> {
        Ok(Self { log, flushes: Arc::new(Inbox::new(Vec::new())?), answering: Arc::default() })
    }
}

fn append_error(error: AppendError) -> PyErr {
    match error {
        AppendError::Log(error) => storage_error(&error),
        other => PyValueError::new_err(other.to_string()),
    }
}

fn receive_error(error: ReceiveError) -> PyErr {
    match error {
        ReceiveError::Log(error) => storage_error(&error),
        other => PyValueError::new_err(other.to_string()),
    }
}

type Entry<'py> = (i64, i16, Bound<'py, PyBytes>);

#[pymethods]
impl MetadataLog {
    #[new]
    #[pyo3(signature = (
        directory, *, segment_bytes, segment_ms, now_ms, is_volatile=false, accept_loss=false, voters=None, advice=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "a constructor's arguments are what Python gives it")]
    fn new(
        py: Python<'_>,
        directory: PathBuf,
        segment_bytes: u32,
        segment_ms: i64,
        now_ms: i64,
        is_volatile: bool,
        accept_loss: bool,
        voters: Option<(i32, Vec<i32>)>,
        advice: Option<String>,
    ) -> PyResult<Self> {
        const OPEN_FILES_MAX: usize = 64;
        let config = QuorumLogConfig { segment_bytes, segment_ms, advice };
        let make = if is_volatile { LogContext::volatile } else { LogContext::new };
        let context = make(OPEN_FILES_MAX);
        let on_loss = match &voters {
            _ if accept_loss => OnLoss::Accept,
            Some((node_id, static_voters)) => OnLoss::RefuseSoleVoter { node_id: *node_id, static_voters },
            None => OnLoss::Refuse,
        };
        let opened = py.detach(|| QuorumLog::open(&directory, &config, &context, on_loss, now_ms));
        let (log, _) = opened.map_err(|error| storage_error(&error))?;
        Ok(Self::over(Arc::new(log))?)
    }

    #[getter]
    fn start_offset(&self) -> i64 {
        self.log.start_offset()
    }

    #[getter]
    fn end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    #[getter]
    fn flushed_offset(&self) -> i64 {
        self.log.flushed_offset()
    }

    #[getter]
    fn proven_end(&self) -> (i64, i32) {
        let end = self.log.proven_end();
        (end.end_offset, end.epoch)
    }

    #[getter]
    fn last_epoch(&self) -> i32 {
        self.log.last_epoch()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }

    fn counters(&self) -> HashMap<String, u64> {
        self.log.counters().into_iter().collect()
    }

    fn end_offset_for_epoch(&self, epoch: i32) -> (i64, i32) {
        self.log.end_offset_for_epoch(epoch)
    }

    fn epoch_at(&self, offset: i64) -> PyResult<i32> {
        self.log.epoch_at(offset).ok_or_else(|| PyValueError::new_err(format!("no epoch is known at offset {offset}")))
    }

    fn append(&self, records: Vec<Bound<'_, PyBytes>>, epoch: i32, timestamp_ms: i64) -> PyResult<i64> {
        let values: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
        self.log.append(&values, epoch, timestamp_ms).map_err(append_error)
    }

    fn append_control(&self, records: Vec<(i16, Vec<u8>)>, epoch: i32, timestamp_ms: i64) -> PyResult<i64> {
        self.log.append_control(&records, epoch, timestamp_ms).map_err(append_error)
    }

    fn append_fetched(&self, batches: &[u8], max_epoch: i32, now_ms: i64) -> PyResult<i64> {
        self.log.append_fetched(batches, max_epoch, now_ms).map_err(append_error)
    }

    #[getter]
    fn flush_fd(&self) -> i32 {
        self.flushes.fd().unwrap_or(-1)
    }

    fn start_flush(&self) {
        let (flushes, answering) = (Arc::clone(&self.flushes), Arc::clone(&self.answering));
        self.log.start_flush(Box::new(move |result| {
            if let (Ok(offset), Some(answering)) = (&result, answering.get()) {
                answering.flushed(*offset);
            }
            flushes.change(|results| results.push(result));
        }));
    }

    fn take_flushed(&self) -> Vec<(i64, Option<String>)> {
        let ended = self.flushes.take(std::mem::take).into_iter();
        ended.map(|result| result.map_or_else(|error| (-1, Some(error.to_string())), |offset| (offset, None))).collect()
    }

    fn read<'py>(&self, py: Python<'py>, offset: i64, max_bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.log.read(offset, max_bytes)).map_err(|error| storage_error(&error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn replay(&self, py: Python<'_>, image: &Image, start: i64, end: i64) -> PyResult<Image> {
        let image = image.0.clone();
        let replayed = py.detach(|| self.log.replay(&image, start, end));
        replayed.map(|image| Image(Arc::new(image))).map_err(|error| match error {
            ReplayFailed::Log(error) => storage_error(&error),
            ReplayFailed::Apply(error) => MetadataReplayError::new_err(error.to_string()),
        })
    }

    #[pyo3(signature = (start = -1))]
    fn control_records<'py>(&self, py: Python<'py>, start: i64) -> PyResult<Bound<'py, PyList>> {
        let entries = py.detach(|| self.log.control_entries(start)).map_err(|error| storage_error(&error))?;
        let rows: Vec<Entry<'py>> =
            entries.iter().map(|entry| (entry.offset, entry.kind, PyBytes::new(py, &entry.value))).collect();
        PyList::new(py, rows)
    }

    fn truncate_to(&self, py: Python<'_>, offset: i64, now_ms: i64) -> PyResult<()> {
        py.detach(|| self.log.truncate_to(offset, now_ms)).map_err(|error| storage_error(&error))
    }

    fn bytes_from(&self, offset: i64) -> PyResult<u64> {
        self.log.bytes_from(offset).map_err(|error| storage_error(&error))
    }

    fn snapshots(&self) -> Vec<(i64, i32, u64, i64)> {
        let row = |info: klamm_quorum::SnapshotInfo| {
            (info.id.end_offset, info.id.epoch, info.size_bytes, info.last_contained_log_timestamp_ms)
        };
        self.log.snapshots().into_iter().map(row).collect()
    }

    fn snapshot_path(&self, end_offset: i64, epoch: i32) -> PathBuf {
        self.log.snapshot_path(SnapshotId { end_offset, epoch })
    }

    fn snapshot_finished(&self, end_offset: i64, epoch: i32) -> PyResult<()> {
        self.log.snapshot_finished(SnapshotId { end_offset, epoch }).map_err(|error| storage_error(&error))
    }

    fn read_snapshot<'py>(
        &self,
        py: Python<'py>,
        end_offset: i64,
        epoch: i32,
        position: u64,
        max_bytes: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = SnapshotId { end_offset, epoch };
        let bytes = py.detach(|| self.log.read_snapshot(id, position, max_bytes));
        Ok(bytes.map_err(|error| storage_error(&error))?.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn append_snapshot_slice(&self, end_offset: i64, epoch: i32, position: u64, data: &[u8]) -> PyResult<()> {
        self.log.append_snapshot_slice(SnapshotId { end_offset, epoch }, position, data).map_err(receive_error)
    }

    fn check_received_snapshot(&self, on_done: Py<PyAny>) -> PyResult<()> {
        let Some(received) = self.log.received_snapshot() else {
            return Err(PyValueError::new_err("no snapshot was received"));
        };
        let check = move || {
            let error = received.check().err().map(|error| error.to_string());
            drop(received);
            Python::attach(|py| {
                if let Err(error) = on_done.call1(py, (error,)) {
                    error.write_unraisable(py, None);
                }
            });
        };
        let thread = std::thread::Builder::new().name("klamm-snapshot".to_owned()).spawn(check);
        thread
            .map(drop)
            .map_err(|error| storage_error(&LogError::io("cannot start a thread for", self.log.dir())(error)))
    }

    fn received_snapshot_path(&self) -> Option<PathBuf> {
        self.log.received_snapshot().map(|received| received.path().to_owned())
    }

    fn install_received_snapshot(&self, py: Python<'_>, end_offset: i64, epoch: i32, now_ms: i64) -> PyResult<()> {
        let id = SnapshotId { end_offset, epoch };
        py.detach(|| self.log.install_received_snapshot(id, now_ms)).map_err(receive_error)
    }

    fn drop_received_snapshot(&self) {
        self.log.drop_received_snapshot();
    }

    fn delete_before(&self, py: Python<'_>, end_offset: i64, epoch: i32, now_ms: i64) -> PyResult<bool> {
        let id = SnapshotId { end_offset, epoch };
        py.detach(|| self.log.delete_before(id, now_ms)).map_err(|error| storage_error(&error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| self.log.close()).map_err(|error| storage_error(&error));
        self.flushes.close();
        closed
    }
}
