//! A rate over time windows, and how long to wait until it is within a bound (Kafka's rate quotas).
//!
//! The rate is the sum over the kept windows, divided by the time since the oldest of them began, but at least by the
//! length of all windows except one: after a quiet time a burst of that size is allowed.

use std::collections::VecDeque;

/// How many windows are kept, and how long each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// `quota.window.num`; at least 1.
    pub count: usize,
    /// `quota.window.size.seconds`, in ms; at least 1.
    pub window_ms: i64,
}

impl Default for Windows {
    fn default() -> Self {
        Self { count: 11, window_ms: 1000 }
    }
}

impl Windows {
    /// The time after which a window without a further event is forgotten.
    fn kept_ms(self) -> i64 {
        self.count as i64 * self.window_ms
    }

    /// The most that can happen within `per_second` after a quiet time, without waiting.
    pub fn burst(self, per_second: f64) -> f64 {
        per_second * (self.count - 1) as f64 * self.window_ms as f64 / 1000.0
    }
}

#[derive(Debug)]
struct Window {
    begun_ms: i64,
    last_ms: i64,
    sum: f64,
}

/// The windows of one rate. Times in ms, on any clock.
#[derive(Debug, Default)]
pub struct Rate {
    windows: VecDeque<Window>,
}

impl Rate {
    /// Counts `value` at `now_ms`.
    pub fn add(&mut self, now_ms: i64, value: f64, kept: Windows) {
        self.forget_old(now_ms, kept);
        match self.windows.back_mut() {
            Some(window) if now_ms - window.begun_ms < kept.window_ms => {
                window.sum += value;
                window.last_ms = now_ms;
            }
            _ => self.windows.push_back(Window { begun_ms: now_ms, last_ms: now_ms, sum: value }),
        }
    }

    /// How long to wait from `now_ms`, in ms, until the rate is at most `per_second`.
    pub fn wait_ms(&mut self, now_ms: i64, per_second: f64, kept: Windows) -> i64 {
        self.forget_old(now_ms, kept);
        let oldest_ms = self.windows.front().map_or(now_ms, |window| window.begun_ms);
        let elapsed_ms = now_ms - oldest_ms;
        let missing = (kept.count as i64 - 1 - elapsed_ms / kept.window_ms).max(0);
        let over_ms = (elapsed_ms + missing * kept.window_ms).max(1);
        let sum: f64 = self.windows.iter().map(|window| window.sum).sum();
        // The time that the sum needs at the allowed rate. A cast of a float saturates.
        ((sum * 1000.0 / per_second - over_ms as f64).round() as i64).max(0)
    }

    /// The rate per second over the time since the oldest window began, but at least over one window: the measure of the replication
    /// quotas, which allows no burst (KIP-73).
    pub fn per_second(&mut self, now_ms: i64, kept: Windows) -> f64 {
        self.forget_old(now_ms, kept);
        let oldest_ms = self.windows.front().map_or(now_ms, |window| window.begun_ms);
        let sum: f64 = self.windows.iter().map(|window| window.sum).sum();
        sum * 1000.0 / (now_ms - oldest_ms).max(kept.window_ms) as f64
    }

    /// Whether nothing is left that a later look would count.
    pub fn is_over(&mut self, now_ms: i64, kept: Windows) -> bool {
        self.forget_old(now_ms, kept);
        self.windows.is_empty()
    }

    fn forget_old(&mut self, now_ms: i64, kept: Windows) {
        while self.windows.front().is_some_and(|window| now_ms - window.last_ms >= kept.kept_ms()) {
            self.windows.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Windows = Windows { count: 3, window_ms: 1000 };

    fn waits(rate: &mut Rate, at_ms: i64, times: usize) -> Vec<i64> {
        let mut wait = || {
            rate.add(at_ms, 1.0, KEPT);
            rate.wait_ms(at_ms, 10.0, KEPT)
        };
        (0..times).map(|_| wait()).collect()
    }

    #[test]
    fn a_burst_is_free_and_later_events_wait() {
        let mut rate = Rate::default();
        // Two full windows at 10 per second.
        assert_eq!(KEPT.burst(10.0), 20.0);
        assert_eq!(waits(&mut rate, 0, 20), [0; 20]);
        assert_eq!(waits(&mut rate, 0, 3), [100, 200, 300]);
        assert_eq!(waits(&mut rate, 0, 20).pop(), Some(2300));
    }

    #[test]
    fn events_below_the_rate_never_wait() {
        let mut rate = Rate::default();
        assert!((0..200).all(|at| waits(&mut rate, at * 110, 1) == [0]));
    }

    #[test]
    fn a_rate_without_burst_counts_at_least_one_window() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(0, KEPT), 0.0);
        rate.add(0, 50.0, KEPT);
        assert_eq!([0, 1000, 2000].map(|at_ms| rate.per_second(at_ms, KEPT)), [50.0, 50.0, 25.0]);
        rate.add(2500, 50.0, KEPT);
        assert_eq!(rate.per_second(2500, KEPT), 40.0);
        assert_eq!(rate.per_second(3500, KEPT), 50.0, "the first window is over");
    }

    #[test]
    fn old_windows_are_forgotten() {
        let mut rate = Rate::default();
        waits(&mut rate, 0, 50);
        assert_eq!(waits(&mut rate, 10_000, 20), [0; 20]);
        assert_eq!(rate.windows.len(), 1);
        assert!(!rate.is_over(12_999, KEPT) && rate.is_over(13_000, KEPT));
    }
}
