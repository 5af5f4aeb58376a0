//! Fetch v13-18 as a follower sends it: any number of partitions, by topic id, in a session.

use bytes::Bytes;
use klamm_base::primitives::WireError;
use klamm_base::{ErrorCode, Uuid};
use klamm_client::messages::Request;
use klamm_replica::Replicas;
use klamm_wire::api::FETCH;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

use super::core::{Key, Plan, Wanted};

/// First version whose replica is a tagged field with its broker epoch.
const REPLICA_STATE_VERSION: i16 = 15;
/// First version with the high watermark that the follower knows (KIP-1166).
const HIGH_WATERMARK_VERSION: i16 = 18;

/// A follower's request.
pub struct ReplicaFetch<'a> {
    pub replica_id: i32,
    pub broker_epoch: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub plan: &'a Plan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFetchAnswer {
    pub error: ErrorCode,
    pub session_id: i32,
    pub partitions: Vec<FetchedPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    pub key: Key,
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// The epoch and its end offset at which the follower's log diverges.
    pub diverging: Option<(i32, i64)>,
    /// A part of the response frame, not copied.
    pub records: Bytes,
}

impl<'a> ReplicaFetch<'a> {
    /// The request of a broker, with its configuration.
    pub fn of(replicas: &Replicas, plan: &'a Plan) -> Self {
        let settings = replicas.settings();
        let bounded = |name| i32::try_from(settings.number(name)).unwrap_or(i32::MAX);
        Self {
            replica_id: replicas.node_id(),
            broker_epoch: replicas.broker_epoch(),
            max_wait_ms: bounded("replica.fetch.wait.max.ms"),
            min_bytes: bounded("replica.fetch.min.bytes"),
            max_bytes: bounded("replica.fetch.response.max.bytes"),
            partition_max_bytes: bounded("replica.fetch.max.bytes"),
            plan,
        }
    }
}

impl Request for ReplicaFetch<'_> {
    const API: i16 = FETCH;
    const VERSION_MIN: i16 = 13;
    const VERSION_MAX: i16 = 18;
    type Answer = ReplicaFetchAnswer;

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16) {
        if version < REPLICA_STATE_VERSION {
            out.i32(self.replica_id);
        }
        out.i32(self.max_wait_ms);
        out.i32(self.min_bytes);
        out.i32(self.max_bytes);
        out.i8(0);
        out.i32(self.plan.session_id);
        out.i32(self.plan.session_epoch);
        let same_topic = |one: &Wanted, other: &Wanted| one.key.0 == other.key.0;
        out.array_len(self.plan.wanted.chunk_by(same_topic).count());
        for partitions in self.plan.wanted.chunk_by(same_topic) {
            out.uuid(partitions[0].key.0);
            out.array_len(partitions.len());
            for wanted in partitions {
                self.write_partition(out, version, wanted);
            }
            out.no_tags();
        }
        let same_topic = |one: &Key, other: &Key| one.0 == other.0;
        out.array_len(self.plan.forgotten.chunk_by(same_topic).count());
        for keys in self.plan.forgotten.chunk_by(same_topic) {
            out.uuid(keys[0].0);
            out.array_len(keys.len());
            keys.iter().for_each(|key| out.i32(key.1));
            out.no_tags();
        }
        out.string("");
        if version < REPLICA_STATE_VERSION {
            return out.no_tags();
        }
        out.writer.unsigned_varint(1);
        out.writer.tagged_field(1, |field| {
            field.i32(self.replica_id);
            field.i64(self.broker_epoch);
            field.no_tagged_fields();
        });
    }

    fn read(body: &Bytes, version: i16) -> Result<ReplicaFetchAnswer, WireError> {
        debug_assert!(version >= Self::VERSION_MIN, "version {version}");
        let mut reader = VersionedReader::new(body, true);
        reader.i32()?;
        let (error, session_id) = (ErrorCode(reader.i16()?), reader.i32()?);
        let mut partitions = Vec::new();
        for _ in 0..reader.array_len(18)? {
            let topic_id = reader.uuid()?;
            for _ in 0..reader.array_len(36)? {
                partitions.push(read_partition(&mut reader, body, topic_id)?);
            }
            reader.skip_tags()?;
        }
        Ok(ReplicaFetchAnswer { error, session_id, partitions })
    }
}

impl ReplicaFetch<'_> {
    fn write_partition(&self, out: &mut VersionedWriter<'_>, version: i16, wanted: &Wanted) {
        let position = &wanted.position;
        out.i32(wanted.key.1);
        out.i32(wanted.leader_epoch);
        out.i64(position.fetch_offset);
        out.i32(position.last_fetched_epoch);
        out.i64(position.log_start_offset);
        out.i32(self.partition_max_bytes);
        if version < HIGH_WATERMARK_VERSION {
            return out.no_tags();
        }
        out.writer.unsigned_varint(1);
        out.writer.tagged_field(1, |field| field.i64(position.high_watermark));
    }
}

fn read_partition(
    reader: &mut VersionedReader<'_>,
    body: &Bytes,
    topic_id: Uuid,
) -> Result<FetchedPartition, WireError> {
    let (index, error) = (reader.i32()?, ErrorCode(reader.i16()?));
    let high_watermark = reader.i64()?;
    reader.i64()?;
    let log_start_offset = reader.i64()?;
    for _ in 0..reader.nullable_array_len(16)?.unwrap_or(0) {
        reader.i64()?;
        reader.i64()?;
        reader.skip_tags()?;
    }
    reader.i32()?;
    let len = reader.nullable_array_len(1)?.unwrap_or(0);
    let records = body.slice_ref(reader.reader.slice(len)?);
    let mut diverging = None;
    reader.tags(|tag, field| {
        if tag == 0 {
            diverging = Some((field.i32()?, field.i64()?));
            field.skip_tagged_fields()?;
        }
        Ok(tag == 0)
    })?;
    Ok(FetchedPartition { key: (topic_id, index), error, high_watermark, log_start_offset, diverging, records })
}
