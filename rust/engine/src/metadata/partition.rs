//! The state of one partition and how records change it (facts 1.2).
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Uuid;
use crate::metadata::directories::DirectoryTable;
use crate::metadata::field::{Array, Field};
use crate::metadata::id_list::{Assignment, IdList};
use crate::metadata::records::{NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord, PartitionRecord};
use crate::metadata::replay_error::ReplayError;

/// Whether a leader elected uncleanly still recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum LeaderRecoveryState {
    Recovered = 0,
    Recovering = 1,
}

impl LeaderRecoveryState {
    /// The state of a record's value.
    pub fn from_value(value: i8) -> Option<Self> {
        match value {
            0 => Some(Self::Recovered),
            1 => Some(Self::Recovering),
            _ => None,
        }
    }
}

/// One partition: 64 bytes when it has at most three replicas and nothing unusual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    assignment: Assignment,
    isr: IdList,
    unusual: Option<Arc<Unusual>>,
    leader: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    leader_recovery_state: LeaderRecoveryState,
}

/// What few partitions have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unusual {
    removing: Vec<i32>,
    adding: Vec<i32>,
    elr: Vec<i32>,
    last_known_elr: Vec<i32>,
}

static USUAL: Unusual =
    Unusual { removing: Vec::new(), adding: Vec::new(), elr: Vec::new(), last_known_elr: Vec::new() };

impl Unusual {
    fn boxed(self) -> Option<Arc<Self>> {
        (self != USUAL).then(|| Arc::new(self))
    }
}

impl Partition {
    /// The replicas, preferred leader first.
    #[inline]
    pub fn replicas(&self) -> &[i32] {
        self.assignment.replicas()
    }

    /// The replicas with the numbers of their directories.
    #[inline]
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The in-sync replicas.
    #[inline]
    pub fn isr(&self) -> &[i32] {
        self.isr.as_slice()
    }

    /// The leader, -1 for none.
    #[inline]
    pub fn leader(&self) -> i32 {
        self.leader
    }

    /// Counts leaders.
    #[inline]
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Counts changes.
    #[inline]
    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// Whether a leader elected uncleanly still recovers.
    pub fn leader_recovery_state(&self) -> LeaderRecoveryState {
        self.leader_recovery_state
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

    /// The last known leader, once the partition lost it (KIP-966).
    pub fn last_known_elr(&self) -> &[i32] {
        &self.unusual().last_known_elr
    }

    /// Whether a reassignment is under way.
    pub fn is_reassigning(&self) -> bool {
        self.unusual.as_ref().is_some_and(|unusual| !unusual.removing.is_empty() || !unusual.adding.is_empty())
    }

    /// The first replica, -1 when there is none.
    pub fn preferred_leader(&self) -> i32 {
        self.replicas().first().copied().unwrap_or(NO_LEADER)
    }

    /// Number of the directory of a replica; `None` when the broker holds none.
    pub fn directory_of(&self, broker_id: i32) -> Option<u32> {
        let at = self.replicas().iter().position(|&replica| replica == broker_id)?;
        Some(self.assignment.directory(at))
    }

    /// Whether all is equal, directories aside: their numbers mean nothing outside their image.
    pub(super) fn equals_but_numbers(&self, other: &Self) -> bool {
        self.replicas() == other.replicas()
            && Partition { assignment: Assignment::new(&[], &[]), ..self.clone() }
                == Partition { assignment: Assignment::new(&[], &[]), ..other.clone() }
    }

    /// The state that a PartitionRecord says.
    pub(super) fn from_record(record: &PartitionRecord<'_>, directories: &DirectoryTable) -> Result<Self, ReplayError> {
        let at = (record.topic_id, record.partition_id);
        let replicas = IdList::from(record.replicas.iter());
        let dirs = (!record.directories.is_empty()).then_some(record.directories);
        let recovery = record.leader_recovery_state;
        let unusual = Unusual {
            removing: record.removing_replicas.to_vec(),
            adding: record.adding_replicas.to_vec(),
            elr: to_vec_or_empty(record.eligible_leader_replicas),
            last_known_elr: to_vec_or_empty(record.last_known_elr),
        };
        Ok(Self {
            assignment: assign(at, replicas.as_slice(), dirs, directories)?,
            isr: IdList::from(record.isr.iter()),
            unusual: unusual.boxed(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            leader_recovery_state: recovery_state(at, recovery)?,
        })
    }

    /// Changes what the record names. A leader, even the present one, counts the leader epoch up; every record counts the
    /// partition epoch up.
    pub(super) fn merge(
        &mut self,
        record: &PartitionChangeRecord<'_>,
        directories: &DirectoryTable,
    ) -> Result<(), ReplayError> {
        let at = (record.topic_id, record.partition_id);
        let recovery_state = match record.leader_recovery_state {
            -1 => self.leader_recovery_state,
            value => recovery_state(at, value)?,
        };
        let overflow = ReplayError::EpochOverflow { topic_id: at.0, partition_id: at.1 };
        let partition_epoch = self.partition_epoch.checked_add(1).ok_or(overflow.clone())?;
        if record.leader != NO_LEADER_CHANGE {
            self.leader_epoch = self.leader_epoch.checked_add(1).ok_or(overflow)?;
            self.leader = record.leader;
        }
        if record.replicas.is_some() || record.directories.is_some() {
            self.assignment = self.merged_assignment(at, record, directories)?;
        }
        if let Some(isr) = record.isr {
            self.isr = IdList::from(isr.iter());
        }
        self.merge_unusual(record);
        self.leader_recovery_state = recovery_state;
        self.partition_epoch = partition_epoch;
        Ok(())
    }

    fn merged_assignment(
        &self,
        at: (Uuid, i32),
        record: &PartitionChangeRecord<'_>,
        table: &DirectoryTable,
    ) -> Result<Assignment, ReplayError> {
        let replicas = match record.replicas {
            Some(replicas) => IdList::from(replicas.iter()),
            None => IdList::from(self.replicas().iter().copied()),
        };
        let replicas = replicas.as_slice();
        if let Some(directories) = record.directories {
            return assign(at, replicas, Some(directories), table);
        }
        // Without directories in the record the old ones stay, if they can: all of them unknown fits any number.
        let kept: Vec<u32> = self.assignment.directories().collect();
        if kept.iter().all(|&number| number == DirectoryTable::MIGRATING) {
            return assign(at, replicas, None, table);
        }
        if kept.len() != replicas.len() {
            return Err(directory_count(at, replicas.len(), kept.len()));
        }
        Ok(Assignment::new(replicas, &kept))
    }

    fn merge_unusual(&mut self, record: &PartitionChangeRecord<'_>) {
        let touched =
            [record.removing_replicas, record.adding_replicas, record.eligible_leader_replicas, record.last_known_elr];
        if touched.iter().all(Option::is_none) {
            return;
        }
        let mut unusual = self.unusual().clone();
        let Unusual { removing, adding, elr, last_known_elr } = &mut unusual;
        for (kept, new) in [removing, adding, elr, last_known_elr].into_iter().zip(touched) {
            if let Some(new) = new {
                *kept = new.to_vec();
            }
        }
        self.unusual = unusual.boxed();
    }

    /// Forgets ELR and last known leaders, which is a change of its own (ClearElrRecord); `false` when there were none.
    pub(super) fn clear_elr(&mut self) -> bool {
        if self.elr().is_empty() && self.last_known_elr().is_empty() {
            return false;
        }
        let Unusual { removing, adding, .. } = self.unusual().clone();
        self.unusual = Unusual { removing, adding, ..Unusual::default() }.boxed();
        self.partition_epoch = self.partition_epoch.saturating_add(1);
        true
    }
}

fn to_vec_or_empty<'a, T: Field<'a>>(array: Option<Array<'a, T>>) -> Vec<T> {
    array.map(|array| array.to_vec()).unwrap_or_default()
}

fn recovery_state((topic_id, partition_id): (Uuid, i32), value: i8) -> Result<LeaderRecoveryState, ReplayError> {
    LeaderRecoveryState::from_value(value).ok_or(ReplayError::LeaderRecoveryState { topic_id, partition_id, value })
}

fn directory_count((topic_id, partition_id): (Uuid, i32), replicas: usize, directories: usize) -> ReplayError {
    ReplayError::DirectoryCount { topic_id, partition_id, replicas, directories }
}

/// Without directories, or with only unknown ones, every replica's is unknown.
fn assign(
    at: (Uuid, i32),
    replicas: &[i32],
    directories: Option<Array<'_, Uuid>>,
    table: &DirectoryTable,
) -> Result<Assignment, ReplayError> {
    let given = directories.filter(|ids| ids.iter().any(|id| !id.is_zero()));
    let numbers: SmallVec<[u32; 8]> = match given {
        Some(ids) => ids.iter().map(|id| table.number(id)).collect(),
        None => SmallVec::from_elem(DirectoryTable::MIGRATING, replicas.len()),
    };
    if numbers.len() != replicas.len() {
        return Err(directory_count(at, replicas.len(), numbers.len()));
    }
    Ok(Assignment::new(replicas, &numbers))
}
