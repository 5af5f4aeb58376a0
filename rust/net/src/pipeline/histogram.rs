//! A histogram that many threads update without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two: values are accurate to one eighth.
const STEPS: usize = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Values below [`STEPS`] have a bucket each; each power of two from there on has `STEPS` buckets.
const BUCKETS: usize = STEPS + (u64::BITS - STEP_BITS) as usize * STEPS;

/// Counts of values by size.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    pub count: u64,
    pub sum: u64,
    buckets: Vec<u64>,
}

impl Histogram {
    /// Adds a value.
    pub fn add(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// A copy of the values added so far.
    pub fn distribution(&self) -> Distribution {
        let buckets: Vec<_> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Distribution { count: buckets.iter().sum(), sum: self.sum.load(Ordering::Relaxed), buckets }
    }
}

impl Distribution {
    /// The smallest value that at least a share `[0, 1]` of all values does not exceed, accurate to one eighth; 0
    /// without values.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return largest_of(at);
            }
        }
        0
    }
}

fn bucket_of(value: u64) -> usize {
    let Some(power) = value.checked_ilog2().filter(|power| *power >= STEP_BITS) else { return value as usize };
    let step = (value >> (power - STEP_BITS)) as usize - STEPS;
    STEPS + (power - STEP_BITS) as usize * STEPS + step
}

/// The largest value of a bucket.
fn largest_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = ((bucket - STEPS) / STEPS, (bucket - STEPS) % STEPS);
    let beyond = ((STEPS + step + 1) as u128) << power;
    u64::try_from(beyond - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_precision_of_an_eighth() {
        let values =
            (0..64).flat_map(|power| [0, 1, 5].map(|more| (1u64 << power).saturating_add(more << (power / 2))));
        for value in values.chain([0, u64::MAX]) {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS && largest_of(bucket) >= value, "{value}");
            assert!(largest_of(bucket) - value <= value / 8, "{value}: {}", largest_of(bucket));
            assert!(bucket == 0 || largest_of(bucket - 1) < value, "{value}");
        }
    }

    #[test]
    fn quantiles_of_a_distribution() {
        let histogram = Histogram::default();
        assert_eq!(histogram.distribution().quantile(0.5), 0);
        (1..=100).for_each(|value| histogram.add(value));
        let found = histogram.distribution();
        assert_eq!((found.count, found.sum), (100, 5050));
        for (share, low) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            assert!((low..=low + low / 8).contains(&found.quantile(share)), "{share}: {}", found.quantile(share));
        }
    }
}
