//! Parses a Fetch of a replica of the quorum, if a leader may answer it without a decision.

use klamm_base::Uuid;
use klamm_wire::fetch::FetchRequest;
use klamm_wire::topic::TopicRef;

use crate::METADATA_TOPIC_ID;

/// The versions that contain the replica's directory id and the topic id.
const VERSIONS: std::ops::RangeInclusive<i16> = 17..=18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaFetch<'a> {
    pub cluster_id: Option<&'a str>,
    pub replica_id: i32,
    /// All zero if it is not set.
    pub directory: Uuid,
    pub epoch: i32,
    pub offset: i64,
    pub last_epoch: i32,
    /// The high watermark that the replica knows; `i64::MAX` if the version does not contain it.
    pub high_watermark: i64,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
}

impl<'a> ReplicaFetch<'a> {
    /// `None` if the request cannot be parsed, or asks for anything other than the quorum's log.
    pub fn read(body: &'a [u8], version: i16) -> Option<Self> {
        if !VERSIONS.contains(&version) {
            return None;
        }
        let mut request = FetchRequest::parse(body, version).ok()?;
        let mut topic = request.topics.next()?;
        let partition = topic.partitions.next()?;
        let is_alone = request.topics.len() == 0 && topic.partitions.len() == 0;
        if !is_alone || topic.topic != TopicRef::Id(METADATA_TOPIC_ID) || partition.index != 0 {
            return None;
        }
        Some(Self {
            cluster_id: request.cluster_id,
            replica_id: request.replica_id,
            directory: partition.replica_directory,
            epoch: partition.current_leader_epoch,
            offset: partition.fetch_offset,
            last_epoch: partition.last_fetched_epoch,
            high_watermark: partition.high_watermark,
            max_wait_ms: request.max_wait_ms,
            max_bytes: request.max_bytes,
        })
    }
}
