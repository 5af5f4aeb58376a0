//! Fast parsing of a typical PartitionChangeRecord: another ISR of at most three brokers, another leader, or both. A
//! zone outage consists of thousands of them, so their fields are read at fixed positions, without a step for each
//! field.
//!
//! Other records are declined, and then parsed or rejected by the general code, which defines the result for accepted
//! ones too.
use klamm_base::Uuid;

use crate::records::{NO_LEADER_CHANGE, PARTITION_CHANGE_RECORD};
use crate::usual_partition::{FRAME_VERSION, Few, few};

const ID: u8 = PARTITION_CHANGE_RECORD as u8;
const VERSION_MAX: u8 = 2;
const ISR_TAG: u8 = 0;
const LEADER_TAG: u8 = 1;
const LEADER_SIZE: u8 = 4;

/// A typical PartitionChangeRecord.
#[derive(Clone, Copy, Debug)]
pub struct UsualChange<'r> {
    pub topic_id: Uuid,
    pub partition_id: i32,
    pub isr: Option<Few<'r, 4>>,
    /// [`NO_LEADER_CHANGE`] if it is unchanged.
    pub leader: i32,
}

impl<'r> UsualChange<'r> {
    /// Parses a record that fills `bytes`, including its frame, if it is a typical one.
    #[inline]
    pub fn of(bytes: &'r [u8]) -> Option<Self> {
        let [FRAME_VERSION, ID, 0..=VERSION_MAX, bytes @ ..] = bytes else { return None };
        let (partition_id, bytes) = bytes.split_first_chunk()?;
        let (topic_id, bytes) = bytes.split_first_chunk()?;
        let (&tagged_count, mut left) = bytes.split_first()?;
        let (mut isr, mut leader, mut found) = (None, NO_LEADER_CHANGE, 0);
        if let [ISR_TAG, size, bytes @ ..] = left {
            let (ids, rest) = few(bytes)?;
            if usize::from(*size) != bytes.len() - rest.len() {
                return None;
            }
            (isr, left, found) = (Some(ids), rest, 1);
        }
        if let [LEADER_TAG, LEADER_SIZE, bytes @ ..] = left {
            let (id, rest) = bytes.split_first_chunk()?;
            (leader, left, found) = (i32::from_be_bytes(*id), rest, found + 1);
        }
        let (topic_id, partition_id) = (Uuid(*topic_id), i32::from_be_bytes(*partition_id));
        (left.is_empty() && found == tagged_count).then_some(Self { topic_id, partition_id, isr, leader })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::directories::DirectoryTable;
    use crate::partition::Partition;
    use crate::records::{PartitionChangeRecord, PartitionRecord, Record};
    use crate::testing::{Rng, Writer};
    use crate::usual_partition::ids;

    fn check(usual: &UsualChange<'_>, bytes: &[u8]) {
        let Ok((Record::PartitionChange(described), _)) = Record::decode(bytes) else {
            panic!("{usual:?} is no PartitionChangeRecord");
        };
        let isr = usual.isr.map(|isr| (ids(isr), isr.len()));
        let expected = PartitionChangeRecord {
            partition_id: usual.partition_id,
            topic_id: usual.topic_id,
            isr: isr.as_ref().map(|(ids, count)| ids[..*count].into()),
            leader: usual.leader,
            ..PartitionChangeRecord::default()
        };
        assert_eq!(described, expected);
        let (table, many) = (DirectoryTable::default(), [1, 2, 3, 4]);
        for (isr, last_epoch) in [(&many[..], 5), (&many[..2], 5), (&many[..2], i32::MAX)] {
            let before = PartitionRecord {
                isr: isr.into(),
                leader_epoch: last_epoch,
                partition_epoch: 6,
                leader_recovery_state: 1,
                ..PartitionRecord::default()
            };
            let before = Partition::from_record(&before, &table).expect("no replicas");
            let (mut slowly, mut quickly) = (before.clone(), before);
            let expected = slowly.merge(&described, &table);
            assert_eq!(quickly.merge_usual(usual), expected);
            assert!(expected.is_err() || quickly == slowly);
        }
    }

    #[test]
    fn it_is_recognized_in_every_version() {
        for (count, leader) in (0..=4).flat_map(|count| [(count, NO_LEADER_CHANGE), (count, -1), (count, 7)]) {
            let isr: Vec<i32> = (0..count).collect();
            let record = PartitionChangeRecord {
                partition_id: 4,
                isr: Some((&isr).into()),
                leader,
                ..PartitionChangeRecord::default()
            };
            for record in [record, PartitionChangeRecord { isr: None, ..record }] {
                for version in 0..=2 {
                    let bytes = Record::from(record).encode(version).expect("a record");
                    let usual = UsualChange::of(&bytes);
                    assert_eq!(usual.is_some(), record.isr.is_none() || count <= 3, "{record:?}, version {version}");
                    usual.iter().for_each(|usual| check(usual, &bytes));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_reads_the_same_as_the_general_code(seed in any::<u64>()) {
            let writer = Writer::random(seed, 60);
            let mut rng = Rng::new(seed);
            for record in &writer.records {
                let damaged = rng.damaged(record);
                UsualChange::of(&damaged).iter().for_each(|usual| check(usual, &damaged));
            }
        }
    }
}
