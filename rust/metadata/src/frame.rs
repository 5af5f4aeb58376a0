//! The frame of a metadata record: frame version, record id, record version, each an unsigned varint (Apache Kafka's
//! `MetadataRecordSerde`).
use klamm_base::primitives::{Reader, WireError, Writer};

use crate::field::FieldError;
use crate::records::{self, Record};

const FRAME_VERSION: u32 = 1;
const FRAME_VERSION_BYTE: u8 = FRAME_VERSION as u8;

/// Bytes that are not a known metadata record, or a record that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("frame version {0} is not supported: 1 is the only one")]
    FrameVersion(u32),
    #[error("there is no metadata record {0}: was the log written by a newer version?")]
    UnknownType(u32),
    #[error("{name} has no version {version}: {version_max} is the highest known")]
    UnknownVersion { name: &'static str, version: i32, version_max: i16 },
    #[error("{bytes} bytes follow the end of a {name}")]
    Garbage { name: &'static str, bytes: usize },
    #[error("a metadata record is damaged: {0}")]
    Wire(#[from] WireError),
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// Id and version of the record at the start of `bytes`, and a reader after them.
#[inline]
pub fn read_frame(bytes: &[u8]) -> Result<(i16, i16, Reader<'_>), RecordError> {
    // Each of the three numbers is nearly always one byte.
    if let [FRAME_VERSION_BYTE, id, version, body @ ..] = bytes
        && let (id, version) = (i16::from(*id), i16::from(*version))
        && records::schema(id).is_some_and(|schema| version <= schema.version_max)
    {
        return Ok((id, version, Reader::new(body)));
    }
    read_frame_slowly(bytes)
}

#[cold]
fn read_frame_slowly(bytes: &[u8]) -> Result<(i16, i16, Reader<'_>), RecordError> {
    let mut reader = Reader::new(bytes);
    match reader.unsigned_varint()? {
        FRAME_VERSION => {}
        other => return Err(RecordError::FrameVersion(other)),
    }
    let id = reader.unsigned_varint()?;
    let version = reader.unsigned_varint()?;
    let schema = i16::try_from(id).ok().and_then(records::schema).ok_or(RecordError::UnknownType(id))?;
    let known = i16::try_from(version).ok().filter(|&version| version <= schema.version_max);
    let version = known.ok_or(RecordError::UnknownVersion {
        name: schema.body.name,
        version: i32::try_from(version).unwrap_or(i32::MAX),
        version_max: schema.version_max,
    })?;
    Ok((schema.id, version, reader))
}

/// Checks that nothing follows the body.
pub fn check_end(reader: &Reader<'_>, name: &'static str) -> Result<(), RecordError> {
    match reader.remaining().len() {
        0 => Ok(()),
        bytes => Err(RecordError::Garbage { name, bytes }),
    }
}

/// Writes a frame's three numbers.
pub fn write_frame(writer: &mut Writer, id: i16, version: i16) {
    writer.unsigned_varint(FRAME_VERSION);
    writer.unsigned_varint(id as u32);
    writer.unsigned_varint(version as u32);
}

impl<'r> Record<'r> {
    /// Decodes the record that fills `bytes`, and its version. Allocates nothing.
    pub fn decode(bytes: &'r [u8]) -> Result<(Self, i16), RecordError> {
        let (id, version, mut reader) = read_frame(bytes)?;
        let record = Self::read_body(&mut reader, id, version)?.ok_or(RecordError::UnknownType(id as u32))?;
        check_end(&reader, record.name())?;
        Ok((record, version))
    }

    /// Appends the framed record in the given version.
    pub fn encode_to(&self, writer: &mut Writer, version: i16) -> Result<(), RecordError> {
        let version_max = records::schema(self.id()).map_or(-1, |schema| schema.version_max);
        if !(0..=version_max).contains(&version) {
            return Err(RecordError::UnknownVersion { name: self.name(), version: i32::from(version), version_max });
        }
        write_frame(writer, self.id(), version);
        Ok(self.write_body(writer, version)?)
    }

    /// The framed record in the given version.
    pub fn encode(&self, version: i16) -> Result<Vec<u8>, RecordError> {
        let mut writer = Writer::with_capacity(64);
        self.encode_to(&mut writer, version)?;
        Ok(writer.into_bytes())
    }
}
