//! The rates of replication that is throttled (KIP-73): what this broker sends to followers, and what it fetches as one.
//!
//! Only replicas count that `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic name, and
//! none that is in sync is held back.

use std::sync::atomic::{AtomicI64, Ordering};

use klamm_base::counters::{Counter, Named};
use klamm_base::rate::{Rate, Windows};
use klamm_config::Settings;
use parking_lot::Mutex;

/// The replicas of a topic that are throttled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThrottledReplicas {
    #[default]
    None,
    All,
    /// Partition and broker.
    Some(Vec<(i32, i32)>),
}

impl ThrottledReplicas {
    /// Reads a list of `partition:broker`, or `*`.
    pub fn of(text: &str) -> Self {
        let pair = |entry: &str| {
            let (partition, broker) = entry.trim().split_once(':')?;
            Some((partition.trim().parse().ok()?, broker.trim().parse().ok()?))
        };
        match text.trim() {
            "" => Self::None,
            "*" => Self::All,
            text => Self::Some(text.split(',').filter_map(pair).collect()),
        }
    }

    pub fn contains(&self, partition: i32, broker: i32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(replicas) => replicas.contains(&(partition, broker)),
        }
    }
}

/// One direction.
pub struct Throttle {
    /// Bytes per second.
    limit: AtomicI64,
    rate: Mutex<(Rate, Windows)>,
    /// Bytes of throttled replicas since the start.
    pub bytes: Counter,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { limit: AtomicI64::new(i64::MAX), rate: Mutex::default(), bytes: Counter::default() }
    }
}

impl Throttle {
    pub fn count(&self, now_ms: i64, bytes: usize) {
        self.bytes.add(bytes as u64);
        let (rate, windows) = &mut *self.rate.lock();
        rate.add(now_ms, bytes as f64, *windows);
    }

    pub fn is_exceeded(&self, now_ms: i64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let (rate, windows) = &mut *self.rate.lock();
        limit < i64::MAX && rate.per_second(now_ms, *windows) > limit as f64
    }

    fn apply(&self, limit: i64, windows: Windows) {
        self.limit.store(limit, Ordering::Relaxed);
        self.rate.lock().1 = windows;
    }
}

/// Both directions.
#[derive(Default)]
pub struct Throttles {
    pub leader: Throttle,
    pub follower: Throttle,
}

impl Throttles {
    /// Bytes of throttled replicas since the start.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        let own = [
            ("kafka.server:type=LeaderReplication,name=byte-rate", &self.leader),
            ("kafka.server:type=FollowerReplication,name=byte-rate", &self.follower),
        ];
        own.into_iter().map(|(name, throttle)| (name.to_owned(), throttle.bytes.get()))
    }

    /// Applies a node's configuration. What was counted before still counts.
    pub fn apply(&self, settings: &Settings) {
        let at_least_1 = |name: &str| settings.number(name).max(1);
        let windows = Windows {
            count: usize::try_from(at_least_1("replication.quota.window.num")).unwrap_or(1),
            window_ms: 1000 * at_least_1("replication.quota.window.size.seconds"),
        };
        self.leader.apply(settings.number("leader.replication.throttled.rate"), windows);
        self.follower.apply(settings.number("follower.replication.throttled.rate"), windows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_listed_or_all() {
        assert!(!ThrottledReplicas::of("").contains(0, 1));
        assert!(ThrottledReplicas::of("*").contains(7, 1));
        let some = ThrottledReplicas::of("0:1, 2:3");
        assert!(some.contains(0, 1) && some.contains(2, 3) && !some.contains(0, 3));
    }

    #[test]
    fn a_rate_is_exceeded_until_its_window_is_past() {
        let throttle = Throttle::default();
        throttle.count(0, 1000);
        assert!(!throttle.is_exceeded(0), "without a limit");
        throttle.apply(100, Windows { count: 3, window_ms: 1000 });
        assert!(throttle.is_exceeded(0) && throttle.is_exceeded(2500));
        assert!(!throttle.is_exceeded(3000));
        throttle.count(3000, 100);
        assert!(!throttle.is_exceeded(3000), "the limit itself is allowed");
    }
}
