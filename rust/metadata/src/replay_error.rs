//! Why a record could not be applied: the log contradicts this node's state, so the node must stop.
use klamm_base::Uuid;

use crate::frame::RecordError;

/// A record that contradicts the image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("topic '{name}' is created twice: as {first} and as {second}")]
    DuplicateTopic { name: String, first: Uuid, second: Uuid },
    #[error("topic id {0} is not known")]
    UnknownTopicId(Uuid),
    #[error("topic '{0}' is not known")]
    UnknownTopicName(String),
    #[error("partition {partition_id} of topic {topic_id} is not known")]
    UnknownPartition { topic_id: Uuid, partition_id: i32 },
    #[error("partition number {partition_id} of topic {topic_id} is negative")]
    PartitionId { topic_id: Uuid, partition_id: i32 },
    #[error("partition {partition_id} of topic {topic_id} has {replicas} replicas but {directories} directories")]
    DirectoryCount { topic_id: Uuid, partition_id: i32, replicas: usize, directories: usize },
    #[error("leader recovery state {value} of partition {partition_id} of topic {topic_id} is none")]
    LeaderRecoveryState { topic_id: Uuid, partition_id: i32, value: i8 },
    #[error("an epoch of partition {partition_id} of topic {topic_id} would pass 2147483647")]
    EpochOverflow { topic_id: Uuid, partition_id: i32 },
    #[error("broker {0} is not registered")]
    UnknownBroker(i32),
    #[error("broker {broker_id} is registered with epoch {registered}, not {epoch}")]
    BrokerEpoch { broker_id: i32, registered: i64, epoch: i64 },
    #[error("a listener of node {0} has no name")]
    UnnamedListener(i32),
    #[error("{value} is no value of {field} in a registration change of broker {broker_id}")]
    RegistrationChange { broker_id: i32, field: &'static str, value: i8 },
    #[error(
        "metadata.version {0} is not supported: set it to a level from 7 to 30 with the version that wrote the log first"
    )]
    MetadataVersion(i16),
    #[error("ACL {0} is not known")]
    UnknownAcl(Uuid),
    #[error("SCRAM mechanism {0} is not known")]
    ScramMechanism(i8),
    #[error("a metadata transaction begins inside another")]
    NestedTransaction,
    #[error("a metadata transaction ends that never began")]
    NoTransaction,
}
