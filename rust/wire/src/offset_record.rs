//! The records of committed offsets in `__consumer_offsets`, as Apache Kafka 4.3 writes them (`OffsetCommitKey`,
//! `OffsetCommitValue`).

use klamm_base::Uuid;

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

fn put_string(out: &mut Vec<u8>, text: &str) -> Result<(), TooLarge> {
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
    fn what_a_format_cannot_hold_is_refused() {
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
