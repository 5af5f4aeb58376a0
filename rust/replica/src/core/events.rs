//! What goes into the core and what comes out: offsets, brokers, assignments, fetches; effects.

use klamm_base::ErrorCode;

use super::isr::IsrProposal;

/// The offsets of the log at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    pub start: i64,
    pub end: i64,
    /// Up to where this broker counts itself for the high watermark: the flushed offset, or the end.
    pub counted: i64,
}

/// What an image says about a broker that has a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerStanding {
    pub epoch: i64,
    /// Neither fenced nor in controlled shutdown.
    pub is_active: bool,
}

/// The brokers of the image.
pub trait Brokers {
    /// `None` if the broker is not registered.
    fn standing(&self, broker_id: i32) -> Option<BrokerStanding>;

    fn is_in_rack(&self, broker_id: i32, rack: &str) -> bool;
}

/// A partition of the image, as its replicas need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// -1: none.
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
}

/// One partition in a follower's Fetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    pub replica_id: i32,
    /// -1: the follower does not send it (before Fetch v15).
    pub broker_epoch: i64,
    pub fetch_offset: i64,
    pub log_start_offset: i64,
    /// The end of the leader's log when the fetch was read.
    pub leader_end_offset: i64,
}

/// A change of role to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// This broker leads from `start_offset` on: the log records the epoch.
    Lead { epoch: i32, start_offset: i64 },
    /// Another broker leads: this one fetches from it.
    Follow { leader: i32, epoch: i32 },
    /// No broker leads, or this replica was deleted or failed.
    Stop,
}

/// What the caller carries out, without the partition's lock. It is reused, so that notifying few requests allocates
/// nothing.
#[must_use = "requests wait for these"]
#[derive(Debug)]
pub struct Effects<A, F> {
    /// Acknowledgements of appends, with the error code for each.
    pub acks: Vec<(A, ErrorCode)>,
    /// Fetches that look again.
    pub fetches: Vec<F>,
    /// The ISR to propose to the controller (AlterPartition).
    pub proposal: Option<IsrProposal>,
    pub role: Option<RoleChange>,
}

impl<A, F> Effects<A, F> {
    /// Whether there is nothing to carry out.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.fetches.is_empty() && self.proposal.is_none() && self.role.is_none()
    }
}

impl<A, F> Default for Effects<A, F> {
    fn default() -> Self {
        Self { acks: Vec::new(), fetches: Vec::new(), proposal: None, role: None }
    }
}

/// The controller's answer to a proposed ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrAnswer {
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub isr: Vec<i32>,
}
