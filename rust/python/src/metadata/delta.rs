//! The difference between two images.
use klamm_metadata::delta;
use pyo3::prelude::*;

use super::image::{EntityNames, Image};
use crate::id::Id;

/// The changes from an older image to a newer one.
#[pyclass(frozen, module = "klamm._engine.metadata")]
pub struct Delta(delta::Delta);

impl Delta {
    /// Compares without the GIL, because images may be large.
    pub fn between(py: Python<'_>, older: &Image, newer: &Image) -> Self {
        Self(py.detach(|| delta::Delta::between(&older.0, &newer.0)))
    }
}

#[pymethods]
impl Delta {
    #[getter]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[getter]
    fn created_topics(&self) -> Vec<(Id, &str)> {
        self.0.created_topics.iter().map(|topic| (Id(topic.id()), &**topic.name())).collect()
    }

    #[getter]
    fn deleted_topics(&self) -> Vec<(Id, &str)> {
        self.0.deleted_topics.iter().map(|topic| (Id(topic.id()), &**topic.name())).collect()
    }

    #[getter]
    fn changed_topics(&self) -> Vec<(Id, &str, Vec<i32>)> {
        let changed = self.0.changed_topics.iter();
        changed.map(|topic| (Id(topic.newer.id()), &**topic.newer.name(), topic.partitions.clone())).collect()
    }

    #[getter]
    fn changed_configs(&self) -> Vec<(i8, &str)> {
        self.0.changed_configs.iter().map(|resource| (resource.resource_type, &*resource.name)).collect()
    }

    #[getter]
    fn changed_brokers(&self) -> Vec<i32> {
        self.0.changed_brokers.clone()
    }

    #[getter]
    fn changed_controllers(&self) -> Vec<i32> {
        self.0.changed_controllers.clone()
    }

    #[getter]
    fn changed_features(&self) -> Vec<String> {
        self.0.changed_features.clone()
    }

    #[getter]
    fn changed_quotas(&self) -> Vec<EntityNames> {
        self.0.changed_quotas.iter().map(|entity| entity.0.clone()).collect()
    }

    #[getter]
    fn changed_acls(&self) -> Vec<Id> {
        self.0.changed_acls.iter().copied().map(Id).collect()
    }

    #[getter]
    fn changed_scram(&self) -> Vec<(i8, &str)> {
        self.0.changed_scram.iter().map(|key| (key.mechanism, key.user.as_str())).collect()
    }

    #[getter]
    fn changed_delegation_tokens(&self) -> Vec<&str> {
        self.0.changed_tokens.iter().map(|token_id| &**token_id).collect()
    }

    #[getter]
    fn producer_ids_changed(&self) -> bool {
        self.0.producer_ids_changed
    }

    fn __repr__(&self) -> String {
        let delta::Delta { created_topics, deleted_topics, changed_topics, .. } = &self.0;
        format!(
            "Delta(created_topics={}, deleted_topics={}, changed_topics={})",
            created_topics.len(),
            deleted_topics.len(),
            changed_topics.len()
        )
    }
}
