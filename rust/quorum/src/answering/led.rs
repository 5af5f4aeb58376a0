//! What the leader of an epoch notes of those who fetch from it, and what it knows to be committed. No clock, no I/O.

use std::time::{Duration, Instant};

use klamm_base::Uuid;
use klamm_wire::topic::NodeEndpoint;

use super::request::ReplicaFetch;

/// Replicas that are known at a time; the fetches of others are Python's, which is where they are forgotten too.
const KNOWN_MAX: usize = 1_000;
/// Fetches that are noted and not told yet; the fetches behind them are Python's.
const NOTED_MAX: usize = 1_024;

/// What the core lets be answered.
#[derive(Clone, Debug)]
pub struct Lead {
    pub cluster_id: String,
    pub leader_id: i32,
    pub epoch: i32,
    /// Only what lies above commits (Raft 5.4.2).
    pub start_offset: i64,
    pub high_watermark: i64,
    /// Node id and end offset of the voters but for this replica; an offset below 0 where none is known.
    pub voters: Vec<(i32, i64)>,
    /// Whether this replica is a voter.
    pub counts_itself: bool,
    /// Where this replica listens, by the name of a listener.
    pub endpoints: Vec<(String, NodeEndpoint)>,
    /// Who takes no news for so long answers nobody any more: the others are to find out.
    pub patience: Duration,
}

/// A fetch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    pub slot: usize,
    pub fetch_offset: i64,
    /// Where the leader's log ended then.
    pub end_offset: i64,
    pub at: Instant,
}

/// What becomes of a fetch that needs no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    pub slot: usize,
    /// There is something to say, or no time to wait for it.
    pub is_due: bool,
    /// More is committed by it.
    pub advanced: bool,
}

struct Known {
    id: i32,
    directory: Uuid,
    /// Where its end offset is among the voters'; `None` for an observer.
    voter: Option<usize>,
}

/// The epoch while it is led.
pub struct Led {
    pub lead: Lead,
    flushed_offset: i64,
    /// Where the log ended when its turn was over: voters wait for no less than all of a turn.
    offered: i64,
    /// What voters are answered for at once; the core's own answers go before what lies above.
    voters_know: i64,
    known: Vec<Known>,
    noted: Vec<Noted>,
}

/// The log as a fetch finds it.
#[derive(Clone, Copy)]
pub struct Ends {
    /// Looked at only where the fetch is below the end.
    pub start_offset: i64,
    pub end_offset: i64,
}

impl Ends {
    /// Whether a replica whose log ends there, within the epoch that is led, finds here what follows.
    pub fn holds(&self, offset: i64) -> bool {
        offset == self.end_offset || self.start_offset < offset && offset < self.end_offset
    }
}

impl Led {
    /// `offered`: where the log ends.
    pub fn new(lead: Lead, flushed_offset: i64, offered: i64) -> Self {
        let voters_know = lead.high_watermark;
        Self { lead, flushed_offset, offered, voters_know, known: Vec::new(), noted: Vec::new() }
    }

    /// Lets that replica's fetches be taken from now on; `counts`: as those of the voter of its id. Its slot, or `None` where
    /// they remain the core's.
    pub fn know(&mut self, id: i32, directory: Uuid, counts: bool) -> Option<usize> {
        let slot = self.known.iter().position(|known| known.id == id && known.directory == directory);
        let voter = self.lead.voters.iter().position(|(voter, _)| *voter == id);
        // A voter's former disk is told all and counts for nothing: that is for the core.
        if slot.is_some() || voter.is_some() != counts || id < 0 || self.known.len() == KNOWN_MAX {
            return slot;
        }
        self.known.push(Known { id, directory, voter });
        Some(self.known.len() - 1)
    }

    /// Takes a fetch and moves the high watermark by it; `None` when the core has to decide.
    pub fn take(&mut self, fetch: &ReplicaFetch<'_>, log: Ends, now: Instant) -> Option<Took> {
        let slot = self.admitted(fetch, log, now)?;
        self.noted.push(Noted { slot, fetch_offset: fetch.offset, end_offset: log.end_offset, at: now });
        if let Some(voter) = self.known[slot].voter {
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
        let is_heard = self.noted.first().is_none_or(|oldest| now.duration_since(oldest.at) < lead.patience);
        if !is_of_cluster || !is_of_epoch || !is_possible || !is_heard || self.noted.len() == NOTED_MAX {
            return None;
        }
        if fetch.offset <= lead.start_offset || !log.holds(fetch.offset) {
            return None;
        }
        self.known.iter().position(|known| known.id == fetch.replica_id && known.directory == fetch.directory)
    }

    /// Whether there is something to fetch: what is offered for a voter, whose fetches commit it, and for others what is
    /// committed.
    pub fn has_more(&self, slot: usize, offset: i64) -> bool {
        offset < if self.is_voter(slot) { self.offered } else { self.lead.high_watermark }
    }

    /// Voters may have what lies below.
    pub fn offer(&mut self, end_offset: i64) {
        self.offered = end_offset;
    }

    /// A higher one than a replica knows is a reason to answer it.
    pub fn high_watermark_for(&self, slot: usize) -> i64 {
        if self.is_voter(slot) { self.voters_know } else { self.lead.high_watermark }
    }

    /// Voters are answered for all that is committed; whether that is more than before.
    pub fn tell_voters(&mut self) -> bool {
        std::mem::replace(&mut self.voters_know, self.lead.high_watermark) < self.lead.high_watermark
    }

    pub fn is_voter(&self, slot: usize) -> bool {
        self.known[slot].voter.is_some()
    }

    /// This replica's own log is durable below `offset`; whether more is committed by that.
    pub fn flushed(&mut self, offset: i64) -> bool {
        self.flushed_offset = self.flushed_offset.max(offset);
        self.advance()
    }

    /// The core knows as much to be committed; whether that is more.
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

    /// What was noted since the last call.
    pub fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.noted)
    }

    /// Whether so much is noted that it should be told.
    pub fn has_much_to_tell(&self) -> bool {
        self.noted.len() == NOTED_MAX / 2
    }
}
