//! What ShareFetch and ShareAcknowledge requests have in common: partitions with acknowledgements (KIP-932).

use klamm_base::Uuid;
use klamm_base::primitives::WireError;

use super::elements::Elements;
use super::versioned::VersionedReader;

/// First version with renewals and the acquire mode (KIP-1206, KIP-1222).
pub const RENEW_VERSION: i16 = 2;
/// The largest type of acknowledgement that a version knows.
const ACK_TYPE_MAX: u8 = 4;
const ACK_TYPE_MAX_BEFORE_RENEW: u8 = 3;

/// The largest type of acknowledgement in a request of this version.
pub fn ack_type_max(version: i16) -> u8 {
    if version >= RENEW_VERSION { ACK_TYPE_MAX } else { ACK_TYPE_MAX_BEFORE_RENEW }
}

#[derive(Clone)]
pub struct ShareTopic<'a> {
    pub id: Uuid,
    pub partitions: Elements<'a, ShareRequestPartition<'a>>,
}

#[derive(Clone)]
pub struct ShareRequestPartition<'a> {
    pub index: i32,
    pub acknowledgements: Elements<'a, Acknowledgement<'a>>,
}

/// Acknowledges `first_offset` to `last_offset`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    pub first_offset: i64,
    pub last_offset: i64,
    /// One type for all offsets, or one for each; each is an int8.
    pub types: &'a [u8],
}

impl<'a> ShareTopic<'a> {
    pub(super) fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let id = reader.uuid()?;
        let count = reader.array_len(6)?;
        let partitions = Elements::check(reader, version, count, ShareRequestPartition::read)?;
        reader.skip_tags()?;
        Ok(Self { id, partitions })
    }
}

impl<'a> ShareRequestPartition<'a> {
    fn read(reader: &mut VersionedReader<'a>, version: i16) -> Result<Self, WireError> {
        let index = reader.i32()?;
        let count = reader.array_len(18)?;
        let acknowledgements = Elements::check(reader, version, count, Acknowledgement::read)?;
        reader.skip_tags()?;
        Ok(Self { index, acknowledgements })
    }
}

impl<'a> Acknowledgement<'a> {
    fn read(reader: &mut VersionedReader<'a>, _version: i16) -> Result<Self, WireError> {
        let (first_offset, last_offset) = (reader.i64()?, reader.i64()?);
        let count = reader.array_len(1)?;
        let types = reader.reader.slice(count)?;
        reader.skip_tags()?;
        Ok(Self { first_offset, last_offset, types })
    }
}
