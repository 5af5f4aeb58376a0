//! Every record of `__cluster_metadata` up to metadata.version 30, as in Apache Kafka's schemas.
//!
//! The number after a default is the first version with the field. Ids 6, 13 and 16 were never released.
use klamm_base::Uuid;
use klamm_base::primitives::{Reader, WireError, Writer};

use crate::field::{Array, Described, Field, FieldError};
use crate::record_macro::{records, structures};
use crate::schema::{DefaultValue, FieldSchema, FieldType, RecordSchema, StructSchema};

/// Id of a [`PartitionRecord`].
pub const PARTITION_RECORD: i16 = 3;
/// Id of a [`PartitionChangeRecord`].
pub const PARTITION_CHANGE_RECORD: i16 = 5;
/// [`PartitionChangeRecord::leader`]: the leader, and with it the leader epoch, is unchanged.
pub const NO_LEADER_CHANGE: i32 = -2;
/// The partition has no leader.
pub const NO_LEADER: i32 = -1;

structures! {
    /// Registers a broker. `broker_epoch` is the offset that the controller expected to write next.
    RegisterBrokerRecord<'r> {
        broker_id: i32 = 0, 0;
        is_migrating_zk_broker: bool = false, 2;
        incarnation_id: Uuid = Uuid::ZERO, 0;
        broker_epoch: i64 = 0, 0;
        end_points: Array<'r, BrokerEndpoint<'r>> = Array::EMPTY, 0;
        features: Array<'r, BrokerFeature<'r>> = Array::EMPTY, 0;
        rack: Option<&'r str> = Some(""), 0;
        fenced: bool = true, 0;
        in_controlled_shutdown: bool = false, 1;
    }
    tagged {
        0 log_dirs: Array<'r, Uuid> = Array::EMPTY, 3;
        1 cordoned_log_dirs: Option<Array<'r, Uuid>> = None, 4;
    }

    /// A listener of a broker.
    BrokerEndpoint<'r> {
        name: &'r str = "", 0;
        host: &'r str = "", 0;
        port: u16 = 0, 0;
        security_protocol: i16 = 0, 0;
    }
    tagged {}

    /// A feature that a broker supports.
    BrokerFeature<'r> {
        name: &'r str = "", 0;
        min_supported_version: i16 = 0, 0;
        max_supported_version: i16 = 0, 0;
    }
    tagged {}

    /// Unregisters a broker.
    UnregisterBrokerRecord {
        broker_id: i32 = 0, 0;
        broker_epoch: i64 = 0, 0;
    }
    tagged {}

    /// Creates a topic; its partitions follow.
    TopicRecord<'r> {
        name: &'r str = "", 0;
        topic_id: Uuid = Uuid::ZERO, 0;
    }
    tagged {}

    /// The complete state of a partition.
    PartitionRecord<'r> {
        partition_id: i32 = -1, 0;
        topic_id: Uuid = Uuid::ZERO, 0;
        replicas: Array<'r, i32> = Array::EMPTY, 0;
        isr: Array<'r, i32> = Array::EMPTY, 0;
        removing_replicas: Array<'r, i32> = Array::EMPTY, 0;
        adding_replicas: Array<'r, i32> = Array::EMPTY, 0;
        leader: i32 = -1, 0;
        leader_epoch: i32 = -1, 0;
        partition_epoch: i32 = -1, 0;
        directories: Array<'r, Uuid> = Array::EMPTY, 1;
    }
    tagged {
        0 leader_recovery_state: i8 = 0, 0;
        1 eligible_leader_replicas: Option<Array<'r, i32>> = None, 2;
        2 last_known_elr: Option<Array<'r, i32>> = None, 2;
    }

    /// Sets a configuration value; null deletes it.
    ConfigRecord<'r> {
        resource_type: i8 = 0, 0;
        resource_name: &'r str = "", 0;
        name: &'r str = "", 0;
        value: Option<&'r str> = Some(""), 0;
    }
    tagged {}

    /// Changes a partition. Each one increments the partition epoch; one with a leader also increments the leader
    /// epoch.
    PartitionChangeRecord<'r> {
        partition_id: i32 = -1, 0;
        topic_id: Uuid = Uuid::ZERO, 0;
    }
    tagged {
        0 isr: Option<Array<'r, i32>> = None, 0;
        1 leader: i32 = -2, 0;
        2 replicas: Option<Array<'r, i32>> = None, 0;
        3 removing_replicas: Option<Array<'r, i32>> = None, 0;
        4 adding_replicas: Option<Array<'r, i32>> = None, 0;
        5 leader_recovery_state: i8 = -1, 0;
        6 eligible_leader_replicas: Option<Array<'r, i32>> = None, 2;
        7 last_known_elr: Option<Array<'r, i32>> = None, 2;
        8 directories: Option<Array<'r, Uuid>> = None, 1;
    }

    /// Fences a broker; written below metadata.version 6.
    FenceBrokerRecord {
        id: i32 = 0, 0;
        epoch: i64 = 0, 0;
    }
    tagged {}

    /// Unfences a broker; written below metadata.version 6.
    UnfenceBrokerRecord {
        id: i32 = 0, 0;
        epoch: i64 = 0, 0;
    }
    tagged {}

    /// Deletes a topic with its partitions and its configuration.
    RemoveTopicRecord {
        topic_id: Uuid = Uuid::ZERO, 0;
    }
    tagged {}

    /// A delegation token, new or renewed. It does not contain the HMAC, which every node derives.
    DelegationTokenRecord<'r> {
        owner: &'r str = "", 0;
        requester: &'r str = "", 0;
        renewers: Array<'r, &'r str> = Array::EMPTY, 0;
        issue_timestamp: i64 = 0, 0;
        max_timestamp: i64 = 0, 0;
        expiration_timestamp: i64 = 0, 0;
        token_id: &'r str = "", 0;
    }
    tagged {}

    /// A SCRAM credential. Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
    UserScramCredentialRecord<'r> {
        name: &'r str = "", 0;
        mechanism: i8 = 0, 0;
        salt: &'r [u8] = b"".as_slice(), 0;
        stored_key: &'r [u8] = b"".as_slice(), 0;
        server_key: &'r [u8] = b"".as_slice(), 0;
        iterations: i32 = 0, 0;
    }
    tagged {}

    /// A finalized feature level; 0 removes the feature.
    FeatureLevelRecord<'r> {
        name: &'r str = "", 0;
        feature_level: i16 = 0, 0;
    }
    tagged {}

    /// Sets a client quota value.
    ClientQuotaRecord<'r> {
        entity: Array<'r, EntityData<'r>> = Array::EMPTY, 0;
        key: &'r str = "", 0;
        value: f64 = 0.0, 0;
        remove: bool = false, 0;
    }
    tagged {}

    /// One part of a quota entity; a null name is the default entity of the type.
    EntityData<'r> {
        entity_type: &'r str = "", 0;
        entity_name: Option<&'r str> = Some(""), 0;
    }
    tagged {}

    /// Allocates a block of producer ids; `next_producer_id` is the first id of the next block.
    ProducerIdsRecord {
        broker_id: i32 = 0, 0;
        broker_epoch: i64 = -1, 0;
        next_producer_id: i64 = 0, 0;
    }
    tagged {}

    /// Changes a registration. `fenced`: -1 unfenced, 0 unchanged, 1 fenced. An empty `log_dirs` is no change.
    BrokerRegistrationChangeRecord<'r> {
        broker_id: i32 = 0, 0;
        broker_epoch: i64 = 0, 0;
    }
    tagged {
        0 fenced: i8 = 0, 0;
        1 in_controlled_shutdown: i8 = 0, 1;
        2 log_dirs: Array<'r, Uuid> = Array::EMPTY, 2;
        3 cordoned_log_dirs: Option<Array<'r, Uuid>> = None, 3;
    }

    /// Creates an ACL.
    AccessControlEntryRecord<'r> {
        id: Uuid = Uuid::ZERO, 0;
        resource_type: i8 = 0, 0;
        resource_name: &'r str = "", 0;
        pattern_type: i8 = 0, 0;
        principal: &'r str = "", 0;
        host: &'r str = "", 0;
        operation: i8 = 0, 0;
        permission_type: i8 = 0, 0;
    }
    tagged {}

    /// Deletes an ACL.
    RemoveAccessControlEntryRecord {
        id: Uuid = Uuid::ZERO, 0;
    }
    tagged {}

    /// Keeps the high watermark advancing (KIP-835).
    NoOpRecord {}
    tagged {}

    /// State of a migration from ZooKeeper. Parsed and ignored since 4.0.
    ZkMigrationStateRecord {
        zk_migration_state: i8 = 0, 0;
    }
    tagged {}

    /// Deletes a SCRAM credential.
    RemoveUserScramCredentialRecord<'r> {
        name: &'r str = "", 0;
        mechanism: i8 = 0, 0;
    }
    tagged {}

    /// Begins a metadata transaction: the following records take effect only at its end.
    BeginTransactionRecord<'r> {}
    tagged {
        0 name: Option<&'r str> = None, 0;
    }

    /// Ends a metadata transaction: its records take effect.
    EndTransactionRecord {}
    tagged {}

    /// Aborts a metadata transaction: its records are dropped.
    AbortTransactionRecord<'r> {}
    tagged {
        0 reason: Option<&'r str> = None, 0;
    }

    /// Deletes a delegation token.
    RemoveDelegationTokenRecord<'r> {
        token_id: &'r str = "", 0;
    }
    tagged {}

    /// Registers a controller (KIP-919).
    RegisterControllerRecord<'r> {
        controller_id: i32 = 0, 0;
        incarnation_id: Uuid = Uuid::ZERO, 0;
        zk_migration_ready: bool = false, 0;
        end_points: Array<'r, ControllerEndpoint<'r>> = Array::EMPTY, 0;
        features: Array<'r, ControllerFeature<'r>> = Array::EMPTY, 0;
    }
    tagged {}

    /// A listener of a controller.
    ControllerEndpoint<'r> {
        name: &'r str = "", 0;
        host: &'r str = "", 0;
        port: u16 = 0, 0;
        security_protocol: i16 = 0, 0;
    }
    tagged {}

    /// A feature that a controller supports.
    ControllerFeature<'r> {
        name: &'r str = "", 0;
        min_supported_version: i16 = 0, 0;
        max_supported_version: i16 = 0, 0;
    }
    tagged {}

    /// Clears the ELR and the last known leaders of a topic, or of all topics if the name is empty.
    ClearElrRecord<'r> {
        topic_name: &'r str = "", 0;
    }
    tagged {}
}

records! {
    0 RegisterBroker RegisterBrokerRecord<'r>, 4;
    1 UnregisterBroker UnregisterBrokerRecord, 0;
    2 Topic TopicRecord<'r>, 0;
    3 Partition PartitionRecord<'r>, 2;
    4 Config ConfigRecord<'r>, 0;
    5 PartitionChange PartitionChangeRecord<'r>, 2;
    7 FenceBroker FenceBrokerRecord, 0;
    8 UnfenceBroker UnfenceBrokerRecord, 0;
    9 RemoveTopic RemoveTopicRecord, 0;
    10 DelegationToken DelegationTokenRecord<'r>, 0;
    11 UserScramCredential UserScramCredentialRecord<'r>, 0;
    12 FeatureLevel FeatureLevelRecord<'r>, 0;
    14 ClientQuota ClientQuotaRecord<'r>, 0;
    15 ProducerIds ProducerIdsRecord, 0;
    17 BrokerRegistrationChange BrokerRegistrationChangeRecord<'r>, 3;
    18 AccessControlEntry AccessControlEntryRecord<'r>, 0;
    19 RemoveAccessControlEntry RemoveAccessControlEntryRecord, 0;
    20 NoOp NoOpRecord, 0;
    21 ZkMigrationState ZkMigrationStateRecord, 0;
    22 RemoveUserScramCredential RemoveUserScramCredentialRecord<'r>, 0;
    23 BeginTransaction BeginTransactionRecord<'r>, 0;
    24 EndTransaction EndTransactionRecord, 0;
    25 AbortTransaction AbortTransactionRecord<'r>, 0;
    26 RemoveDelegationToken RemoveDelegationTokenRecord<'r>, 0;
    27 RegisterController RegisterControllerRecord<'r>, 0;
    28 ClearElr ClearElrRecord<'r>, 0;
}

/// Parses a default from the description above.
const fn default_value(text: &str) -> DefaultValue {
    match text.as_bytes() {
        b"None" => DefaultValue::Null,
        b"true" => DefaultValue::Bool(true),
        b"-1" => DefaultValue::Int(-1),
        b"-2" => DefaultValue::Int(-2),
        _ => DefaultValue::Natural,
    }
}

/// The schema for a record id; `None` if there is no such record.
#[inline]
pub fn schema(id: i16) -> Option<&'static RecordSchema> {
    match SCHEMAS.get(usize::try_from(id).ok()?) {
        Some(schema) if schema.id == id => Some(schema), // No id is missing before it.
        _ => SCHEMAS.binary_search_by_key(&id, |schema| schema.id).ok().map(|at| &SCHEMAS[at]),
    }
}
