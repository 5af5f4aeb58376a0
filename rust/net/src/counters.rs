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
}

impl Counters {
    /// All of them.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let own = [
            ("kafka.server:type=socket-server-metrics,name=connection-creation-total", &self.accepted),
            ("kafka.server:type=socket-server-metrics,name=incoming-byte-total", &self.received_bytes),
            ("kafka.server:type=socket-server-metrics,name=outgoing-byte-total", &self.sent_bytes),
            ("klamm.network:type=Connections,name=Refused", &self.refused),
            ("klamm.network:type=Connections,name=ClosedForFault", &self.closed_for_fault),
        ];
        own.into_iter().map(|(name, counter)| (name.to_owned(), counter.get()))
    }
}
