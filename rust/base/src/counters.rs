//! Monotonic counters, updated where the work is done. Each is exact; several that are read together may differ by a
//! moment.
//!
//! Where Apache Kafka has a metric, the name is that of its MBean, and the value is the bean's `Count` (of a rate) or
//! total (of `-total`). Names of klamm's own begin with `klamm.`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter with its name.
pub type Named = (String, u64);

/// A number that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds microseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
