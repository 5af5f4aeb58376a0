//! The state of one partition, and how records change it (Apache Kafka's `PartitionRegistration`).
use std::sync::Arc;

use klamm_base::Uuid;
use smallvec::SmallVec;

use crate::directories::{DirectoryTable, Numbers};
use crate::field::Array;
use crate::id_list::{FEW, Ids, few};
use crate::prefetch::prefetch;
use crate::records::{NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord, PartitionRecord};
use crate::replay_error::ReplayError;
use crate::usual_change::UsualChange;
use crate::usual_partition::{self, UsualPartition};

/// Whether a leader after an unclean election is still recovering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum LeaderRecoveryState {
    Recovered = 0,
    Recovering = 1,
}

impl LeaderRecoveryState {
    /// Converts a record's value.
    pub fn from_value(value: i8) -> Option<Self> {
        match value {
            0 => Some(Self::Recovered),
            1 => Some(Self::Recovering),
            _ => None,
        }
    }
}

/// One partition: 56 bytes if it has at most three replicas and nothing unusual.
///
/// Equal partitions have equal fields: a list that fits inline is inline, padded with zeroes, and usual values are
/// not in `unusual`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    unusual: Option<Arc<Unusual>>,
    state: State,
}

/// The inline part. It is copied as bytes, because an image copies all partitions in the same chunk as a changed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    replicas: [i32; FEW],
    isr: [i32; FEW],
    leader: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    /// Parallel to `replicas`: the number of each one's directory.
    directories: [u16; FEW],
    /// The number of inline replicas; [`ELSEWHERE`] if they are in `unusual`.
    replica_count: u8,
    /// The same for the ISR.
    isr_count: u8,
    leader_recovery_state: LeaderRecoveryState,
}

/// A list is not stored inline.
const ELSEWHERE: u8 = u8::MAX;

/// State that only few partitions have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unusual {
    removing: Vec<i32>,
    adding: Vec<i32>,
    elr: Vec<i32>,
    last_known_elr: Vec<i32>,
    /// More than three replicas, or one in a directory with a number above 65 535.
    replicas: Vec<i32>,
    directories: Vec<u32>,
    /// More than three.
    isr: Vec<i32>,
}

static USUAL: Unusual = Unusual {
    removing: Vec::new(),
    adding: Vec::new(),
    elr: Vec::new(),
    last_known_elr: Vec::new(),
    replicas: Vec::new(),
    directories: Vec::new(),
    isr: Vec::new(),
};

impl Partition {
    /// The replicas, preferred leader first.
    #[inline]
    pub fn replicas(&self) -> &[i32] {
        match self.state.replica_count {
            ELSEWHERE => &self.unusual().replicas,
            count => &self.state.replicas[..usize::from(count)],
        }
    }

    /// The numbers of the replicas' directories, in the order of the replicas.
    pub fn directories(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        (0..self.replicas().len()).map(|at| self.directory(at))
    }

    fn directory(&self, at: usize) -> u32 {
        match self.state.replica_count {
            ELSEWHERE => self.unusual().directories[at],
            _ => u32::from(self.state.directories[at]),
        }
    }

    /// The in-sync replicas.
    #[inline]
    pub fn isr(&self) -> &[i32] {
        match self.state.isr_count {
            ELSEWHERE => &self.unusual().isr,
            count => &self.state.isr[..usize::from(count)],
        }
    }

    /// The leader, -1 if there is none.
    #[inline]
    pub fn leader(&self) -> i32 {
        self.state.leader
    }

    /// The leader epoch, which each new leader increments.
    #[inline]
    pub fn leader_epoch(&self) -> i32 {
        self.state.leader_epoch
    }

    /// The partition epoch, which each change increments.
    #[inline]
    pub fn partition_epoch(&self) -> i32 {
        self.state.partition_epoch
    }

    /// Whether a leader after an unclean election is still recovering.
    pub fn leader_recovery_state(&self) -> LeaderRecoveryState {
        self.state.leader_recovery_state
    }

    /// Whether it has unusual state.
    pub(super) fn is_unusual(&self) -> bool {
        self.unusual.is_some()
    }

    fn unusual(&self) -> &Unusual {
        self.unusual.as_deref().unwrap_or(&USUAL)
    }

    /// Replicas that a reassignment removes.
    pub fn removing(&self) -> &[i32] {
        &self.unusual().removing
    }

    /// Replicas that a reassignment adds.
    pub fn adding(&self) -> &[i32] {
        &self.unusual().adding
    }

    /// The eligible leader replicas (KIP-966).
    pub fn elr(&self) -> &[i32] {
        &self.unusual().elr
    }

    /// The last known leader, after the partition lost it (KIP-966).
    pub fn last_known_elr(&self) -> &[i32] {
        &self.unusual().last_known_elr
    }

    /// Whether a reassignment is in progress.
    pub fn is_reassigning(&self) -> bool {
        self.unusual.as_ref().is_some_and(|unusual| !unusual.removing.is_empty() || !unusual.adding.is_empty())
    }

    /// The first replica, -1 if there is none.
    pub fn preferred_leader(&self) -> i32 {
        self.replicas().first().copied().unwrap_or(NO_LEADER)
    }

    /// Prefetches the inline part: its first and its last cache line.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.unusual);
        prefetch(&self.state.leader_recovery_state);
    }

    /// The number of the directory of a broker's replica; `None` if the broker has no replica.
    pub fn directory_of(&self, broker_id: i32) -> Option<u32> {
        let at = self.replicas().iter().position(|&replica| replica == broker_id)?;
        Some(self.directory(at))
    }

    /// Whether all fields except directories are equal: their numbers are meaningful only within their image.
    pub(super) fn equals_but_numbers(&self, other: &Self) -> bool {
        let without_numbers = |partition: &Self| {
            let mut partition = partition.clone();
            partition.set_assignment(self.replicas().into(), &vec![DirectoryTable::MIGRATING; self.replicas().len()]);
            partition
        };
        self.replicas() == other.replicas() && without_numbers(self) == without_numbers(other)
    }

    /// The state in a PartitionRecord.
    pub(super) fn from_record(record: &PartitionRecord<'_>, directories: &DirectoryTable) -> Result<Self, ReplayError> {
        let at = (record.topic_id, record.partition_id);
        let state = State {
            replicas: [0; FEW],
            isr: [0; FEW],
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            directories: [0; FEW],
            replica_count: 0,
            isr_count: 0,
            leader_recovery_state: recovery_state(at, record.leader_recovery_state)?,
        };
        let mut partition = Self { unusual: None, state };
        let given = (!record.directories.is_empty()).then_some(record.directories);
        partition.assign(at, record.replicas, given, directories)?;
        partition.set_isr(record.isr);
        let or_empty = |ids: Option<_>| ids.unwrap_or(Array::EMPTY);
        let (removing, adding) = (record.removing_replicas, record.adding_replicas);
        let (elr, last_known_elr) = (or_empty(record.eligible_leader_replicas), or_empty(record.last_known_elr));
        if [removing, adding, elr, last_known_elr].iter().any(|ids| !ids.is_empty()) {
            partition.change_unusual(|unusual| {
                (unusual.removing, unusual.adding) = (removing.to_vec(), adding.to_vec());
                (unusual.elr, unusual.last_known_elr) = (elr.to_vec(), last_known_elr.to_vec());
            });
        }
        Ok(partition)
    }

    /// The state in a usual PartitionRecord, with the given directory numbers.
    #[inline]
    pub(super) fn from_usual(record: &UsualPartition<'_>, directories: [u16; FEW]) -> Self {
        let state = State {
            replicas: usual_partition::ids(record.replicas),
            isr: usual_partition::ids(record.isr),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            directories,
            replica_count: record.replicas.len() as u8,
            isr_count: record.isr.len() as u8,
            leader_recovery_state: LeaderRecoveryState::Recovered,
        };
        Self { unusual: None, state }
    }

    /// Applies the fields of the record. A leader, even the current one, increments the leader epoch; every record
    /// increments the partition epoch.
    pub(super) fn merge(
        &mut self,
        record: &PartitionChangeRecord<'_>,
        directories: &DirectoryTable,
    ) -> Result<(), ReplayError> {
        let at = (record.topic_id, record.partition_id);
        let recovery_state = match record.leader_recovery_state {
            -1 => self.state.leader_recovery_state,
            value => recovery_state(at, value)?,
        };
        let overflow = || ReplayError::EpochOverflow { topic_id: at.0, partition_id: at.1 };
        let partition_epoch = self.state.partition_epoch.checked_add(1).ok_or_else(overflow)?;
        if record.leader != NO_LEADER_CHANGE {
            self.state.leader_epoch = self.state.leader_epoch.checked_add(1).ok_or_else(overflow)?;
            self.state.leader = record.leader;
        }
        if record.replicas.is_some() || record.directories.is_some() {
            self.merge_assignment(at, record, directories)?;
        }
        if let Some(isr) = record.isr {
            self.set_isr(isr);
        }
        self.merge_unusual(record);
        self.state.leader_recovery_state = recovery_state;
        self.state.partition_epoch = partition_epoch;
        Ok(())
    }

    /// The same for a usual record.
    #[inline]
    pub(super) fn merge_usual(&mut self, record: &UsualChange<'_>) -> Result<(), ReplayError> {
        let overflow = || ReplayError::EpochOverflow { topic_id: record.topic_id, partition_id: record.partition_id };
        let partition_epoch = self.state.partition_epoch.checked_add(1).ok_or_else(overflow)?;
        if record.leader != NO_LEADER_CHANGE {
            self.state.leader_epoch = self.state.leader_epoch.checked_add(1).ok_or_else(overflow)?;
            self.state.leader = record.leader;
        }
        match record.isr {
            Some(isr) if self.state.isr_count == ELSEWHERE => {
                self.set_isr((&usual_partition::ids(isr)[..isr.len()]).into())
            }
            Some(isr) => (self.state.isr_count, self.state.isr) = (isr.len() as u8, usual_partition::ids(isr)),
            None => {}
        }
        self.state.partition_epoch = partition_epoch;
        Ok(())
    }

    fn merge_assignment(
        &mut self,
        at: (Uuid, i32),
        record: &PartitionChangeRecord<'_>,
        table: &DirectoryTable,
    ) -> Result<(), ReplayError> {
        let kept = Ids::from_slice(self.replicas());
        let replicas = record.replicas.unwrap_or(Array::Own(&kept));
        if record.directories.is_some() {
            return self.assign(at, replicas, record.directories, table);
        }
        // Without directories in the record the old ones are kept if possible: if all are unknown, they fit any
        // number of replicas.
        let numbers: Numbers = self.directories().collect();
        if numbers.iter().all(|&number| number == DirectoryTable::MIGRATING) {
            return self.assign(at, replicas, None, table);
        }
        if numbers.len() != replicas.len() {
            return Err(directory_count(at, replicas.len(), numbers.len()));
        }
        self.set_assignment(replicas, &numbers);
        Ok(())
    }

    /// Without directories, or with only unknown ones, the directory of every replica is unknown.
    fn assign(
        &mut self,
        at: (Uuid, i32),
        replicas: Array<'_, i32>,
        directories: Option<Array<'_, Uuid>>,
        table: &DirectoryTable,
    ) -> Result<(), ReplayError> {
        let given = directories.filter(|ids| ids.iter().any(|id| !id.is_zero()));
        let numbers = match given {
            Some(ids) => table.numbers(ids.iter()),
            None => SmallVec::from_elem(DirectoryTable::MIGRATING, replicas.len()),
        };
        if numbers.len() != replicas.len() {
            return Err(directory_count(at, replicas.len(), numbers.len()));
        }
        self.set_assignment(replicas, &numbers);
        Ok(())
    }

    fn set_assignment(&mut self, replicas: Array<'_, i32>, numbers: &[u32]) {
        let was_elsewhere = self.state.replica_count == ELSEWHERE;
        let few = few(replicas).filter(|_| numbers.iter().all(|&number| number <= u32::from(u16::MAX)));
        (self.state.replica_count, self.state.replicas) = few.unwrap_or((ELSEWHERE, [0; FEW]));
        self.state.directories = [0; FEW];
        if few.is_some() {
            self.state.directories.iter_mut().zip(numbers).for_each(|(place, &number)| *place = number as u16);
        }
        if few.is_none() || was_elsewhere {
            self.change_unusual(|unusual| {
                (unusual.replicas, unusual.directories) = match few {
                    Some(_) => Default::default(),
                    None => (replicas.to_vec(), numbers.to_vec()),
                }
            });
        }
    }

    fn set_isr(&mut self, isr: Array<'_, i32>) {
        let was_elsewhere = self.state.isr_count == ELSEWHERE;
        let few = few(isr);
        (self.state.isr_count, self.state.isr) = few.unwrap_or((ELSEWHERE, [0; FEW]));
        if few.is_none() || was_elsewhere {
            self.change_unusual(|unusual| unusual.isr = if few.is_none() { isr.to_vec() } else { Vec::new() });
        }
    }

    #[cold]
    fn change_unusual(&mut self, change: impl FnOnce(&mut Unusual)) {
        let unusual = Arc::make_mut(self.unusual.get_or_insert_default());
        change(unusual);
        if *unusual == USUAL {
            self.unusual = None;
        }
    }

    fn merge_unusual(&mut self, record: &PartitionChangeRecord<'_>) {
        let touched =
            [record.removing_replicas, record.adding_replicas, record.eligible_leader_replicas, record.last_known_elr];
        if touched.iter().all(Option::is_none) {
            return;
        }
        self.change_unusual(|unusual| {
            let Unusual { removing, adding, elr, last_known_elr, .. } = unusual;
            for (kept, new) in [removing, adding, elr, last_known_elr].into_iter().zip(touched) {
                if let Some(new) = new {
                    *kept = new.to_vec();
                }
            }
        });
    }

    /// Clears ELR and last known leaders (ClearElrRecord); `false` if there were none.
    pub(super) fn clear_elr(&mut self) -> bool {
        if self.elr().is_empty() && self.last_known_elr().is_empty() {
            return false;
        }
        self.change_unusual(|unusual| (unusual.elr, unusual.last_known_elr) = Default::default());
        self.state.partition_epoch = self.state.partition_epoch.saturating_add(1);
        true
    }
}

fn recovery_state((topic_id, partition_id): (Uuid, i32), value: i8) -> Result<LeaderRecoveryState, ReplayError> {
    LeaderRecoveryState::from_value(value).ok_or(ReplayError::LeaderRecoveryState { topic_id, partition_id, value })
}

fn directory_count((topic_id, partition_id): (Uuid, i32), replicas: usize, directories: usize) -> ReplayError {
    ReplayError::DirectoryCount { topic_id, partition_id, replicas, directories }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_replicas_and_directories_is_kept() {
        let mut partition = Partition::from_record(&PartitionRecord::default(), &DirectoryTable::default());
        let partition = partition.as_mut().expect("no replicas");
        for count in (0..6).chain((0..6).rev()) {
            for first in [0, 65_534] {
                let replicas: Vec<i32> = (10..10 + count as i32).collect();
                let directories: Vec<u32> = (first..first + count).collect();
                partition.set_assignment((&replicas).into(), &directories);
                partition.set_isr((&replicas).into());
                assert_eq!((partition.replicas(), partition.isr()), (&replicas[..], &replicas[..]));
                assert_eq!(partition.directories().collect::<Vec<_>>(), directories);
                assert_eq!(partition.unusual.is_some(), count > 3 || first + count > 65_536);
            }
        }
        assert_eq!(size_of::<Partition>(), 56);
    }
}
