//! `Id`: a UUID that Python represents as 16 bytes.

use klamm_base::Uuid;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::metadata::records::extract_uuid;

/// A UUID; converted from and to Python `bytes`.
#[derive(Clone, Copy, PartialEq)]
pub struct Id(pub Uuid);

impl<'py> IntoPyObject<'py> for Id {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyBytes::new(py, &self.0.0))
    }
}

impl<'py> IntoPyObject<'py> for &Id {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        (*self).into_pyobject(py)
    }
}

impl<'py> FromPyObject<'_, 'py> for Id {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        extract_uuid(&value).map(Id)
    }
}
