//! All partitions of which a broker has a replica, following the metadata image: those that it leads are opened when they are
//! used, those that it follows in the background. A partition that was
//! never written is not on disk.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use klamm_base::LogError;
use klamm_base::clock::Clock;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::{LogConfig, LogManager, LogOnDisk, LogOwner};
use klamm_metadata::MetadataImage;
use klamm_metadata::hash::ByIdAndIndex;
use klamm_metadata::partition::Partition as PartitionRecord;
use klamm_metadata::topic::Topic;
use parking_lot::Mutex;

use super::assignments::Unassigned;
use super::changes::Changes;
use super::core::{Assignment, Brokers, Rule};
use super::image_brokers::ImageBrokers;
use super::partition::{Durability, Partition, PartitionId, Place, Shared};
use super::planned::Planned;

/// Type of a topic resource in the image's configs.
const TOPIC_RESOURCE: i8 = 2;
/// The number of locks for opening partitions.
const OPENING_LOCKS: usize = 1024;

pub(super) type Key = (Uuid, i32);
type OpenPartitions = imbl::GenericHashMap<Key, Arc<Partition>, ByIdAndIndex, imbl::shared_ptr::DefaultSharedPtr>;

/// The parts from which a broker's replicas are created.
pub struct ReplicasOptions {
    pub node_id: i32,
    pub durability: Durability,
    pub settings: Settings,
    pub logs: Arc<LogManager>,
    /// A configured directory could not be opened: partitions that are not on disk may be in it.
    pub is_missing_dirs: bool,
    pub clock: Arc<dyn Clock>,
}

/// The result of publishing a new image.
#[derive(Default)]
pub struct Published {
    /// Partitions whose directory differs from the image.
    pub unassigned: Vec<Unassigned>,
    /// Disk errors that occurred meanwhile.
    pub errors: Vec<LogError>,
    /// There is something for [`Replicas::open_followed`].
    pub has_to_open: bool,
}

/// The partitions of one broker.
pub struct Replicas {
    pub(super) node_id: i32,
    durability: Durability,
    pub(super) clock: Arc<dyn Clock>,
    logs: Arc<LogManager>,
    settings: ArcSwap<Settings>,
    brokers: Arc<ImageBrokers>,
    changes: Arc<Changes>,
    /// Read without a lock, whose counter would pass between the processors for each partition of a request.
    pub(super) open: ArcSwap<OpenPartitions>,
    pub(super) opening: Box<[Mutex<()>]>,
    hasher: RandomState,
    /// Logs on disk that were not opened yet, by partition.
    pub(super) on_disk: Mutex<BTreeMap<(String, i32), LogOnDisk>>,
    /// Logs that another directory has, too: the process ended while a copy took the place of its log.
    doubles: Mutex<BTreeMap<(String, i32), Vec<LogOnDisk>>>,
    /// Copies on disk of moves that an earlier process had begun.
    futures: Mutex<BTreeMap<(String, i32), LogOnDisk>>,
    /// Held while a move begins or is ended.
    pub(super) altering: Mutex<()>,
    pub(super) planned: Mutex<Planned>,
    /// Partitions that this broker follows and that are not open yet.
    to_open: Mutex<Vec<Key>>,
    pub(super) is_missing_dirs: bool,
    /// Logs are being opened in the background; a stop ends this.
    opens_rest: AtomicBool,
    /// No log may be opened any more.
    is_stopping: AtomicBool,
    /// While a directory is missing: the image at the start, whose partitions may be in it.
    at_start: OnceLock<Arc<MetadataImage>>,
}

impl Replicas {
    /// Reads what is on disk; leads nothing until an image is published.
    pub fn new(options: ReplicasOptions) -> Self {
        Self::without(options, None)
    }

    /// The same without a rule, for a simulation that must notice it.
    pub fn without(options: ReplicasOptions, rule: Option<Rule>) -> Self {
        let key = |found: &LogOnDisk| (found.topic.clone(), found.partition);
        let (mut on_disk, mut doubles) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for found in options.logs.found() {
            if let Some(other) = on_disk.insert(key(&found), found) {
                doubles.entry(key(&other)).or_default().push(other);
            }
        }
        let changes: Arc<Changes> = Arc::default();
        changes.throttles.apply(&options.settings);
        let futures = options.logs.futures().into_iter().map(|found| (key(&found), found)).collect();
        Self {
            node_id: options.node_id,
            durability: options.durability,
            clock: options.clock.clone(),
            logs: options.logs,
            brokers: ImageBrokers::new(options.node_id, &options.settings, options.clock, rule),
            settings: ArcSwap::from_pointee(options.settings),
            changes,
            to_open: Mutex::default(),
            open: ArcSwap::default(),
            opening: (0..OPENING_LOCKS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            on_disk: Mutex::new(on_disk),
            doubles: Mutex::new(doubles),
            futures: Mutex::new(futures),
            altering: Mutex::default(),
            planned: Mutex::default(),
            is_missing_dirs: options.is_missing_dirs,
            opens_rest: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            at_start: OnceLock::new(),
        }
    }

    /// The time of its clock, which is monotonic.
    pub fn now_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    /// The current committed image.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.brokers.image.load_full()
    }

    /// What partitions ask of this broker.
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// The epoch of this broker in the current image; -1 if it is not registered.
    pub fn broker_epoch(&self) -> i64 {
        self.brokers.standing(self.node_id).map_or(-1, |broker| broker.epoch)
    }

    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// The node's configuration.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// The time of day, in ms since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    /// Lets every leader propose to remove replicas that lag (every half of `replica.lag.time.max.ms`).
    pub fn check_lag(&self) {
        self.opened().iter().for_each(|partition| partition.check_lag());
    }

    /// The logs and their directories.
    pub fn logs(&self) -> &Arc<LogManager> {
        &self.logs
    }

    /// The partition; opens it if necessary.
    pub fn get(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.open.load().get(&(topic_id, index)) {
            return Ok(partition.clone());
        }
        self.open_one(topic_id, index)
    }

    /// The same for a network task: while a log is recovered, the worker's other tasks continue elsewhere.
    pub fn get_in_task(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.open.load().get(&(topic_id, index)) {
            return Ok(partition.clone());
        }
        match self.must_recover(topic_id, index) {
            true => tokio::task::block_in_place(|| self.get(topic_id, index)),
            false => self.get(topic_id, index),
        }
    }

    /// Whether getting the partition would wait for a recovery, which may read its whole log.
    pub fn must_recover(&self, topic_id: Uuid, index: i32) -> bool {
        let key = (topic_id, index);
        if self.open.load().contains_key(&key) {
            return false;
        }
        // Held while another thread opens this partition, or one with the same lock.
        let Some(_opening) = self.opening[self.opening_of(key)].try_lock() else { return true };
        let Some(topic) = self.brokers.image.load().topics().by_id(topic_id).cloned() else { return false };
        let found = self.on_disk.lock().get(&(topic.name().to_string(), index)).map(|found| found.dir);
        found.is_some_and(|dir| !self.logs.dirs()[dir].was_shut_down_cleanly())
    }

    pub(super) fn opening_of(&self, key: Key) -> usize {
        self.hasher.hash_one(key) as usize % OPENING_LOCKS
    }

    /// Marks these partitions as appended to. Their flushers start when all of them are queued, so that one call can
    /// sync many.
    pub fn mark_dirty(&self, partitions: &[Arc<Partition>]) {
        for (at, dir) in self.logs().dirs().iter().enumerate() {
            let in_dir = partitions.iter().filter(|partition| partition.dir() == at);
            dir.flusher().mark_all_dirty(in_dir.map(|partition| partition.clone() as Arc<dyn LogOwner>));
        }
    }

    /// The open partitions.
    pub fn opened(&self) -> Vec<Arc<Partition>> {
        self.open.load().values().cloned().collect()
    }

    fn open_one(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let key = (topic_id, index);
        let _opening = self.opening[self.opening_of(key)].lock();
        if let Some(partition) = self.open.load().get(&key) {
            return Ok(partition.clone());
        }
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let image = self.image();
        let topic = image.topics().by_id(topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        let record = topic.partition(index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if !record.replicas().contains(&self.node_id) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if let Some(code) = self.why_offline(&image, record) {
            return Err(code);
        }
        let partition = self.open_log(&image, topic, index, record).map_err(|error| error.code())?;
        self.open.rcu(|open| open.update(key, partition.clone()));
        // The image may have changed while the log was opened, and that change did not find the partition open.
        fence(Ordering::SeqCst);
        let latest = self.image();
        if !Arc::ptr_eq(&latest, &image) {
            self.follow(&latest, &partition);
            drop(self.remove_unassigned(&latest, &[topic]));
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
        let now_ms = self.clock.wall_ms();
        let config = Arc::new(self.config_of(image, topic.name()));
        let name = topic.name().to_string();
        let found = self.on_disk.lock().get(&(name.clone(), index)).cloned();
        let found = self.without_double(found, topic.id(), &config.log)?;
        let stray_because = found.as_ref().map(|found| self.topic_mismatch(found, topic.id())).transpose()?.flatten();
        self.on_disk.lock().remove(&(name.clone(), index));
        if let Some(reason) = &stray_because {
            // Left by an earlier topic with the same name: kept as a stray, as in Apache Kafka.
            self.logs.set_aside(&name, index, reason)?;
        }
        let found = found.filter(|_| stray_because.is_none());
        let future = self.future_of(&name, index, topic.id());
        let (found, future) = match (found, future) {
            // The log is in a directory that is gone, and the controller knows that the copy is to replace it.
            (None, Some(future)) if self.is_assigned(image, record, future.dir) => {
                (Some(self.logs.promote_found(&future)?), None)
            }
            (None, Some(future)) if self.may_be_missing((topic.id(), index)) => {
                self.futures.lock().insert((name.clone(), index), future);
                (None, None)
            }
            (None, Some(future)) => {
                self.logs.set_aside_second(&future, "the log that it copies is gone")?;
                (None, None)
            }
            both => both,
        };
        let (log, dir, high_watermark) = match found {
            Some(found) => {
                let (mut log, _) = self.logs.open(&found, config.log.clone(), now_ms)?;
                if self.durability == Durability::Flushed {
                    // Records that a crash left unflushed were not acknowledged, or are durable by now. Either way
                    // they may be read once they are on disk, and a consumer must not see the high watermark
                    // decrease.
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
        let place = Place { logs: self.logs.clone(), dir };
        let (brokers, changes) = (self.brokers.clone(), self.changes.clone());
        let shared = Shared { durability: self.durability, brokers, changes };
        let partition = Partition::open(id, log, high_watermark, &assignment(record), config, place, shared);
        self.logs.adopt(dir, &name, index, partition.clone());
        self.planned.lock().remove(&(topic.id(), index));
        if let Some(future) = future {
            self.resume_move(&partition, &future);
        }
        if !partition.damaged().is_empty() {
            self.changes.damaged.push(partition.clone());
            self.logs.checkpoint_proven_ends(dir)?;
        }
        Ok(partition)
    }

    /// The copy of a partition on disk, unless it is of an earlier topic of that name.
    fn future_of(&self, name: &str, index: i32, topic_id: Uuid) -> Option<LogOnDisk> {
        let future = self.futures.lock().remove(&(name.to_owned(), index))?;
        match self.topic_mismatch(&future, topic_id) {
            Ok(None) => Some(future),
            Ok(Some(reason)) => {
                drop(self.logs.set_aside_second(&future, &reason));
                None
            }
            // It was reported to the directory.
            Err(_) => None,
        }
    }

    fn is_assigned(&self, image: &MetadataImage, record: &PartitionRecord, dir: usize) -> bool {
        let directory = record.directory_of(self.node_id);
        let found = directory.and_then(|number| image.topics().directory_table().ids([number].into_iter()).pop());
        found == Some(self.logs.dirs()[dir].id())
    }

    /// Of the logs of a partition in several directories, the one that is further; the others are set aside.
    fn without_double(
        &self,
        found: Option<LogOnDisk>,
        topic_id: Uuid,
        config: &Arc<LogConfig>,
    ) -> Result<Option<LogOnDisk>, LogError> {
        let Some(found) = found else { return Ok(None) };
        let key = (found.topic.clone(), found.partition);
        let Some(others) = self.doubles.lock().remove(&key) else { return Ok(Some(found)) };
        let end = |found: &LogOnDisk| {
            let (log, _) = self.logs.open(found, config.clone(), self.clock.wall_ms())?;
            let is_own = self.logs.topic_id(found)?.is_none_or(|stored| stored == topic_id);
            Ok((is_own, log.latest_epoch(), log.log_end_offset()))
        };
        let mut best = (end(&found)?, found);
        for other in others {
            let (rank, mut left) = (end(&other)?, other);
            if rank > best.0 {
                let better = (rank, left);
                left = std::mem::replace(&mut best, better).1;
            }
            let reason = format!("{} has the same partition, and is further", best.1.path.display());
            self.logs.set_aside_second(&left, &reason)?;
        }
        self.on_disk.lock().insert(key, best.1.clone());
        Ok(Some(best.1))
    }

    /// Explains why the files on disk belong to another topic that had the same name; `None` if they belong to this
    /// one.
    pub(super) fn topic_mismatch(&self, found: &LogOnDisk, topic_id: Uuid) -> Result<Option<String>, LogError> {
        self.logs.topic_mismatch(found, topic_id, |other| self.brokers.image.load().topics().by_id(other).is_some())
    }

    /// The directory that the image assigns, else the one with the fewest logs.
    pub(super) fn dir_for(&self, image: &MetadataImage, key: Key, record: &PartitionRecord) -> Result<usize, LogError> {
        let mut assigned = record.replicas().iter().zip(image.topics().directories_of(record));
        let assigned = assigned.find(|(replica, _)| **replica == self.node_id);
        let wanted = assigned.and_then(|(_, id)| self.logs.dir_by_id(id));
        if wanted.is_none() && self.may_be_missing(key) {
            // An empty log in another directory would pass for the partition, and its offsets would start at 0.
            let path = self.logs.dirs().first().map(|dir| dir.path().to_owned()).unwrap_or_default();
            let reason = "the log may be in a directory that has failed".to_owned();
            return Err(LogError::Directory { path, reason });
        }
        let preferred = self.planned.lock().preferred(key, &self.logs);
        preferred.or(wanted).or_else(|| self.planned.lock().dir_for(key, &self.logs)).ok_or_else(|| {
            LogError::Directory {
                path: self.logs.dirs().first().map(|dir| dir.path().to_owned()).unwrap_or_default(),
                reason: "every log directory has failed".to_owned(),
            }
        })
    }

    /// Whether a partition without files may have them in a directory that could not be opened.
    pub(super) fn may_be_missing(&self, (topic_id, index): Key) -> bool {
        let was_there = |image: &Arc<MetadataImage>| {
            image.topics().by_id(topic_id).is_some_and(|topic| topic.partition(index).is_some())
        };
        self.is_missing_dirs && self.at_start.get().is_none_or(was_there)
    }

    pub(super) fn config_of(&self, image: &MetadataImage, topic: &str) -> super::PartitionConfig {
        let own = |key: &str| image.configs().value(TOPIC_RESOURCE, topic, key).map(str::to_owned);
        super::PartitionConfig::of_topic(&self.settings.load(), &own)
    }

    /// Records that the start succeeded and that [`Self::open_the_rest`] follows: from now on a stop recovers the logs
    /// that are not open yet, even if it comes before the first of them is opened. Calling it again changes nothing.
    pub fn begin_opening(&self) {
        if self.is_missing_dirs {
            let _ = self.at_start.set(self.image());
        }
        self.opens_rest.store(true, Ordering::Release);
    }

    /// Opens the logs on disk that are not open yet, and sets aside those that belong to no topic of the image. Runs
    /// on its own thread.
    pub fn open_the_rest(&self) -> Vec<LogError> {
        self.begin_opening();
        let waiting: Vec<LogOnDisk> = self.on_disk.lock().values().cloned().collect();
        let mut errors = Vec::new();
        for found in waiting {
            let image = self.image();
            let topic = image.topics().by_name(&found.topic);
            let record = topic.and_then(|topic| Some((topic, topic.partition(found.partition)?)));
            let stray_because = match record {
                // Opening it determines its topic; errors were reported to the directory.
                Some((topic, record)) if record.replicas().contains(&self.node_id) => {
                    drop(self.get(topic.id(), found.partition));
                    continue;
                }
                Some((topic, _)) => match self.topic_mismatch(&found, topic.id()) {
                    Ok(Some(reason)) => reason,
                    Ok(None) => format!("broker {} is not a replica of it any more", self.node_id),
                    // It was reported to the directory.
                    Err(_) => continue,
                },
                None if topic.is_some() => format!("topic {} has no partition {}", found.topic, found.partition),
                None => format!("the metadata has no topic {}", found.topic),
            };
            // `shutdown` waits for it: a folder is set aside with its warning, or left for the next start.
            let _opening = self.opening[0].lock();
            if self.is_stopping.load(Ordering::Acquire) {
                return errors;
            }
            if self.on_disk.lock().remove(&(found.topic.clone(), found.partition)).is_some()
                && let Err(error) = self.logs.set_aside(&found.topic, found.partition, &stray_because)
            {
                errors.push(error);
            }
        }
        self.to_open.lock().extend(self.followed(self.image().topics().iter()));
        self.open_followed();
        errors.extend(self.set_futures_aside());
        errors
    }

    /// Copies on disk of partitions that are not open have no log to copy.
    fn set_futures_aside(&self) -> Vec<LogError> {
        let left: Vec<LogOnDisk> = self.futures.lock().values().cloned().collect();
        let mut errors = Vec::new();
        for found in left {
            let image = self.image();
            let topic = image.topics().by_name(&found.topic);
            let record = topic.and_then(|topic| topic.partition(found.partition));
            // Its log may be in a directory that is offline, or in use later.
            if record.is_some_and(|record| record.replicas().contains(&self.node_id)) {
                continue;
            }
            let _opening = self.opening[0].lock();
            if self.is_stopping.load(Ordering::Acquire) {
                return errors;
            }
            if self.futures.lock().remove(&(found.topic.clone(), found.partition)).is_some() {
                let reason = "it is a copy of a partition that this broker does not have";
                errors.extend(self.logs.set_aside_second(&found, reason).err());
            }
        }
        errors
    }

    /// The partitions of these topics that follow another broker.
    fn followed<'t>(&self, topics: impl Iterator<Item = &'t Arc<Topic>>) -> Vec<Key> {
        let follows = |record: &PartitionRecord| {
            ![-1, self.node_id].contains(&record.leader()) && record.replicas().contains(&self.node_id)
        };
        let of_topic = |topic: &'t Arc<Topic>| {
            topic.partitions().filter(|(_, record)| follows(record)).map(move |(index, _)| (topic.id(), index))
        };
        topics.flat_map(of_topic).collect()
    }

    /// Opens the partitions that follow another broker, which no request opens. A thread calls this after [`Self::publish`] has
    /// returned that there are some, because a log may have to be recovered.
    pub fn open_followed(&self) {
        loop {
            let keys = std::mem::take(&mut *self.to_open.lock());
            if keys.is_empty() {
                return;
            }
            // An error was reported to the directory, or a newer image will tell.
            keys.into_iter().for_each(|(topic_id, index)| drop(self.get(topic_id, index)));
        }
    }

    /// Publishes a newly committed image: changes of leadership, configuration and deletions apply immediately.
    pub fn publish(&self, image: Arc<MetadataImage>) -> Published {
        let before = self.brokers.image.swap(image.clone());
        // A partition that is not found open below finds this image when it has been opened.
        fence(Ordering::SeqCst);
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        before.topics().for_each_difference(
            image.topics(),
            &mut |was: Option<&Arc<Topic>>, is: Option<&Arc<Topic>>| {
                // One step may replace the topic in a slot by another.
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
        let mut errors: Vec<_> = deleted.iter().flat_map(|topic| self.delete(topic)).collect();
        let mut has_to_open = false;
        if self.opens_rest.load(Ordering::Acquire) {
            let open = self.open.load();
            let followed = self.followed(changed.iter().copied()).into_iter().filter(|key| !open.contains_key(key));
            let followed: Vec<_> = followed.collect();
            has_to_open = !followed.is_empty();
            self.to_open.lock().extend(followed);
            errors.extend(self.remove_unassigned(&image, &changed));
        }
        Published { unassigned: self.unassigned(&image, &changed), errors, has_to_open }
    }

    /// The open partitions of these topics: looked up one by one, because few topics change while many are open.
    fn opened_of<'t>(&self, topics: impl Iterator<Item = &'t Arc<Topic>>) -> Vec<Arc<Partition>> {
        let open = self.open.load();
        if open.is_empty() {
            return Vec::new();
        }
        let keys = topics.flat_map(|topic| topic.partitions().map(|(index, _)| (topic.id(), index)));
        keys.filter_map(|key| open.get(&key).cloned()).collect()
    }

    fn follow(&self, image: &MetadataImage, partition: &Partition) {
        let record = image.topics().by_id(partition.id.topic_id).and_then(|topic| topic.partition(partition.id.index));
        match record {
            None => partition.stop(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Some(record) if !record.replicas().contains(&self.node_id) => {
                partition.stop(ErrorCode::NOT_LEADER_OR_FOLLOWER);
            }
            Some(record) => partition.on_assignment(&assignment(record)),
        }
    }

    fn reconfigure(&self, image: &MetadataImage, partition: &Partition) {
        partition.set_config(Arc::new(self.config_of(image, &partition.id.topic)));
    }

    fn delete(&self, topic: &Topic) -> Vec<LogError> {
        let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        topic.partitions().filter_map(|(index, _)| self.delete_one(topic, index, code)).collect()
    }

    /// Deletes the replicas of these topics that are assigned to this broker no longer.
    fn remove_unassigned(&self, image: &MetadataImage, topics: &[&Arc<Topic>]) -> Vec<LogError> {
        let mut errors = Vec::new();
        for topic in topics.iter().filter_map(|topic| image.topics().by_id(topic.id())) {
            for (index, record) in topic.partitions() {
                let is_open = || self.open.load().contains_key(&(topic.id(), index));
                if !record.replicas().contains(&self.node_id) && is_open() {
                    errors.extend(self.delete_one(topic, index, ErrorCode::NOT_LEADER_OR_FOLLOWER));
                }
            }
        }
        errors
    }

    fn delete_one(&self, topic: &Topic, index: i32, code: ErrorCode) -> Option<LogError> {
        let key = (topic.id(), index);
        let open = self.open.rcu(|open| open.without(&key)).get(&key).cloned();
        let on_disk = self.on_disk.lock().remove(&(topic.name().to_string(), index)).is_some();
        self.planned.lock().remove(&key);
        if let Some(partition) = &open {
            partition.stop(code);
            let _altering = self.altering.lock();
            let _ = partition.end_move();
        }
        self.futures.lock().remove(&(topic.name().to_string(), index));
        // Its error was reported to the directory.
        let _ = self.logs.delete_future(topic.name(), index, self.clock.wall_ms());
        let is_there = open.is_some() || on_disk;
        is_there.then(|| self.logs.delete(topic.name(), index, self.clock.wall_ms()).err()).flatten()
    }

    /// Applies a new node configuration: every open partition recomputes its own.
    pub fn set_settings(&self, settings: Settings) {
        self.changes.throttles.apply(&settings);
        self.settings.store(Arc::new(settings));
        let image = self.image();
        self.opened().iter().for_each(|partition| self.reconfigure(&image, partition));
    }

    /// Stops leading and closes the logs; `broker_epoch` marks the shutdown as clean.
    pub fn shutdown(&self, broker_epoch: i64) {
        self.is_stopping.store(true, Ordering::Release);
        // Wait for threads that are opening a log.
        self.opening.iter().for_each(|opening| drop(opening.lock()));
        for partition in self.opened() {
            partition.stop(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        // If the start was aborted, the logs stay as they were found.
        if self.opens_rest.load(Ordering::Acquire) {
            let image = self.image();
            let config = |found: &LogOnDisk| self.config_of(&image, &found.topic).log;
            self.logs.recover_the_rest(config, self.clock.wall_ms());
        }
        self.logs.shutdown(broker_epoch);
        self.open.store(Arc::default());
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.changes.clear();
    }
}

fn assignment(record: &PartitionRecord) -> Assignment {
    Assignment {
        leader: record.leader(),
        leader_epoch: record.leader_epoch(),
        partition_epoch: record.partition_epoch(),
        replicas: record.replicas().to_vec(),
        isr: record.isr().to_vec(),
    }
}
