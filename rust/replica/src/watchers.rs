//! The fetches that wait for a change of one partition.

use std::sync::Arc;

use super::fetch_waiter::FetchWaiter;

/// The waiters of one partition. Entries of fetches that ended elsewhere are swept when the list doubles.
#[derive(Debug, Default)]
pub struct Watchers {
    list: Vec<Arc<FetchWaiter>>,
    sweep_at: usize,
}

impl Watchers {
    const LEAST_SWEEP: usize = 16;

    /// Adds one.
    pub fn push(&mut self, waiter: Arc<FetchWaiter>) {
        if self.list.len() >= self.sweep_at.max(Self::LEAST_SWEEP) {
            self.list.retain(|waiter| !waiter.has_ended());
            self.sweep_at = self.list.len() * 2;
        }
        self.list.push(waiter);
    }

    /// Takes all of them, to be woken outside of the partition's lock.
    pub fn take(&mut self) -> Vec<Arc<FetchWaiter>> {
        std::mem::take(&mut self.list)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn ended_fetches_do_not_pile_up() {
        let mut watchers = Watchers::default();
        for _ in 0..10_000 {
            let waiter = Arc::new(FetchWaiter::new(Waker::noop().clone()));
            watchers.push(waiter.clone());
            waiter.end();
        }
        assert!(watchers.take().len() <= 2 * Watchers::LEAST_SWEEP);
    }
}
