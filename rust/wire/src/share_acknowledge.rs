//! ShareAcknowledge v1-2.

use std::borrow::Cow;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::elements::Elements;
use super::share_request::{RENEW_VERSION, ShareTopic};
use super::topic::{NodeEndpoint, write_node_endpoint_array};
use super::versioned::{VersionedReader, VersionedWriter};

/// A request that was parsed once to validate it.
#[derive(Clone)]
pub struct ShareAcknowledgeRequest<'a> {
    pub group_id: Option<Cow<'a, str>>,
    pub member_id: Option<Cow<'a, str>>,
    /// -1 closes the session.
    pub session_epoch: i32,
    /// Whether renewals are allowed in it.
    pub is_renew_ack: bool,
    pub topics: Elements<'a, ShareTopic<'a>>,
}

impl<'a> ShareAcknowledgeRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, true);
        let (group_id, member_id) = (reader.nullable_string()?, reader.nullable_string()?);
        let session_epoch = reader.i32()?;
        let is_renew_ack = if version >= RENEW_VERSION { reader.bool()? } else { false };
        let count = reader.array_len(18)?;
        let topics = Elements::check(&mut reader, version, count, ShareTopic::read)?;
        reader.skip_tags()?;
        Ok(Self { group_id, member_id, session_epoch, is_renew_ack, topics })
    }
}

/// The response of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareAcknowledgeResult {
    pub index: i32,
    pub error: ErrorCode,
    pub message: Option<Cow<'static, str>>,
    /// Leader id and epoch, sent with an error about leadership (KIP-951); zeros otherwise.
    pub current_leader: (i32, i32),
}

/// Writes the whole response; results of a topic follow each other.
pub fn write_response(
    writer: &mut Writer,
    version: i16,
    (error, message): (ErrorCode, Option<&str>),
    lock_timeout_ms: i32,
    topics: &[(Uuid, Vec<ShareAcknowledgeResult>)],
    endpoints: &[NodeEndpoint],
) {
    let mut out = VersionedWriter::new(writer, true);
    out.throttle_time(0);
    out.error_code(error);
    out.nullable_string(message);
    if version >= RENEW_VERSION {
        out.i32(lock_timeout_ms);
    }
    out.array_len(topics.len());
    for (id, partitions) in topics {
        out.uuid(*id);
        out.array_len(partitions.len());
        for partition in partitions {
            out.i32(partition.index);
            out.error_code(partition.error);
            out.nullable_string(partition.message.as_deref());
            out.i32(partition.current_leader.0);
            out.i32(partition.current_leader.1);
            out.no_tags();
            out.no_tags();
        }
        out.no_tags();
    }
    write_node_endpoint_array(&mut out, endpoints);
    out.no_tags();
}
