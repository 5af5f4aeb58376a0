//! Control records: transaction markers (KIP-98) and the records that KRaft writes about itself (`ControlRecordType`).
//!
//! The key is an int16 version (0) and an int16 type. The value of ABORT and COMMIT is an int16 version and an
//! int32; the others are flexible messages whose first field is their own version.

use crate::build::{BatchBuilder, BatchFields};
use crate::codec::Compression;
use crate::error::RecordsError;
use crate::varint::{Reader, put_unsigned_varint};

/// A control record, parsed from its key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    Abort {
        coordinator_epoch: i32,
    },
    Commit {
        coordinator_epoch: i32,
    },
    LeaderChange {
        leader_id: i32,
        voters: Vec<i32>,
        granting_voters: Vec<i32>,
    },
    SnapshotHeader {
        last_contained_log_timestamp: i64,
    },
    SnapshotFooter,
    KRaftVersion {
        kraft_version: i16,
    },
    KRaftVoters {
        voters: Vec<Voter>,
    },
    /// A type that a newer version wrote; readers of user partitions ignore it.
    Unknown {
        kind: i16,
    },
}

/// A voter of a KRaft quorum (KIP-853).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    pub id: i32,
    pub directory_id: [u8; 16],
    pub endpoints: Vec<Endpoint>,
    pub kraft_version_min: i16,
    pub kraft_version_max: i16,
}

/// Where a voter listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub name: String,
    pub host: String,
    pub port: u16,
}

const ABORT: i16 = 0;
const COMMIT: i16 = 1;
const LEADER_CHANGE: i16 = 2;
const SNAPSHOT_HEADER: i16 = 3;
const SNAPSHOT_FOOTER: i16 = 4;
const KRAFT_VERSION: i16 = 5;
const KRAFT_VOTERS: i16 = 6;

impl ControlRecord {
    /// The type in the key.
    pub fn kind(&self) -> i16 {
        match self {
            Self::Abort { .. } => ABORT,
            Self::Commit { .. } => COMMIT,
            Self::LeaderChange { .. } => LEADER_CHANGE,
            Self::SnapshotHeader { .. } => SNAPSHOT_HEADER,
            Self::SnapshotFooter => SNAPSHOT_FOOTER,
            Self::KRaftVersion { .. } => KRAFT_VERSION,
            Self::KRaftVoters { .. } => KRAFT_VOTERS,
            Self::Unknown { kind } => *kind,
        }
    }

    /// The bytes of the key.
    pub fn key(&self) -> [u8; 4] {
        let [high, low] = self.kind().to_be_bytes();
        [0, 0, high, low]
    }

    /// The bytes of the value; empty for an unknown type.
    pub fn value(&self) -> Vec<u8> {
        let mut out = vec![0, 0];
        match self {
            Self::Abort { coordinator_epoch } | Self::Commit { coordinator_epoch } => {
                out.extend_from_slice(&coordinator_epoch.to_be_bytes());
                return out;
            }
            Self::LeaderChange { leader_id, voters, granting_voters } => {
                out.extend_from_slice(&leader_id.to_be_bytes());
                put_voter_ids(&mut out, voters);
                put_voter_ids(&mut out, granting_voters);
            }
            Self::SnapshotHeader { last_contained_log_timestamp } => {
                out.extend_from_slice(&last_contained_log_timestamp.to_be_bytes());
            }
            Self::SnapshotFooter => {}
            Self::KRaftVersion { kraft_version } => out.extend_from_slice(&kraft_version.to_be_bytes()),
            Self::KRaftVoters { voters } => {
                put_length(&mut out, voters.len());
                voters.iter().for_each(|voter| put_voter(&mut out, voter));
            }
            Self::Unknown { .. } => return Vec::new(),
        }
        out.push(NO_TAGS);
        out
    }

    /// Reads a control record from its key and value.
    ///
    /// Newer versions of a key, and bytes and tagged fields that follow the known ones, are skipped, as the format
    /// intends.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Self, RecordsError> {
        let kind = control_kind(key)?;
        parse_value(kind, value.unwrap_or_default()).ok_or(RecordsError::BadControl { what: name_of(kind) })
    }
}

/// The type of a control record, from its key.
pub fn control_kind(key: Option<&[u8]>) -> Result<i16, RecordsError> {
    let key = key.and_then(|key| key.first_chunk::<4>());
    let key = key.ok_or(RecordsError::BadControl { what: "the key is shorter than 4 bytes" })?;
    if i16::from_be_bytes([key[0], key[1]]) < 0 {
        return Err(RecordsError::BadControl { what: "the version of the key is negative" });
    }
    Ok(i16::from_be_bytes([key[2], key[3]]))
}

/// A control batch of `records` at `timestamp`, at offsets from `fields.base_offset` up.
pub fn control_batch(fields: BatchFields, timestamp: i64, records: &[ControlRecord]) -> Result<Vec<u8>, RecordsError> {
    let mut builder = BatchBuilder::new(BatchFields { control: true, ..fields }, Compression::NONE);
    for record in records {
        builder.append(timestamp, Some(&record.key()), Some(&record.value()), &[])?;
    }
    builder.finish()
}

/// The marker that ends a producer's transaction in one partition.
pub fn end_transaction_marker(
    producer_id: i64,
    producer_epoch: i16,
    timestamp: i64,
    commit: bool,
    coordinator_epoch: i32,
) -> Result<Vec<u8>, RecordsError> {
    let fields = BatchFields { producer_id, producer_epoch, transactional: true, ..BatchFields::default() };
    let marker = match commit {
        true => ControlRecord::Commit { coordinator_epoch },
        false => ControlRecord::Abort { coordinator_epoch },
    };
    control_batch(fields, timestamp, &[marker])
}

const NO_TAGS: u8 = 0;

fn put_length(out: &mut Vec<u8>, length: usize) {
    put_unsigned_varint(out, length as u32 + 1);
}

fn put_voter_ids(out: &mut Vec<u8>, ids: &[i32]) {
    put_length(out, ids.len());
    for id in ids {
        out.extend_from_slice(&id.to_be_bytes());
        out.push(NO_TAGS);
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn put_voter(out: &mut Vec<u8>, voter: &Voter) {
    out.extend_from_slice(&voter.id.to_be_bytes());
    out.extend_from_slice(&voter.directory_id);
    put_length(out, voter.endpoints.len());
    for endpoint in &voter.endpoints {
        put_string(out, &endpoint.name);
        put_string(out, &endpoint.host);
        out.extend_from_slice(&endpoint.port.to_be_bytes());
        out.push(NO_TAGS);
    }
    out.extend_from_slice(&voter.kraft_version_min.to_be_bytes());
    out.extend_from_slice(&voter.kraft_version_max.to_be_bytes());
    out.extend_from_slice(&[NO_TAGS, NO_TAGS]);
}

fn name_of(kind: i16) -> &'static str {
    match kind {
        ABORT => "an ABORT marker",
        COMMIT => "a COMMIT marker",
        LEADER_CHANGE => "a LeaderChange message",
        SNAPSHOT_HEADER => "a SnapshotHeader",
        SNAPSHOT_FOOTER => "a SnapshotFooter",
        KRAFT_VERSION => "a KRaftVersion record",
        _ => "a KRaftVoters record",
    }
}

fn parse_value(kind: i16, value: &[u8]) -> Option<ControlRecord> {
    let mut reader = Reader::new(value);
    let reader = &mut reader;
    if !(ABORT..=KRAFT_VOTERS).contains(&kind) {
        return Some(ControlRecord::Unknown { kind });
    }
    let version = int16(reader).filter(|version| *version >= 0)?;
    let record = match kind {
        ABORT => ControlRecord::Abort { coordinator_epoch: int32(reader)? },
        COMMIT => ControlRecord::Commit { coordinator_epoch: int32(reader)? },
        LEADER_CHANGE => ControlRecord::LeaderChange {
            leader_id: int32(reader)?,
            voters: array(reader, 5, |reader| voter_id(reader, version))?,
            granting_voters: array(reader, 5, |reader| voter_id(reader, version))?,
        },
        SNAPSHOT_HEADER => ControlRecord::SnapshotHeader { last_contained_log_timestamp: int64(reader)? },
        SNAPSHOT_FOOTER => ControlRecord::SnapshotFooter,
        KRAFT_VERSION => ControlRecord::KRaftVersion { kraft_version: int16(reader)? },
        _ => ControlRecord::KRaftVoters { voters: array(reader, 27, voter)? },
    };
    Some(record)
}

// Version 1 of the message adds the directory id, which no release writes yet.
fn voter_id(reader: &mut Reader<'_>, version: i16) -> Option<i32> {
    let id = int32(reader)?;
    if version >= 1 {
        reader.take(16)?;
    }
    skip_tags(reader)?;
    Some(id)
}

fn voter(reader: &mut Reader<'_>) -> Option<Voter> {
    let id = int32(reader)?;
    let directory_id = *reader.take(16)?.first_chunk()?;
    let endpoints = array(reader, 5, endpoint)?;
    let (kraft_version_min, kraft_version_max) = (int16(reader)?, int16(reader)?);
    skip_tags(reader)?;
    skip_tags(reader)?;
    Some(Voter { id, directory_id, endpoints, kraft_version_min, kraft_version_max })
}

fn endpoint(reader: &mut Reader<'_>) -> Option<Endpoint> {
    let name = string(reader)?;
    let host = string(reader)?;
    let port = u16::from_be_bytes(*reader.take(2)?.first_chunk()?);
    skip_tags(reader)?;
    Some(Endpoint { name, host, port })
}

// `least` is the smallest size of an element, so that a count cannot claim more than the bytes could hold.
fn array<'a, T>(
    reader: &mut Reader<'a>,
    least: usize,
    element: impl Fn(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = length(reader)?;
    if count > reader.remaining() / least {
        return None;
    }
    (0..count).map(|_| element(reader)).collect()
}

fn string(reader: &mut Reader<'_>) -> Option<String> {
    let length = length(reader)?;
    String::from_utf8(reader.take(length)?.to_vec()).ok()
}

fn length(reader: &mut Reader<'_>) -> Option<usize> {
    (reader.unsigned_varint().ok()? as usize).checked_sub(1)
}

fn skip_tags(reader: &mut Reader<'_>) -> Option<()> {
    for _ in 0..reader.unsigned_varint().ok()? {
        reader.unsigned_varint().ok()?;
        let size = reader.unsigned_varint().ok()? as usize;
        reader.take(size)?;
    }
    Some(())
}

fn int16(reader: &mut Reader<'_>) -> Option<i16> {
    reader.take(2)?.first_chunk().map(|bytes| i16::from_be_bytes(*bytes))
}

fn int32(reader: &mut Reader<'_>) -> Option<i32> {
    reader.take(4)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

fn int64(reader: &mut Reader<'_>) -> Option<i64> {
    reader.take(8)?.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::iterate::records;

    fn examples() -> Vec<ControlRecord> {
        let endpoint = Endpoint { name: "CONTROLLER".into(), host: "localhost".into(), port: 65_535 };
        let voter = Voter {
            id: 3,
            directory_id: [9; 16],
            endpoints: vec![endpoint],
            kraft_version_min: 0,
            kraft_version_max: 1,
        };
        vec![
            ControlRecord::Abort { coordinator_epoch: 7 },
            ControlRecord::Commit { coordinator_epoch: -1 },
            ControlRecord::LeaderChange { leader_id: 1, voters: vec![1, 2, 3], granting_voters: vec![1, 3] },
            ControlRecord::SnapshotHeader { last_contained_log_timestamp: 1_700_000_000_000 },
            ControlRecord::SnapshotFooter,
            ControlRecord::KRaftVersion { kraft_version: 1 },
            ControlRecord::KRaftVoters { voters: vec![voter.clone(), Voter { id: 4, endpoints: vec![], ..voter }] },
        ]
    }

    #[test]
    fn every_type_round_trips_and_rejects_truncation() {
        for record in examples() {
            let (key, value) = (record.key(), record.value());
            assert_eq!(ControlRecord::parse(Some(&key), Some(&value)), Ok(record.clone()));
            // The last byte says that no tagged fields follow; at the end of the value it may be missing.
            for cut in 0..value.len() - 1 {
                let parsed = ControlRecord::parse(Some(&key), Some(&value[..cut]));
                assert!(parsed.is_err(), "{record:?} {cut}");
            }
        }
    }

    #[test]
    fn unknown_types_are_passed_on() {
        assert_eq!(ControlRecord::parse(Some(&[0, 0, 0, 99]), None), Ok(ControlRecord::Unknown { kind: 99 }));
        assert!(ControlRecord::parse(Some(&[0, 0, 0]), None).is_err());
        assert!(ControlRecord::parse(None, None).is_err());
        assert!(ControlRecord::parse(Some(&[0xff, 0xff, 0, 0]), None).is_err());
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused() {
        let value = [0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(ControlRecord::parse(Some(&[0, 0, 0, 6]), Some(&value)).is_err());
    }

    #[test]
    fn a_control_batch_contains_its_records() {
        let batch = control_batch(BatchFields::default(), 5, &examples()).expect("small");
        let batch = Batch::at_start_of(&batch).expect("whole");
        batch.check().expect("valid");
        assert!(batch.header().is_control());
        let mut buffer = Vec::new();
        let read = records(batch, &mut buffer, 0).expect("not compressed").map(|record| record.expect("valid"));
        let read: Vec<_> = read.map(|r| ControlRecord::parse(r.key, r.value).expect("valid")).collect();
        assert_eq!(read, examples());
    }

    #[test]
    fn a_marker_has_its_producer() {
        let marker = end_transaction_marker(77, 4, 5, true, 2).expect("small");
        let header = Batch::at_start_of(&marker).expect("whole").header();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!((header.producer_id(), header.producer_epoch(), header.base_sequence()), (77, 4, -1));
        assert_eq!(header.record_count(), 1);
    }
}
