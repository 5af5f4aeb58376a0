//! Log directories that fail, replicas that move between them, and damage that is repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_base::{ErrorCode, LogError, Uuid};
use klamm_replica::{MoveStep, Partition, Unassigned};

use super::broker::{SimulatedBroker, SimulationError};

/// Why a directory fails.
pub(super) const FAILED: &str = "the simulation";
/// What a step of a move copies at most.
const MOVED_BYTES_MAX: usize = 500;

/// Damage of a replica's log.
pub struct Damage {
    pub key: (Uuid, i32),
    /// Of each the offset from which to ask for it, and the next one after it.
    pub ranges: Vec<(i64, i64)>,
    /// Other replicas in sync, the leader first.
    pub others: Vec<i32>,
}

impl SimulatedBroker {
    /// A log directory fails, until the next life.
    pub fn fail_dir(&mut self, dir: usize) -> Result<(), SimulationError> {
        self.life()?.replicas.logs().fail_dir(dir, FAILED);
        self.check(Vec::new())
    }

    /// Changes a bit in a batch of a complete segment while the broker is stopped; `seed` decides which. The batch ends at most at
    /// the offset that its partition has in `ends`. Returns its partition.
    pub fn flip_bit(&mut self, seed: u64, ends: &BTreeMap<String, i64>) -> Result<Option<String>, SimulationError> {
        assert!(self.life.is_none(), "broker {} runs", self.options.node_id);
        Ok(self.disk.flip_bit(seed, ends)?)
    }

    /// Begins to move a replica to another log directory.
    pub fn move_replica(
        &mut self,
        topic: &str,
        index: i32,
        dir: usize,
        now_ms: i64,
    ) -> Result<ErrorCode, SimulationError> {
        self.clock.set(now_ms);
        Ok(self.life()?.replicas.alter_dir(topic, index, dir))
    }

    /// The next step of each move. Returns the directories of replicas to tell the controller.
    pub fn step_moves(&mut self, now_ms: i64) -> Result<Vec<Unassigned>, SimulationError> {
        self.clock.set(now_ms);
        let replicas = self.life()?.replicas.clone();
        for partition in replicas.moving() {
            if let MoveStep::Failed(error) = replicas.step_move(&partition, MOVED_BYTES_MAX)
                && !matches!(error, LogError::Corrupt { .. })
            {
                return Err(error.into());
            }
            self.disk.settle();
        }
        self.check(Vec::new())?;
        Ok(replicas.changes().directories.take())
    }

    /// The controller has these directories of replicas.
    pub fn on_directories_assigned(&mut self, assigned: &[Unassigned]) -> Result<(), SimulationError> {
        self.life()?.replicas.on_directories_assigned(assigned);
        Ok(())
    }

    /// The damage that was found, with other replicas in sync.
    pub fn damage(&mut self) -> Result<Vec<Damage>, SimulationError> {
        let life = self.life()?;
        for partition in life.replicas.changes().damaged.take() {
            life.damaged.insert(partition.key(), partition);
        }
        life.damaged.retain(|_, partition| partition.is_serving() && !partition.damaged().is_empty());
        let of = |partition: &Arc<Partition>| Damage {
            key: partition.key(),
            ranges: partition.damaged().iter().map(|range| (range.fetch_offset, range.next_offset)).collect(),
            others: partition.others_in_sync(),
        };
        Ok(life.damaged.values().map(of).collect())
    }

    /// Replaces damage by what another replica returned from the offset in [`Damage`] on; false if it does not fit.
    pub fn repair(&mut self, key: (Uuid, i32), fetch_offset: i64, batches: &[u8]) -> Result<bool, SimulationError> {
        let Some(partition) = self.life()?.damaged.get(&key).cloned() else { return Ok(false) };
        let ranges = partition.damaged();
        let Some(range) = ranges.iter().find(|range| range.fetch_offset == fetch_offset) else { return Ok(false) };
        let mut found = Vec::new();
        range.take(batches, &mut found);
        let is_repaired = partition.repair(range, &found);
        self.disk.settle();
        self.check(Vec::new())?;
        Ok(is_repaired)
    }
}
