//! The clock. Code that decides receives the time as an argument; only code that assembles a node reads it here.

use std::time::Instant;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The time of a node. The simulator passes one that it moves itself.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn wall_ms(&self) -> i64;

    /// Milliseconds since any point in time, never decreasing.
    fn monotonic_ms(&self) -> i64;
}

/// The clock of the operating system.
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        now_ms()
    }

    fn monotonic_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
