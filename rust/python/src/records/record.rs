//! `Record`: one record, copied from its batch.

use klamm_records::Headers;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// See `records.pyi`. Fields are Python objects rather than `Option`s, so that reading an attribute needs no conversion.
#[pyclass(frozen, module = "klamm._engine.records", freelist = 1024)]
pub struct Record {
    #[pyo3(get)]
    offset: i64,
    #[pyo3(get)]
    timestamp_ms: i64,
    /// bytes or None
    #[pyo3(get)]
    key: Py<PyAny>,
    /// bytes or None
    #[pyo3(get)]
    value: Py<PyAny>,
    #[pyo3(get)]
    headers: Py<PyTuple>,
}

impl Record {
    /// A copy of the record. Records without headers, which are most, share `no_headers`.
    #[inline(always)]
    pub fn copy_of(record: &klamm_records::Record<'_>, no_headers: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let py = no_headers.py();
        let headers = match record.headers.len() {
            0 => no_headers.clone().unbind(),
            _ => header_tuple(py, record.headers)?,
        };
        let (offset, timestamp_ms) = (record.offset, record.timestamp);
        Ok(Self { offset, timestamp_ms, key: copy(py, record.key), value: copy(py, record.value), headers })
    }

    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms
    }

    pub fn key<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.key.bind(py)
    }

    pub fn value<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.value.bind(py)
    }

    pub fn headers<'py>(&self, py: Python<'py>) -> &Bound<'py, PyTuple> {
        self.headers.bind(py)
    }
}

#[inline(always)]
fn copy(py: Python<'_>, bytes: Option<&[u8]>) -> Py<PyAny> {
    match bytes {
        Some(bytes) => PyBytes::new(py, bytes).into_any().unbind(),
        None => py.None(),
    }
}

// The protocol requires header keys to be text, but brokers do not check what a producer sends.
#[cold]
fn header_tuple(py: Python<'_>, headers: Headers<'_>) -> PyResult<Py<PyTuple>> {
    let pairs = headers.map(|header| {
        let key = PyString::new(py, &String::from_utf8_lossy(header.key));
        (key, header.value.map(|value| PyBytes::new(py, value))).into_pyobject(py)
    });
    let pairs: Vec<_> = pairs.collect::<PyResult<_>>()?;
    Ok(PyTuple::new(py, pairs)?.unbind())
}

#[pymethods]
impl Record {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let size = |object: &Bound<'_, PyAny>| match object.is_none() {
            true => Ok::<_, PyErr>("null".to_owned()),
            false => Ok(format!("{} bytes", object.len()?)),
        };
        let (key, value) = (size(self.key(py))?, size(self.value(py))?);
        Ok(format!("Record(offset={}, key={key}, value={value})", self.offset))
    }
}
