//! Who leads what, as far as brokers told.

use std::collections::{BTreeMap, HashMap};

use klamm_base::{ErrorCode, Uuid};

use super::messages::metadata::{MetadataAnswer, PartitionMetadata, TopicMetadata};

/// Brokers and topics by the newest that was told of each.
#[derive(Debug, Default)]
pub struct ClusterView {
    /// Host and port.
    brokers: HashMap<i32, String>,
    topics: HashMap<String, TopicView>,
}

#[derive(Debug)]
struct TopicView {
    id: Uuid,
    partitions: BTreeMap<i32, PartitionMetadata>,
    /// Whether to ask again before it is used.
    is_stale: bool,
}

/// Whom to ask about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub address: String,
    pub epoch: i32,
    pub topic_id: Uuid,
}

/// Why nobody can be asked about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeader {
    /// Nothing is known, or what is known is no longer true: ask for metadata.
    Unknown,
    /// The topic has only so many partitions.
    NoSuchPartition { count: usize },
    /// The partition is there and has no leader.
    Leaderless,
}

/// Host and port as one; a host that is an address of IPv6 has brackets.
pub fn address_of(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl ClusterView {
    /// Takes in what a broker told. A leader of an older epoch than the one known is no news: that broker lags.
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
                Some(told) if told.leader_epoch < known.leader_epoch => *told = known,
                _ => {}
            }
        }
        self.topics.insert(topic.name.clone(), TopicView { id: topic.id, partitions, is_stale: false });
    }

    /// What is known of the topic may be wrong.
    pub fn distrust(&mut self, topic: &str) {
        if let Some(view) = self.topics.get_mut(topic) {
            view.is_stale = true;
        }
    }

    /// Whether the topic, and the partition if one is given, was told of.
    pub fn knows(&self, topic: &str, partition: Option<i32>) -> bool {
        let view = self.topics.get(topic);
        view.is_some_and(|view| partition.is_none_or(|index| view.partitions.contains_key(&index)))
    }

    /// The id of a topic; `None` when it must be asked for.
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
        let told = view.partitions.get(&partition).ok_or(NoLeader::NoSuchPartition { count })?;
        if told.leader < 0 || told.error == ErrorCode::LEADER_NOT_AVAILABLE {
            return Err(NoLeader::Leaderless);
        }
        let address = self.brokers.get(&told.leader).ok_or(NoLeader::Leaderless)?.clone();
        Ok(Leader { address, epoch: told.leader_epoch, topic_id: view.id })
    }

    /// The partitions of a topic, ascending; `None` when it must be asked for.
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
