//! The metadata image as a handle: every query is a look-up in the engine's image.
use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_engine::Uuid;
use klamm_engine::metadata::MetadataImage;
use klamm_engine::metadata::cluster::{BrokerRegistration, ControllerRegistration, Endpoint, SupportedFeature};
use klamm_engine::metadata::image::Provenance;
use klamm_engine::metadata::partition::Partition;
use klamm_engine::metadata::security::{Acl, DelegationToken, QuotaEntity, ScramCredential, ScramKey};
use klamm_engine::metadata::topics::TopicsImage;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::delta::Delta;
use crate::metadata_records::extract_uuid;

create_exception!(klamm._engine, MetadataReplayError, PyValueError);

/// Entity type to name; no name is the default entity.
pub type EntityNames = BTreeMap<String, Option<String>>;

/// Batches from this many records on are applied without the GIL.
const RECORDS_WITH_GIL_MAX: usize = 64;

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MetadataReplayError", module.py().get_type::<MetadataReplayError>())?;
    module.add_class::<Image>()?;
    module.add_class::<Delta>()?;
    module.add_class::<PartitionInfo>()?;
    module.add_class::<BrokerInfo>()?;
    module.add_class::<ControllerInfo>()?;
    module.add_class::<EndpointInfo>()?;
    module.add_class::<SupportedFeatureInfo>()?;
    module.add_class::<BrokerPartitionCounts>()?;
    module.add_class::<AclInfo>()?;
    module.add_class::<ScramInfo>()?;
    module.add_class::<DelegationTokenInfo>()
}

/// Sixteen bytes that become Python bytes.
#[derive(Clone, Copy)]
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

/// The metadata of a cluster up to an offset.
#[pyclass(frozen, eq, from_py_object, module = "klamm._engine")]
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
#[pyclass(frozen, eq, get_all, module = "klamm._engine")]
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

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
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

/// Where a node listens.
#[pyclass(frozen, eq, get_all, module = "klamm._engine")]
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
#[pyclass(frozen, eq, get_all, module = "klamm._engine")]
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

/// How many partitions a broker has to do with.
#[pyclass(frozen, eq, get_all, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct BrokerPartitionCounts {
    leaders: u32,
    in_sync: u32,
    eligible: u32,
    replicas: u32,
}

/// A registered broker.
#[pyclass(frozen, eq, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct BrokerInfo(Arc<BrokerRegistration>);

#[pymethods]
impl BrokerInfo {
    #[getter]
    fn id(&self) -> i32 {
        self.0.id
    }

    #[getter]
    fn epoch(&self) -> i64 {
        self.0.epoch
    }

    #[getter]
    fn incarnation_id(&self) -> Id {
        Id(self.0.incarnation_id)
    }

    #[getter]
    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.0.endpoints.iter().map(EndpointInfo::from).collect()
    }

    #[getter]
    fn features(&self) -> Vec<SupportedFeatureInfo> {
        self.0.features.iter().map(SupportedFeatureInfo::from).collect()
    }

    #[getter]
    fn rack(&self) -> Option<&str> {
        self.0.rack.as_deref()
    }

    #[getter]
    fn fenced(&self) -> bool {
        self.0.fenced
    }

    #[getter]
    fn in_controlled_shutdown(&self) -> bool {
        self.0.in_controlled_shutdown
    }

    #[getter]
    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    #[getter]
    fn log_dirs(&self) -> Vec<Id> {
        self.0.log_dirs.iter().copied().map(Id).collect()
    }

    #[getter]
    fn cordoned_log_dirs(&self) -> Option<Vec<Id>> {
        self.0.cordoned_log_dirs.as_ref().map(|dirs| dirs.iter().copied().map(Id).collect())
    }

    #[getter]
    fn has_uncordoned_dir(&self) -> bool {
        self.0.has_uncordoned_dir()
    }

    #[getter]
    fn default_dir(&self) -> Id {
        Id(self.0.default_dir())
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
#[pyclass(frozen, eq, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct ControllerInfo(Arc<ControllerRegistration>);

#[pymethods]
impl ControllerInfo {
    #[getter]
    fn id(&self) -> i32 {
        self.0.id
    }

    #[getter]
    fn incarnation_id(&self) -> Id {
        Id(self.0.incarnation_id)
    }

    #[getter]
    fn zk_migration_ready(&self) -> bool {
        self.0.zk_migration_ready
    }

    #[getter]
    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.0.endpoints.iter().map(EndpointInfo::from).collect()
    }

    #[getter]
    fn features(&self) -> Vec<SupportedFeatureInfo> {
        self.0.features.iter().map(SupportedFeatureInfo::from).collect()
    }
}

/// One ACL.
#[pyclass(frozen, eq, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct AclInfo(Uuid, Arc<Acl>);

#[pymethods]
impl AclInfo {
    #[getter]
    fn id(&self) -> Id {
        Id(self.0)
    }

    #[getter]
    fn resource_type(&self) -> i8 {
        self.1.resource_type
    }

    #[getter]
    fn resource_name(&self) -> &str {
        &self.1.resource_name
    }

    #[getter]
    fn pattern_type(&self) -> i8 {
        self.1.pattern_type
    }

    #[getter]
    fn principal(&self) -> &str {
        &self.1.principal
    }

    #[getter]
    fn host(&self) -> &str {
        &self.1.host
    }

    #[getter]
    fn operation(&self) -> i8 {
        self.1.operation
    }

    #[getter]
    fn permission_type(&self) -> i8 {
        self.1.permission_type
    }
}

/// A SCRAM credential.
#[pyclass(frozen, eq, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct ScramInfo(Arc<ScramCredential>);

#[pymethods]
impl ScramInfo {
    #[getter]
    fn salt(&self) -> &[u8] {
        &self.0.salt
    }

    #[getter]
    fn stored_key(&self) -> &[u8] {
        &self.0.stored_key
    }

    #[getter]
    fn server_key(&self) -> &[u8] {
        &self.0.server_key
    }

    #[getter]
    fn iterations(&self) -> i32 {
        self.0.iterations
    }
}

/// A delegation token.
#[pyclass(frozen, eq, module = "klamm._engine")]
#[derive(PartialEq)]
pub struct DelegationTokenInfo(Arc<str>, Arc<DelegationToken>);

#[pymethods]
impl DelegationTokenInfo {
    #[getter]
    fn token_id(&self) -> &str {
        &self.0
    }

    #[getter]
    fn owner(&self) -> &str {
        &self.1.owner
    }

    #[getter]
    fn requester(&self) -> &str {
        &self.1.requester
    }

    #[getter]
    fn renewers(&self) -> Vec<String> {
        self.1.renewers.clone()
    }

    #[getter]
    fn issue_timestamp(&self) -> i64 {
        self.1.issue_timestamp
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.1.max_timestamp
    }

    #[getter]
    fn expiration_timestamp(&self) -> i64 {
        self.1.expiration_timestamp
    }
}
