//! The metadata image as a handle: every query is a look-up in the engine's image.
use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_metadata::MetadataImage;
use klamm_metadata::image::Provenance;
use klamm_metadata::partition::Partition;
use klamm_metadata::security::{QuotaEntity, ScramKey};
use klamm_metadata::topics::TopicsImage;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::delta::Delta;
use super::registrations::{BrokerInfo, ControllerInfo};
use super::security::{AclInfo, DelegationTokenInfo, ScramInfo};
use crate::id::Id;

create_exception!(klamm._engine.metadata, MetadataReplayError, PyValueError);

/// Entity type to name; no name is the default entity.
pub type EntityNames = BTreeMap<String, Option<String>>;

/// Batches from this many records on are applied without the GIL.
const RECORDS_WITH_GIL_MAX: usize = 64;

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MetadataReplayError", module.py().get_type::<MetadataReplayError>())?;
    module.add_class::<Image>()?;
    module.add_class::<PartitionInfo>()?;
    module.add_class::<BrokerPartitionCounts>()
}

/// The metadata of a cluster up to an offset.
#[pyclass(frozen, eq, from_py_object, module = "klamm._engine.metadata")]
#[derive(Clone, PartialEq)]
pub struct Image(pub Arc<MetadataImage>);

impl Image {
    /// A handle on an image.
    pub fn new_from(image: MetadataImage) -> Self {
        Self(Arc::new(image))
    }

    fn partition_info(&self, topics: &TopicsImage, index: i32, partition: &Partition) -> PartitionInfo {
        PartitionInfo {
            index,
            replicas: partition.replicas().to_vec(),
            isr: partition.isr().to_vec(),
            leader: partition.leader(),
            leader_epoch: partition.leader_epoch(),
            partition_epoch: partition.partition_epoch(),
            leader_recovery_state: partition.leader_recovery_state() as i8,
            elr: partition.elr().to_vec(),
            last_known_elr: partition.last_known_elr().to_vec(),
            adding_replicas: partition.adding().to_vec(),
            removing_replicas: partition.removing().to_vec(),
            directories: topics.directories_of(partition).into_iter().map(Id).collect(),
        }
    }
}

#[pymethods]
impl Image {
    #[new]
    fn new() -> Self {
        Self::new_from(MetadataImage::default())
    }

    fn apply(&self, py: Python<'_>, records: Vec<PyBackedBytes>) -> PyResult<Self> {
        let apply = || self.0.apply(records.iter().map(|record| &**record));
        let applied = if records.len() > RECORDS_WITH_GIL_MAX { py.detach(apply) } else { apply() };
        applied.map(Self::new_from).map_err(|error| MetadataReplayError::new_err(error.to_string()))
    }

    fn apply_batches(&self, py: Python<'_>, batches: &[u8]) -> PyResult<Self> {
        let applied = py.detach(|| self.0.apply_batches(batches));
        applied.map(Self::new_from).map_err(|error| MetadataReplayError::new_err(error.to_string()))
    }

    fn delta_since(&self, py: Python<'_>, older: &Image) -> Delta {
        Delta::between(py, older, self)
    }

    fn with_provenance(&self, last_offset: i64, last_epoch: i32, last_timestamp_ms: i64) -> Self {
        Self::new_from(self.0.with_provenance(Provenance { last_offset, last_epoch, last_timestamp_ms }))
    }

    #[getter]
    fn last_offset(&self) -> i64 {
        self.0.provenance().last_offset
    }

    #[getter]
    fn last_epoch(&self) -> i32 {
        self.0.provenance().last_epoch
    }

    #[getter]
    fn last_timestamp_ms(&self) -> i64 {
        self.0.provenance().last_timestamp_ms
    }

    #[getter]
    fn in_transaction(&self) -> bool {
        self.0.in_transaction()
    }

    #[getter]
    fn stable(&self) -> Self {
        match self.0.in_transaction() {
            true => Self::new_from(self.0.stable().clone()),
            false => self.clone(),
        }
    }

    #[getter]
    fn metadata_version(&self) -> Option<i16> {
        self.0.metadata_version().map(|version| version.0)
    }

    #[getter]
    fn is_elr_enabled(&self) -> bool {
        self.0.is_elr_enabled()
    }

    fn feature(&self, name: &str) -> i16 {
        self.0.features().get(name).copied().unwrap_or(0)
    }

    fn features(&self) -> BTreeMap<String, i16> {
        self.0.features().clone()
    }

    #[getter]
    fn topic_count(&self) -> usize {
        self.0.topics().len()
    }

    #[getter]
    fn partition_count(&self) -> u32 {
        self.0.topics().counts().partitions
    }

    #[getter]
    fn leaderless_partition_count(&self) -> u32 {
        self.0.topics().counts().leaderless
    }

    #[getter]
    fn imbalanced_partition_count(&self) -> u32 {
        self.0.topics().counts().imbalanced
    }

    #[getter]
    fn reassigning_partition_count(&self) -> u32 {
        self.0.topics().counts().reassigning
    }

    fn topic_id(&self, name: &str) -> Option<Id> {
        self.0.topics().by_name(name).map(|topic| Id(topic.id()))
    }

    fn topic_name(&self, topic_id: Id) -> Option<String> {
        self.0.topics().by_id(topic_id.0).map(|topic| topic.name().to_string())
    }

    fn topic_names(&self) -> Vec<&str> {
        self.0.topics().sorted_names().iter().map(|name| &**name).collect()
    }

    fn leader(&self, topic: &str, index: i32) -> Option<i32> {
        Some(self.0.topics().by_name(topic)?.partition(index)?.leader())
    }

    fn partition(&self, topic_id: Id, index: i32) -> Option<PartitionInfo> {
        let topics = self.0.topics();
        let partition = topics.by_id(topic_id.0)?.partition(index)?;
        Some(self.partition_info(topics, index, partition))
    }

    fn partitions(&self, topic_id: Id) -> Vec<PartitionInfo> {
        let topics = self.0.topics();
        let Some(topic) = topics.by_id(topic_id.0) else { return Vec::new() };
        topic.partitions().map(|(index, partition)| self.partition_info(topics, index, partition)).collect()
    }

    fn topic_partition_count(&self, topic_id: Id) -> usize {
        self.0.topics().by_id(topic_id.0).map_or(0, |topic| topic.partition_count())
    }

    fn reassigning_partitions(&self) -> Vec<(Id, i32)> {
        if self.0.topics().counts().reassigning == 0 {
            return Vec::new();
        }
        let topics = self.0.topics().iter();
        topics
            .flat_map(|topic| {
                let moving = topic.partitions().filter(|(_, partition)| partition.is_reassigning());
                moving.map(move |(index, _)| (Id(topic.id()), index))
            })
            .collect()
    }

    fn broker(&self, broker_id: i32) -> Option<BrokerInfo> {
        self.0.brokers().get(&broker_id).map(|broker| BrokerInfo(Arc::clone(broker)))
    }

    fn broker_ids(&self) -> Vec<i32> {
        self.0.brokers().keys().copied().collect()
    }

    fn broker_partition_counts(&self, broker_id: i32) -> BrokerPartitionCounts {
        let counts = self.0.topics().counts().of(broker_id);
        BrokerPartitionCounts {
            leaders: counts.leaders,
            in_sync: counts.in_sync,
            eligible: counts.eligible,
            replicas: counts.replicas,
        }
    }

    fn controller(&self, controller_id: i32) -> Option<ControllerInfo> {
        self.0.controllers().get(&controller_id).map(|controller| ControllerInfo(Arc::clone(controller)))
    }

    fn controller_ids(&self) -> Vec<i32> {
        self.0.controllers().keys().copied().collect()
    }

    fn configs(&self, resource_type: i8, name: &str) -> BTreeMap<String, String> {
        let config = self.0.configs().get(resource_type, name);
        let pairs = config.into_iter().flat_map(|config| config.iter());
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn config(&self, resource_type: i8, name: &str, key: &str) -> Option<String> {
        self.0.configs().value(resource_type, name, key).map(str::to_owned)
    }

    fn config_resources(&self, resource_type: i8) -> Vec<String> {
        let resources = self.0.configs().iter().filter(|(resource, _)| resource.resource_type == resource_type);
        resources.map(|(resource, _)| resource.name.to_string()).collect()
    }

    fn quotas(&self) -> Vec<(EntityNames, BTreeMap<String, f64>)> {
        self.0.quotas().iter().map(|(entity, quotas)| (entity.0.clone(), (**quotas).clone())).collect()
    }

    #[getter]
    fn has_quotas(&self) -> bool {
        !self.0.quotas().is_empty()
    }

    fn quota(&self, entity: EntityNames) -> BTreeMap<String, f64> {
        self.0.quotas().get(&QuotaEntity(entity)).map(|quotas| (**quotas).clone()).unwrap_or_default()
    }

    #[getter]
    fn next_producer_id(&self) -> Option<i64> {
        self.0.next_producer_id()
    }

    fn acls(&self) -> Vec<AclInfo> {
        self.0.acls().iter().map(|(id, acl)| AclInfo(*id, Arc::clone(acl))).collect()
    }

    fn acl(&self, acl_id: Id) -> Option<AclInfo> {
        self.0.acls().get(&acl_id.0).map(|acl| AclInfo(acl_id.0, Arc::clone(acl)))
    }

    fn scram_credential(&self, mechanism: i8, user: &str) -> Option<ScramInfo> {
        let key = ScramKey { mechanism, user: user.to_owned() };
        self.0.scram().get(&key).map(|credential| ScramInfo(Arc::clone(credential)))
    }

    fn scram_users(&self) -> Vec<(i8, String)> {
        self.0.scram().keys().map(|key| (key.mechanism, key.user.clone())).collect()
    }

    fn delegation_token(&self, token_id: &str) -> Option<DelegationTokenInfo> {
        let (token_id, token) = self.0.tokens().get_key_value(token_id)?;
        Some(DelegationTokenInfo(Arc::clone(token_id), Arc::clone(token)))
    }

    fn delegation_token_ids(&self) -> Vec<String> {
        self.0.tokens().keys().map(|token_id| token_id.to_string()).collect()
    }

    fn __repr__(&self) -> String {
        let topics = self.0.topics();
        let offset = self.0.provenance().last_offset;
        format!("Image(last_offset={offset}, topics={}, partitions={})", topics.len(), topics.counts().partitions)
    }
}

/// One partition.
#[pyclass(frozen, eq, get_all, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct PartitionInfo {
    index: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    leader: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    leader_recovery_state: i8,
    elr: Vec<i32>,
    last_known_elr: Vec<i32>,
    adding_replicas: Vec<i32>,
    removing_replicas: Vec<i32>,
    directories: Vec<Id>,
}

#[pymethods]
impl PartitionInfo {
    fn __repr__(&self) -> String {
        let Self { index, replicas, isr, leader, leader_epoch, partition_epoch, .. } = self;
        format!(
            "PartitionInfo(index={index}, replicas={replicas:?}, isr={isr:?}, leader={leader}, \
             leader_epoch={leader_epoch}, partition_epoch={partition_epoch})"
        )
    }
}

/// How many partitions a broker has to do with.
#[pyclass(frozen, eq, get_all, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct BrokerPartitionCounts {
    leaders: u32,
    in_sync: u32,
    eligible: u32,
    replicas: u32,
}
