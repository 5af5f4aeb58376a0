//! The table of configuration keys, and parsing by it.

use std::borrow::Cow;

use klamm_config::{ConfigValue, Scope, UpdateMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

pyo3::create_exception!(
    klamm._engine.config,
    ConfigError,
    PyValueError,
    "A configuration key or value that is refused."
);

const SCOPES: [(&str, Scope); 4] =
    [("node", Scope::Node), ("topic", Scope::Topic), ("group", Scope::Group), ("client-metrics", Scope::ClientMetrics)];

/// One configuration key.
#[pyclass(frozen, module = "klamm._engine.config")]
pub struct ConfigKey(&'static klamm_config::ConfigKey);

#[pymethods]
impl ConfigKey {
    #[getter]
    fn scope(&self) -> &'static str {
        let (name, _) = SCOPES.iter().find(|(_, scope)| *scope == self.0.scope).expect("every scope is listed");
        name
    }

    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.value_type.name()
    }

    #[getter]
    fn type_id(&self) -> i8 {
        self.0.value_type as i8
    }

    #[getter]
    fn default(&self) -> Option<&'static str> {
        self.0.default
    }

    #[getter]
    fn is_required(&self) -> bool {
        self.0.is_required
    }

    #[getter]
    fn allowed(&self) -> String {
        self.0.allowed.to_string()
    }

    #[getter]
    fn update_mode(&self) -> &'static str {
        match self.0.update_mode {
            UpdateMode::ReadOnly => "read-only",
            UpdateMode::PerBroker => "per-broker",
            UpdateMode::ClusterWide => "cluster-wide",
        }
    }

    #[getter]
    fn documentation(&self) -> Cow<'static, str> {
        self.0.documentation()
    }

    #[getter]
    fn is_honoured(&self) -> bool {
        self.0.is_honoured()
    }

    #[getter]
    fn is_internal(&self) -> bool {
        self.0.is_internal
    }

    #[getter]
    fn is_dynamic_only(&self) -> bool {
        self.0.is_dynamic_only
    }

    #[getter]
    fn is_sensitive(&self) -> bool {
        self.0.is_sensitive()
    }

    #[getter]
    fn synonyms(&self) -> Vec<(&'static str, i64)> {
        self.0.synonyms.iter().map(|synonym| (synonym.name, synonym.factor)).collect()
    }

    fn __repr__(&self) -> String {
        format!("ConfigKey({}: {}, {})", self.scope(), self.0.name, self.r#type())
    }
}

#[pyfunction]
fn config_keys(scope: &str) -> PyResult<Vec<ConfigKey>> {
    Ok(klamm_config::keys(parse_scope(scope)?).map(ConfigKey).collect())
}

#[pyfunction]
fn find_config_key(scope: &str, name: &str) -> PyResult<Option<ConfigKey>> {
    Ok(klamm_config::find(parse_scope(scope)?, name).map(ConfigKey))
}

#[pyfunction]
fn parse_config<'py>(py: Python<'py>, scope: &str, name: &str, value: &str) -> PyResult<Bound<'py, PyAny>> {
    match parse(scope, name, value)? {
        ConfigValue::Boolean(value) => Ok(value.into_pyobject(py)?.to_owned().into_any()),
        ConfigValue::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
        ConfigValue::Double(value) => Ok(value.into_pyobject(py)?.into_any()),
        ConfigValue::Text(text) => Ok(PyString::new(py, &text).into_any()),
        ConfigValue::List(entries) => Ok(PyList::new(py, entries)?.into_any()),
    }
}

#[pyfunction]
fn format_config(scope: &str, name: &str, value: &str) -> PyResult<String> {
    Ok(parse(scope, name, value)?.to_string())
}

fn parse(scope: &str, name: &str, value: &str) -> PyResult<ConfigValue> {
    klamm_config::parse(parse_scope(scope)?, name, value).map_err(|error| ConfigError::new_err(error.to_string()))
}

fn parse_scope(name: &str) -> PyResult<Scope> {
    match SCOPES.iter().find(|(known, _)| *known == name) {
        Some((_, scope)) => Ok(*scope),
        None => Err(PyValueError::new_err(format!("unknown scope '{name}': use node, topic, group or client-metrics"))),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ConfigError", module.py().get_type::<ConfigError>())?;
    module.add_class::<ConfigKey>()?;
    module.add_function(wrap_pyfunction!(config_keys, module)?)?;
    module.add_function(wrap_pyfunction!(find_config_key, module)?)?;
    module.add_function(wrap_pyfunction!(parse_config, module)?)?;
    module.add_function(wrap_pyfunction!(format_config, module)?)?;
    Ok(())
}
