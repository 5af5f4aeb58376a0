//! `StorageCheck`: a look at the files of stopped nodes.

use std::path::PathBuf;

use klamm_check::{CheckedDirectory, Finding, LogCheck, Progress};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Kind, path, position, offsets, reason, action.
type Found = (&'static str, PathBuf, Option<u64>, Option<(i64, i64)>, String, String);
/// Path, topic id, start offset, end offset, segments, batches, bytes, findings.
type FoundLog = (PathBuf, Option<Py<PyBytes>>, i64, i64, usize, u64, u64, Vec<Found>);
/// Path, whether the last stop was clean, logs, findings.
type FoundDirectory = (PathBuf, bool, Vec<FoundLog>, Vec<Found>);

/// See `tools.pyi`.
#[pyclass(frozen, module = "klamm._engine.tools")]
pub struct StorageCheck {
    progress: Progress,
}

fn finding(one: Finding) -> Found {
    (one.kind.name(), one.file, one.position, one.offsets, one.reason, one.action)
}

fn findings(found: Vec<Finding>) -> Vec<Found> {
    found.into_iter().map(finding).collect()
}

fn log(py: Python<'_>, one: LogCheck) -> FoundLog {
    let topic_id = one.topic_id.map(|id| PyBytes::new(py, &id.0).unbind());
    let (start, end) = (one.log_start_offset, one.log_end_offset);
    (one.path, topic_id, start, end, one.segments, one.batches, one.bytes, findings(one.findings))
}

fn directory(py: Python<'_>, one: CheckedDirectory) -> FoundDirectory {
    let logs = one.logs.into_iter().map(|one| log(py, one)).collect();
    (one.path, one.is_clean, logs, findings(one.findings))
}

#[pymethods]
impl StorageCheck {
    #[new]
    fn new() -> Self {
        Self { progress: Progress::default() }
    }

    fn directories(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        is_deep: bool,
        threads: usize,
    ) -> PyResult<Vec<FoundDirectory>> {
        let found = py.detach(|| klamm_check::check_directories(&paths, is_deep, threads, &self.progress));
        Ok(found.into_iter().map(|one| directory(py, one)).collect())
    }

    #[staticmethod]
    fn snapshot(py: Python<'_>, path: PathBuf) -> Option<Found> {
        py.detach(|| klamm_check::check_snapshot(&path)).map(finding)
    }

    fn progress(&self) -> (u64, u64) {
        self.progress.bytes()
    }

    fn cancel(&self) {
        self.progress.cancel();
    }
}
