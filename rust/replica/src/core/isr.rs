//! The in-sync replicas of a leader: those that the controller committed, and a proposed change.

/// A member of a proposed ISR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    pub id: i32,
    /// The epoch with which the broker last fetched (KIP-903); -1: not known.
    pub broker_epoch: i64,
}

/// A change of the ISR, for AlterPartition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    pub leader_epoch: i32,
    /// The partition epoch that it is based on.
    pub partition_epoch: i32,
    pub members: Vec<IsrMember>,
}

/// The ISR of a leader. A proposed member counts from the proposal on, and a member that is proposed to leave counts until
/// that is committed: the controller may already have committed either.
#[derive(Clone, Debug, Default)]
pub(super) struct Isr {
    committed: Vec<i32>,
    pending: Option<IsrProposal>,
}

impl Isr {
    pub(super) fn new(committed: &[i32]) -> Self {
        Self { committed: committed.to_vec(), pending: None }
    }

    pub(super) fn committed(&self) -> &[i32] {
        &self.committed
    }

    pub(super) fn pending(&self) -> Option<&IsrProposal> {
        self.pending.as_ref()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the replica is in the committed or in the proposed ISR.
    pub(super) fn is_maximal_member(&self, id: i32) -> bool {
        self.committed.contains(&id) || self.is_proposed(id)
    }

    pub(super) fn maximal_len(&self) -> usize {
        let pending = self.pending.iter().flat_map(|pending| &pending.members);
        self.committed.len() + pending.filter(|member| !self.committed.contains(&member.id)).count()
    }

    pub(super) fn is_proposed(&self, id: i32) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.members.iter().any(|member| member.id == id))
    }

    pub(super) fn propose(&mut self, proposal: IsrProposal) {
        assert!(self.pending.is_none(), "one change at a time: {:?}", self.pending);
        self.pending = Some(proposal);
    }

    /// The proposal was refused and nothing has changed.
    pub(super) fn withdraw(&mut self) {
        self.pending = None;
    }

    /// A committed ISR, from an answer or an image.
    pub(super) fn commit(&mut self, isr: &[i32]) {
        self.committed.clear();
        self.committed.extend_from_slice(isr);
        self.pending = None;
    }
}
