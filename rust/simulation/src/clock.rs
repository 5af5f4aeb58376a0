//! A clock that shows what the caller set.

use std::sync::atomic::{AtomicI64, Ordering};

use klamm_base::clock::Clock;

#[derive(Default)]
pub struct SetClock(AtomicI64);

impl SetClock {
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn wall_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
