//! The leader of a partition and its endpoint, sent with an error (KIP-951).

use klamm_metadata::MetadataImage;
use klamm_metadata::cluster::BrokerRegistration;
use klamm_metadata::topic::Topic;
use klamm_wire::topic::NodeEndpoint;

/// The leaders in a response, collected while it is written.
pub struct Leaders<'a> {
    image: &'a MetadataImage,
    listener: &'a str,
    endpoints: Vec<NodeEndpoint>,
}

impl<'a> Leaders<'a> {
    pub fn new(image: &'a MetadataImage, listener: &'a str) -> Self {
        Self { image, listener, endpoints: Vec::new() }
    }

    /// Id and epoch of the partition's leader, which is added to [`Leaders::into_endpoints`]; both -1 if it is
    /// unknown.
    pub fn name(&mut self, topic: Option<&Topic>, index: i32) -> (i32, i32) {
        let partition = topic.and_then(|topic| topic.partition(index));
        let Some(partition) = partition else { return (-1, -1) };
        let leader = partition.leader();
        if self.endpoints.iter().all(|node| node.node_id != leader) {
            let alive = self.image.brokers().get(&leader).filter(|broker| !broker.fenced);
            self.endpoints.extend(alive.and_then(|broker| endpoint(broker, self.listener)));
        }
        (leader, partition.leader_epoch())
    }

    pub fn into_endpoints(self) -> Vec<NodeEndpoint> {
        self.endpoints
    }
}

/// The live brokers that have the listener; where none is alive, the fenced ones. Clients such as librdkafka drop a broker that is
/// missing in Metadata, and after the last one they reach nothing for minutes.
pub fn endpoints(image: &MetadataImage, listener: &str) -> Vec<NodeEndpoint> {
    let of = |fenced: bool| {
        let brokers = image.brokers().values().filter(move |broker| broker.fenced == fenced);
        brokers.filter_map(|broker| endpoint(broker, listener)).collect::<Vec<_>>()
    };
    let alive = of(false);
    if alive.is_empty() { of(true) } else { alive }
}

fn endpoint(broker: &BrokerRegistration, listener: &str) -> Option<NodeEndpoint> {
    let endpoint = broker.endpoints.iter().find(|endpoint| endpoint.name == listener)?;
    let (host, port) = (endpoint.host.clone(), i32::from(endpoint.port));
    Some(NodeEndpoint { node_id: broker.id, host, port, rack: broker.rack.clone() })
}
