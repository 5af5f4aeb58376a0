//! What the network has done, counted where it is done.

use klamm_base::counters::{Counter, Named};
use klamm_wire::api::Api;

/// API keys that are counted one by one.
const KEYS: usize = 128;

/// Counters of a server since its start. They are read while they move: each is right, together they may be a moment apart.
pub struct Counters {
    pub accepted: Counter,
    /// Connections closed at once because their address had all it may have.
    pub refused: Counter,
    /// Connections closed because of what the peer sent.
    pub closed_for_fault: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    requests: [Counter; KEYS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            accepted: Counter::default(),
            refused: Counter::default(),
            closed_for_fault: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            requests: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl Counters {
    #[inline]
    pub fn add_request(&self, key: i16) {
        if let Some(counter) = usize::try_from(key).ok().and_then(|key| self.requests.get(key)) {
            counter.add(1);
        }
    }

    /// Requests taken of each API that had any, by key.
    pub fn requests(&self) -> impl Iterator<Item = (i16, u64)> + '_ {
        let counts = Api::all().iter().map(|api| (api.key, self.requests[api.key as usize].get()));
        counts.filter(|(_, count)| *count > 0)
    }

    /// All of them; of requests, those of APIs that had any.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let own = [
            ("kafka.server:type=socket-server-metrics,name=connection-creation-total", &self.accepted),
            ("kafka.server:type=socket-server-metrics,name=incoming-byte-total", &self.received_bytes),
            ("kafka.server:type=socket-server-metrics,name=outgoing-byte-total", &self.sent_bytes),
            ("klamm.network:type=Connections,name=Refused", &self.refused),
            ("klamm.network:type=Connections,name=ClosedForFault", &self.closed_for_fault),
        ];
        let requests = Api::all().iter().map(|api| (api.name, self.requests[api.key as usize].get()));
        let requests = requests.filter(|(_, count)| *count > 0).map(|(name, count)| {
            (format!("kafka.network:type=RequestMetrics,name=RequestsPerSec,request={name}"), count)
        });
        own.into_iter().map(|(name, counter)| (name.to_owned(), counter.get())).chain(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_has_a_counter() {
        let counters = Counters::default();
        for api in Api::all() {
            counters.add_request(api.key);
        }
        counters.add_request(-1);
        counters.add_request(i16::MAX);
        let counted: Vec<_> = counters.requests().collect();
        assert_eq!(counted.len(), Api::all().len());
        assert!(counted.iter().all(|(_, count)| *count == 1));
    }
}
