//! Fast parsing of a typical PartitionRecord: at most three replicas, each with a directory, no reassignment, no
//! tagged field. A large snapshot consists of these, so their fields are read at fixed positions, without a step for
//! each field.
//!
//! Other records are declined, and then parsed or rejected by the general code, which defines the result for accepted
//! ones too.
use klamm_base::Uuid;
use smallvec::SmallVec;

use crate::id_list::FEW;
use crate::records::{PARTITION_RECORD, PartitionRecord};

pub(super) const FRAME_VERSION: u8 = 1;
const ID: u8 = PARTITION_RECORD as u8;
/// Version 1 added the directories, 2 only tagged fields.
const VERSION_MIN: u8 = 1;
const VERSION_MAX: u8 = 2;
/// Length of an empty array.
const NO_ELEMENTS: u8 = 1;
const NO_TAGGED_FIELDS: u8 = 0;

/// A typical PartitionRecord. There are as many directories as replicas.
#[derive(Clone, Copy, Debug)]
pub struct UsualPartition<'r> {
    pub partition_id: i32,
    pub topic_id: Uuid,
    pub replicas: Few<'r, 4>,
    pub isr: Few<'r, 4>,
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub directories: Few<'r, 16>,
}

/// At most [`FEW`] elements of `N` bytes each.
pub type Few<'r, const N: usize> = &'r [[u8; N]];

impl<'r> UsualPartition<'r> {
    /// Parses a record that fills `bytes`, including its frame, if it is a typical one.
    #[inline]
    pub fn of(bytes: &'r [u8]) -> Option<Self> {
        let [FRAME_VERSION, ID, VERSION_MIN..=VERSION_MAX, bytes @ ..] = bytes else { return None };
        let (partition_id, bytes) = bytes.split_first_chunk()?;
        let (topic_id, bytes) = bytes.split_first_chunk()?;
        let (replicas, bytes) = few(bytes)?;
        let (isr, bytes) = few(bytes)?;
        let [NO_ELEMENTS, NO_ELEMENTS, bytes @ ..] = bytes else { return None };
        let (leader, bytes) = bytes.split_first_chunk()?;
        let (leader_epoch, bytes) = bytes.split_first_chunk()?;
        let (partition_epoch, bytes) = bytes.split_first_chunk()?;
        let (directories, bytes) = few(bytes)?;
        let usual = Self {
            partition_id: i32::from_be_bytes(*partition_id),
            topic_id: Uuid(*topic_id),
            replicas,
            isr,
            leader: i32::from_be_bytes(*leader),
            leader_epoch: i32::from_be_bytes(*leader_epoch),
            partition_epoch: i32::from_be_bytes(*partition_epoch),
            directories,
        };
        (bytes == [NO_TAGGED_FIELDS] && directories.len() == replicas.len()).then_some(usual)
    }

    /// Calls `work` with the record as the general code parses it.
    #[cold]
    pub fn with_record<R>(&self, work: impl FnOnce(&PartitionRecord<'_>) -> R) -> R {
        let directories: SmallVec<[Uuid; FEW]> = self.directories.iter().map(|id| Uuid(*id)).collect();
        work(&PartitionRecord {
            partition_id: self.partition_id,
            topic_id: self.topic_id,
            replicas: ids(self.replicas)[..self.replicas.len()].into(),
            isr: ids(self.isr)[..self.isr.len()].into(),
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            directories: directories.as_slice().into(),
            ..PartitionRecord::default()
        })
    }
}

/// The array at the start of `bytes`, and the bytes after it.
#[inline(always)]
pub(super) fn few<const N: usize>(bytes: &[u8]) -> Option<(Few<'_, N>, &[u8])> {
    let (&length, bytes) = bytes.split_first()?;
    let count = usize::from(length.checked_sub(1)?);
    if count > FEW {
        return None;
    }
    let (elements, bytes) = bytes.split_at_checked(count * N)?;
    Some((elements.as_chunks().0, bytes))
}

/// The ids of a list, padded with zeroes.
#[inline(always)]
pub(super) fn ids(list: Few<'_, 4>) -> [i32; FEW] {
    let mut ids = [0; FEW];
    ids.iter_mut().zip(list).for_each(|(id, bytes)| *id = i32::from_be_bytes(*bytes));
    ids
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::directories::DirectoryTable;
    use crate::field::Array;
    use crate::partition::Partition;
    use crate::records::{PartitionRecord, Record};
    use crate::testing::{Rng, Writer};

    /// The same bytes parsed by the general code.
    fn described(bytes: &[u8]) -> PartitionRecord<'_> {
        match Record::decode(bytes) {
            Ok((Record::Partition(record), _)) => record,
            other => panic!("{other:?} was taken for a PartitionRecord"),
        }
    }

    fn check(usual: &UsualPartition<'_>, bytes: &[u8]) {
        let described = described(bytes);
        usual.with_record(|record| assert_eq!(*record, described));
        let table = DirectoryTable::default();
        let expected = Partition::from_record(&described, &table).expect("as many directories as replicas");
        let numbers = table.known().few(usual.directories).expect("known by now");
        assert_eq!(Partition::from_usual(usual, numbers), expected);
    }

    #[test]
    fn it_is_recognized_in_every_version_with_directories() {
        for count in 0..=5 {
            let replicas: Vec<i32> = (0..count).collect();
            let directories: Vec<Uuid> = (0..count).map(|id| Uuid([id as u8; 16])).collect();
            let record = PartitionRecord {
                partition_id: 4,
                replicas: (&replicas).into(),
                isr: (&replicas).into(),
                leader: -1,
                directories: (&directories).into(),
                ..PartitionRecord::default()
            };
            for version in 1..=2 {
                let bytes = Record::from(record).encode(version).expect("a record");
                let usual = UsualPartition::of(&bytes);
                assert_eq!(usual.is_some(), count as usize <= FEW, "{count} replicas, version {version}");
                usual.iter().for_each(|usual| check(usual, &bytes));
            }
            let old = PartitionRecord { directories: Array::EMPTY, ..record };
            assert!(UsualPartition::of(&Record::from(old).encode(0).expect("a record")).is_none());
        }
    }

    proptest! {
        #[test]
        fn it_reads_the_same_as_the_general_code(seed in any::<u64>()) {
            let writer = Writer::random(seed, 60);
            let mut rng = Rng::new(seed);
            for record in &writer.records {
                let damaged = rng.damaged(record);
                UsualPartition::of(&damaged).iter().for_each(|usual| check(usual, &damaged));
            }
        }
    }
}
