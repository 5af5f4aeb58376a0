//! Monotonic counters, updated where the work is done. Each is exact; several that are read together may differ by a
//! moment.
//!
//! Where Apache Kafka has a metric, the name is that of its MBean, and the value is the bean's `Count` (of a rate) or
//! total (of `-total`). Names of klamm's own begin with `klamm.`.

use std::sync::atomic::{AtomicU64, Ordering};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_jmx_does_not_allow_is_quoted() {
        for (value, expected) in
            [("t-1_%.a b", "t-1_%.a b"), ("/data/1", "\"/data/1\""), ("a*\"\\?\n", "\"a\\*\\\"\\\\\\?\\n\"")]
        {
            assert_eq!(mbean_value(value), expected);
        }
    }
}
