//! Monotonic counters, updated where the work is done. Each is exact; several that are read together may differ by a
//! moment.
//!
//! Where Apache Kafka has a metric, the name is that of its MBean, and the value is the bean's `Count` (of a rate) or
//! total (of `-total`). Names of klamm's own begin with `klamm.`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A counter with its name.
pub type Named = (String, u64);

/// A value in an MBean's name: in quotes if it has characters that JMX does not allow there (Apache Kafka's `Sanitizer`).
pub fn mbean_value(value: &str) -> String {
    let is_plain = |byte: char| byte.is_ascii_alphanumeric() || "_-%. \t".contains(byte);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    let mut quoted = String::from("\"");
    for byte in value.chars() {
        match byte {
            '\n' => quoted.push_str("\\n"),
            '"' | '\\' | '*' | '?' => quoted.extend(['\\', byte]),
            _ => quoted.push(byte),
        }
    }
    quoted.push('"');
    quoted
}

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

/// A counter that every append updates. A few threads update different parts of it, so that no cache line passes between
/// their processors each time.
#[derive(Default)]
pub struct BusyCounter([Part; BusyCounter::PARTS]);

/// In a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Part(Counter);

impl BusyCounter {
    const PARTS: usize = 8;

    #[inline]
    pub fn add(&self, count: u64) {
        self.0[Self::part()].0.add(count);
    }

    pub fn get(&self) -> u64 {
        self.0.iter().map(|part| part.0.get()).sum()
    }

    /// The part of this thread.
    #[inline]
    fn part() -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % BusyCounter::PARTS;
        }
        PART.with(|part| *part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_counter_counts_what_more_threads_than_parts_add() {
        let counter = BusyCounter::default();
        std::thread::scope(|scope| {
            for count in 1..=2 * BusyCounter::PARTS as u64 {
                let counter = &counter;
                scope.spawn(move || (0..100).for_each(|_| counter.add(count)));
            }
        });
        assert_eq!(counter.get(), 100 * (1..=2 * BusyCounter::PARTS as u64).sum::<u64>());
    }

    #[test]
    fn a_value_that_jmx_does_not_allow_is_quoted() {
        for (value, expected) in
            [("t-1_%.a b", "t-1_%.a b"), ("/data/1", "\"/data/1\""), ("a*\"\\?\n", "\"a\\*\\\"\\\\\\?\\n\"")]
        {
            assert_eq!(mbean_value(value), expected);
        }
    }
}
