//! How a client of one listener sees partitions: which of their brokers it can reach.

use klamm_base::ErrorCode;
use klamm_metadata::MetadataImage;
use klamm_metadata::cluster::BrokerRegistration;
use klamm_metadata::partition::Partition;
use klamm_wire::metadata::PartitionState;

/// The brokers of an image from the point of view of a listener's clients.
pub struct Brokers<'a> {
    image: &'a MetadataImage,
    listener: &'a str,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    offline: Vec<i32>,
}

/// Up to this version a missing listener is reported as a missing leader.
const NO_LISTENER_ERROR_VERSION: i16 = 5;

impl<'a> Brokers<'a> {
    pub fn new(image: &'a MetadataImage, listener: &'a str) -> Self {
        Self { image, listener, replicas: Vec::new(), isr: Vec::new(), offline: Vec::new() }
    }

    /// The partition in a Metadata response of this version.
    pub fn state<'s>(&'s mut self, index: i32, partition: &'s Partition, version: i16) -> PartitionState<'s> {
        self.list_offline(partition);
        let (error, leader_id) = match self.error_of_leader(partition.leader(), version) {
            None => (ErrorCode::NONE, partition.leader()),
            Some(error) => (error, -1),
        };
        let leader_epoch = partition.leader_epoch();
        if version > 0 {
            let (replicas, isr) = (partition.replicas(), partition.isr());
            return PartitionState { error, index, leader_id, leader_epoch, replicas, isr, offline: &self.offline };
        }
        // Version 0 has no list of offline replicas, so it omits them and returns an error.
        self.keep_reachable(partition);
        let all = self.replicas.len() == partition.replicas().len() && self.isr.len() == partition.isr().len();
        let error = if error.is_error() || all { error } else { ErrorCode::REPLICA_NOT_AVAILABLE };
        let (replicas, isr, offline) = (&self.replicas[..], &self.isr[..], &self.offline[..]);
        PartitionState { error, index, leader_id, leader_epoch, replicas, isr, offline }
    }

    fn broker(&self, id: i32) -> Option<&'a BrokerRegistration> {
        self.image.brokers().get(&id).map(|broker| &**broker)
    }

    fn has_listener(&self, broker: &BrokerRegistration) -> bool {
        broker.endpoints.iter().any(|endpoint| endpoint.name == self.listener)
    }

    /// A fenced leader still counts: it remains the leader when it returns.
    fn error_of_leader(&self, leader: i32, version: i16) -> Option<ErrorCode> {
        match self.broker(leader) {
            None => Some(ErrorCode::LEADER_NOT_AVAILABLE),
            Some(broker) if self.has_listener(broker) => None,
            Some(_) if version <= NO_LISTENER_ERROR_VERSION => Some(ErrorCode::LEADER_NOT_AVAILABLE),
            Some(_) => Some(ErrorCode::LISTENER_NOT_FOUND),
        }
    }

    fn reachable(&self, id: i32) -> Option<&'a BrokerRegistration> {
        self.broker(id).filter(|broker| !broker.fenced && self.has_listener(broker))
    }

    fn list_offline(&mut self, partition: &Partition) {
        let mut offline = std::mem::take(&mut self.offline);
        offline.clear();
        let directories = self.image.topics().directories_of(partition);
        for (&id, directory) in partition.replicas().iter().zip(directories) {
            if !self.reachable(id).is_some_and(|broker| broker.has_online_dir(directory)) {
                offline.push(id);
            }
        }
        self.offline = offline;
    }

    fn keep_reachable(&mut self, partition: &Partition) {
        let reachable = |ids: &[i32]| ids.iter().copied().filter(|&id| self.reachable(id).is_some()).collect();
        let (replicas, isr) = (reachable(partition.replicas()), reachable(partition.isr()));
        (self.replicas, self.isr) = (replicas, isr);
    }
}
