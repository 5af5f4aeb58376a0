//! The records of new topics and partitions.
use klamm_base::Uuid;

use crate::MetadataImage;
use crate::configs;
use crate::frame::RecordError;
use crate::records::{ConfigRecord, PartitionRecord, Record, TopicRecord};
use crate::version::MetadataVersion;

/// Why a partition cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreationError {
    #[error("all replicas of partition {0} are on brokers that are fenced or in controlled shutdown")]
    NoActiveReplica(i32),
    #[error("partition numbers end at 2147483647")]
    TooManyPartitions,
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The records of a topic, its configuration and its partitions, in the order of Apache Kafka's
/// `ReplicationControlManager`.
pub fn topic_records(
    image: &MetadataImage,
    name: &str,
    topic_id: Uuid,
    config: &[(String, String)],
    assignments: &[Vec<i32>],
) -> Result<Vec<Vec<u8>>, CreationError> {
    let mut records = Vec::with_capacity(1 + config.len() + assignments.len());
    records.push(Record::from(TopicRecord { name, topic_id }).encode(0)?);
    for (key, value) in config {
        let record = ConfigRecord { resource_type: configs::TOPIC, resource_name: name, name: key, value: Some(value) };
        records.push(Record::from(record).encode(0)?);
    }
    records.extend(partition_records(image, topic_id, 0, assignments)?);
    Ok(records)
}

/// The records of the partitions from `first` on, one for each assignment. Replicas on active brokers are in sync;
/// the first of them leads.
pub fn partition_records(
    image: &MetadataImage,
    topic_id: Uuid,
    first: i32,
    assignments: &[Vec<i32>],
) -> Result<Vec<Vec<u8>>, CreationError> {
    let count = i32::try_from(assignments.len()).map_err(|_| CreationError::TooManyPartitions)?;
    let end = first.checked_add(count).ok_or(CreationError::TooManyPartitions)?;
    (first..end).zip(assignments).map(|(id, replicas)| partition_record(image, topic_id, id, replicas)).collect()
}

fn partition_record(
    image: &MetadataImage,
    topic_id: Uuid,
    partition_id: i32,
    replicas: &[i32],
) -> Result<Vec<u8>, CreationError> {
    let version = image.metadata_version().unwrap_or(MetadataVersion::MINIMUM);
    let is_active = |id: &&i32| image.brokers().get(*id).is_some_and(|broker| broker.is_active());
    let isr: Vec<i32> = replicas.iter().filter(is_active).copied().collect();
    let leader = *isr.first().ok_or(CreationError::NoActiveReplica(partition_id))?;
    let default_dir = |id: &i32| image.brokers().get(id).map_or(Uuid::UNASSIGNED, |broker| broker.default_dir());
    let directories: Vec<Uuid> = match version.has_directory_assignment() {
        true => replicas.iter().map(default_dir).collect(),
        false => Vec::new(),
    };
    let record = PartitionRecord {
        partition_id,
        topic_id,
        replicas: replicas.into(),
        isr: (&isr).into(),
        leader,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: (&directories).into(),
        ..PartitionRecord::default()
    };
    Ok(Record::from(record).encode(version.partition_record_version())?)
}
