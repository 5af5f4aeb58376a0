//! How many connections there may be, in all and from one address, and how fast they may come.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::ConnectionLimitsConfig;
use super::rate::Rate;

/// The connections of a server, counted.
pub struct ConnectionLimits {
    config: ArcSwap<ConnectionLimitsConfig>,
    counts: Mutex<Counts>,
    /// Told when a connection ends, and when the limits change.
    freed: Notify,
    created: Mutex<Rate>,
    /// What the rate's time counts from.
    begun: Instant,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; given back when dropped.
pub struct Place {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl ConnectionLimits {
    pub fn new(config: ConnectionLimitsConfig) -> Arc<Self> {
        Arc::new(Self {
            config: ArcSwap::from_pointee(config),
            counts: Mutex::default(),
            freed: Notify::new(),
            created: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Other limits from now on. Connections that there are stay, also when they are too many.
    pub fn set(&self, config: ConnectionLimitsConfig) {
        self.config.store(Arc::new(config));
        self.freed.notify_waiters();
    }

    pub fn count(&self) -> usize {
        self.counts.lock().all
    }

    /// Waits until one more connection may be accepted. One task per server may wait, as the acceptors take turns.
    pub async fn wait_for_room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.count() < self.config.load().most {
                return;
            }
            freed.await;
        }
    }

    /// Counts a connection that comes, and gives how long it has to wait for its turn.
    pub fn wait_for_turn(&self) -> Duration {
        let now_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let config = self.config.load();
        let (rate, count) = (config.creation_rate, config.quota_windows);
        let wait_ms = self.created.lock().record(now_ms, rate, count, config.quota_window_ms);
        Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))
    }

    /// How many connections an address may have.
    pub fn max_of(&self, address: IpAddr) -> usize {
        self.config.load().max_of(address.to_canonical())
    }

    /// A place for a connection from `address`; `None` when that address has all it may have.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.config.load().max_of(address) {
            return None;
        }
        counts.by_address.insert(address, of_address + 1);
        counts.all += 1;
        Some(Place { limits: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
        drop(counts);
        self.limits.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_its_share_and_places_come_back() {
        let mut config = ConnectionLimitsConfig { per_ip_max: 2, ..ConnectionLimitsConfig::default() };
        let (usual, special): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        config.per_ip_overrides.insert(special, 0);
        let limits = ConnectionLimits::new(config);
        let first = limits.take(usual).expect("room");
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        let second = limits.take(mapped);
        assert!(second.is_some() && limits.take(usual).is_none() && limits.take(special).is_none());
        drop(first);
        assert_eq!(limits.count(), 1);
        assert!(limits.take(usual).is_some());
        drop(second);
        assert_eq!(limits.counts.lock().by_address.len(), 0);
    }
}
