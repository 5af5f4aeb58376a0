//! The step that counts a request against its client's quotas (KIP-13, KIP-55): the response names the throttle time,
//! is sent at once, and its connection takes no further request for that time (KIP-219).

mod addresses;
mod limits;
mod usage;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use klamm_metadata::MetadataImage;
use klamm_metadata::security::ClientQuotas;
use klamm_wire::api::ListenerKind;
use parking_lot::Mutex;

use self::addresses::{AddressLimits, Hosts, named_hosts};
use self::limits::{Found, QuotaLimits};
use self::usage::Rates;
use super::context::RequestContext;
use super::principal::Principal;
use klamm_base::rate::Windows;

/// The client quotas of a node.
#[derive(Debug)]
pub struct Quotas {
    /// Whether any limit exists. Without one, a request checks only this.
    is_any_set: AtomicBool,
    /// Whether any limit on the time of requests exists.
    is_time_limited: AtomicBool,
    produce: Quota,
    fetch: Quota,
    /// In percent of one thread (KIP-124).
    time: Quota,
    connections: ArcSwap<AddressLimits>,
    connected: Mutex<Rates>,
    windows: Windows,
    /// What was applied last. Most images have the same.
    applied: Mutex<ClientQuotas>,
    /// Of the limits on connections. It is locked after `applied`.
    hosts: Mutex<Hosts>,
    /// The origin of the rates' times.
    begun: Instant,
}

/// The limits of one quota, and what was used of it.
#[derive(Debug, Default)]
struct Quota {
    limits: ArcSwap<QuotaLimits>,
    rates: Mutex<Rates>,
}

/// The client of a request as quotas see it.
#[derive(Debug)]
pub struct QuotaClient {
    /// The name of the principal; its type does not count.
    user: Box<str>,
    client_id: Box<str>,
}

impl QuotaClient {
    pub fn of(principal: &Principal, client_id: &str) -> Self {
        Self { user: principal.name.as_ref().into(), client_id: client_id.into() }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new(Windows::default())
    }
}

impl Quotas {
    /// Without limits.
    pub fn new(windows: Windows) -> Self {
        Self {
            is_any_set: AtomicBool::new(false),
            is_time_limited: AtomicBool::new(false),
            produce: Quota::default(),
            fetch: Quota::default(),
            time: Quota::default(),
            connections: ArcSwap::default(),
            connected: Mutex::default(),
            windows,
            applied: Mutex::default(),
            hosts: Mutex::default(),
            begun: Instant::now(),
        }
    }

    /// Applies the limits of an image. What was used before still counts. Returns the hosts that have limits from when their
    /// addresses are given to [`Quotas::resolved`].
    pub fn apply(&self, image: &MetadataImage) -> Vec<String> {
        let mut applied = self.applied.lock();
        if applied.ptr_eq(image.quotas()) || applied.is_empty() && image.quotas().is_empty() {
            return Vec::new();
        }
        *applied = image.quotas().clone();
        let mut hosts = self.hosts.lock();
        // A host that is named again later is resolved again.
        hosts.retain(|host, _| named_hosts(&applied).any(|named| named == host));
        let unresolved = named_hosts(&applied).filter(|named| !hosts.contains_key(*named)).map(str::to_owned).collect();
        self.limit(&applied, &hosts);
        unresolved
    }

    /// Applies the limits of hosts, now that they are resolved.
    pub fn resolved(&self, found: Hosts) {
        let applied = self.applied.lock();
        let mut hosts = self.hosts.lock();
        hosts.extend(found.into_iter().filter(|(host, _)| named_hosts(&applied).any(|named| named == host)));
        self.limit(&applied, &hosts);
    }

    fn limit(&self, applied: &ClientQuotas, hosts: &Hosts) {
        let quotas = [
            (&self.produce, "producer_byte_rate"),
            (&self.fetch, "consumer_byte_rate"),
            (&self.time, "request_percentage"),
        ];
        let connections = AddressLimits::of(applied, hosts);
        let mut is_any_set = !connections.is_empty();
        self.connections.store(connections.into());
        for (quota, key) in quotas {
            let limits = QuotaLimits::of(applied, key);
            is_any_set |= !limits.is_empty();
            quota.limits.store(limits.into());
        }
        self.is_time_limited.store(!self.time.limits.load().is_empty(), Ordering::Release);
        self.is_any_set.store(is_any_set, Ordering::Release);
    }

    /// The client whose quotas the request counts against; `None` while there is no quota.
    #[inline]
    pub fn client(&self, context: &RequestContext<'_>) -> Option<QuotaClient> {
        self.is_any_set.load(Ordering::Acquire).then(|| QuotaClient::of(context.principal(), &context.client_id))
    }

    /// Whether the time of requests counts.
    #[inline]
    pub fn is_time_limited(&self) -> bool {
        self.is_time_limited.load(Ordering::Acquire)
    }

    /// Counts the time of a request's handler; returns the throttle time in ms, at most one window.
    pub fn took(&self, client: &QuotaClient, time: Duration) -> i32 {
        let percent = time.as_secs_f64() * 100.0;
        let count = |limit: Found<'_>| {
            let wait_ms = self.time.rates.lock().count(self.now_ms(), limit, percent, self.windows);
            wait_ms.min(self.windows.window_ms)
        };
        self.time.throttle_ms(client, count)
    }

    /// Counts a produce of `bytes`; returns the throttle time in ms.
    pub fn produced(&self, client: &QuotaClient, bytes: usize) -> i32 {
        let count =
            |limit: Found<'_>| self.produce.rates.lock().count(self.now_ms(), limit, bytes as f64, self.windows);
        self.produce.throttle_ms(client, count)
    }

    /// Counts what a fetch found; returns the throttle time in ms, and then it must not be sent.
    pub fn fetched(&self, client: &QuotaClient, bytes: impl FnOnce() -> usize) -> i32 {
        let count = |limit: Found<'_>| {
            let bytes = bytes();
            self.fetch.rates.lock().count_unless_over(self.now_ms(), limit, bytes as f64, self.windows)
        };
        self.fetch.throttle_ms(client, count)
    }

    /// The most that a fetch may return: with more it would be throttled even after a quiet time.
    pub fn fetch_bytes_max(&self, client: &QuotaClient) -> i32 {
        let limits = self.fetch.limits.load();
        let found = limits.find(&client.user, &client.client_id);
        // A cast of a float saturates.
        found.map_or(i32::MAX, |limit| self.windows.burst(limit.per_second) as i32)
    }

    /// Counts a new connection on a listener of this kind; returns how long it is kept unserved before it is closed,
    /// zero if it is served.
    pub fn connected(&self, kind: ListenerKind, address: IpAddr) -> Duration {
        if !self.is_any_set.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let address = address.to_canonical();
        let Some(per_second) = self.connections.load().find(address) else { return Duration::ZERO };
        let (kind, address) = (format!("{kind:?}"), address.to_string());
        let limit = Found { per_second, user: &kind, client_id: &address };
        let wait_ms = self.connected.lock().count_unless_over(self.now_ms(), limit, 1.0, self.windows);
        Duration::from_millis(u64::try_from(wait_ms.min(self.windows.window_ms)).unwrap_or(0))
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Quota {
    fn throttle_ms(&self, client: &QuotaClient, count: impl FnOnce(Found<'_>) -> i64) -> i32 {
        let limits = self.limits.load();
        let wait_ms = limits.find(&client.user, &client.client_id).map_or(0, count);
        i32::try_from(wait_ms).unwrap_or(i32::MAX)
    }
}
