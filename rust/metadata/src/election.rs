//! Computes a change to one partition: leader election, ISR and ELR (KIP-966), like Apache Kafka's
//! `PartitionChangeBuilder`.
//!
//! The builder starts from the current partition. A caller sets what should change; [`ChangeBuilder::build`] then
//! completes a reassignment if possible, elects a leader, updates ISR and ELR, and returns the difference.
use klamm_base::Uuid;
use smallvec::{SmallVec, smallvec};

use crate::field::Array;
use crate::partition::{LeaderRecoveryState, Partition};
use crate::records::{NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord, Record};
use crate::version::MetadataVersion;

/// Broker ids, usually few.
pub type Ids = SmallVec<[i32; 6]>;

/// How a leader is elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// The first replica if it may lead; otherwise as `Online`.
    Preferred,
    /// The current leader if it may stay, otherwise the first in-sync replica that may lead.
    Online,
    /// As `Online`, but a replica that lost records is preferred to no leader.
    Unclean,
}

/// The rules for every partition of a topic.
#[derive(Clone, Copy, Debug)]
pub struct ElectionRules {
    pub metadata_version: MetadataVersion,
    /// Whether eligible leader replicas are enabled (KIP-966).
    pub elr_enabled: bool,
    /// The effective min.insync.replicas, at most the topic's replication factor.
    pub min_isr: usize,
}

/// The changes of a partition; `None` means unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionChange {
    pub isr: Option<Ids>,
    pub leader: Option<i32>,
    pub replicas: Option<Ids>,
    pub removing: Option<Ids>,
    pub adding: Option<Ids>,
    pub leader_recovery_state: Option<LeaderRecoveryState>,
    pub directories: Option<Vec<Uuid>>,
    pub elr: Option<Ids>,
    pub last_known_elr: Option<Ids>,
}

impl PartitionChange {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The framed record of the change.
    pub fn encode(&self, topic_id: Uuid, partition_id: i32, metadata_version: MetadataVersion) -> Vec<u8> {
        fn array(ids: &Option<Ids>) -> Option<Array<'_, i32>> {
            ids.as_deref().map(Array::Own)
        }
        let record = PartitionChangeRecord {
            partition_id,
            topic_id,
            isr: array(&self.isr),
            leader: self.leader.unwrap_or(NO_LEADER_CHANGE),
            replicas: array(&self.replicas),
            removing_replicas: array(&self.removing),
            adding_replicas: array(&self.adding),
            leader_recovery_state: self.leader_recovery_state.map_or(-1, |state| state as i8),
            eligible_leader_replicas: array(&self.elr),
            last_known_elr: array(&self.last_known_elr),
            directories: self.directories.as_deref().map(Array::Own),
        };
        let encoded = Record::from(record).encode(metadata_version.partition_record_version());
        encoded.expect("ELR and directories are only set where the version has them")
    }
}

/// The state of the brokers that a partition needs.
pub trait Brokers {
    /// Whether a broker may lead the partition now.
    fn may_lead(&self, broker_id: i32) -> bool;
    /// The directory of the partition's replica on a broker; for a new replica, the one with which it is first
    /// recorded.
    fn directory_of(&self, broker_id: i32) -> Uuid;
}

/// Builds the change of one partition.
pub struct ChangeBuilder<'a> {
    partition: &'a Partition,
    rules: ElectionRules,
    election: Election,
    isr: Ids,
    replicas: Ids,
    removing: Ids,
    adding: Ids,
    elr: Ids,
    leader_recovery_state: LeaderRecoveryState,
    unclean_shutdown: Option<i32>,
    directory: Option<(i32, Uuid)>,
}

struct Elected {
    leader: i32,
    is_unclean: bool,
}

impl<'a> ChangeBuilder<'a> {
    /// A builder without changes.
    pub fn new(partition: &'a Partition, rules: ElectionRules) -> Self {
        Self {
            partition,
            rules,
            election: Election::Online,
            isr: partition.isr().into(),
            replicas: partition.replicas().into(),
            removing: partition.removing().into(),
            adding: partition.adding().into(),
            elr: partition.elr().into(),
            leader_recovery_state: partition.leader_recovery_state(),
            unclean_shutdown: None,
            directory: None,
        }
    }

    /// Sets how the leader is elected.
    pub fn election(mut self, election: Election) -> Self {
        self.election = election;
        self
    }

    /// Sets the target ISR.
    pub fn isr(mut self, isr: Ids) -> Self {
        self.isr = isr;
        self
    }

    /// Sets the target ISR to the current one without a broker.
    pub fn without(mut self, broker_id: i32) -> Self {
        self.isr.retain(|&mut replica| replica != broker_id);
        self
    }

    /// Marks a broker that lost unflushed records: it cannot be elected in any way, or be in ISR or ELR.
    pub fn after_unclean_shutdown(mut self, broker_id: i32) -> Self {
        self.unclean_shutdown = Some(broker_id);
        self.without(broker_id)
    }

    /// Sets the target replicas.
    pub fn replicas(mut self, replicas: Ids) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the replicas that a reassignment removes.
    pub fn removing(mut self, removing: Ids) -> Self {
        self.removing = removing;
        self
    }

    /// Sets the replicas that a reassignment adds.
    pub fn adding(mut self, adding: Ids) -> Self {
        self.adding = adding;
        self
    }

    /// Sets the target recovery state.
    pub fn leader_recovery_state(mut self, state: LeaderRecoveryState) -> Self {
        self.leader_recovery_state = state;
        self
    }

    /// Sets the target directory of the replica on a broker.
    pub fn directory(mut self, broker_id: i32, directory_id: Uuid) -> Self {
        self.directory = Some((broker_id, directory_id));
        self
    }

    /// The resulting changes; `None` if there are none.
    pub fn build(mut self, brokers: &impl Brokers) -> Option<PartitionChange> {
        let mut change = PartitionChange::default();
        self.complete_reassignment();
        self.update_elr();
        self.elect(&mut change, brokers);
        self.bump_leader_epoch_for_lost_replicas(&mut change);
        self.record_elr(&mut change);
        self.record_isr(&mut change);
        self.bump_leader_epoch_for_shrunk_isr(&mut change);
        self.record_last_known_leader(&mut change);
        self.record_assignment(&mut change);
        self.record_directories(&mut change, brokers);
        if self.leader_recovery_state != self.partition.leader_recovery_state() {
            change.leader_recovery_state = Some(self.leader_recovery_state);
        }
        (!change.is_none()).then_some(change)
    }

    /// Completes a reassignment when every added replica is in sync and, if the partition shrinks, every remaining
    /// one.
    fn complete_reassignment(&mut self) {
        if self.removing.is_empty() && self.adding.is_empty() {
            return;
        }
        let without_removing =
            |ids: &[i32]| -> Ids { ids.iter().copied().filter(|id| !self.removing.contains(id)).collect() };
        let (isr, replicas) = (without_removing(&self.isr), without_removing(&self.replicas));
        if !self.removing.is_empty() && (isr.is_empty() || replicas.is_empty()) {
            return;
        }
        let shrinks = self.adding.len() < self.removing.len();
        if !contains_all(&isr, &self.adding) || (shrinks && !contains_all(&isr, &replicas)) {
            return;
        }
        (self.isr, self.replicas) = (isr, replicas);
        self.removing.clear();
        self.adding.clear();
    }

    /// Below min.insync.replicas, a broker that leaves the ISR stays eligible, because it has every committed record.
    ///
    /// Unlike in Kafka, not if a reassignment removes it: it deletes its log, and would be eligible with an empty one when
    /// it is added again.
    fn update_elr(&mut self) {
        if !self.rules.elr_enabled {
            return;
        }
        if self.isr.len() >= self.rules.min_isr {
            self.elr.clear();
            return;
        }
        self.elr.extend_from_slice(self.partition.isr());
        self.elr.sort_unstable();
        self.elr.dedup();
        self.elr.retain(|&mut replica| {
            let has_log = self.replicas.contains(&replica) && Some(replica) != self.unclean_shutdown;
            has_log && !self.isr.contains(&replica)
        });
    }

    fn is_valid_leader(&self, replica: i32, brokers: &impl Brokers) -> bool {
        let is_candidate = self.isr.contains(&replica) || (self.isr.is_empty() && self.elr.contains(&replica));
        is_candidate && brokers.may_lead(replica)
    }

    fn find_leader(&self, brokers: &impl Brokers) -> Elected {
        let clean = |leader| Elected { leader, is_unclean: false };
        let unclean = |leader| Elected { leader, is_unclean: true };
        if self.election == Election::Preferred
            && let Some(&preferred) = self.replicas.first()
            && self.is_valid_leader(preferred, brokers)
        {
            return clean(preferred);
        }
        if self.is_valid_leader(self.partition.leader(), brokers) {
            return clean(self.partition.leader());
        }
        if let Some(&replica) = self.replicas.iter().find(|&&replica| self.is_valid_leader(replica, brokers)) {
            return clean(replica);
        }
        if let Some(last_known) = self.electable_last_known_leader(brokers) {
            return unclean(last_known);
        }
        let acceptable = self.replicas.iter().find(|&&replica| brokers.may_lead(replica));
        match acceptable {
            Some(&replica) if self.election == Election::Unclean => unclean(replica),
            _ => clean(NO_LEADER),
        }
    }

    /// If ISR and ELR are empty, the last leader is the best candidate (balanced recovery of KIP-966). Unlike in Kafka, it
    /// must still be a replica.
    fn electable_last_known_leader(&self, brokers: &impl Brokers) -> Option<i32> {
        if !self.rules.elr_enabled || !self.elr.is_empty() || !self.isr.is_empty() {
            return None;
        }
        match self.partition.last_known_elr() {
            [only] if self.replicas.contains(only) && brokers.may_lead(*only) => Some(*only),
            _ => None,
        }
    }

    fn elect(&mut self, change: &mut PartitionChange, brokers: &impl Brokers) {
        let Elected { leader, is_unclean } = self.find_leader(brokers);
        if leader == self.partition.leader() {
            return;
        }
        change.leader = Some(leader);
        if self.elr.contains(&leader) {
            self.isr = smallvec![leader];
            self.elr.retain(|&mut replica| replica != leader);
        }
        if is_unclean {
            change.isr = Some(smallvec![leader]);
            if self.partition.leader_recovery_state() != LeaderRecoveryState::Recovering {
                change.leader_recovery_state = Some(LeaderRecoveryState::Recovering);
            }
        }
    }

    fn bump_leader_epoch_for_lost_replicas(&self, change: &mut PartitionChange) {
        if change.leader.is_none() && !contains_all(&self.replicas, self.partition.replicas()) {
            change.leader = Some(self.partition.leader());
        }
    }

    fn bump_leader_epoch_for_shrunk_isr(&self, change: &mut PartitionChange) {
        if let Some(isr) = &change.isr
            && change.leader.is_none()
            && self.rules.metadata_version.bumps_leader_epoch_on_isr_shrink()
            && !contains_all(isr, self.partition.isr())
        {
            change.leader = Some(self.partition.leader());
        }
    }

    fn record_elr(&mut self, change: &mut PartitionChange) {
        // An unclean election has set the ISR already; no other replica is eligible any more.
        if change.isr.is_some() || !self.rules.elr_enabled {
            self.elr.clear();
        }
        if self.elr.as_slice() != self.partition.elr() {
            change.elr = Some(self.elr.clone());
        }
    }

    fn record_isr(&self, change: &mut PartitionChange) {
        // Without ELR the last member stays in the ISR: otherwise it would not be known which replica has the
        // records.
        let may_be_set = !self.isr.is_empty() || self.rules.elr_enabled;
        if change.isr.is_none() && may_be_set && self.isr.as_slice() != self.partition.isr() {
            change.isr = Some(self.isr.clone());
        }
    }

    fn record_last_known_leader(&self, change: &mut PartitionChange) {
        if !self.rules.elr_enabled {
            return;
        }
        let is_known = !self.partition.last_known_elr().is_empty();
        match change.leader {
            Some(NO_LEADER) if !is_known && self.partition.leader() != NO_LEADER => {
                change.last_known_elr = Some(smallvec![self.partition.leader()]);
            }
            Some(leader) if leader != NO_LEADER && is_known => change.last_known_elr = Some(Ids::new()),
            _ => {}
        }
    }

    fn record_assignment(&self, change: &mut PartitionChange) {
        let changed = |wanted: &[i32], present: &[i32]| (wanted != present).then(|| wanted.into());
        if !self.replicas.is_empty() {
            change.replicas = changed(&self.replicas, self.partition.replicas());
        }
        change.removing = changed(&self.removing, self.partition.removing());
        change.adding = changed(&self.adding, self.partition.adding());
    }

    fn record_directories(&self, change: &mut PartitionChange, brokers: &impl Brokers) {
        let are_replicas_kept = self.replicas.as_slice() == self.partition.replicas();
        if self.replicas.is_empty() || (are_replicas_kept && self.directory.is_none()) {
            return;
        }
        let wanted: Vec<Uuid> = self.replicas.iter().map(|&replica| self.wanted_directory(replica, brokers)).collect();
        let present = self.partition.replicas().iter().map(|&replica| brokers.directory_of(replica));
        let has_directories = self.rules.metadata_version.has_directory_assignment();
        if has_directories && !present.eq(wanted.iter().copied()) {
            change.directories = Some(wanted);
        }
    }

    fn wanted_directory(&self, replica: i32, brokers: &impl Brokers) -> Uuid {
        match self.directory {
            Some((broker_id, directory_id)) if broker_id == replica => directory_id,
            _ => brokers.directory_of(replica),
        }
    }
}

fn contains_all(all: &[i32], wanted: &[i32]) -> bool {
    wanted.iter().all(|id| all.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directories::DirectoryTable;
    use crate::records::PartitionRecord;

    struct AllLive;

    impl Brokers for AllLive {
        fn may_lead(&self, _: i32) -> bool {
            true
        }

        fn directory_of(&self, _: i32) -> Uuid {
            Uuid([1; 16])
        }
    }

    const RULES: ElectionRules = ElectionRules { metadata_version: MetadataVersion(30), elr_enabled: true, min_isr: 3 };

    fn partition(record: PartitionRecord<'_>) -> Partition {
        Partition::from_record(&record, &DirectoryTable::default()).expect("a partition")
    }

    #[test]
    fn a_replica_that_a_reassignment_removes_is_not_eligible() {
        let partition = partition(PartitionRecord {
            replicas: (&[2, 3, 4, 1][..]).into(),
            isr: (&[1][..]).into(),
            removing_replicas: (&[1][..]).into(),
            adding_replicas: (&[4][..]).into(),
            leader: 1,
            eligible_leader_replicas: Some((&[2, 3][..]).into()),
            ..PartitionRecord::default()
        });
        let change = ChangeBuilder::new(&partition, RULES).isr(smallvec![1, 4]).build(&AllLive).expect("a change");
        let completed = PartitionChange {
            isr: Some(smallvec![4]),
            leader: Some(4),
            replicas: Some(smallvec![2, 3, 4]),
            removing: Some(Ids::new()),
            adding: Some(Ids::new()),
            directories: change.directories.clone(),
            ..PartitionChange::default()
        };
        assert_eq!(change, completed);
    }

    #[test]
    fn the_last_known_leader_must_be_a_replica() {
        let of = |replicas: [i32; 1]| {
            partition(PartitionRecord {
                replicas: (&replicas[..]).into(),
                leader: NO_LEADER,
                last_known_elr: Some((&[1][..]).into()),
                ..PartitionRecord::default()
            })
        };
        assert_eq!(ChangeBuilder::new(&of([2]), RULES).build(&AllLive), None);
        let elected = ChangeBuilder::new(&of([1]), RULES).build(&AllLive).expect("a change");
        assert_eq!(elected.leader, Some(1));
    }
}
