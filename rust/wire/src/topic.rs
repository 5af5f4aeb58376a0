//! How the messages of the fast path identify topics, leaders and nodes.

use std::borrow::Cow;

use klamm_base::Uuid;
use klamm_base::primitives::{WireError, Writer};

use super::versioned::{VersionedReader, VersionedWriter};

/// A topic as a request identifies it.
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

    /// An owned copy.
    pub fn into_owned(self) -> TopicRef<'static> {
        match self {
            Self::Name(name) => TopicRef::Name(Cow::Owned(name.into_owned())),
            Self::Id(id) => TopicRef::Id(id),
        }
    }

    /// Writes the topic as the request identified it.
    pub fn write(&self, out: &mut VersionedWriter<'_>) {
        match self {
            Self::Name(name) => out.string(name),
            Self::Id(id) => out.uuid(*id),
        }
    }
}

/// The endpoint of a leader, sent with the error to a client that used the wrong node (KIP-951).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

/// The value of a CurrentLeader field: leader id and epoch.
pub(super) fn write_leader(field: &mut Writer, (leader_id, leader_epoch): (i32, i32)) {
    field.i32(leader_id);
    field.i32(leader_epoch);
    field.no_tagged_fields();
}

/// The tagged fields at the end of a response whose tag 0 is NodeEndpoints; `known`: whether the version has this
/// tag.
pub(super) fn write_node_endpoints(out: &mut VersionedWriter<'_>, known: bool, endpoints: &[NodeEndpoint]) {
    if !known || endpoints.is_empty() {
        return out.no_tags();
    }
    out.writer.unsigned_varint(1);
    out.writer.tagged_field(0, |field| write_endpoints(field, endpoints));
}

/// The NodeEndpoints of a response where they are no tagged field.
pub(super) fn write_node_endpoint_array(out: &mut VersionedWriter<'_>, endpoints: &[NodeEndpoint]) {
    write_endpoints(out.writer, endpoints);
}

fn write_endpoints(writer: &mut Writer, endpoints: &[NodeEndpoint]) {
    writer.compact_array_len(endpoints.len());
    for node in endpoints {
        writer.i32(node.node_id);
        writer.compact_string(&node.host);
        writer.i32(node.port);
        writer.compact_nullable_string(node.rack.as_deref());
        writer.no_tagged_fields();
    }
}
