//! The moves of a broker's partitions to other log directories (AlterReplicaLogDirs, KIP-113).
//!
//! The steps of a move are called from threads that may wait for the disk. The new directory is reported to the controller once
//! the copy has caught up, and the copy replaces the log after it has answered (KIP-858).

use std::sync::Arc;

use klamm_base::{ErrorCode, LogError, Uuid};
use klamm_log::{FutureLog, LogOnDisk, with_log};
use klamm_metadata::MetadataImage;

use super::assignments::Unassigned;
use super::moving::{MoveError, Step, Told};
use super::partition::Partition;
use super::replicas::{Key, Replicas};

/// What became of a step of a move.
#[derive(Debug)]
pub enum MoveStep {
    /// It copied these bytes; the next step may follow.
    Copied(usize),
    /// It waits for records, for the controller or for a flush.
    Waiting,
    /// It failed, and may succeed later.
    Failed(LogError),
    /// There is nothing more to do.
    Ended,
}

impl Replicas {
    /// Moves a replica of this broker into a log directory, or cancels a move to another one; returns Apache Kafka's error
    /// code. A partition that this broker has not yet is created there later.
    pub fn alter_dir(&self, topic: &str, index: i32, dir: usize) -> ErrorCode {
        let _altering = self.altering.lock();
        let dirs = self.logs().dirs();
        if dirs[dir].offline_cause().is_some() {
            return ErrorCode::KAFKA_STORAGE_ERROR;
        }
        if self.logs().is_cordoned(dir) {
            return ErrorCode::INVALID_REPLICA_ASSIGNMENT;
        }
        let image = self.image();
        let Some((topic, record)) =
            image.topics().by_name(topic).and_then(|topic| Some((topic, topic.partition(index)?)))
        else {
            return ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        };
        let key = (topic.id(), index);
        if !record.replicas().contains(&self.node_id) {
            self.planned.lock().prefer(key, dir);
            return ErrorCode::REPLICA_NOT_AVAILABLE;
        }
        let code = match self.get(topic.id(), index) {
            Ok(partition) => self.move_to(&image, &partition, dir),
            Err(code) => Err(code),
        };
        match code.err() {
            Some(ErrorCode::NOT_LEADER_OR_FOLLOWER) => ErrorCode::REPLICA_NOT_AVAILABLE,
            code => code.unwrap_or(ErrorCode::NONE),
        }
    }

    fn move_to(&self, image: &MetadataImage, partition: &Arc<Partition>, dir: usize) -> Result<(), ErrorCode> {
        partition.check_online()?;
        if partition.moves_to().is_some_and(|before| before != dir) {
            self.cancel_move(partition);
        }
        if partition.dir() == dir || partition.moves_to() == Some(dir) {
            return Ok(());
        }
        if self.is_missing_dirs || self.logs().dirs().iter().any(|dir| dir.offline_cause().is_some()) {
            // A copy of an earlier move may be there.
            return Err(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        if self.replan(partition, dir)? {
            self.report_dir(image, partition, dir);
            return Ok(());
        }
        let (id, config) = (&partition.id, partition.config().log.clone());
        let now_ms = self.clock.wall_ms();
        let created = self.logs().create_future(dir, &id.topic, id.index, id.topic_id, config, now_ms);
        let future = created.map_err(|error| error.code())?;
        self.begin_move(partition, future);
        Ok(())
    }

    fn begin_move(&self, partition: &Arc<Partition>, future: Arc<FutureLog>) {
        if partition.begin_move(future) {
            self.changes().moves.push(partition.clone());
        } else {
            let (id, now_ms) = (&partition.id, self.clock.wall_ms());
            let _ = self.logs().delete_future(&id.topic, id.index, now_ms);
        }
    }

    /// Moves a partition that was never written; false if it has files.
    fn replan(&self, partition: &Arc<Partition>, dir: usize) -> Result<bool, ErrorCode> {
        if !partition.with(|log| log.is_planned()) {
            return Ok(false);
        }
        let (id, before) = (&partition.id, partition.dir());
        self.logs().forget_earlier(dir, &id.topic, id.index).map_err(|error| error.code())?;
        let is_planned = partition.with(|log| {
            if log.is_planned() {
                self.logs().replan(dir, log);
                partition.set_dir(dir);
                return true;
            }
            false
        });
        if is_planned {
            self.logs().adopt(dir, &id.topic, id.index, partition.clone());
            self.logs().leave(before, &id.topic, id.index);
        }
        Ok(is_planned)
    }

    /// Ends a move and removes the copy. The directory of the log is reported to the controller if it may know of the move.
    pub(super) fn cancel_move(&self, partition: &Arc<Partition>) {
        let Some(was_told) = partition.end_move() else { return };
        let id = &partition.id;
        if let Err(error) = self.logs().delete_future(&id.topic, id.index, self.clock.wall_ms()) {
            partition.report(&error);
        }
        if was_told {
            let directory_id = self.logs().dirs()[partition.dir()].id();
            self.report(Unassigned { directory_id, topic_id: id.topic_id, partition: id.index });
        }
    }

    fn report(&self, assignment: Unassigned) {
        self.changes().directories.push(assignment);
    }

    /// Tells the controller of a directory, unless the image has it; false if there is nothing to tell.
    fn report_dir(&self, image: &MetadataImage, partition: &Partition, dir: usize) -> bool {
        let id = &partition.id;
        let directory_id = self.logs().dirs()[dir].id();
        if !image.metadata_version().is_some_and(|version| version.has_directory_assignment())
            || self.directory_in(image, partition.key()) == Some(directory_id)
        {
            return false;
        }
        self.report(Unassigned { directory_id, topic_id: id.topic_id, partition: id.index });
        true
    }

    /// The directory of this broker's replica in an image.
    fn directory_in(&self, image: &MetadataImage, (topic_id, index): Key) -> Option<Uuid> {
        let topic = image.topics().by_id(topic_id)?;
        let number = topic.partition(index)?.directory_of(self.node_id)?;
        image.topics().directory_table().ids([number].into_iter()).pop()
    }

    /// The controller has these directories of replicas.
    pub fn on_directories_assigned(&self, assigned: &[Unassigned]) {
        for assignment in assigned {
            let partition = self.open.load().get(&(assignment.topic_id, assignment.partition)).cloned();
            let Some(partition) = partition else { continue };
            let is_target = |dir: usize| self.logs().dirs()[dir].id() == assignment.directory_id;
            if partition.told_dir().is_some_and(is_target) {
                partition.set_told(Told::Yes);
            }
        }
    }

    /// The next step of a partition's move, which copies up to `bytes_max` bytes. One thread calls it at a time.
    pub fn step_move(&self, partition: &Arc<Partition>, bytes_max: usize) -> MoveStep {
        let now_ms = self.clock.wall_ms();
        let future = partition.future();
        let stepped = partition.copy_some(bytes_max, now_ms).and_then(|step| match step {
            Step::CaughtUp => self.end_when_told(partition, now_ms),
            step => Ok(step),
        });
        match (stepped, future) {
            (Ok(Step::Copied(bytes)), _) => MoveStep::Copied(bytes),
            (Ok(Step::CaughtUp), _) => MoveStep::Waiting,
            (Ok(Step::Promoted), _) => {
                // Another directory may have been reported meanwhile.
                self.report_dir(&self.image(), partition, partition.dir());
                MoveStep::Ended
            }
            (Err(MoveError::Log(error)), _) => {
                partition.report(&error);
                MoveStep::Failed(error)
            }
            (Err(MoveError::Copy(error)), Some(future)) if error.stops_directory() => {
                // Not if the move was cancelled: then its files may be gone.
                if !with_log(&*future, |log| log.is_away()) {
                    self.logs().fail_dir(future.dir(), &error.to_string());
                }
                self.drop_failed_move(partition);
                MoveStep::Ended
            }
            (Err(MoveError::Copy(error)), _) => MoveStep::Failed(error),
            (Err(MoveError::Ended), _) => {
                self.drop_failed_move(partition);
                MoveStep::Ended
            }
        }
    }

    fn end_when_told(&self, partition: &Arc<Partition>, now_ms: i64) -> Result<Step, MoveError> {
        match partition.told() {
            Some(Told::Yes) => partition.promote(now_ms),
            Some(Told::No) => {
                // First, because the answer may come before this returns.
                partition.set_told(Told::Asked);
                let dir = partition.moves_to().ok_or(MoveError::Ended)?;
                if !self.report_dir(&self.image(), partition, dir) {
                    partition.set_told(Told::Yes);
                }
                Ok(Step::CaughtUp)
            }
            Some(Told::Asked) => Ok(Step::CaughtUp),
            None => Err(MoveError::Ended),
        }
    }

    /// Ends the move of a partition whose copy's directory has failed, so that its log is in use as before.
    fn drop_failed_move(&self, partition: &Arc<Partition>) {
        let _altering = self.altering.lock();
        let has_failed = partition.future().is_some_and(|future| future.is_offline());
        if has_failed && partition.check_online().is_ok() {
            self.cancel_move(partition);
        }
    }

    /// Continues the move that an earlier process had begun.
    pub(super) fn resume_move(&self, partition: &Arc<Partition>, found: &LogOnDisk) {
        let (id, config) = (&partition.id, partition.config().log.clone());
        match self.logs().open_future(found, config, self.clock.wall_ms()) {
            Ok(future) => self.begin_move(partition, future),
            // It was reported to the directory.
            Err(_) => drop(self.logs().delete_future(&id.topic, id.index, self.clock.wall_ms())),
        }
    }

    /// Partitions that move, for a thread that begins to carry moves out.
    pub fn moving(&self) -> Vec<Arc<Partition>> {
        self.opened().into_iter().filter(|partition| partition.moves_to().is_some()).collect()
    }
}
