//! A listener: its name, what it serves, and what it answers yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::wire::api::{self, Api, ListenerKind};
use crate::wire::api_versions::ApiRange;

/// The APIs that the engine answers itself on a listener for clients.
const OWN_BROKER_APIS: [i16; 7] = [
    api::PRODUCE,
    api::FETCH,
    api::LIST_OFFSETS,
    api::METADATA,
    api::API_VERSIONS,
    api::OFFSET_FOR_LEADER_EPOCH,
    api::DESCRIBE_TOPIC_PARTITIONS,
];
/// The same on a listener for controllers, whose fetches are raft's.
const OWN_CONTROLLER_APIS: [i16; 1] = [api::API_VERSIONS];

/// What is answered: each includes the one before.
const NOTHING: u8 = 0;
const VERSIONS: u8 = 1;
const EVERYTHING: u8 = 2;

pub struct Listener {
    pub name: Arc<str>,
    pub kind: ListenerKind,
    served: Vec<ApiRange>,
    advertised: Vec<ApiRange>,
    answers: AtomicU8,
    waiting: Mutex<Vec<Waker>>,
}

impl Listener {
    /// A listener that serves the engine's own APIs and, of those that Python serves, what Kafka 4.3 has on such a listener.
    pub fn new(name: &str, kind: ListenerKind, outside: &[ApiRange]) -> Self {
        let served = served(kind, outside);
        let advertised = served.iter().map(|range| advertised(kind, *range)).collect();
        Self { name: name.into(), kind, served, advertised, answers: AtomicU8::new(NOTHING), waiting: Mutex::default() }
    }

    /// Whether requests of this API and version are accepted.
    pub fn serves(&self, key: i16, version: i16) -> bool {
        let range = self.served.binary_search_by_key(&key, |range| range.key).map(|at| self.served[at]);
        range.is_ok_and(|range| (range.version_min..=range.version_max).contains(&version))
    }

    /// What ApiVersions tells.
    pub fn advertised(&self) -> &[ApiRange] {
        &self.advertised
    }

    /// Whether the engine answers this API here by itself.
    pub fn answers_itself(&self, key: i16) -> bool {
        own_apis(self.kind).contains(&key)
    }

    /// Answers everything from now on; until then requests wait in their connections.
    pub fn open(&self) {
        self.raise(EVERYTHING);
    }

    /// Answers at least ApiVersions from now on.
    pub fn tell_versions(&self) {
        self.raise(VERSIONS);
    }

    fn raise(&self, answers: u8) {
        self.answers.fetch_max(answers, Ordering::AcqRel);
        std::mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
    }

    /// Whether requests of this API are answered; if not, `waker` is woken when that may have changed.
    pub fn answers(&self, key: i16, waker: &Waker) -> bool {
        let needed = if key == api::API_VERSIONS { VERSIONS } else { EVERYTHING };
        if self.answers.load(Ordering::Acquire) >= needed {
            return true;
        }
        let mut waiting = self.waiting.lock();
        // Opened between the two looks: nobody would wake this one.
        if self.answers.load(Ordering::Acquire) >= needed {
            return true;
        }
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        false
    }
}

fn own_apis(kind: ListenerKind) -> &'static [i16] {
    match kind {
        ListenerKind::Broker => &OWN_BROKER_APIS,
        ListenerKind::Controller => &OWN_CONTROLLER_APIS,
    }
}

fn served(kind: ListenerKind, outside: &[ApiRange]) -> Vec<ApiRange> {
    let range_of = |api: &Api| {
        let all = ApiRange { key: api.key, version_min: api.version_min, version_max: api.version_max };
        if own_apis(kind).contains(&api.key) {
            return Some(all);
        }
        outside.iter().find(|range| range.key == api.key)?.intersect(&all)
    };
    Api::all().iter().filter(|api| api.is_for(kind)).filter_map(range_of).collect()
}

/// librdkafka decides by Produce's lowest version what else a broker can, so 0 is told although 3 is (KAFKA-18659).
fn advertised(kind: ListenerKind, range: ApiRange) -> ApiRange {
    match (range.key, kind) {
        (api::PRODUCE, ListenerKind::Broker) => ApiRange { version_min: 0, ..range },
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(kind: ListenerKind, outside: &[(i16, i16, i16)]) -> Listener {
        let outside: Vec<_> =
            outside.iter().map(|&(key, version_min, version_max)| ApiRange { key, version_min, version_max }).collect();
        Listener::new("L", kind, &outside)
    }

    #[test]
    fn what_is_told_is_what_is_served_but_for_produce() {
        let broker = listener(ListenerKind::Broker, &[(19, 0, 5), (52, 0, 2), (19, 9, 9), (22, 7, 9)]);
        let told: Vec<_> = broker.advertised().iter().map(|api| (api.key, api.version_min, api.version_max)).collect();
        let own = [(0, 0, 13), (1, 4, 18), (2, 1, 11), (3, 0, 13), (18, 0, 4)];
        assert_eq!(told, [&own[..], &[(19, 2, 5), (23, 2, 4), (75, 0, 0)]].concat());
        assert!(broker.serves(0, 3) && !broker.serves(0, 2));
        assert!(broker.serves(19, 5) && !broker.serves(19, 6) && !broker.serves(52, 0) && !broker.serves(22, 7));
    }

    #[test]
    fn a_controller_listener_leaves_fetch_to_raft() {
        let controller = listener(ListenerKind::Controller, &[(1, 17, 17), (3, 0, 13)]);
        assert!(controller.serves(1, 17) && !controller.answers_itself(1) && !controller.serves(3, 0));
        assert!(controller.answers_itself(18));
    }
}
