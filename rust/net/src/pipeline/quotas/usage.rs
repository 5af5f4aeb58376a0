//! How much of a quota each client has used: a rate for each user, client id or both. The time is passed in.

use std::collections::HashMap;

use super::limits::Found;
use klamm_base::rate::{Rate, Windows};

/// From this many rates on, those that are over are dropped.
const SWEPT_FROM: usize = 64;

/// The rates of one quota.
#[derive(Debug)]
pub struct Rates {
    rates: HashMap<(Box<str>, Box<str>), Rate>,
    sweep_at: usize,
}

impl Default for Rates {
    fn default() -> Self {
        Self { rates: HashMap::new(), sweep_at: SWEPT_FROM }
    }
}

impl Rates {
    /// Counts `value`; returns for how long the client is throttled, in ms.
    pub fn count(&mut self, now_ms: i64, limit: Found<'_>, value: f64, kept: Windows) -> i64 {
        let rate = self.of(now_ms, limit, kept);
        rate.add(now_ms, value, kept);
        rate.wait_ms(now_ms, limit.per_second, kept)
    }

    /// The same for what does not happen if the client is throttled: then it is not counted.
    pub fn count_unless_over(&mut self, now_ms: i64, limit: Found<'_>, value: f64, kept: Windows) -> i64 {
        let wait_ms = self.count(now_ms, limit, value, kept);
        if wait_ms > 0 {
            self.of(now_ms, limit, kept).add(now_ms, -value, kept);
        }
        wait_ms
    }

    fn of(&mut self, now_ms: i64, limit: Found<'_>, kept: Windows) -> &mut Rate {
        if self.rates.len() >= self.sweep_at {
            self.rates.retain(|_, rate| !rate.is_over(now_ms, kept));
            self.sweep_at = SWEPT_FROM.max(2 * self.rates.len());
        }
        self.rates.entry((limit.user.into(), limit.client_id.into())).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Windows = Windows { count: 3, window_ms: 1000 };

    fn limit(client_id: &str) -> Found<'_> {
        Found { per_second: 10.0, user: "u", client_id }
    }

    #[test]
    fn each_client_uses_its_own_rate() {
        let mut rates = Rates::default();
        assert_eq!(rates.count(0, limit("a"), 30.0, KEPT), 1000);
        assert_eq!(rates.count(0, limit("a"), 0.0, KEPT), 1000);
        assert_eq!(rates.count(0, limit("b"), 20.0, KEPT), 0);
        let raised = Found { per_second: 15.0, ..limit("a") };
        assert_eq!(rates.count(0, raised, 0.0, KEPT), 0, "a new limit applies to what was used before");
    }

    #[test]
    fn idle_time_is_not_counted() {
        let mut rates = Rates::default();
        assert_eq!(rates.count_unless_over(0, limit("a"), 30.0, KEPT), 1000);
        assert_eq!(rates.count_unless_over(0, limit("a"), 15.0, KEPT), 0);
        assert_eq!(rates.count_unless_over(0, limit("a"), 15.0, KEPT), 1000);
        // In the third window the two seconds of the least period are over.
        assert_eq!(rates.count_unless_over(3500, limit("a"), 15.0, KEPT), 0);
    }

    #[test]
    fn expired_rates_are_dropped() {
        let mut rates = Rates::default();
        for at in 0..100_000 {
            rates.count(at * 100, limit(&at.to_string()), 1.0, KEPT);
        }
        assert!(rates.rates.len() <= 2 * SWEPT_FROM, "{}", rates.rates.len());
    }
}
