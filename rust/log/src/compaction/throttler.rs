//! Limits how fast the cleaner reads and writes, over all its threads (`log.cleaner.io.max.bytes.per.second`).

use std::time::{Duration, Instant};

/// Shorter waits are postponed until they add up to this.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Bounds a wait, however low the limit is.
const WAIT_MAX: Duration = Duration::from_secs(3600);

pub(super) struct Throttler {
    per_second: f64,
    /// The time at which all bytes taken so far are within the limit.
    paid: Instant,
}

impl Throttler {
    pub(super) fn new(per_second: f64) -> Self {
        Self { per_second: per_second.max(1.0), paid: Instant::now() }
    }

    /// Takes `bytes`; returns how long to wait for them, if the wait is long enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Duration> {
        self.take_at(bytes, Instant::now())
    }

    fn take_at(&mut self, bytes: u64, now: Instant) -> Option<Duration> {
        let cost = (bytes as f64 / self.per_second).min(WAIT_MAX.as_secs_f64());
        self.paid = self.paid.max(now) + Duration::from_secs_f64(cost);
        Some(self.paid.duration_since(now)).filter(|wait| *wait >= WAIT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_rate_wait() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut throttler = Throttler { per_second: 1000.0, paid: begun };
        assert_eq!(throttler.take_at(5, begun), None, "too short a wait");
        assert_eq!(throttler.take_at(995, begun), Some(second));
        assert_eq!(throttler.take_at(1000, begun + second), Some(second));
        let late = begun + 10 * second;
        assert_eq!(throttler.take_at(1000, late), Some(second), "time that passed idly is lost");
    }

    #[test]
    fn without_a_limit_nothing_waits_and_an_absurd_limit_is_handled() {
        let now = Instant::now();
        assert_eq!(Throttler { per_second: f64::MAX, paid: now }.take_at(u64::MAX, now), None);
        assert_eq!(Throttler { per_second: 1.0, paid: now }.take_at(u64::MAX, now), Some(WAIT_MAX));
        assert!(Throttler::new(-1.0).per_second >= 1.0);
    }
}
