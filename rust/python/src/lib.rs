//! `klamm._engine`: the native seam, a module for each side of it. One file a class, no decisions here.

mod arrow;
mod client;
mod config;
mod controller;
mod getters;
mod groups;
mod id;
mod metadata;
mod node;
mod panics;
mod protocol;
mod quorum;
mod records;
mod runtime;
mod simulation;
mod spark;
mod tools;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Adds what a folder or file defines to its module.
type Register = fn(&Bound<'_, PyModule>) -> PyResult<()>;

const SUBMODULES: [(&str, Register); 13] = [
    ("client", client::register),
    ("config", config::register),
    ("controller", controller::register),
    ("groups", groups::register),
    ("metadata", metadata::register),
    ("node", node::register),
    ("panics", panics::register),
    ("protocol", protocol::register),
    ("quorum", quorum::register),
    ("records", records::register),
    ("simulation", simulation::register),
    ("spark", spark::register),
    ("tools", tools::register),
];

/// Python finds `klamm._engine.<name>` among the modules that are imported already: there is no file of that name.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    let imported = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    for (name, register) in SUBMODULES {
        let full_name = format!("klamm._engine.{name}");
        let submodule = PyModule::new(py, &full_name)?;
        register(&submodule)?;
        module.add(name, &submodule)?;
        imported.set_item(full_name, submodule)?;
    }
    Ok(())
}
