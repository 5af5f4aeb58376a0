//! The rate of events over time windows, and how long to wait until it is within the limit (Kafka's rate quotas).
//!
//! The rate is the number of events in the kept windows, divided by the time since the oldest of them began, but at
//! least by the length of all windows except one: after a quiet time a burst of that size is allowed.

use std::collections::VecDeque;

/// Time windows with event counts. Times in ms, on any clock.
#[derive(Default)]
pub(super) struct Rate {
    /// The start of each window, and its event count.
    windows: VecDeque<(i64, u64)>,
}

impl Rate {
    /// Counts one event at `now_ms`, and returns how long to wait, in ms, so that there are at most `per_second`.
    ///
    /// Uses `count` windows of `window_ms`; the wait is at most one window.
    pub(super) fn record(&mut self, now_ms: i64, per_second: usize, count: usize, window_ms: i64) -> i64 {
        let (count, window_ms) = (count.max(1), window_ms.max(1));
        while self.windows.front().is_some_and(|(begun, _)| now_ms - begun >= count as i64 * window_ms) {
            self.windows.pop_front();
        }
        match self.windows.back_mut() {
            Some((begun, happened)) if now_ms - *begun < window_ms => *happened += 1,
            _ => self.windows.push_back((now_ms, 1)),
        }
        let oldest = self.windows.front().map_or(now_ms, |(begun, _)| *begun);
        let elapsed_ms = now_ms - oldest;
        let missing = (count as i64 - 1 - elapsed_ms / window_ms).max(0);
        let over_ms = (elapsed_ms + missing * window_ms).max(1);
        let happened: u64 = self.windows.iter().map(|(_, happened)| happened).sum();
        // The time that these events need at the allowed rate.
        let needed_ms = happened as f64 * 1000.0 / per_second.max(1) as f64;
        ((needed_ms - over_ms as f64).round() as i64).clamp(0, window_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(rate: &mut Rate, at_ms: i64, times: usize) -> Vec<i64> {
        (0..times).map(|_| rate.record(at_ms, 10, 3, 1000)).collect()
    }

    #[test]
    fn a_burst_of_the_kept_windows_is_free_and_then_each_waits_its_turn() {
        let mut rate = Rate::default();
        // Two full windows at 10 per second.
        assert_eq!(waits(&mut rate, 0, 20), [0; 20]);
        assert_eq!(waits(&mut rate, 0, 3), [100, 200, 300]);
        assert_eq!(waits(&mut rate, 0, 20).pop(), Some(1000), "no longer than a window");
    }

    #[test]
    fn what_is_slow_enough_never_waits() {
        let mut rate = Rate::default();
        assert!((0..200).all(|at| rate.record(at * 110, 10, 3, 1000) == 0));
    }

    #[test]
    fn old_windows_are_forgotten() {
        let mut rate = Rate::default();
        waits(&mut rate, 0, 50);
        assert_eq!(waits(&mut rate, 10_000, 20), [0; 20]);
        assert_eq!(rate.windows.len(), 1);
    }
}
