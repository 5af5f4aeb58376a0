//! Counters of the network.

use klamm_base::counters::{Counter, Named};

/// Counters of a server since its start. They change while they are read: each value is right, but they may differ by
/// a moment.
#[derive(Default)]
pub struct Counters {
    pub accepted: Counter,
    /// Connections closed immediately because their address had reached its limit.
    pub refused: Counter,
    /// Connections closed because of invalid input.
    pub closed_for_fault: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    /// Bytes of batches that consumers fetched.
    pub consumed_bytes: Counter,
    /// Bytes of batches that followers fetched.
    pub replicated_bytes: Counter,
}

impl Counters {
    /// A response with this many bytes of batches was written.
    pub fn fetched(&self, is_from_follower: bool, bytes: usize) {
        let counter = if is_from_follower { &self.replicated_bytes } else { &self.consumed_bytes };
        counter.add(bytes as u64);
    }

    /// All of them.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let own = [
            ("kafka.server:type=socket-server-metrics,name=connection-creation-total", &self.accepted),
            ("kafka.server:type=socket-server-metrics,name=incoming-byte-total", &self.received_bytes),
            ("kafka.server:type=socket-server-metrics,name=outgoing-byte-total", &self.sent_bytes),
            ("kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec", &self.consumed_bytes),
            ("kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec", &self.replicated_bytes),
            ("klamm.network:type=Connections,name=Refused", &self.refused),
            ("klamm.network:type=Connections,name=ClosedForFault", &self.closed_for_fault),
        ];
        own.into_iter().map(|(name, counter)| (name.to_owned(), counter.get()))
    }
}
