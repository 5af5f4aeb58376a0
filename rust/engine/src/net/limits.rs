//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::NetConfig;

/// The connections of a server, counted.
pub struct ConnectionLimits {
    config: Arc<NetConfig>,
    counts: Mutex<Counts>,
    /// Told when a connection ends.
    freed: Notify,
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
    pub fn new(config: Arc<NetConfig>) -> Arc<Self> {
        Arc::new(Self { config, counts: Mutex::default(), freed: Notify::new() })
    }

    pub fn count(&self) -> usize {
        self.counts.lock().all
    }

    /// Waits until one more connection may be accepted. One task per server may wait, as the acceptors take turns.
    pub async fn wait_for_room(&self) {
        loop {
            let freed = self.freed.notified();
            if self.count() < self.config.connections_max {
                return;
            }
            freed.await;
        }
    }

    /// A place for a connection from `address`; `None` when that address has all it may have.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.config.connections_max_of(address) {
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
        let mut config = NetConfig { connections_per_ip_max: 2, ..NetConfig::default() };
        let (usual, special): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        config.connections_per_ip_overrides.insert(special, 0);
        let limits = ConnectionLimits::new(Arc::new(config));
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
