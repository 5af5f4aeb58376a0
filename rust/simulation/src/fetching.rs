//! The fetchers of a simulated broker, one for each leader, with one request in flight at a time.

use std::sync::Arc;

use bytes::Bytes;
use klamm_base::clock::Clock;
use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};
use klamm_client::messages::Request;
use klamm_fetcher::core::Wanted;
use klamm_fetcher::{FollowedPartitions, ReplicaFetch, Times};
use klamm_replica::{EARLIEST_LOCAL, LATEST, OffsetQuery, Partition, Position};
use klamm_wire::fetch::FetchPartition;
use klamm_wire::versioned::VersionedWriter;

use super::broker::{SimulatedBroker, SimulationError};
use super::guard::Guard;

pub(super) const FETCH_VERSION: i16 = ReplicaFetch::VERSION_MAX;

/// A partition of which a follower asks its leader where the log begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    pub topic_id: Uuid,
    pub index: i32,
    pub leader_epoch: i32,
}

/// The parameters of a partition in a fetch session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSession {
    pub topic_id: Uuid,
    pub index: i32,
    pub leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
}

impl From<Wanted> for InSession {
    fn from(Wanted { key: (topic_id, index), leader_epoch, position }: Wanted) -> Self {
        let Position { fetch_offset, last_fetched_epoch, log_start_offset, high_watermark, .. } = position;
        Self { topic_id, index, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, high_watermark }
    }
}

impl From<(Uuid, FetchPartition)> for InSession {
    fn from((topic_id, partition): (Uuid, FetchPartition)) -> Self {
        Self {
            topic_id,
            index: partition.index,
            leader_epoch: partition.current_leader_epoch,
            fetch_offset: partition.fetch_offset,
            last_fetched_epoch: partition.last_fetched_epoch,
            log_start_offset: partition.log_start_offset,
            high_watermark: partition.high_watermark,
        }
    }
}

impl SimulatedBroker {
    /// Moves partitions whose role has changed to the fetchers of their leaders. Returns the leaders whose fetchers have changed: a
    /// request in flight is given up ([`SimulatedBroker::on_fetch_failed`]).
    pub fn follow_roles(&mut self, now_ms: i64) -> Result<Vec<i32>, SimulationError> {
        self.clock.set(now_ms);
        let changed = self.life()?.replicas.changes().roles.take();
        self.assign(changed)
    }

    pub(super) fn assign(&mut self, partitions: Vec<Arc<Partition>>) -> Result<Vec<i32>, SimulationError> {
        let now_ms = self.clock.wall_ms();
        let without = self.options.without.and_then(Guard::follower_session_rule);
        let life = self.life()?;
        let backoff_ms = life.replicas.settings().number("replica.fetch.backoff.ms");
        let mut leaders = Vec::new();
        for (id, changes) in life.assignments.assign(partitions, |_| 0) {
            let leader = id.0;
            leaders.push(leader);
            if !life.assignments.is_used(id) {
                life.followed.remove(&leader);
                continue;
            }
            let begin = || FollowedPartitions::without(leader, backoff_ms, without);
            let followed = life.followed.entry(leader).or_insert_with(begin);
            changes.into_iter().for_each(|change| followed.change(change, now_ms));
        }
        Ok(leaders)
    }

    /// The body of the next Fetch; `None` while a flush is awaited, or if there is nothing to fetch now.
    pub fn fetch_request(&mut self, leader: i32, now_ms: i64) -> Result<Option<Vec<u8>>, SimulationError> {
        let flushes = self.options.without != Some(Guard::FollowerFlush);
        let life = self.life()?;
        let Some(followed) = life.followed.get_mut(&leader) else { return Ok(None) };
        if flushes && !followed.is_flushed() {
            return Ok(None);
        }
        let Some(plan) = followed.next_plan(now_ms) else { return Ok(None) };
        let mut writer = Writer::with_capacity(256);
        ReplicaFetch::of(&life.replicas, &plan).write(&mut VersionedWriter::new(&mut writer, true), FETCH_VERSION);
        Ok(Some(writer.into_bytes()))
    }

    /// What the leader's session contains after that request.
    pub fn in_session(&mut self, leader: i32) -> Result<Vec<InSession>, SimulationError> {
        let followed = self.life()?.followed.get(&leader);
        let wanted = followed.map(FollowedPartitions::in_session).unwrap_or_default();
        Ok(wanted.into_iter().map(InSession::from).collect())
    }

    /// When a partition is due that is delayed after an error.
    pub fn fetch_due_ms(&mut self, leader: i32) -> Result<Option<i64>, SimulationError> {
        Ok(self.life()?.followed.get(&leader).and_then(FollowedPartitions::due_at_ms))
    }

    /// Appends and truncates as the leader's answer says; returns the partitions to look up.
    pub fn on_fetch_response(
        &mut self,
        leader: i32,
        body: Vec<u8>,
        now_ms: i64,
    ) -> Result<Vec<Lookup>, SimulationError> {
        self.clock.set(now_ms);
        let answer = ReplicaFetch::read(&Bytes::from(body), FETCH_VERSION)
            .map_err(|error| SimulationError::Malformed(error.to_string()))?;
        let Some(followed) = self.life()?.followed.get_mut(&leader) else { return Ok(Vec::new()) };
        let lost = followed.on_answer(answer, times(now_ms));
        let lookups = lost.into_iter().filter_map(|key| {
            let (_, leader_epoch) = followed.followed(key)?;
            Some(Lookup { topic_id: key.0, index: key.1, leader_epoch })
        });
        let lookups = lookups.collect();
        self.check(Vec::new())?;
        Ok(lookups)
    }

    /// The request was not answered.
    pub fn on_fetch_failed(&mut self, leader: i32) -> Result<(), SimulationError> {
        if let Some(followed) = self.life()?.followed.get_mut(&leader) {
            followed.on_lost_connection();
        }
        Ok(())
    }

    /// A leader's answer to a lookup: where its log begins and ends.
    pub fn leader_offsets(&mut self, lookup: Lookup) -> Result<Result<(i64, i64), ErrorCode>, SimulationError> {
        let partition = match self.partition(lookup.topic_id, lookup.index)? {
            Ok(partition) => partition,
            Err(code) => return Ok(Err(code)),
        };
        let find = |timestamp| {
            let current_leader_epoch = lookup.leader_epoch;
            let query = OffsetQuery { timestamp, current_leader_epoch, read_committed: None, only_from_leader: true };
            partition.find_offset(&query).map(|found| found.offset)
        };
        Ok(find(EARLIEST_LOCAL).and_then(|start| Ok((start, find(LATEST)?))))
    }

    /// The follower's side of it; `None`: there was no answer.
    pub fn on_leader_offsets(
        &mut self,
        leader: i32,
        lookup: Lookup,
        found: Option<(i64, i64)>,
        now_ms: i64,
    ) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        if let Some(followed) = self.life()?.followed.get_mut(&leader) {
            followed.on_leader_offsets((lookup.topic_id, lookup.index), found, times(now_ms));
        }
        self.check(Vec::new())
    }
}

fn times(now_ms: i64) -> Times {
    Times { now_ms, wall_ms: now_ms }
}
