//! The client's view of the cluster: brokers, topics and leaders from metadata responses.

use std::collections::{BTreeMap, HashMap};

use klamm_base::{ErrorCode, Uuid};

use super::messages::metadata::{MetadataAnswer, PartitionMetadata, TopicMetadata};

/// The newest known state of brokers and topics.
#[derive(Debug, Default)]
pub struct ClusterView {
    /// Addresses (host and port) by broker id.
    brokers: HashMap<i32, String>,
    topics: HashMap<String, TopicView>,
}

#[derive(Debug)]
struct TopicView {
    id: Uuid,
    partitions: BTreeMap<i32, PartitionMetadata>,
    /// Whether to refresh it before the next use.
    is_stale: bool,
}

/// The leader of a partition, with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub address: String,
    pub epoch: i32,
    pub topic_id: Uuid,
}

/// Why a partition has no usable leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeader {
    /// Nothing is known, or the known state is outdated: request metadata.
    Unknown,
    /// The topic has only this many partitions.
    NoSuchPartition { count: usize },
    /// The partition exists but has no leader.
    Leaderless,
}

/// Host and port joined; an IPv6 address is put into brackets.
pub fn address_of(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl ClusterView {
    /// Applies a metadata response. A leader with an older epoch than the known one is ignored: that broker's
    /// metadata is old.
    pub fn on_metadata(&mut self, answer: &MetadataAnswer) {
        if !answer.brokers.is_empty() {
            let known = answer.brokers.iter().map(|broker| (broker.id, address_of(&broker.host, broker.port)));
            self.brokers = known.collect();
        }
        for topic in &answer.topics {
            self.on_topic(topic);
        }
    }

    fn on_topic(&mut self, topic: &TopicMetadata) {
        if topic.error.is_error() {
            return self.distrust(&topic.name);
        }
        let before = self.topics.remove(&topic.name).filter(|before| before.id == topic.id);
        let mut partitions: BTreeMap<i32, PartitionMetadata> =
            topic.partitions.iter().map(|partition| (partition.index, *partition)).collect();
        for (index, known) in before.into_iter().flat_map(|before| before.partitions) {
            match partitions.get_mut(&index) {
                Some(newer) if newer.leader_epoch < known.leader_epoch => *newer = known,
                _ => {}
            }
        }
        self.topics.insert(topic.name.clone(), TopicView { id: topic.id, partitions, is_stale: false });
    }

    /// Marks the topic's state as possibly outdated.
    pub fn distrust(&mut self, topic: &str) {
        if let Some(view) = self.topics.get_mut(topic) {
            view.is_stale = true;
        }
    }

    /// Whether the topic, and the partition if given, were in metadata.
    pub fn knows(&self, topic: &str, partition: Option<i32>) -> bool {
        let view = self.topics.get(topic);
        view.is_some_and(|view| partition.is_none_or(|index| view.partitions.contains_key(&index)))
    }

    /// The id of a topic; `None` if metadata must be requested.
    pub fn topic_id(&self, topic: &str) -> Option<Uuid> {
        Some(self.topics.get(topic).filter(|view| !view.is_stale)?.id)
    }

    /// Whether any broker has answered.
    pub fn has_brokers(&self) -> bool {
        !self.brokers.is_empty()
    }

    pub fn leader(&self, topic: &str, partition: i32) -> Result<Leader, NoLeader> {
        let view = self.topics.get(topic).filter(|view| !view.is_stale).ok_or(NoLeader::Unknown)?;
        let count = view.partitions.len();
        let state = view.partitions.get(&partition).ok_or(NoLeader::NoSuchPartition { count })?;
        if state.leader < 0 || state.error == ErrorCode::LEADER_NOT_AVAILABLE {
            return Err(NoLeader::Leaderless);
        }
        let address = self.brokers.get(&state.leader).ok_or(NoLeader::Leaderless)?.clone();
        Ok(Leader { address, epoch: state.leader_epoch, topic_id: view.id })
    }

    /// The partitions of a topic in ascending order; `None` if metadata must be requested.
    pub fn partitions(&self, topic: &str) -> Option<Vec<i32>> {
        let view = self.topics.get(topic).filter(|view| !view.is_stale)?;
        Some(view.partitions.keys().copied().collect())
    }

    /// Every broker's address.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<_> = self.brokers.values().cloned().collect();
        addresses.sort_unstable();
        addresses
    }
}
