//! Which directory each replica of this broker is in, where the image does not know it yet (KIP-858).

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::partition::Partition as PartitionRecord;
use klamm_metadata::topic::Topic;

use super::replicas::{Key, Replicas};

/// A partition whose directory the image does not have, or has wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unassigned {
    /// The directory that it is in, or will be when it is written.
    pub directory_id: Uuid,
    pub topic_id: Uuid,
    pub partition: i32,
}

impl Replicas {
    /// Those of the topics that are to be told to the controller. One that was never written gets its directory now, so
    /// that it goes with that directory as in Apache Kafka, which makes its files at once.
    pub(super) fn unassigned(&self, image: &MetadataImage, topics: &[&Arc<Topic>]) -> Vec<Unassigned> {
        if !image.metadata_version().is_some_and(|version| version.has_directory_assignment()) {
            return Vec::new();
        }
        let table = image.topics().directory_table();
        // As the image numbers them; a directory that is in no partition yet has no number.
        let own: Vec<Option<u32>> = self.logs().dirs().iter().map(|dir| table.find(dir.id())).collect();
        let mut found = Vec::new();
        for topic in topics {
            for (index, record) in topic.partitions() {
                let Some(number) = record.directory_of(self.node_id) else { continue };
                let assigned = own.iter().position(|own| *own == Some(number));
                if own.len() == 1 && assigned.is_some() {
                    continue;
                }
                if let Some(dir) = self.dir_of((topic.id(), index), topic.name(), assigned)
                    && Some(dir) != assigned
                {
                    let directory_id = self.logs().dirs()[dir].id();
                    found.push(Unassigned { directory_id, topic_id: topic.id(), partition: index });
                }
            }
        }
        found
    }

    /// The number of the directory that a partition is in, or is to be in; `None` when that is not known or it failed.
    fn dir_of(&self, key: Key, topic: &str, assigned: Option<usize>) -> Option<usize> {
        let open = self.open.read().get(&key).map(|partition| partition.dir());
        let on_disk = || {
            let found = self.on_disk.lock().get(&(topic.to_owned(), key.1)).cloned()?;
            // Where both say the same, it does not matter whose files they are.
            let is_known = Some(found.dir) == assigned;
            (is_known || !matches!(self.why_not_of(&found, key.0), Ok(Some(_)))).then_some(found.dir)
        };
        if open.is_some() {
            return self.in_use(open);
        }
        let found = on_disk();
        if found.is_some() || assigned.is_some() || self.may_be_missing(key) {
            // Not open, and perhaps never written: it counts where it is all the same.
            let dir = found.or(assigned);
            dir.inspect(|&dir| self.planned.lock().keep(key, dir));
            return if found.is_some() { self.in_use(dir) } else { dir };
        }
        self.planned.lock().dir_for(key, self.logs())
    }

    fn in_use(&self, dir: Option<usize>) -> Option<usize> {
        dir.filter(|&dir| self.logs().dirs()[dir].offline_cause().is_none())
    }

    /// Why a partition is not served here that another broker leads, or none.
    pub(super) fn why_not_led(&self, image: &MetadataImage, record: &PartitionRecord) -> ErrorCode {
        let directory = record.directory_of(self.node_id);
        let directory = directory.and_then(|number| image.topics().directory_table().ids([number].into_iter()).pop());
        let broker = image.brokers().get(&self.node_id);
        match directory.zip(broker) {
            Some((directory, broker)) if !broker.has_online_dir(directory) => ErrorCode::KAFKA_STORAGE_ERROR,
            _ => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        }
    }
}
