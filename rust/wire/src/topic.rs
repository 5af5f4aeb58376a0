//! How the fast path's messages name topics, leaders and nodes.

use std::borrow::Cow;

use klamm_base::Uuid;
use klamm_base::primitives::{WireError, Writer};

use super::versioned::{VersionedReader, VersionedWriter};

/// A topic as a request names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicRef<'a> {
    Name(Cow<'a, str>),
    Id(Uuid),
}

impl<'a> TopicRef<'a> {
    #[inline]
    pub fn read(reader: &mut VersionedReader<'a>, by_id: bool) -> Result<Self, WireError> {
        if by_id { reader.uuid().map(Self::Id) } else { reader.string().map(Self::Name) }
    }

    /// The same, of its own.
    pub fn into_owned(self) -> TopicRef<'static> {
        match self {
            Self::Name(name) => TopicRef::Name(Cow::Owned(name.into_owned())),
            Self::Id(id) => TopicRef::Id(id),
        }
    }

    /// Names the topic in an answer as the request named it.
    pub fn write(&self, out: &mut VersionedWriter<'_>) {
        match self {
            Self::Name(name) => out.string(name),
            Self::Id(id) => out.uuid(*id),
        }
    }
}

/// Where a leader is reached, told beside the error that made the client ask the wrong node (KIP-951).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

/// Value of a CurrentLeader field: leader id and epoch.
pub(super) fn write_leader(field: &mut Writer, (leader_id, leader_epoch): (i32, i32)) {
    field.i32(leader_id);
    field.i32(leader_epoch);
    field.no_tagged_fields();
}

/// The tagged fields at the end of an answer whose tag 0 is NodeEndpoints; `known` is whether the version has it.
pub(super) fn write_node_endpoints(out: &mut VersionedWriter<'_>, known: bool, endpoints: &[NodeEndpoint]) {
    if !known || endpoints.is_empty() {
        return out.no_tags();
    }
    out.writer.unsigned_varint(1);
    out.writer.tagged_field(0, |field| {
        field.compact_array_len(endpoints.len());
        for node in endpoints {
            field.i32(node.node_id);
            field.compact_string(&node.host);
            field.i32(node.port);
            field.compact_nullable_string(node.rack.as_deref());
            field.no_tagged_fields();
        }
    });
}
