//! The two files that formatting writes: `bootstrap.checkpoint`, and the first snapshot of a quorum whose voters are
//! in the log (KIP-853). Both have the format of a snapshot: offsets from 0, epoch 0, a header first and a footer
//! last.

use klamm_records::control::{ControlRecord, Voter, control_batch};
use klamm_records::{BatchBuilder, BatchFields, Compression, RecordsError};

/// `bootstrap.checkpoint`: the records that the first active controller copies into an empty metadata log.
pub fn bootstrap_checkpoint(records: &[&[u8]], now_ms: i64) -> Result<Vec<u8>, RecordsError> {
    let header = ControlRecord::SnapshotHeader { last_contained_log_timestamp: 0 };
    let mut file = control_batch(fields(0), now_ms, &[header])?;
    let mut data = BatchBuilder::new(fields(1), Compression::NONE);
    for record in records {
        data.append(now_ms, None, Some(record), &[])?;
    }
    file.extend_from_slice(&data.finish()?);
    file.extend_from_slice(&control_batch(fields(1 + records.len() as i64), now_ms, &[ControlRecord::SnapshotFooter])?);
    Ok(file)
}

/// The snapshot `0-0` with the initial voters (KIP-853).
pub fn voters_checkpoint(kraft_version: i16, voters: Vec<Voter>, now_ms: i64) -> Result<Vec<u8>, RecordsError> {
    let opening = [
        ControlRecord::SnapshotHeader { last_contained_log_timestamp: now_ms },
        ControlRecord::KRaftVersion { kraft_version },
        ControlRecord::KRaftVoters { voters },
    ];
    let mut file = control_batch(fields(0), now_ms, &opening)?;
    let footer = control_batch(fields(opening.len() as i64), now_ms, &[ControlRecord::SnapshotFooter])?;
    file.extend_from_slice(&footer);
    Ok(file)
}

fn fields(base_offset: i64) -> BatchFields {
    BatchFields { base_offset, leader_epoch: 0, ..BatchFields::default() }
}

#[cfg(test)]
mod tests {
    use klamm_records::control::Endpoint;
    use klamm_records::{Batch, batches};

    use super::*;

    fn parsed(file: &[u8]) -> Vec<Batch<'_>> {
        let found: Vec<_> = batches(file).map(|batch| batch.expect("whole")).collect();
        assert!(found.iter().all(|batch| batch.check().is_ok()));
        found
    }

    #[test]
    fn the_bootstrap_file_is_header_records_footer() {
        let file = bootstrap_checkpoint(&[b"first", b"second"], 7).expect("small");
        let found = parsed(&file);
        let shape: Vec<_> = found.iter().map(|one| (one.header().base_offset(), one.header().is_control())).collect();
        assert_eq!(shape, [(0, true), (1, false), (3, true)]);
        assert!(found.iter().all(|one| one.header().leader_epoch() == 0));
    }

    /// Written by `kafka-storage format --standalone` of Apache Kafka 4.3.1 for node 1.
    #[test]
    fn the_voters_file_equals_apache_kafkas_except_for_times() {
        let voter = Voter {
            id: 1,
            directory_id: *b"\xea\xfc\xec\x60\x1d\xb5\x44\xb9\x8f\x75\x14\x57\x63\x82\x85\xa7",
            endpoints: vec![Endpoint { name: "CONTROLLER".into(), host: "localhost".into(), port: 9093 }],
            kraft_version_min: 0,
            kraft_version_max: 1,
        };
        let file = voters_checkpoint(1, vec![voter], 0).expect("small");
        let found = parsed(&file);
        assert_eq!(file.len(), 241);
        let value = b"\x00\x00\x02\x00\x00\x00\x01\xea\xfc\xec\x60\x1d\xb5\x44\xb9\x8f\x75\x14\x57\x63\x82\x85\xa7\
            \x02\x0bCONTROLLER\x0alocalhost\x23\x85\x00\x00\x00\x00\x01\x00\x00\x00\x00";
        assert!(found[0].payload().windows(value.len()).any(|window| window == value));
    }
}
