//! The difference between two images. It is computed by walking the parts that they do not share, so that applying
//! records needs no bookkeeping, and several batches, a transaction or a new snapshot all give one delta.
use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use klamm_base::Uuid;

use crate::MetadataImage;
use crate::configs::ConfigResource;
use crate::partition::Partition;
use crate::security::{QuotaEntity, ScramKey};
use crate::topic::Topic;
use crate::topics::TopicsImage;

/// A topic in both images, with its new and changed partitions. Partitions are only removed together with their
/// topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTopic {
    pub older: Arc<Topic>,
    pub newer: Arc<Topic>,
    pub partitions: Vec<i32>,
}

/// The differences from one image to a newer one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    pub created_topics: Vec<Arc<Topic>>,
    pub deleted_topics: Vec<Arc<Topic>>,
    pub changed_topics: Vec<ChangedTopic>,
    /// Resources with a value that was set, changed or removed. Includes brokers for which a value was set to the
    /// same value: they reload then.
    pub changed_configs: Vec<ConfigResource>,
    /// Brokers that were registered, changed or unregistered.
    pub changed_brokers: Vec<i32>,
    /// Controllers that were registered, changed or unregistered.
    pub changed_controllers: Vec<i32>,
    /// Features whose level changed.
    pub changed_features: Vec<String>,
    pub changed_quotas: Vec<QuotaEntity>,
    pub changed_acls: Vec<Uuid>,
    pub changed_scram: Vec<ScramKey>,
    pub changed_tokens: Vec<Arc<str>>,
    /// Whether a block of producer ids was allocated.
    pub producer_ids_changed: bool,
}

impl Delta {
    /// What is different in `newer`.
    pub fn between(older: &MetadataImage, newer: &MetadataImage) -> Self {
        let mut delta = Delta::default();
        delta.compare_topics(older.topics(), newer.topics());
        delta.changed_configs = older.configs().changed_in(newer.configs());
        delta.changed_brokers = changed_keys(older.brokers(), newer.brokers());
        delta.changed_controllers = changed_keys(older.controllers(), newer.controllers());
        delta.changed_features = changed_features(older, newer);
        delta.changed_quotas = changed_keys(older.quotas(), newer.quotas());
        delta.changed_acls = changed_keys(older.acls(), newer.acls());
        delta.changed_scram = changed_keys(older.scram(), newer.scram());
        delta.changed_tokens = changed_keys(older.tokens(), newer.tokens());
        delta.producer_ids_changed = older.next_producer_id() != newer.next_producer_id();
        delta
    }

    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn compare_topics(&mut self, older: &TopicsImage, newer: &TopicsImage) {
        // If directories have the same numbers in both images, partitions can be compared directly.
        let same_numbers = older.directory_table().is_shared_with(newer.directory_table());
        let is_same = |old: &Partition, new: &Partition| match same_numbers {
            true => old == new,
            false => old.equals_but_numbers(new) && older.directories_of(old) == newer.directories_of(new),
        };
        older.for_each_difference(newer, &mut |old, new| {
            if let Some(old) = old.filter(|old| newer.by_id(old.id()).is_none()) {
                self.deleted_topics.push(Arc::clone(old));
            }
            // A topic may be in another slot if one of the images was loaded from a snapshot.
            match new.map(|new| (older.by_id(new.id()), new)) {
                Some((Some(old), new)) => self.compare_topic(old, new, is_same),
                Some((None, new)) => self.created_topics.push(Arc::clone(new)),
                None => {}
            }
        });
    }

    fn compare_topic(&mut self, old: &Arc<Topic>, new: &Arc<Topic>, is_same: impl Fn(&Partition, &Partition) -> bool) {
        let is_unchanged = |number| match (old.partition(number), new.partition(number)) {
            (Some(before), Some(after)) => is_same(before, after),
            _ => false,
        };
        let mut partitions = new.maybe_different(old);
        partitions.retain(|&number| !is_unchanged(number));
        if !partitions.is_empty() {
            self.changed_topics.push(ChangedTopic { older: Arc::clone(old), newer: Arc::clone(new), partitions });
        }
    }
}

fn changed_keys<K: Ord + Clone, V: PartialEq>(older: &imbl::OrdMap<K, V>, newer: &imbl::OrdMap<K, V>) -> Vec<K> {
    let key = |item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key,
        DiffItem::Update { old: (key, _), .. } => key,
    };
    older.diff(newer).map(|item| K::clone(key(item))).collect()
}

fn changed_features(older: &MetadataImage, newer: &MetadataImage) -> Vec<String> {
    let names: BTreeSet<&String> = older.features().keys().chain(newer.features().keys()).collect();
    let changed = names.into_iter().filter(|&name| older.features().get(name) != newer.features().get(name));
    changed.cloned().collect()
}
