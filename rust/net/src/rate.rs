//! How fast something happens, over windows of time, and how long to wait until it is slow enough (Kafka's rate quotas).
//!
//! The rate is what happened in the windows that are kept, over the time since the oldest of them began, but over all but
//! one of the windows at least: a burst of that much is let through after a quiet time.

use std::collections::VecDeque;

/// Windows of time with what happened in them. Times in ms, on any clock.
#[derive(Default)]
pub(super) struct Rate {
    /// When each window began, and how much happened in it.
    windows: VecDeque<(i64, u64)>,
}

impl Rate {
    /// Counts one more at `now_ms`, and gives how long to wait, in ms, so that there are at most `per_second`.
    ///
    /// `count` windows of `window_ms` are looked at; the wait is one of them at most.
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
        // So long would it have to take at the rate that is allowed.
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
        // Two whole windows at 10 a second.
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
