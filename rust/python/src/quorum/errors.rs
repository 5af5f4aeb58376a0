//! The engine's errors as Python's exceptions.

use klamm_base::LogError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    klamm._engine.quorum,
    StorageError,
    PyException,
    "A file or folder that cannot be used; the text names it."
);

/// Any error of the disk.
pub fn storage_error(error: &LogError) -> PyErr {
    StorageError::new_err(error.to_string())
}
