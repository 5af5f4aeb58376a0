//! The state of a leader's epoch: the progress of the fetching replicas and the high watermark. No clock, no I/O.

use std::time::{Duration, Instant};

use klamm_base::Uuid;
use klamm_wire::topic::NodeEndpoint;

use super::request::ReplicaFetch;

/// Limit on replicas. Python handles the fetches of others, and removes replicas from its state.
const REPLICAS_MAX: usize = 1_000;
/// Limit on recorded fetches that the core has not taken yet; Python handles the fetches after that.
const TAKEN_MAX: usize = 1_024;

/// The terms of a lease.
#[derive(Clone, Debug)]
pub struct Lead {
    pub cluster_id: String,
    pub leader_id: i32,
    pub epoch: i32,
    /// Only records at or above this offset count for the high watermark (Raft 5.4.2).
    pub start_offset: i64,
    pub high_watermark: i64,
    /// Node id and end offset of the voters except for this replica; an offset below 0 if it is not known.
    pub voters: Vec<(i32, i64)>,
    /// Whether this replica is a voter.
    pub counts_itself: bool,
    /// This replica's endpoints by listener name.
    pub endpoints: Vec<(String, NodeEndpoint)>,
    /// If the core does not take the recorded fetches for this long, nothing is answered any more, so that the others
    /// notice.
    pub take_timeout: Duration,
}

/// A fetch that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedFetch {
    pub slot: usize,
    pub fetch_offset: i64,
    /// The leader's log end offset at that time.
    pub end_offset: i64,
    pub at: Instant,
}

/// The result of a fetch that needs no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    pub slot: usize,
    /// The fetch must be answered now: there is something to send, or it does not wait.
    pub is_due: bool,
    /// The fetch advanced the high watermark.
    pub advanced: bool,
}

struct Replica {
    id: i32,
    directory: Uuid,
    /// The index of its end offset among the voters'; `None` for an observer.
    voter: Option<usize>,
}

/// The state of an epoch under a lease.
pub struct Led {
    pub lead: Lead,
    flushed_offset: i64,
    /// The log end offset after the last turn: voters receive the records of a turn together.
    offered: i64,
    /// The high watermark that voters receive immediately; for a higher one, the core's own answers go first.
    voter_high_watermark: i64,
    replicas: Vec<Replica>,
    fetches: Vec<LeasedFetch>,
}

/// The ends of the log at the time of a fetch.
#[derive(Clone, Copy)]
pub struct Ends {
    /// Used only if the fetch is below the end.
    pub start_offset: i64,
    pub end_offset: i64,
}

impl Ends {
    /// Whether this log can serve a replica whose log ends at `offset` within the current epoch.
    pub fn holds(&self, offset: i64) -> bool {
        offset == self.end_offset || self.start_offset < offset && offset < self.end_offset
    }
}

impl Led {
    /// `offered`: the log end offset.
    pub fn new(lead: Lead, flushed_offset: i64, offered: i64) -> Self {
        let voter_high_watermark = lead.high_watermark;
        Self { lead, flushed_offset, offered, voter_high_watermark, replicas: Vec::new(), fetches: Vec::new() }
    }

    /// Accepts the replica's fetches from now on. `counts`: whether they count for the voter with its id. Returns its
    /// slot, or `None` if the core keeps handling its fetches.
    pub fn add_replica(&mut self, id: i32, directory: Uuid, counts: bool) -> Option<usize> {
        let slot = self.replicas.iter().position(|replica| replica.id == id && replica.directory == directory);
        let voter = self.lead.voters.iter().position(|(voter, _)| *voter == id);
        // A former directory of a voter receives the log but does not count; the core handles it.
        if slot.is_some() || voter.is_some() != counts || id < 0 || self.replicas.len() == REPLICAS_MAX {
            return slot;
        }
        self.replicas.push(Replica { id, directory, voter });
        Some(self.replicas.len() - 1)
    }

    /// Records a fetch and advances the high watermark; `None` if the core must decide.
    pub fn take(&mut self, fetch: &ReplicaFetch<'_>, log: Ends, now: Instant) -> Option<Took> {
        let slot = self.admitted(fetch, log, now)?;
        self.fetches.push(LeasedFetch { slot, fetch_offset: fetch.offset, end_offset: log.end_offset, at: now });
        if let Some(voter) = self.replicas[slot].voter {
            self.lead.voters[voter].1 = fetch.offset;
        }
        let advanced = self.advance();
        let knows_less = fetch.high_watermark < self.high_watermark_for(slot);
        let is_due = knows_less || fetch.max_wait_ms == 0 || self.has_more(slot, fetch.offset);
        Some(Took { slot, is_due, advanced })
    }

    fn admitted(&self, fetch: &ReplicaFetch<'_>, log: Ends, now: Instant) -> Option<usize> {
        let lead = &self.lead;
        let is_of_cluster = fetch.cluster_id.is_none_or(|id| id == lead.cluster_id);
        let is_of_epoch = fetch.epoch == lead.epoch && fetch.last_epoch == lead.epoch;
        let is_possible = fetch.max_wait_ms >= 0 && fetch.max_bytes >= 0;
        let is_heard = self.fetches.first().is_none_or(|oldest| now.duration_since(oldest.at) < lead.take_timeout);
        if !is_of_cluster || !is_of_epoch || !is_possible || !is_heard || self.fetches.len() == TAKEN_MAX {
            return None;
        }
        if fetch.offset <= lead.start_offset || !log.holds(fetch.offset) {
            return None;
        }
        self.replicas.iter().position(|replica| replica.id == fetch.replica_id && replica.directory == fetch.directory)
    }

    /// Whether there is something to fetch: offered records for a voter, whose fetches commit them, and committed
    /// records for others.
    pub fn has_more(&self, slot: usize, offset: i64) -> bool {
        offset < if self.is_voter(slot) { self.offered } else { self.lead.high_watermark }
    }

    /// Offers the records below `end_offset` to voters.
    pub fn offer(&mut self, end_offset: i64) {
        self.offered = end_offset;
    }

    /// The high watermark to send to a replica; a higher one than it knows is a reason to answer.
    pub fn high_watermark_for(&self, slot: usize) -> i64 {
        if self.is_voter(slot) { self.voter_high_watermark } else { self.lead.high_watermark }
    }

    /// Lets voters receive the current high watermark immediately; returns whether that is an advance.
    pub fn notify_voters(&mut self) -> bool {
        std::mem::replace(&mut self.voter_high_watermark, self.lead.high_watermark) < self.lead.high_watermark
    }

    pub fn is_voter(&self, slot: usize) -> bool {
        self.replicas[slot].voter.is_some()
    }

    /// This replica's own log is durable below `offset`; returns whether the high watermark advanced.
    pub fn flushed(&mut self, offset: i64) -> bool {
        self.flushed_offset = self.flushed_offset.max(offset);
        self.advance()
    }

    /// The core advanced the high watermark; returns whether it is higher than the one here.
    pub fn raise_high_watermark(&mut self, offset: i64) -> bool {
        let is_more = offset > self.lead.high_watermark;
        self.lead.high_watermark = self.lead.high_watermark.max(offset);
        is_more
    }

    fn advance(&mut self) -> bool {
        let own = self.lead.counts_itself.then_some(self.flushed_offset);
        let mut offsets: Vec<i64> = self.lead.voters.iter().map(|(_, offset)| *offset).chain(own).collect();
        offsets.sort_unstable_by(|one, other| other.cmp(one));
        let replicated = offsets.get(offsets.len() / 2).copied().unwrap_or(-1);
        replicated > self.lead.start_offset && self.raise_high_watermark(replicated)
    }

    /// The fetches that were recorded since the last call.
    pub fn take_fetches(&mut self) -> Vec<LeasedFetch> {
        std::mem::take(&mut self.fetches)
    }

    /// Whether enough fetches are recorded to notify the core.
    pub fn should_notify(&self) -> bool {
        self.fetches.len() == TAKEN_MAX / 2
    }
}
