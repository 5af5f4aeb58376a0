//! All topics, by slot, id and name.
use std::sync::{Arc, OnceLock};

use klamm_base::Uuid;

use crate::change_run::apply_run;
use crate::counts::PartitionCounts;
use crate::directories::{DirectoryTable, KnownDirectories};
use crate::hash::{hash_id, hash_name};
use crate::hash_index::HashIndex;
use crate::partition::Partition;
use crate::records::{PartitionChangeRecord, PartitionRecord, TopicRecord};
use crate::replay_error::ReplayError;
use crate::slots::Slots;
use crate::topic::{GrowingTopic, Topic};
use crate::usual_change::UsualChange;
use crate::usual_partition::UsualPartition;

/// The topics of a cluster.
///
/// 1. `by_id` and `by_name` contain exactly the slots of all topics in `slots`.
/// 2. Slots that are empty and below `slots.end()` are in `free`.
/// 3. Between batches `counts` has the counts of the partitions in `slots`; within a batch, `counting` does once it
///    is set.
#[derive(Clone, Default)]
pub struct TopicsImage {
    slots: Slots<Topic>,
    free: imbl::Vector<u32>,
    by_id: HashIndex,
    by_name: HashIndex,
    sorted: Arc<OnceLock<Vec<Arc<str>>>>,
    /// The topic to which consecutive records add partitions, and its slot; always `None` between batches.
    growing: Option<(u32, GrowingTopic)>,
    /// How many partitions the previous topic received.
    grown: usize,
    directories: DirectoryTable,
    /// A copy of `directories` for lookups within a batch; `None` between batches.
    known: Option<KnownDirectories>,
    counts: Arc<PartitionCounts>,
    /// Not shared, so that a batch of many records checks only once whether the counts are shared.
    counting: Option<Box<PartitionCounts>>,
}

impl TopicsImage {
    /// Number of topics.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_id.len() == 0
    }

    /// Partition counts, in total and for each broker, at the end of the last batch.
    pub fn counts(&self) -> &PartitionCounts {
        &self.counts
    }

    /// The topic with an id.
    #[inline]
    pub fn by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.slots.get(self.slot_of(id)?)
    }

    /// The topic with a name.
    #[inline]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Topic>> {
        self.slots.get(self.slot_named(name)?)
    }

    #[inline]
    fn slot_of(&self, id: Uuid) -> Option<u32> {
        self.by_id.find(hash_id(id), |slot| self.slots.get(slot).is_some_and(|topic| topic.id() == id))
    }

    #[inline]
    fn slot_named(&self, name: &str) -> Option<u32> {
        self.by_name.find(hash_name(name), |slot| self.slots.get(slot).is_some_and(|topic| **topic.name() == *name))
    }

    /// The topics, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.slots.iter().map(|(_, topic)| topic)
    }

    /// The topics from a slot on, in ascending order of slot: an existing topic keeps its slot.
    pub fn iter_from(&self, slot: u32) -> impl Iterator<Item = (u32, &Arc<Topic>)> {
        self.slots.iter_from(slot)
    }

    /// The names in ascending order; sorted on first use after a topic was created or deleted.
    pub fn sorted_names(&self) -> &[Arc<str>] {
        self.sorted.get_or_init(|| {
            let mut names: Vec<Arc<str>> = self.iter().map(|topic| Arc::clone(topic.name())).collect();
            names.sort_unstable();
            names
        })
    }

    /// The directory ids of a partition's replicas, in the order of the replicas.
    pub fn directories_of(&self, partition: &Partition) -> Vec<Uuid> {
        self.directories.ids(partition.directories())
    }

    /// The directory ids that partitions refer to by number.
    pub fn directory_table(&self) -> &DirectoryTable {
        &self.directories
    }

    /// Calls `on_difference` with each slot whose topics differ between the images.
    pub fn for_each_difference<'a>(
        &'a self,
        newer: &'a Self,
        on_difference: &mut impl FnMut(Option<&'a Arc<Topic>>, Option<&'a Arc<Topic>>),
    ) {
        self.slots.for_each_difference(&newer.slots, on_difference);
    }

    pub(super) fn create_topic(&mut self, record: &TopicRecord<'_>) -> Result<(), ReplayError> {
        let duplicate =
            |first: Uuid| ReplayError::DuplicateTopic { name: record.name.to_owned(), first, second: record.topic_id };
        if let Some(topic) = self.by_name(record.name) {
            return Err(duplicate(topic.id()));
        }
        if self.slot_of(record.topic_id).is_some() {
            return Err(duplicate(record.topic_id));
        }
        let slot = self.free.pop_back().unwrap_or(self.slots.end());
        let name: Arc<str> = record.name.into();
        self.by_id.insert(hash_id(record.topic_id), slot);
        self.by_name.insert(hash_name(&name), slot);
        self.sorted = Arc::default();
        self.slots.set(slot, Arc::new(Topic::new(record.topic_id, name)));
        Ok(())
    }

    pub(super) fn remove_topic(&mut self, id: Uuid) -> Result<Arc<Topic>, ReplayError> {
        self.settle();
        let slot = self.slot_of(id).ok_or(ReplayError::UnknownTopicId(id))?;
        let topic = self.slots.take(slot).expect("invariant 1");
        self.by_id.remove(hash_id(id), |found| found == slot);
        self.by_name.remove(hash_name(topic.name()), |found| found == slot);
        self.sorted = Arc::default();
        self.free.push_back(slot);
        let counts = counting(&mut self.counting, &self.counts);
        topic.partitions().for_each(|(_, partition)| counts.subtract(partition));
        Ok(topic)
    }

    /// Completes a batch.
    pub(super) fn finish_batch(&mut self) {
        self.settle();
        self.known = None;
        if let Some(counts) = self.counting.take() {
            self.counts = Arc::new(*counts);
        }
    }

    /// Stores the growing topic in its slot, which contained its previous state.
    fn settle(&mut self) {
        if let Some((slot, topic)) = self.growing.take() {
            self.grown = topic.partition_count();
            topic.replace(self.slots.get_mut(slot).expect("invariant 1"));
        }
    }

    /// Makes a topic the growing one.
    fn grow(&mut self, id: Uuid) -> Result<(), ReplayError> {
        if self.growing.as_ref().is_none_or(|(_, topic)| topic.id() != id) {
            self.settle();
            // A topic receives its partitions right after its creation, and most topics are created in the last slot.
            let last = self.slots.end().wrapping_sub(1);
            let is_last = self.slots.get(last).is_some_and(|topic| topic.id() == id);
            let slot = if is_last { Some(last) } else { self.slot_of(id) };
            let slot = slot.ok_or(ReplayError::UnknownTopicId(id))?;
            let topic = self.slots.get(slot).expect("invariant 1");
            self.growing = Some((slot, GrowingTopic::new(topic, self.grown)));
        }
        Ok(())
    }

    pub(super) fn set_partition(&mut self, record: &PartitionRecord<'_>) -> Result<(), ReplayError> {
        let (topic_id, partition_id) = (record.topic_id, record.partition_id);
        if partition_id < 0 {
            return Err(ReplayError::PartitionId { topic_id, partition_id });
        }
        let partition = Partition::from_record(record, &self.directories)?;
        self.put_partition(topic_id, partition_id, partition)
    }

    /// The same as [`TopicsImage::set_partition`].
    #[inline]
    pub(super) fn set_usual_partition(&mut self, record: &UsualPartition<'_>) -> Result<(), ReplayError> {
        let (topic_id, partition_id) = (record.topic_id, record.partition_id);
        let known = self.known.get_or_insert_with(|| self.directories.known());
        match known.few(record.directories) {
            Some(directories) if partition_id >= 0 => {
                self.put_partition(topic_id, partition_id, Partition::from_usual(record, directories))
            }
            _ => {
                self.known = None;
                record.with_record(|record| self.set_partition(record))
            }
        }
    }

    #[inline]
    fn put_partition(&mut self, topic_id: Uuid, partition_id: i32, partition: Partition) -> Result<(), ReplayError> {
        self.grow(topic_id)?;
        let (_, topic) = self.growing.as_mut().expect("just made so");
        let counts = counting(&mut self.counting, &self.counts);
        counts.add(&partition);
        let replaced = topic.set_partition(partition_id, partition);
        replaced.iter().for_each(|replaced| counts.subtract(replaced));
        Ok(())
    }

    /// Applies consecutive changes, with the result of [`TopicsImage::change_partition`].
    pub(super) fn change_usual_partitions(&mut self, run: &[UsualChange<'_>]) -> Result<(), (usize, ReplayError)> {
        self.settle();
        let counts = counting(&mut self.counting, &self.counts);
        let mut changed = apply_run(run, &self.slots, &self.by_id, counts)?;
        self.slots.replace(&mut changed);
        Ok(())
    }

    pub(super) fn change_partition(&mut self, record: &PartitionChangeRecord<'_>) -> Result<(), ReplayError> {
        self.settle();
        let (topic_id, partition_id) = (record.topic_id, record.partition_id);
        let slot = self.slot_of(topic_id).ok_or(ReplayError::UnknownTopicId(topic_id))?;
        let topic = self.slots.get_mut(slot).expect("invariant 1");
        let partition = Arc::make_mut(topic)
            .partition_mut(partition_id)
            .ok_or(ReplayError::UnknownPartition { topic_id, partition_id })?;
        let before = partition.clone();
        partition.merge(record, &self.directories)?;
        counting(&mut self.counting, &self.counts).change(&before, partition);
        Ok(())
    }

    /// Clears the ELR of one topic, or of all topics if the name is empty.
    pub(super) fn clear_elr(&mut self, topic_name: &str) -> Result<(), ReplayError> {
        self.settle();
        if topic_name.is_empty() {
            let slots: Vec<u32> = self.slots.iter().map(|(slot, _)| slot).collect();
            slots.into_iter().for_each(|slot| self.clear_elr_of(slot));
            return Ok(());
        }
        let slot = self.slot_named(topic_name).ok_or_else(|| ReplayError::UnknownTopicName(topic_name.to_owned()))?;
        self.clear_elr_of(slot);
        Ok(())
    }

    fn clear_elr_of(&mut self, slot: u32) {
        let topic = self.slots.get(slot).expect("the caller found it");
        let has_elr = |partition: &Partition| !partition.elr().is_empty() || !partition.last_known_elr().is_empty();
        if !topic.partitions().any(|(_, partition)| has_elr(partition)) {
            return;
        }
        let topic = Arc::make_mut(self.slots.get_mut(slot).expect("just seen"));
        let counts = counting(&mut self.counting, &self.counts);
        topic.for_each_partition_mut(|partition| {
            counts.subtract(partition);
            partition.clear_elr();
            counts.add(partition);
        });
    }
}

fn counting<'c>(counting: &'c mut Option<Box<PartitionCounts>>, counts: &PartitionCounts) -> &'c mut PartitionCounts {
    counting.get_or_insert_with(|| Box::new(counts.clone()))
}

impl PartialEq for TopicsImage {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|topic| {
                other.by_id(topic.id()).is_some_and(|same| {
                    topic.name() == same.name()
                        && topic.partition_count() == same.partition_count()
                        && topic.partitions().all(|(number, partition)| {
                            same.partition(number).is_some_and(|other_partition| {
                                partition.equals_but_numbers(other_partition)
                                    && self.directories_of(partition) == other.directories_of(other_partition)
                            })
                        })
                })
            })
    }
}
