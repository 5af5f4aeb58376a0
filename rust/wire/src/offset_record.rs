//! The records of committed offsets in `__consumer_offsets`, as Apache Kafka 4.3 writes them (`OffsetCommitKey`,
//! `OffsetCommitValue`).

use std::borrow::Cow;

use klamm_base::Uuid;
use klamm_base::primitives::{Reader, WireError};

/// Record type of an offset that Kafka 0.8 committed, and the version of its key.
const LEGACY_OFFSET_COMMIT: i16 = 0;
/// Record type of a committed offset, and the version of its key.
const OFFSET_COMMIT: i16 = 1;
/// Version of the value with an explicit expiry time.
const VERSION_WITH_EXPIRY: i16 = 1;
const VERSION: i16 = 4;
/// The longest string that a two-byte length allows, in bytes.
const STRING_LEN_MAX: usize = i16::MAX as usize;

/// A string is longer than the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a string of {0} bytes; a record holds at most {STRING_LEN_MAX}")]
pub struct TooLarge(usize);

/// A committed offset.
#[derive(Clone, Copy, Debug)]
pub struct OffsetRecord<'a> {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: &'a str,
    pub commit_timestamp_ms: i64,
    /// -1: it expires according to the broker's configuration.
    pub expire_timestamp_ms: i64,
    /// Zero if it is not known.
    pub topic_id: Uuid,
}

/// The key of a partition's offset.
pub fn key(group_id: &str, topic: &str, partition: i32) -> Result<Vec<u8>, TooLarge> {
    let mut out = Vec::with_capacity(10 + group_id.len() + topic.len());
    out.extend_from_slice(&OFFSET_COMMIT.to_be_bytes());
    put_string(&mut out, group_id)?;
    put_string(&mut out, topic)?;
    out.extend_from_slice(&partition.to_be_bytes());
    Ok(out)
}

impl OffsetRecord<'_> {
    /// The value: version 4, or version 1 with an explicit expiry time.
    pub fn value(&self) -> Result<Vec<u8>, TooLarge> {
        let mut out = Vec::with_capacity(48 + self.metadata.len());
        if self.expire_timestamp_ms != -1 {
            out.extend_from_slice(&VERSION_WITH_EXPIRY.to_be_bytes());
            out.extend_from_slice(&self.offset.to_be_bytes());
            put_string(&mut out, self.metadata)?;
            out.extend_from_slice(&self.commit_timestamp_ms.to_be_bytes());
            out.extend_from_slice(&self.expire_timestamp_ms.to_be_bytes());
            return Ok(out);
        }
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        let mut len = self.metadata.len() + 1;
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(self.metadata.as_bytes());
        out.extend_from_slice(&self.commit_timestamp_ms.to_be_bytes());
        match self.topic_id == Uuid::ZERO {
            true => out.push(0),
            // One tagged field: number 0, of 16 bytes.
            false => {
                out.extend_from_slice(&[1, 0, 16]);
                out.extend_from_slice(&self.topic_id.0);
            }
        }
        Ok(out)
    }
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Damaged(#[from] WireError),
    #[error("null in a string that is not nullable")]
    Null,
    #[error("a topic id of {0} bytes")]
    TopicId(usize),
    #[error("value version {version} is unknown (0 to {highest}); was it written by a newer Kafka?")]
    Version { version: i16, highest: i16 },
}

/// The partition whose offset a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetKey<'a> {
    pub group_id: Cow<'a, str>,
    pub topic: Cow<'a, str>,
    pub partition: i32,
}

/// A committed offset that was read: as [`OffsetRecord`]. The expiry time is -1 unless the record has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOffset<'a> {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: Cow<'a, str>,
    pub commit_timestamp_ms: i64,
    pub expire_timestamp_ms: i64,
    pub topic_id: Uuid,
}

/// Reads a record in any version; `None` if it is not that of an offset. A tombstone has no value.
pub fn read<'a>(
    key: &'a [u8],
    value: Option<&'a [u8]>,
) -> Result<Option<(OffsetKey<'a>, Option<StoredOffset<'a>>)>, Unreadable> {
    let mut reader = Reader::new(key);
    let record_type = match reader.i16() {
        Ok(record_type @ (LEGACY_OFFSET_COMMIT | OFFSET_COMMIT)) => record_type,
        _ => return Ok(None),
    };
    let value = value.map(|value| read_value(record_type, value)).transpose()?;
    let (group_id, topic) = (string(&mut reader)?, string(&mut reader)?);
    Ok(Some((OffsetKey { group_id, topic, partition: reader.i32()? }, value)))
}

fn read_value(record_type: i16, value: &[u8]) -> Result<StoredOffset<'_>, Unreadable> {
    let mut reader = Reader::new(value);
    let (version, highest) = (reader.i16()?, if record_type == OFFSET_COMMIT { VERSION } else { 0 });
    if !(0..=highest).contains(&version) {
        return Err(Unreadable::Version { version, highest });
    }
    let offset = reader.i64()?;
    let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
    let metadata = if version >= 4 { compact_string(&mut reader)? } else { string(&mut reader)? };
    let commit_timestamp_ms = reader.i64()?;
    let expire_timestamp_ms = if version == VERSION_WITH_EXPIRY { reader.i64()? } else { -1 };
    let mut topic_id = Uuid::ZERO;
    for _ in 0..if version >= 4 { reader.unsigned_varint()? } else { 0 } {
        let (tag, length) = (reader.unsigned_varint()?, reader.unsigned_varint()?);
        let field = reader.slice(length as usize)?;
        if tag == 0 {
            topic_id = Uuid(field.try_into().map_err(|_| Unreadable::TopicId(field.len()))?);
        }
    }
    Ok(StoredOffset { offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id })
}

/// As Kafka: invalid UTF-8 is replaced. An error would make the partition unreadable.
fn string<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, Unreadable> {
    let length = usize::try_from(reader.i16()?).map_err(|_| Unreadable::Null)?;
    Ok(String::from_utf8_lossy(reader.slice(length)?))
}

fn compact_string<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, Unreadable> {
    let length = reader.unsigned_varint()?.checked_sub(1).ok_or(Unreadable::Null)?;
    Ok(String::from_utf8_lossy(reader.slice(length as usize)?))
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) -> Result<(), TooLarge> {
    let len = i16::try_from(text.len()).map_err(|_| TooLarge(text.len()))?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_apache_kafkas() {
        assert_eq!(key("g", "t", 7).expect("short"), b"\0\x01\0\x01g\0\x01t\0\0\0\x07");
        let record = OffsetRecord {
            offset: 5,
            leader_epoch: -1,
            metadata: "m",
            commit_timestamp_ms: 9,
            expire_timestamp_ms: -1,
            topic_id: Uuid::ZERO,
        };
        let plain = b"\0\x04\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\x02m\0\0\0\0\0\0\0\x09\0";
        assert_eq!(record.value().expect("short"), plain);
        let named = OffsetRecord { topic_id: Uuid([3; 16]), ..record }.value().expect("short");
        assert_eq!(named, [&plain[..plain.len() - 1], &[1, 0, 16], &[3; 16]].concat());
        let expiring = OffsetRecord { expire_timestamp_ms: 10, ..record }.value().expect("short");
        assert_eq!(expiring, b"\0\x01\0\0\0\0\0\0\0\x05\0\x01m\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a");
    }

    #[test]
    fn records_round_trip() {
        let written = key("g", "t", 7).expect("short");
        for expire_timestamp_ms in [-1, 10] {
            for topic_id in [Uuid::ZERO, Uuid([3; 16])] {
                let record = OffsetRecord {
                    offset: 5,
                    leader_epoch: if expire_timestamp_ms == -1 { 8 } else { -1 },
                    metadata: "m",
                    commit_timestamp_ms: 9,
                    expire_timestamp_ms,
                    topic_id: if expire_timestamp_ms == -1 { topic_id } else { Uuid::ZERO },
                };
                let value = record.value().expect("short");
                let (of, stored) = read(&written, Some(&value)).expect("intact").expect("an offset");
                assert_eq!((&*of.group_id, &*of.topic, of.partition), ("g", "t", 7));
                let stored = stored.expect("a value");
                assert_eq!((stored.offset, stored.leader_epoch, &*stored.metadata), (5, record.leader_epoch, "m"));
                assert_eq!((stored.commit_timestamp_ms, stored.expire_timestamp_ms), (9, expire_timestamp_ms));
                assert_eq!(stored.topic_id, record.topic_id);
                for length in 0..value.len() {
                    assert!(read(&written, Some(&value[..length])).is_err(), "{length} bytes of {}", value.len());
                }
            }
        }
        assert_eq!(read(&written, None).expect("intact").expect("an offset").1, None);
        assert!(read(&written[..written.len() - 1], None).is_err());
    }

    #[test]
    fn other_records_are_not_offsets() {
        assert_eq!(read(b"\0\x02\0\x01g", Some(b"")), Ok(None));
        assert_eq!(read(b"\0", None), Ok(None));
        let version = Unreadable::Version { version: 5, highest: 4 };
        assert_eq!(read(b"\0\x01", Some(b"\0\x05")), Err(version));
        assert_eq!(read(b"\0\0", Some(b"\0\x01")), Err(Unreadable::Version { version: 1, highest: 0 }));
    }

    #[test]
    fn values_that_a_format_cannot_hold_are_rejected() {
        let long = "x".repeat(STRING_LEN_MAX + 1);
        assert!(key(&long, "t", 0).is_err());
        assert!(key(&long[1..], &long[1..], 0).is_ok());
        let record = OffsetRecord {
            offset: 0,
            leader_epoch: 0,
            metadata: &long,
            commit_timestamp_ms: 0,
            expire_timestamp_ms: 1,
            topic_id: Uuid::ZERO,
        };
        assert!(record.value().is_err());
        assert!(OffsetRecord { expire_timestamp_ms: -1, ..record }.value().is_ok());
    }
}
