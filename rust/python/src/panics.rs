//! A panic of the engine as an `Exception` of klamm.

use pyo3::exceptions::PyException;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

/// Makes the exception that PyO3 raises for a panic, in every function and method of this extension, one that guards contain.
///
/// PyO3 derives it from `BaseException`, which passes `except Exception`: a bug that concerns one request would end the node.
/// The type belongs to this extension alone, so other extensions in the process keep theirs.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let kind = py.get_type::<PanicException>();
    kind.setattr("__bases__", (py.get_type::<PyException>(),))?;
    kind.setattr("__name__", "EnginePanicError")?;
    kind.setattr("__qualname__", "EnginePanicError")?;
    kind.setattr("__module__", "klamm._engine.panics")?;
    kind.setattr("__doc__", "A panic in the engine: a bug. The text is its message; stderr has the place.")?;
    module.add("EnginePanicError", kind)?;
    module.add_function(wrap_pyfunction!(panic_with, module)?)
}

/// See `panics.pyi`.
#[pyfunction]
fn panic_with(py: Python<'_>, message: &str) {
    py.detach(|| panic!("{message}"));
}
