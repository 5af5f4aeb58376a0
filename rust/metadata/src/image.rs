//! The metadata image: the state after replaying `__cluster_metadata` up to an offset. Immutable: applying records
//! creates a new image that shares the unchanged parts.
use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_base::Uuid;
use smallvec::SmallVec;

use crate::change_run::RUN;
use crate::cluster::{BrokerRegistration, ControllerRegistration};
use crate::configs::{self, ConfigsImage};
use crate::field::Field;
use crate::frame::{RecordError, check_end, read_frame};
use crate::records::{
    BrokerRegistrationChangeRecord, ClientQuotaRecord, FeatureLevelRecord, PARTITION_CHANGE_RECORD, PARTITION_RECORD,
    PartitionChangeRecord, PartitionRecord, Record, RemoveTopicRecord, UnregisterBrokerRecord,
};
use crate::replay_error::ReplayError;
use crate::security::{Acl, ClientQuotas, DelegationToken, QuotaEntity, ScramCredential, ScramKey};
use crate::topics::TopicsImage;
use crate::usual_change::UsualChange;
use crate::usual_partition::UsualPartition;
use crate::version::{ELIGIBLE_LEADER_REPLICAS, KRAFT_VERSION, METADATA_VERSION, MetadataVersion};

/// The position in the log that an image corresponds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Offset of the last record in the image; -1 if there is none.
    pub last_offset: i64,
    /// Epoch of that record.
    pub last_epoch: i32,
    /// Append time of that record, in ms.
    pub last_timestamp_ms: i64,
}

impl Provenance {
    /// The provenance of an image without records.
    pub const EMPTY: Provenance = Provenance { last_offset: -1, last_epoch: -1, last_timestamp_ms: -1 };
}

/// The metadata of a cluster. A clone shares everything.
#[derive(Clone)]
pub struct MetadataImage {
    provenance: Provenance,
    features: Arc<BTreeMap<String, i16>>,
    brokers: imbl::OrdMap<i32, Arc<BrokerRegistration>>,
    controllers: imbl::OrdMap<i32, Arc<ControllerRegistration>>,
    topics: TopicsImage,
    configs: ConfigsImage,
    quotas: ClientQuotas,
    next_producer_id: Option<i64>,
    acls: imbl::OrdMap<Uuid, Arc<Acl>>,
    scram: imbl::OrdMap<ScramKey, Arc<ScramCredential>>,
    tokens: imbl::OrdMap<Arc<str>, Arc<DelegationToken>>,
    /// The image before the open transaction.
    before_transaction: Option<Arc<MetadataImage>>,
}

impl Default for MetadataImage {
    fn default() -> Self {
        Self {
            provenance: Provenance::EMPTY,
            features: Arc::default(),
            brokers: imbl::OrdMap::new(),
            controllers: imbl::OrdMap::new(),
            topics: TopicsImage::default(),
            configs: ConfigsImage::default(),
            quotas: ClientQuotas::new(),
            next_producer_id: None,
            acls: imbl::OrdMap::new(),
            scram: imbl::OrdMap::new(),
            tokens: imbl::OrdMap::new(),
            before_transaction: None,
        }
    }
}

/// The record of a batch that could not be applied, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata record {index} of the batch cannot be applied: {error}")]
pub struct ApplyError {
    /// Index in the batch.
    pub index: usize,
    pub error: ReplayError,
}

impl MetadataImage {
    /// The position in the log that was last set with [`MetadataImage::with_provenance`].
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// The same image with another position in the log.
    pub fn with_provenance(&self, provenance: Provenance) -> Self {
        Self { provenance, ..self.clone() }
    }

    /// Finalized features by name, including metadata.version but not kraft.version.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// The metadata.version; `None` if the log does not contain it yet.
    pub fn metadata_version(&self) -> Option<MetadataVersion> {
        self.features.get(METADATA_VERSION).map(|&level| MetadataVersion(level))
    }

    /// Whether eligible leader replicas are enabled (KIP-966).
    pub fn is_elr_enabled(&self) -> bool {
        self.features.get(ELIGIBLE_LEADER_REPLICAS).is_some_and(|&level| level >= 1)
    }

    /// Registered brokers by id.
    pub fn brokers(&self) -> &imbl::OrdMap<i32, Arc<BrokerRegistration>> {
        &self.brokers
    }

    /// Registered controllers by id.
    pub fn controllers(&self) -> &imbl::OrdMap<i32, Arc<ControllerRegistration>> {
        &self.controllers
    }

    /// Topics and partitions.
    pub fn topics(&self) -> &TopicsImage {
        &self.topics
    }

    /// Dynamic configuration.
    pub fn configs(&self) -> &ConfigsImage {
        &self.configs
    }

    /// Client quotas.
    pub fn quotas(&self) -> &ClientQuotas {
        &self.quotas
    }

    /// The first unallocated producer id; `None` if no block was allocated.
    pub fn next_producer_id(&self) -> Option<i64> {
        self.next_producer_id
    }

    /// ACLs by id.
    pub fn acls(&self) -> &imbl::OrdMap<Uuid, Arc<Acl>> {
        &self.acls
    }

    /// SCRAM credentials.
    pub fn scram(&self) -> &imbl::OrdMap<ScramKey, Arc<ScramCredential>> {
        &self.scram
    }

    /// Delegation tokens by token id.
    pub fn tokens(&self) -> &imbl::OrdMap<Arc<str>, Arc<DelegationToken>> {
        &self.tokens
    }

    /// Whether a metadata transaction is open: its records are in this image but have not taken effect.
    pub fn in_transaction(&self) -> bool {
        self.before_transaction.is_some()
    }

    /// The image without the records of an open transaction: the image that may be published.
    pub fn stable(&self) -> &MetadataImage {
        self.before_transaction.as_deref().unwrap_or(self)
    }

    /// The image with more records. If one of them is invalid, none is applied.
    pub fn apply<'r>(&self, records: impl IntoIterator<Item = &'r [u8]>) -> Result<Self, ApplyError> {
        let mut image = self.clone();
        image.replay_all(records.into_iter())?;
        image.finish_batch();
        Ok(image)
    }

    /// Applies records; consecutive usual partition changes are applied together.
    pub(super) fn replay_all<'r>(&mut self, records: impl Iterator<Item = &'r [u8]>) -> Result<(), ApplyError> {
        let mut run: SmallVec<[UsualChange<'r>; RUN]> = SmallVec::new();
        let mut end = 0;
        for (index, bytes) in records.enumerate() {
            let change = UsualChange::of(bytes);
            if change.is_none() || run.len() == RUN {
                self.replay_run(&mut run, index)?;
            }
            match change {
                Some(change) => run.push(change),
                None => self.replay_bytes(bytes).map_err(|error| ApplyError { index, error })?,
            }
            end = index + 1;
        }
        self.replay_run(&mut run, end)
    }

    /// Applies changes, the last of which is before `end` in the batch.
    #[inline]
    fn replay_run(&mut self, run: &mut SmallVec<[UsualChange<'_>; RUN]>, end: usize) -> Result<(), ApplyError> {
        if run.is_empty() {
            return Ok(());
        }
        let start = end - run.len();
        let applied = self.topics.change_usual_partitions(run);
        run.clear();
        applied.map_err(|(at, error)| ApplyError { index: start + at, error })
    }

    /// Completes the work of [`MetadataImage::replay_bytes`].
    pub(super) fn finish_batch(&mut self) {
        self.topics.finish_batch();
    }

    #[inline]
    pub(super) fn replay_bytes(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        if let Some(record) = UsualPartition::of(bytes) {
            return self.topics.set_usual_partition(&record);
        }
        let (id, version, mut reader) = read_frame(bytes)?;
        // Nearly all records are of these two types, for which the large type of any record is avoided.
        match id {
            PARTITION_RECORD => {
                let record = PartitionRecord::read(&mut reader, version).map_err(RecordError::Wire)?;
                check_end(&reader, "PartitionRecord")?;
                self.topics.set_partition(&record)
            }
            PARTITION_CHANGE_RECORD => {
                let record = PartitionChangeRecord::read(&mut reader, version).map_err(RecordError::Wire)?;
                check_end(&reader, "PartitionChangeRecord")?;
                self.topics.change_partition(&record)
            }
            _ => self.replay(&Record::decode(bytes)?.0),
        }
    }

    fn replay(&mut self, record: &Record<'_>) -> Result<(), ReplayError> {
        match record {
            Record::PartitionChange(record) => self.topics.change_partition(record),
            Record::Partition(record) => self.topics.set_partition(record),
            Record::Topic(record) => self.topics.create_topic(record),
            Record::RemoveTopic(record) => self.remove_topic(record),
            Record::ClearElr(record) => self.topics.clear_elr(record.topic_name),
            Record::Config(record) => {
                self.configs.set(record);
                Ok(())
            }
            Record::RegisterBroker(record) => {
                let broker = BrokerRegistration::from_record(record)?;
                self.brokers.insert(broker.id, Arc::new(broker));
                Ok(())
            }
            Record::UnregisterBroker(record) => self.unregister_broker(record),
            Record::BrokerRegistrationChange(record) => self.change_broker(record),
            Record::FenceBroker(record) => self.set_fenced(record.id, record.epoch, true),
            Record::UnfenceBroker(record) => self.set_fenced(record.id, record.epoch, false),
            Record::RegisterController(record) => {
                let controller = ControllerRegistration::from_record(record)?;
                self.controllers.insert(controller.id, Arc::new(controller));
                Ok(())
            }
            Record::FeatureLevel(record) => self.set_feature(record),
            Record::ClientQuota(record) => {
                self.set_quota(record);
                Ok(())
            }
            Record::ProducerIds(record) => {
                self.next_producer_id = Some(record.next_producer_id);
                Ok(())
            }
            Record::AccessControlEntry(record) => {
                self.acls.insert(record.id, Arc::new(record.into()));
                Ok(())
            }
            Record::RemoveAccessControlEntry(record) => {
                self.acls.remove(&record.id).map(drop).ok_or(ReplayError::UnknownAcl(record.id))
            }
            Record::UserScramCredential(record) => {
                let key = scram_key(record.mechanism, record.name)?;
                self.scram.insert(key, Arc::new(record.into()));
                Ok(())
            }
            Record::RemoveUserScramCredential(record) => {
                self.scram.remove(&scram_key(record.mechanism, record.name)?);
                Ok(())
            }
            Record::DelegationToken(record) => {
                self.tokens.insert(record.token_id.into(), Arc::new(record.into()));
                Ok(())
            }
            Record::RemoveDelegationToken(record) => {
                self.tokens.remove(record.token_id);
                Ok(())
            }
            Record::BeginTransaction(_) => self.begin_transaction(),
            Record::EndTransaction(_) => self.take_before_transaction().map(drop),
            Record::AbortTransaction(_) => self.abort_transaction(),
            Record::NoOp(_) | Record::ZkMigrationState(_) => Ok(()),
        }
    }

    fn remove_topic(&mut self, record: &RemoveTopicRecord) -> Result<(), ReplayError> {
        let topic = self.topics.remove_topic(record.topic_id)?;
        self.configs.remove(configs::TOPIC, topic.name());
        Ok(())
    }

    fn broker_mut(&mut self, id: i32, epoch: i64) -> Result<&mut BrokerRegistration, ReplayError> {
        let broker = self.brokers.get_mut(&id).ok_or(ReplayError::UnknownBroker(id))?;
        broker.check_epoch(epoch)?;
        Ok(Arc::make_mut(broker))
    }

    fn unregister_broker(&mut self, record: &UnregisterBrokerRecord) -> Result<(), ReplayError> {
        self.broker_mut(record.broker_id, record.broker_epoch)?;
        self.brokers.remove(&record.broker_id);
        Ok(())
    }

    fn change_broker(&mut self, record: &BrokerRegistrationChangeRecord<'_>) -> Result<(), ReplayError> {
        self.broker_mut(record.broker_id, record.broker_epoch)?.change(record)
    }

    fn set_fenced(&mut self, id: i32, epoch: i64, fenced: bool) -> Result<(), ReplayError> {
        self.broker_mut(id, epoch)?.fenced = fenced;
        Ok(())
    }

    fn set_feature(&mut self, record: &FeatureLevelRecord<'_>) -> Result<(), ReplayError> {
        let level = record.feature_level;
        if record.name == KRAFT_VERSION {
            return Ok(()); // Written by mistake by some versions; the control record is what counts (KAFKA-18979).
        }
        if record.name == METADATA_VERSION && MetadataVersion::supported(level).is_none() {
            return Err(ReplayError::MetadataVersion(level));
        }
        let features = Arc::make_mut(&mut self.features);
        if level == 0 {
            features.remove(record.name);
        } else {
            features.insert(record.name.to_owned(), level);
        }
        Ok(())
    }

    fn set_quota(&mut self, record: &ClientQuotaRecord<'_>) {
        let entity = QuotaEntity::from_records(record.entity.iter());
        let mut quotas = self.quotas.get(&entity).map(|quotas| (**quotas).clone()).unwrap_or_default();
        if record.remove {
            quotas.remove(record.key);
        } else {
            quotas.insert(record.key.to_owned(), record.value);
        }
        if quotas.is_empty() {
            self.quotas.remove(&entity);
        } else {
            self.quotas.insert(entity, Arc::new(quotas));
        }
    }

    fn begin_transaction(&mut self) -> Result<(), ReplayError> {
        if self.in_transaction() {
            return Err(ReplayError::NestedTransaction);
        }
        self.finish_batch();
        self.before_transaction = Some(Arc::new(self.clone()));
        Ok(())
    }

    fn take_before_transaction(&mut self) -> Result<Arc<MetadataImage>, ReplayError> {
        self.before_transaction.take().ok_or(ReplayError::NoTransaction)
    }

    fn abort_transaction(&mut self) -> Result<(), ReplayError> {
        let before = self.take_before_transaction()?;
        *self = Arc::unwrap_or_clone(before);
        Ok(())
    }
}

fn scram_key(mechanism: i8, user: &str) -> Result<ScramKey, ReplayError> {
    match mechanism {
        1 | 2 => Ok(ScramKey { mechanism, user: user.to_owned() }),
        _ => Err(ReplayError::ScramMechanism(mechanism)),
    }
}

/// Equal content, regardless of the position in the log.
impl PartialEq for MetadataImage {
    fn eq(&self, other: &Self) -> bool {
        self.features == other.features
            && self.brokers == other.brokers
            && self.controllers == other.controllers
            && self.topics == other.topics
            && self.configs == other.configs
            && self.quotas == other.quotas
            && self.next_producer_id == other.next_producer_id
            && self.acls == other.acls
            && self.scram == other.scram
            && self.tokens == other.tokens
            && self.before_transaction == other.before_transaction
    }
}
