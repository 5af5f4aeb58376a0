//! Registered nodes, as the image shows them.

use std::sync::Arc;

use klamm_metadata::cluster::{BrokerRegistration, ControllerRegistration, Endpoint, SupportedFeature};
use pyo3::prelude::*;

use crate::getters::getters;
use crate::id::Id;

/// Where a node listens.
#[pyclass(frozen, eq, get_all, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct EndpointInfo {
    name: String,
    host: String,
    port: u16,
    security_protocol: i16,
}

impl From<&Endpoint> for EndpointInfo {
    fn from(endpoint: &Endpoint) -> Self {
        let Endpoint { name, host, port, security_protocol } = endpoint.clone();
        Self { name, host, port, security_protocol }
    }
}

/// The levels of a feature that a node supports.
#[pyclass(frozen, eq, get_all, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct SupportedFeatureInfo {
    name: String,
    level_min: i16,
    level_max: i16,
}

impl From<&SupportedFeature> for SupportedFeatureInfo {
    fn from(feature: &SupportedFeature) -> Self {
        let SupportedFeature { name, level_min, level_max } = feature.clone();
        Self { name, level_min, level_max }
    }
}

/// A registered broker.
#[pyclass(frozen, eq, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct BrokerInfo(pub Arc<BrokerRegistration>);

getters! {
    BrokerInfo {
        id: i32 = |it| it.0.id;
        epoch: i64 = |it| it.0.epoch;
        incarnation_id: Id = |it| Id(it.0.incarnation_id);
        endpoints: Vec<EndpointInfo> = |it| it.0.endpoints.iter().map(EndpointInfo::from).collect();
        features: Vec<SupportedFeatureInfo> = |it| it.0.features.iter().map(SupportedFeatureInfo::from).collect();
        rack: Option<&str> = |it| it.0.rack.as_deref();
        fenced: bool = |it| it.0.fenced;
        in_controlled_shutdown: bool = |it| it.0.in_controlled_shutdown;
        is_active: bool = |it| it.0.is_active();
        log_dirs: Vec<Id> = |it| it.0.log_dirs.iter().copied().map(Id).collect();
        cordoned_log_dirs: Option<Vec<Id>> = |it| {
            it.0.cordoned_log_dirs.as_ref().map(|dirs| dirs.iter().copied().map(Id).collect())
        };
        default_dir: Id = |it| Id(it.0.default_dir());
    }

    fn has_online_dir(&self, directory_id: Id) -> bool {
        self.0.has_online_dir(directory_id.0)
    }

    fn __repr__(&self) -> String {
        let BrokerRegistration { id, epoch, fenced, in_controlled_shutdown, .. } = &*self.0;
        format!("BrokerInfo(id={id}, epoch={epoch}, fenced={fenced}, in_controlled_shutdown={in_controlled_shutdown})")
    }
}

/// A registered controller.
#[pyclass(frozen, eq, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct ControllerInfo(pub Arc<ControllerRegistration>);

getters! {
    ControllerInfo {
        id: i32 = |it| it.0.id;
        incarnation_id: Id = |it| Id(it.0.incarnation_id);
        zk_migration_ready: bool = |it| it.0.zk_migration_ready;
        endpoints: Vec<EndpointInfo> = |it| it.0.endpoints.iter().map(EndpointInfo::from).collect();
        features: Vec<SupportedFeatureInfo> = |it| it.0.features.iter().map(SupportedFeatureInfo::from).collect();
    }
}

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BrokerInfo>()?;
    module.add_class::<ControllerInfo>()?;
    module.add_class::<EndpointInfo>()?;
    module.add_class::<SupportedFeatureInfo>()
}
