//! Limits on the number of connections, in total, by listener and by address, and on the connection rate.
//!
//! Broker and controller listeners are counted separately, each with the full limits. The inter-broker listener is
//! protected if there is another listener: the total limit does not reject its connections, others are closed
//! instead.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::{ConnectionLimitsConfig, ListenerLimits};
use klamm_base::rate::Rate;

/// Connection counts of a server's listeners of one kind.
pub struct ConnectionLimits {
    config: ArcSwap<ConnectionLimitsConfig>,
    own: ArcSwap<ListenerLimits>,
    counts: Mutex<Counts>,
    /// Notified when a connection ends, and when the limits change.
    freed: Notify,
    created: Mutex<Rate>,
    /// The origin of the rates' times.
    begun: Instant,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Every existing listener.
    by_listener: HashMap<Arc<str>, OfListener>,
}

#[derive(Default)]
struct OfListener {
    connections: usize,
    created: Rate,
}

/// A connection's place; released when it is dropped.
pub struct Place {
    limits: Arc<ConnectionLimits>,
    listener: Arc<str>,
    address: IpAddr,
}

impl ConnectionLimits {
    pub fn new(config: ConnectionLimitsConfig) -> Arc<Self> {
        Arc::new(Self {
            config: ArcSwap::from_pointee(config),
            own: ArcSwap::default(),
            counts: Mutex::default(),
            freed: Notify::new(),
            created: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Applies new limits. An address keeps its connections even if they exceed the new limit.
    pub fn set(&self, config: ConnectionLimitsConfig) {
        self.config.store(Arc::new(config));
        self.freed.notify_waiters();
    }

    /// Applies new limits of single listeners.
    pub fn set_own(&self, own: Arc<ListenerLimits>) {
        self.own.store(own);
        self.freed.notify_waiters();
    }

    pub fn add_listener(&self, name: &Arc<str>) {
        self.counts.lock().by_listener.insert(name.clone(), OfListener::default());
    }

    pub fn remove_listener(&self, name: &str) {
        self.counts.lock().by_listener.remove(name);
        self.freed.notify_waiters();
    }

    pub fn count(&self) -> usize {
        self.counts.lock().all
    }

    /// The number of connections beyond the total limit; listener limits do not count here.
    pub fn excess(&self) -> usize {
        self.count().saturating_sub(self.config.load().most)
    }

    /// Whether a listener's connections stay open when the total limit is exceeded.
    pub fn is_protected(&self, listener: &str) -> bool {
        self.own.load().inter_broker.as_deref() == Some(listener) && self.counts.lock().by_listener.len() > 1
    }

    /// Waits until a listener may accept one more connection. One task waits for each listener.
    pub async fn wait_for_room(&self, listener: &str) {
        loop {
            let freed = self.freed.notified();
            if self.has_room(listener) {
                return;
            }
            freed.await;
        }
    }

    fn has_room(&self, listener: &str) -> bool {
        let config = self.config.load();
        let most = self.own.load().most.get(listener).copied().unwrap_or(config.most);
        let is_protected = self.is_protected(listener);
        let counts = self.counts.lock();
        let of_listener = counts.by_listener.get(listener).map_or(0, |counted| counted.connections);
        of_listener < most && (is_protected || counts.all < config.most)
    }

    /// Counts a new connection and returns how long it must wait.
    pub fn wait_for_turn(&self, listener: &str) -> Duration {
        let now_ms = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let config = self.config.load();
        let kept = config.quota_windows;
        let wait_ms = |created: &mut Rate, rate: usize| {
            created.add(now_ms, 1.0, kept);
            created.wait_ms(now_ms, rate.max(1) as f64, kept).min(kept.window_ms)
        };
        let of_all = match self.is_protected(listener) {
            true => 0,
            false => wait_ms(&mut self.created.lock(), config.creation_rate),
        };
        let rate = self.own.load().creation_rate.get(listener).copied().unwrap_or(config.creation_rate);
        let mut counts = self.counts.lock();
        let own = counts.by_listener.get_mut(listener).map_or(0, |counted| wait_ms(&mut counted.created, rate));
        Duration::from_millis(u64::try_from(of_all.max(own)).unwrap_or(0))
    }

    /// The maximum number of connections from an address.
    pub fn max_of(&self, address: IpAddr) -> usize {
        self.config.load().max_of(address.to_canonical())
    }

    /// A place for a connection from `address`; `None` if the address has reached its limit.
    pub fn take(self: &Arc<Self>, listener: &Arc<str>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.config.load().max_of(address) {
            return None;
        }
        counts.by_address.insert(address, of_address + 1);
        counts.all += 1;
        if let Some(counted) = counts.by_listener.get_mut(listener) {
            counted.connections += 1;
        }
        Some(Place { limits: self.clone(), listener: listener.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.all -= 1;
        if let Some(counted) = counts.by_listener.get_mut(&self.listener) {
            // A listener that was closed and reopened under the same name has not counted its earlier connections.
            counted.connections = counted.connections.saturating_sub(1);
        }
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
    fn an_address_has_its_limit_and_closed_connections_free_it() {
        let mut config = ConnectionLimitsConfig { per_ip_max: 2, ..ConnectionLimitsConfig::default() };
        let (usual, special): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        config.per_ip_overrides.insert(special, 0);
        let limits = ConnectionLimits::new(config);
        let listener: Arc<str> = "L".into();
        let take = |address| limits.take(&listener, address);
        let first = take(usual).expect("room");
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        let second = take(mapped);
        assert!(second.is_some() && take(usual).is_none() && take(special).is_none());
        drop(first);
        assert_eq!(limits.count(), 1);
        assert!(take(usual).is_some());
        drop(second);
        assert_eq!(limits.counts.lock().by_address.len(), 0);
    }

    fn limits(most: usize, names: &[&str], own: ListenerLimits) -> (Arc<ConnectionLimits>, Vec<Arc<str>>) {
        let limits = ConnectionLimits::new(ConnectionLimitsConfig { most, ..ConnectionLimitsConfig::default() });
        let names: Vec<Arc<str>> = names.iter().map(|&name| name.into()).collect();
        names.iter().for_each(|name| limits.add_listener(name));
        limits.set_own(Arc::new(own));
        (limits, names)
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_listener_has_its_own_limit_besides_that_of_all() {
        let own = ListenerLimits { most: HashMap::from([("A".to_owned(), 1)]), ..ListenerLimits::default() };
        let (limits, names) = limits(3, &["A", "B"], own);
        let first = limits.take(&names[0], ADDRESS);
        assert!(!limits.has_room("A") && limits.has_room("B"));
        let _others = [limits.take(&names[1], ADDRESS), limits.take(&names[1], ADDRESS)];
        assert!(!limits.has_room("B"));
        drop(first);
        assert!(limits.has_room("A") && limits.has_room("B"));
        limits.set_own(Arc::default());
        let _last = limits.take(&names[0], ADDRESS);
        assert!(!limits.has_room("A"));
    }

    #[test]
    fn the_inter_broker_listener_is_not_blocked_by_others() {
        let own = ListenerLimits { inter_broker: Some("A".to_owned()), ..ListenerLimits::default() };
        let (limits, names) = limits(1, &["A", "B"], own);
        let _other = limits.take(&names[1], ADDRESS);
        assert!(limits.has_room("A") && !limits.has_room("B"));
        let _own = limits.take(&names[0], ADDRESS);
        assert_eq!(limits.excess(), 1);
        assert!(!limits.has_room("A"), "what all may have, it may have at most");
        limits.remove_listener("B");
        assert!(!limits.is_protected("A"), "alone it is as any");
    }

    #[test]
    fn a_listener_has_its_own_rate_too() {
        let own = ListenerLimits { creation_rate: HashMap::from([("A".to_owned(), 1)]), ..ListenerLimits::default() };
        let (limits, _) = limits(100, &["A", "B"], own);
        let waits = |name| (0..20).map(|_| limits.wait_for_turn(name)).max().expect("some");
        assert!(waits("A") > Duration::ZERO);
        assert_eq!(waits("B"), Duration::ZERO);
    }
}
