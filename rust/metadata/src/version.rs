//! metadata.version: its levels, and the record versions that a controller may write at each (Apache Kafka's
//! `MetadataVersion`).
use crate::records::{self, Record};

/// Name of the feature that carries the metadata.version.
pub const METADATA_VERSION: &str = "metadata.version";
/// Finalized only by control records of the quorum; a feature record with this name is ignored (KAFKA-18979).
pub const KRAFT_VERSION: &str = "kraft.version";
/// The feature that enables eligible leader replicas (KIP-966).
pub const ELIGIBLE_LEADER_REPLICAS: &str = "eligible.leader.replicas.version";

/// A level of metadata.version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MetadataVersion(pub i16);

impl MetadataVersion {
    /// The lowest supported level: 3.3-IV3.
    pub const MINIMUM: MetadataVersion = MetadataVersion(7);
    /// 4.3-IV0.
    pub const LATEST: MetadataVersion = MetadataVersion(30);

    /// The level if this node supports it.
    pub fn supported(level: i16) -> Option<Self> {
        let version = MetadataVersion(level);
        (Self::MINIMUM..=Self::LATEST).contains(&version).then_some(version)
    }

    /// Whether an ISR shrink must increment the leader epoch (KAFKA-15021).
    pub fn bumps_leader_epoch_on_isr_shrink(self) -> bool {
        self.0 < 12
    }

    /// Whether SCRAM credentials may be written.
    pub fn has_scram(self) -> bool {
        self.0 >= 11
    }

    /// Whether delegation tokens may be written.
    pub fn has_delegation_tokens(self) -> bool {
        self.0 >= 14
    }

    /// Whether controllers register (KIP-919).
    pub fn has_controller_registration(self) -> bool {
        self.0 >= 15
    }

    /// Whether replicas are assigned to directories (KIP-858).
    pub fn has_directory_assignment(self) -> bool {
        self.0 >= 17
    }

    /// Whether brokers report cordoned directories.
    pub fn has_cordoned_log_dirs(self) -> bool {
        self.0 >= 30
    }

    /// Version of a RegisterBrokerRecord.
    pub fn register_broker_record_version(self) -> i16 {
        match self.0 {
            30.. => 4,
            17.. => 3,
            8.. => 2,
            7 => 1,
            _ => 0,
        }
    }

    /// Version of a PartitionRecord and of a PartitionChangeRecord.
    pub fn partition_record_version(self) -> i16 {
        match self.0 {
            23.. => 2,
            17.. => 1,
            _ => 0,
        }
    }

    /// The highest version of the record `id` that may be written at this level; `None` if there is no such record. A
    /// BrokerRegistrationChangeRecord uses the lowest version that can express the change instead
    /// ([`registration_change_version`]).
    pub fn record_version(self, id: i16) -> Option<i16> {
        let schema = records::schema(id)?;
        Some(match id {
            0 => self.register_broker_record_version(),
            3 | 5 => self.partition_record_version(),
            17 => match self.0 {
                30.. => 3,
                17.. => 2,
                7.. => 1,
                _ => 0,
            },
            _ => schema.version_max,
        })
    }
}

/// The lowest version that can express the change in a BrokerRegistrationChangeRecord, which a controller writes.
pub fn registration_change_version(record: &records::BrokerRegistrationChangeRecord<'_>) -> i16 {
    if record.cordoned_log_dirs.is_some() {
        3
    } else if !record.log_dirs.is_empty() {
        2
    } else if record.in_controlled_shutdown != 0 {
        1
    } else {
        0
    }
}

impl Record<'_> {
    /// The version in which a controller writes the record at the given level.
    pub fn version_at(&self, metadata_version: MetadataVersion) -> i16 {
        match self {
            Record::BrokerRegistrationChange(change) => registration_change_version(change),
            other => metadata_version.record_version(other.id()).expect("every variant has a schema"),
        }
    }
}
