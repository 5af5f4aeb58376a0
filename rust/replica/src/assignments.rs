//! The log directory of each replica of this broker that the image does not contain yet (KIP-858).

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::partition::Partition as PartitionRecord;
use klamm_metadata::topic::Topic;

use super::replicas::{Key, Replicas};

/// A partition whose log directory is missing or wrong in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unassigned {
    /// The directory that it is in, or that it will be in after its first write.
    pub directory_id: Uuid,
    pub topic_id: Uuid,
    pub partition: i32,
}

impl Replicas {
    /// The partitions of the topics that must be reported to the controller. One that was never written is assigned a
    /// directory now, so that it fails with that directory as in Apache Kafka, which creates its files immediately.
    pub(super) fn unassigned(&self, image: &MetadataImage, topics: &[&Arc<Topic>]) -> Vec<Unassigned> {
        if !image.metadata_version().is_some_and(|version| version.has_directory_assignment()) {
            return Vec::new();
        }
        let table = image.topics().directory_table();
        // The image's number of each directory; a directory without partitions has no number yet.
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

    /// The number of the directory that a partition is in or will be in; `None` if it is not known or the directory
    /// failed.
    fn dir_of(&self, key: Key, topic: &str, assigned: Option<usize>) -> Option<usize> {
        let partition = self.open.load().get(&key).cloned();
        if let Some(partition) = &partition
            && assigned.is_some()
            && partition.told_dir() == assigned
        {
            // It is about to be there.
            return assigned;
        }
        let open = partition.map(|partition| partition.dir());
        let on_disk = || {
            let found = self.on_disk.lock().get(&(topic.to_owned(), key.1)).cloned()?;
            // If both agree, it does not matter which topic owns the files.
            let is_known = Some(found.dir) == assigned;
            (is_known || !matches!(self.topic_mismatch(&found, key.0), Ok(Some(_)))).then_some(found.dir)
        };
        if open.is_some() {
            return self.in_use(open);
        }
        let found = on_disk();
        let preferred = self.planned.lock().preferred(key, self.logs());
        if let Some(preferred) = preferred.filter(|_| found.is_none()) {
            self.planned.lock().keep(key, preferred);
            return Some(preferred);
        }
        if found.is_some() || assigned.is_some() || self.may_be_missing(key) {
            // Not open, and possibly never written: it still counts for its directory.
            let dir = found.or(assigned);
            dir.inspect(|&dir| self.planned.lock().keep(key, dir));
            return if found.is_some() { self.in_use(dir) } else { dir };
        }
        self.planned.lock().dir_for(key, self.logs())
    }

    fn in_use(&self, dir: Option<usize>) -> Option<usize> {
        dir.filter(|&dir| self.logs().dirs()[dir].offline_cause().is_none())
    }

    /// The error of a replica in a log directory that is offline.
    pub(super) fn why_offline(&self, image: &MetadataImage, record: &PartitionRecord) -> Option<ErrorCode> {
        if record.leader() == self.node_id {
            return None;
        }
        let directory = record.directory_of(self.node_id)?;
        let directory = image.topics().directory_table().ids([directory].into_iter()).pop()?;
        let broker = image.brokers().get(&self.node_id)?;
        (!broker.has_online_dir(directory)).then_some(ErrorCode::KAFKA_STORAGE_ERROR)
    }
}
