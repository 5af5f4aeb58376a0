//! All partitions that a broker leads: opened when they are used, following the metadata image. What was never written is
//! not on disk.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use klamm_base::LogError;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::{Found, LogManager, LogOwner};
use klamm_metadata::MetadataImage;
use klamm_metadata::hash::ByIdAndIndex;
use klamm_metadata::partition::Partition as PartitionRecord;
use klamm_metadata::topic::Topic;
use parking_lot::{Mutex, RwLock};

use super::assignments::Unassigned;
use super::partition::{Durability, Leadership, Partition, PartitionId, Place};
use super::planned::Planned;

/// Type of a topic's resource among the image's configs.
const TOPIC_RESOURCE: i8 = 2;
/// Partitions that open at the same time do so under different locks.
const OPENING_LOCKS: usize = 1024;

pub(super) type Key = (Uuid, i32);

/// What a broker's replicas are made of.
pub struct ReplicasOptions {
    pub node_id: i32,
    pub durability: Durability,
    pub settings: Settings,
    pub logs: Arc<LogManager>,
    /// A configured directory could not be opened: what is not on disk may be in it.
    pub is_missing_dirs: bool,
    /// Gives the time in ms since 1970.
    pub clock: fn() -> i64,
}

/// What became of a newly committed image.
#[derive(Default)]
pub struct Published {
    /// Partitions that lie in other directories than the image has.
    pub unassigned: Vec<Unassigned>,
    /// What failed on disk meanwhile.
    pub errors: Vec<LogError>,
}

/// The partitions of one broker.
pub struct Replicas {
    pub(super) node_id: i32,
    durability: Durability,
    clock: fn() -> i64,
    logs: Arc<LogManager>,
    settings: ArcSwap<Settings>,
    image: ArcSwap<MetadataImage>,
    pub(super) open: RwLock<HashMap<Key, Arc<Partition>, ByIdAndIndex>>,
    pub(super) opening: Box<[Mutex<()>]>,
    hasher: RandomState,
    /// Directories on disk whose logs were not opened yet, by name.
    pub(super) on_disk: Mutex<HashMap<(String, i32), Found>>,
    pub(super) planned: Mutex<Planned>,
    is_missing_dirs: bool,
    /// Logs are opened in the background: a stop ends that work.
    opens_rest: AtomicBool,
    /// No log is opened any more.
    is_stopping: AtomicBool,
    /// While a directory is missing: the partitions that may be in it.
    at_start: OnceLock<Arc<MetadataImage>>,
}

impl Replicas {
    /// Knows what is on disk; leads nothing until an image comes.
    pub fn new(options: ReplicasOptions) -> Self {
        let found = options.logs.found().into_iter();
        let on_disk = found.map(|found| ((found.topic.clone(), found.partition), found)).collect();
        Self {
            node_id: options.node_id,
            durability: options.durability,
            clock: options.clock,
            logs: options.logs,
            settings: ArcSwap::from_pointee(options.settings),
            image: ArcSwap::default(),
            open: RwLock::default(),
            opening: (0..OPENING_LOCKS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            on_disk: Mutex::new(on_disk),
            planned: Mutex::default(),
            is_missing_dirs: options.is_missing_dirs,
            opens_rest: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            at_start: OnceLock::new(),
        }
    }

    /// The committed image, as it is now.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// The logs and their directories.
    pub fn logs(&self) -> &Arc<LogManager> {
        &self.logs
    }

    /// The partition, opened when it was not.
    pub fn get(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.open.read().get(&(topic_id, index)) {
            return Ok(partition.clone());
        }
        self.open_one(topic_id, index)
    }

    /// The same for a task of the network: while a log is recovered, the task's worker goes to the other tasks.
    pub fn get_in_task(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.open.read().get(&(topic_id, index)) {
            return Ok(partition.clone());
        }
        match self.must_recover(topic_id, index) {
            true => tokio::task::block_in_place(|| self.get(topic_id, index)),
            false => self.get(topic_id, index),
        }
    }

    /// Whether to get the partition would be to wait for a recovery, which may read all of its log.
    pub fn must_recover(&self, topic_id: Uuid, index: i32) -> bool {
        let key = (topic_id, index);
        if self.open.read().contains_key(&key) {
            return false;
        }
        // Held while somebody opens this one, or another one that has the same lock.
        let Some(_opening) = self.opening[self.opening_of(key)].try_lock() else { return true };
        let Some(topic) = self.image.load().topics().by_id(topic_id).cloned() else { return false };
        let found = self.on_disk.lock().get(&(topic.name().to_string(), index)).map(|found| found.dir);
        found.is_some_and(|dir| !self.logs.dirs()[dir].was_shut_down_cleanly())
    }

    pub(super) fn opening_of(&self, key: Key) -> usize {
        self.hasher.hash_one(key) as usize % OPENING_LOCKS
    }

    /// These partitions were appended to: their flushers begin when all of them wait, so that one call can sync many.
    pub fn mark_dirty(&self, partitions: &[Arc<Partition>]) {
        for (at, dir) in self.logs().dirs().iter().enumerate() {
            let in_dir = partitions.iter().filter(|partition| partition.place.dir == at);
            dir.flusher().mark_all_dirty(in_dir.map(|partition| partition.clone() as Arc<dyn LogOwner>));
        }
    }

    /// The partitions that are open.
    pub fn opened(&self) -> Vec<Arc<Partition>> {
        self.open.read().values().cloned().collect()
    }

    fn open_one(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let key = (topic_id, index);
        let _opening = self.opening[self.opening_of(key)].lock();
        if let Some(partition) = self.open.read().get(&key) {
            return Ok(partition.clone());
        }
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let image = self.image();
        let topic = image.topics().by_id(topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        let record = topic.partition(index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if record.leader() != self.node_id {
            return Err(self.why_not_led(&image, record));
        }
        let partition = self.open_log(&image, topic, index, record).map_err(|error| error.code())?;
        self.open.write().insert(key, partition.clone());
        // The image may have moved on while the log was opened: that change did not find the partition open.
        let latest = self.image();
        if !Arc::ptr_eq(&latest, &image) {
            self.follow(&latest, &partition);
        }
        Ok(partition)
    }

    fn open_log(
        &self,
        image: &MetadataImage,
        topic: &Topic,
        index: i32,
        record: &PartitionRecord,
    ) -> Result<Arc<Partition>, LogError> {
        let now_ms = (self.clock)();
        let config = Arc::new(self.config_of(image, topic.name()));
        let name = topic.name().to_string();
        let found = self.on_disk.lock().get(&(name.clone(), index)).cloned();
        let stray_because = found.as_ref().map(|found| self.why_not_of(found, topic.id())).transpose()?.flatten();
        self.on_disk.lock().remove(&(name.clone(), index));
        if let Some(reason) = &stray_because {
            // Left by an earlier topic of that name: kept beside, as Apache Kafka does.
            self.logs.set_aside(&name, index, reason)?;
        }
        let found = found.filter(|_| stray_because.is_none());
        let (log, dir, high_watermark) = match found {
            Some(found) => {
                let (mut log, _) = self.logs.open(&found, config.log.clone(), now_ms)?;
                if self.durability == Durability::Flushed {
                    // What a crash left unflushed was acknowledged to nobody, or is durable by now: either way it may be
                    // read as soon as it is on the disk, and a reader must not meet a watermark that fell back.
                    log.flush()?;
                }
                (log, found.dir, self.logs.checkpointed_high_watermark(&found))
            }
            None => {
                let dir = self.dir_for(image, (topic.id(), index), record)?;
                (self.logs.plan(dir, &name, index, topic.id(), config.log.clone())?, dir, 0)
            }
        };
        let id = PartitionId { topic: topic.name().clone(), topic_id: topic.id(), index };
        let leadership = leadership(record, self.node_id);
        let place = Place { logs: self.logs.clone(), dir };
        let partition = Partition::lead(id, log, leadership, high_watermark, config, self.durability, place);
        self.logs.adopt(dir, &name, index, partition.clone());
        self.planned.lock().remove(&(topic.id(), index));
        Ok(partition)
    }

    /// Why the files on disk are of another topic that had this one's name; `None` when they are of this one.
    pub(super) fn why_not_of(&self, found: &Found, topic_id: Uuid) -> Result<Option<String>, LogError> {
        self.logs.why_not_of(found, topic_id, |other| self.image.load().topics().by_id(other).is_some())
    }

    /// The directory that the image assigned, else the emptiest.
    pub(super) fn dir_for(&self, image: &MetadataImage, key: Key, record: &PartitionRecord) -> Result<usize, LogError> {
        let mut assigned = record.replicas().iter().zip(image.topics().directories_of(record));
        let assigned = assigned.find(|(replica, _)| **replica == self.node_id);
        let wanted = assigned.and_then(|(_, id)| self.logs.dir_by_id(id));
        if wanted.is_none() && self.may_be_missing(key) {
            // An empty log in another directory would be taken for the partition, and its offsets begin anew.
            let path = self.logs.dirs().first().map(|dir| dir.path().to_owned()).unwrap_or_default();
            let reason = "the log may be in a directory that has failed".to_owned();
            return Err(LogError::Directory { path, reason });
        }
        wanted.or_else(|| self.planned.lock().dir_for(key, &self.logs)).ok_or_else(|| LogError::Directory {
            path: self.logs.dirs().first().map(|dir| dir.path().to_owned()).unwrap_or_default(),
            reason: "every log directory has failed".to_owned(),
        })
    }

    /// Whether a partition without files may have them in a directory that could not be opened.
    pub(super) fn may_be_missing(&self, (topic_id, index): Key) -> bool {
        let was_there = |image: &Arc<MetadataImage>| {
            image.topics().by_id(topic_id).is_some_and(|topic| topic.partition(index).is_some())
        };
        self.is_missing_dirs && self.at_start.get().is_none_or(was_there)
    }

    fn config_of(&self, image: &MetadataImage, topic: &str) -> super::PartitionConfig {
        let own = |key: &str| image.configs().value(TOPIC_RESOURCE, topic, key).map(str::to_owned);
        super::PartitionConfig::of_topic(&self.settings.load(), &own)
    }

    /// Opens what is on disk and not open yet, and sets aside what no topic of the image owns. For a thread of its own.
    pub fn open_the_rest(&self) -> Vec<LogError> {
        self.opens_rest.store(true, Ordering::Release);
        if self.is_missing_dirs {
            let _ = self.at_start.set(self.image());
        }
        let waiting: Vec<Found> = self.on_disk.lock().values().cloned().collect();
        let mut errors = Vec::new();
        for found in waiting {
            let image = self.image();
            let topic = image.topics().by_name(&found.topic);
            let record = topic.and_then(|topic| Some((topic, topic.partition(found.partition)?)));
            let stray_because = match record {
                // Opening it finds out which topic it belongs to; an error was reported to the directory.
                Some((topic, record)) if record.leader() == self.node_id => {
                    drop(self.get(topic.id(), found.partition));
                    continue;
                }
                Some((topic, _)) => match self.why_not_of(&found, topic.id()) {
                    Ok(Some(reason)) => reason,
                    // It belongs to this topic, or an error was reported to the directory.
                    Ok(None) | Err(_) => continue,
                },
                None if topic.is_some() => format!("topic {} has no partition {}", found.topic, found.partition),
                None => format!("the metadata has no topic {}", found.topic),
            };
            if self.on_disk.lock().remove(&(found.topic.clone(), found.partition)).is_some()
                && let Err(error) = self.logs.set_aside(&found.topic, found.partition, &stray_because)
            {
                errors.push(error);
            }
        }
        errors
    }

    /// Takes a newly committed image: what is led, configured or deleted differently follows at once.
    pub fn publish(&self, image: Arc<MetadataImage>) -> Published {
        let before = self.image.swap(image.clone());
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        before.topics().for_each_difference(
            image.topics(),
            &mut |was: Option<&Arc<Topic>>, is: Option<&Arc<Topic>>| {
                // A slot may be taken by another topic in one step.
                deleted.extend(was.filter(|was| is.is_none_or(|is| is.id() != was.id())).cloned());
                changed.extend(is);
            },
        );
        let reconfigured = before.configs().changed_in(image.configs());
        for partition in self.opened_of(changed.iter().copied()) {
            self.follow(&image, &partition);
        }
        let topics = reconfigured.iter().filter(|resource| resource.resource_type == TOPIC_RESOURCE);
        let topics = topics.filter_map(|resource| image.topics().by_name(&resource.name));
        for partition in self.opened_of(topics) {
            self.reconfigure(&image, &partition);
        }
        let errors = deleted.iter().flat_map(|topic| self.delete(topic)).collect();
        Published { unassigned: self.unassigned(&image, &changed), errors }
    }

    /// The partitions of these topics that are open: found one by one, for few topics change where many are open.
    fn opened_of<'t>(&self, topics: impl Iterator<Item = &'t Arc<Topic>>) -> Vec<Arc<Partition>> {
        let open = self.open.read();
        if open.is_empty() {
            return Vec::new();
        }
        let keys = topics.flat_map(|topic| topic.partitions().map(|(index, _)| (topic.id(), index)));
        keys.filter_map(|key| open.get(&key).cloned()).collect()
    }

    fn follow(&self, image: &MetadataImage, partition: &Partition) {
        let record = image.topics().by_id(partition.id.topic_id).and_then(|topic| topic.partition(partition.id.index));
        match record {
            None => partition.stop_leading(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Some(record) if record.leader() == self.node_id => {
                partition.on_leadership(leadership(record, self.node_id));
            }
            Some(_) => partition.resign(),
        }
    }

    fn reconfigure(&self, image: &MetadataImage, partition: &Partition) {
        partition.set_config(Arc::new(self.config_of(image, &partition.id.topic)));
    }

    fn delete(&self, topic: &Topic) -> Vec<LogError> {
        let now_ms = (self.clock)();
        let mut errors = Vec::new();
        for (index, _) in topic.partitions() {
            let open = self.open.write().remove(&(topic.id(), index));
            let on_disk = self.on_disk.lock().remove(&(topic.name().to_string(), index)).is_some();
            self.planned.lock().remove(&(topic.id(), index));
            if let Some(partition) = &open {
                partition.stop_leading(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            }
            if (open.is_some() || on_disk)
                && let Err(error) = self.logs.delete(topic.name(), index, now_ms)
            {
                errors.push(error);
            }
        }
        errors
    }

    /// New settings of the node: every open partition works its own out again.
    pub fn set_settings(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
        let image = self.image();
        self.opened().iter().for_each(|partition| self.reconfigure(&image, partition));
    }

    /// Leads nothing any more and closes the logs; `broker_epoch` marks the shutdown as clean.
    pub fn shutdown(&self, broker_epoch: i64) {
        self.is_stopping.store(true, Ordering::Release);
        // Whoever opens a log ends with it first.
        self.opening.iter().for_each(|opening| drop(opening.lock()));
        for partition in self.opened() {
            partition.stop_leading(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        // A start that was given up leaves the logs as they were found.
        if self.opens_rest.load(Ordering::Acquire) {
            let image = self.image();
            let config = |found: &Found| self.config_of(&image, &found.topic).log;
            self.logs.recover_the_rest(config, (self.clock)());
        }
        self.logs.shutdown(broker_epoch);
        self.open.write().clear();
    }
}

fn leadership(record: &PartitionRecord, node_id: i32) -> Leadership {
    Leadership {
        leader_epoch: record.leader_epoch(),
        isr_followers: record.isr().iter().copied().filter(|&id| id != node_id).collect(),
        replica_count: record.replicas().len(),
    }
}
