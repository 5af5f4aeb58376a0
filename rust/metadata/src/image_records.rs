//! The records of an image, in the order of Apache Kafka's `MetadataImage.write`.
use klamm_base::Uuid;

use crate::MetadataImage;
use crate::directories::DirectoryTable;
use crate::field::Array;
use crate::partition::Partition;
use crate::records::{
    AccessControlEntryRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord, EntityData, FeatureLevelRecord,
    PartitionRecord, ProducerIdsRecord, Record, TopicRecord, UserScramCredentialRecord,
};
use crate::topic::Topic;
use crate::version::{METADATA_VERSION, MetadataVersion};

/// Why an image cannot be expressed as records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnwritableError {
    #[error("the metadata has no metadata.version yet")]
    NoMetadataVersion,
    #[error("metadata.version {version} cannot say {what}")]
    TooOld { version: i16, what: &'static str },
}

/// Calls `emit` with every record of the image and the version to write it in. Records of an open transaction are
/// omitted.
///
/// An error of `emit` ends the walk; `E` must also represent what the image's metadata.version cannot express.
pub fn for_each_record<E: From<UnwritableError>>(
    image: &MetadataImage,
    mut emit: impl FnMut(Record<'_>, i16) -> Result<(), E>,
) -> Result<(), E> {
    let image = image.stable();
    let version = image.metadata_version().ok_or(UnwritableError::NoMetadataVersion)?;
    let mut emitter = Emitter { image, version, emit: &mut emit };
    emitter.features()?;
    emitter.cluster()?;
    for topic in image.topics().iter() {
        emitter.topic(topic)?;
    }
    emitter.configs()?;
    emitter.quotas()?;
    emitter.producer_ids()?;
    emitter.acls()?;
    emitter.scram()?;
    emitter.tokens()
}

struct Emitter<'a, F> {
    image: &'a MetadataImage,
    version: MetadataVersion,
    emit: &'a mut F,
}

impl<E: From<UnwritableError>, F: FnMut(Record<'_>, i16) -> Result<(), E>> Emitter<'_, F> {
    fn check(&self, can_say: bool, what: &'static str) -> Result<(), UnwritableError> {
        if can_say { Ok(()) } else { Err(UnwritableError::TooOld { version: self.version.0, what }) }
    }

    /// metadata.version comes first, in version 0, so that every reader knows how to parse the rest.
    fn features(&mut self) -> Result<(), E> {
        let level = |name, feature_level| Record::from(FeatureLevelRecord { name, feature_level });
        (self.emit)(level(METADATA_VERSION, self.version.0), 0)?;
        let others = self.image.features().iter().filter(|(name, _)| *name != METADATA_VERSION);
        others.into_iter().try_for_each(|(name, &feature_level)| (self.emit)(level(name, feature_level), 0))
    }

    fn cluster(&mut self) -> Result<(), E> {
        let version = self.version.register_broker_record_version();
        for broker in self.image.brokers().values() {
            let has_dirs = self.version.has_directory_assignment();
            self.check(broker.log_dirs.is_empty() || has_dirs, "the log directories of a broker")?;
            let has_cordoned = self.version.has_cordoned_log_dirs();
            self.check(broker.cordoned_log_dirs.is_none() || has_cordoned, "the cordoned directories of a broker")?;
            self.check(!broker.is_migrating_zk_broker || version >= 2, "that a broker migrates from ZooKeeper")?;
            broker.with_record(|record| (self.emit)(record.into(), version))?;
        }
        for controller in self.image.controllers().values() {
            self.check(self.version.has_controller_registration(), "the registration of a controller")?;
            controller.with_record(|record| (self.emit)(record.into(), 0))?;
        }
        Ok(())
    }

    fn topic(&mut self, topic: &Topic) -> Result<(), E> {
        (self.emit)(TopicRecord { name: topic.name(), topic_id: topic.id() }.into(), 0)?;
        let mut directories = Vec::new();
        for (partition_id, partition) in topic.partitions() {
            directories.clear();
            self.directories(partition, &mut directories)?;
            let record = self.partition(topic.id(), partition_id, partition, &directories);
            (self.emit)(record.into(), self.version.partition_record_version())?;
        }
        Ok(())
    }

    fn directories(&self, partition: &Partition, directories: &mut Vec<Uuid>) -> Result<(), UnwritableError> {
        if self.version.has_directory_assignment() {
            self.image.topics().directory_table().add_ids(partition.directories(), directories);
            return Ok(());
        }
        let are_unknown = partition.directories().all(|number| number == DirectoryTable::MIGRATING);
        self.check(are_unknown, "the directories of a partition")
    }

    fn partition<'r>(
        &self,
        topic_id: Uuid,
        partition_id: i32,
        partition: &'r Partition,
        directories: &'r [Uuid],
    ) -> PartitionRecord<'r> {
        let elr = |ids: &'r [i32]| (self.image.is_elr_enabled() && !ids.is_empty()).then_some(Array::Own(ids));
        PartitionRecord {
            partition_id,
            topic_id,
            replicas: partition.replicas().into(),
            isr: partition.isr().into(),
            removing_replicas: partition.removing().into(),
            adding_replicas: partition.adding().into(),
            leader: partition.leader(),
            leader_epoch: partition.leader_epoch(),
            partition_epoch: partition.partition_epoch(),
            directories: directories.into(),
            leader_recovery_state: partition.leader_recovery_state() as i8,
            eligible_leader_replicas: elr(partition.elr()),
            last_known_elr: elr(partition.last_known_elr()),
        }
    }

    fn configs(&mut self) -> Result<(), E> {
        for (resource, config) in self.image.configs().iter() {
            for (name, value) in config.iter() {
                let record = ConfigRecord {
                    resource_type: resource.resource_type,
                    resource_name: &resource.name,
                    name,
                    value: Some(value),
                };
                (self.emit)(record.into(), 0)?;
            }
        }
        Ok(())
    }

    fn quotas(&mut self) -> Result<(), E> {
        for (entity, quotas) in self.image.quotas().iter() {
            let parts = entity.0.iter();
            let parts: Vec<EntityData<'_>> =
                parts.map(|(entity_type, name)| EntityData { entity_type, entity_name: name.as_deref() }).collect();
            for (key, &value) in quotas.iter() {
                let record = ClientQuotaRecord { entity: (&parts).into(), key, value, remove: false };
                (self.emit)(record.into(), 0)?;
            }
        }
        Ok(())
    }

    fn producer_ids(&mut self) -> Result<(), E> {
        let Some(next_producer_id) = self.image.next_producer_id() else { return Ok(()) };
        (self.emit)(ProducerIdsRecord { broker_id: -1, broker_epoch: -1, next_producer_id }.into(), 0)
    }

    fn acls(&mut self) -> Result<(), E> {
        self.image.acls().iter().try_for_each(|(&id, acl)| {
            let record = AccessControlEntryRecord {
                id,
                resource_type: acl.resource_type,
                resource_name: &acl.resource_name,
                pattern_type: acl.pattern_type,
                principal: &acl.principal,
                host: &acl.host,
                operation: acl.operation,
                permission_type: acl.permission_type,
            };
            (self.emit)(record.into(), 0)
        })
    }

    fn scram(&mut self) -> Result<(), E> {
        self.check(self.image.scram().is_empty() || self.version.has_scram(), "SCRAM credentials")?;
        self.image.scram().iter().try_for_each(|(key, credential)| {
            let record = UserScramCredentialRecord {
                name: &key.user,
                mechanism: key.mechanism,
                salt: &credential.salt,
                stored_key: &credential.stored_key,
                server_key: &credential.server_key,
                iterations: credential.iterations,
            };
            (self.emit)(record.into(), 0)
        })
    }

    fn tokens(&mut self) -> Result<(), E> {
        self.check(self.image.tokens().is_empty() || self.version.has_delegation_tokens(), "delegation tokens")?;
        self.image.tokens().iter().try_for_each(|(token_id, token)| {
            let renewers: Vec<&str> = token.renewers.iter().map(String::as_str).collect();
            let record = DelegationTokenRecord {
                owner: &token.owner,
                requester: &token.requester,
                renewers: (&renewers).into(),
                issue_timestamp: token.issue_timestamp,
                max_timestamp: token.max_timestamp,
                expiration_timestamp: token.expiration_timestamp,
                token_id,
            };
            (self.emit)(record.into(), 0)
        })
    }
}
