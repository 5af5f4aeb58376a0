//! The table of APIs for Python.

use klamm_wire::api::{self, Check, Quota, Served};
use pyo3::prelude::*;

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Api>()?;
    module.add_function(wrap_pyfunction!(apis, module)?)
}

/// See `protocol.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.protocol")]
pub struct Api {
    key: i16,
    name: &'static str,
    versions: (i16, i16),
    on_broker: Option<&'static str>,
    on_controller: Option<&'static str>,
    is_forwarded: bool,
    is_before_authentication: bool,
    checks: Vec<(String, String)>,
    quota: &'static str,
}

#[pyfunction]
fn apis() -> Vec<Api> {
    api::Api::all().iter().map(Api::from).collect()
}

impl From<&api::Api> for Api {
    fn from(api: &api::Api) -> Self {
        Self {
            key: api.key,
            name: api.name,
            versions: (api.version_min, api.version_max),
            on_broker: served(api.on_broker),
            on_controller: served(api.on_controller),
            is_forwarded: api.is_forwarded,
            is_before_authentication: api.is_before_authentication,
            checks: api.checks.iter().map(check).collect(),
            quota: quota(api.quota),
        }
    }
}

fn served(served: Served) -> Option<&'static str> {
    match served {
        Served::ByEngine => Some("engine"),
        Served::ByPython => Some("python"),
        Served::NotYet => Some("not yet"),
        Served::Not => None,
    }
}

fn check(check: &Check) -> (String, String) {
    (format!("{:?}", check.operation), format!("{:?}", check.resource))
}

fn quota(quota: Quota) -> &'static str {
    match quota {
        Quota::ProduceBytes => "produce",
        Quota::FetchBytes => "fetch",
        Quota::ControllerMutation => "controller mutation",
        Quota::Request => "request",
        Quota::Exempt => "exempt",
    }
}
