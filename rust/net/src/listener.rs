//! A listener: its name, its APIs, and which of them it answers yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use klamm_wire::api::{self, Api, ListenerKind, Served};
use klamm_wire::api_versions::ApiRange;
use parking_lot::Mutex;

use super::pipeline::authentication::Authentication;

/// Levels of what is answered; each includes the previous one.
const NOTHING: u8 = 0;
const VERSIONS: u8 = 1;
const EVERYTHING: u8 = 2;

pub struct Listener {
    pub name: Arc<str>,
    pub kind: ListenerKind,
    pub authentication: Authentication,
    served: Vec<ApiRange>,
    advertised: Vec<ApiRange>,
    answers: AtomicU8,
    waiting: Mutex<Vec<Waker>>,
}

impl Listener {
    /// A listener that serves the APIs of its kind in the table.
    pub fn new(name: &str, kind: ListenerKind) -> Self {
        let served = served(kind);
        let advertised = served.iter().map(|range| advertised(kind, *range)).collect();
        Self {
            name: name.into(),
            kind,
            authentication: Authentication::Anonymous,
            served,
            advertised,
            answers: AtomicU8::new(NOTHING),
            waiting: Mutex::default(),
        }
    }

    /// Whether requests of this API and version are accepted.
    pub fn serves(&self, key: i16, version: i16) -> bool {
        let range = self.served.binary_search_by_key(&key, |range| range.key).map(|at| self.served[at]);
        range.is_ok_and(|range| (range.version_min..=range.version_max).contains(&version))
    }

    /// The version ranges for ApiVersions.
    pub fn advertised(&self) -> &[ApiRange] {
        &self.advertised
    }

    /// Whether the engine serves this API on this listener.
    pub fn answers_itself(&self, key: i16) -> bool {
        Api::of(key).is_some_and(|api| api.served_on(self.kind) == Served::ByEngine)
    }

    /// Answers everything from now on; until then requests wait in their connections.
    pub fn open(&self) {
        self.raise(EVERYTHING);
    }

    /// Answers at least ApiVersions from now on.
    pub fn open_for_versions(&self) {
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
        // It was opened between the two checks: nothing would wake this waker.
        if self.answers.load(Ordering::Acquire) >= needed {
            return true;
        }
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        false
    }
}

fn served(kind: ListenerKind) -> Vec<ApiRange> {
    let is_served = |api: &&Api| matches!(api.served_on(kind), Served::ByEngine | Served::ByPython);
    let range = |api: &Api| ApiRange { key: api.key, version_min: api.version_min, version_max: api.version_max };
    Api::all().iter().filter(is_served).map(range).collect()
}

/// librdkafka derives a broker's capabilities from Produce's lowest version, so 0 is advertised although 3 is
/// supported (KAFKA-18659).
fn advertised(kind: ListenerKind, range: ApiRange) -> ApiRange {
    match (range.key, kind) {
        (api::PRODUCE, ListenerKind::Broker) => ApiRange { version_min: 0, ..range },
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_versions_are_served_except_for_produce() {
        let broker = Listener::new("L", ListenerKind::Broker);
        let advertised =
            |key| broker.advertised().iter().find(|api| api.key == key).map(|api| (api.version_min, api.version_max));
        let advertised_versions = [api::PRODUCE, api::FETCH, api::CREATE_TOPICS].map(advertised);
        assert_eq!(advertised_versions, [Some((0, 13)), Some((4, 18)), Some((2, 7))]);
        assert!(
            broker.serves(api::PRODUCE, 3) && !broker.serves(api::PRODUCE, 2),
            "0 is advertised only for librdkafka"
        );
        assert!(broker.serves(api::CREATE_TOPICS, 7) && !broker.serves(api::CREATE_TOPICS, 8));
        assert!(!broker.serves(api::INIT_PRODUCER_ID, 6));
        let (vote, acls) = (api::VOTE, api::CREATE_ACLS);
        assert!(advertised(vote).is_none() && !broker.serves(vote, 0), "a controller's");
        assert!(advertised(acls).is_none() && !broker.serves(acls, 1), "not yet");
        let keys: Vec<_> = broker.advertised().iter().map(|api| api.key).collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn a_controller_listener_leaves_fetch_to_raft() {
        let controller = Listener::new("L", ListenerKind::Controller);
        assert!(controller.serves(api::FETCH, 17) && !controller.answers_itself(api::FETCH));
        assert!(!controller.serves(api::METADATA, 0) && controller.answers_itself(api::API_VERSIONS));
    }
}
