//! One timer wheel for the locks of all share partitions.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys by deadline. A key has one deadline at most, its earliest; it is removed when it is due.
///
/// The wheel is a ring of slots of one tick each. A deadline further away than the ring is long stays in its slot for several
/// turns. A key is due at the end of the tick of its deadline, never before.
#[derive(Debug)]
pub struct TimerWheel<K> {
    tick_ms: i64,
    slots: Vec<Vec<(K, i64)>>,
    /// All ticks up to this one have ended and are processed.
    tick: i64,
    deadlines: HashMap<K, i64>,
}

const SLOTS: i64 = 512;

impl<K: Copy + Eq + Hash> TimerWheel<K> {
    pub fn new(tick_ms: i64, now_ms: i64) -> Self {
        assert!(tick_ms > 0);
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Self { tick_ms, slots, tick: now_ms.div_euclid(tick_ms) - 1, deadlines: HashMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    pub fn tick_ms(&self) -> i64 {
        self.tick_ms
    }

    /// Makes `key` due at `deadline_ms`, unless it is due earlier.
    pub fn schedule(&mut self, key: K, deadline_ms: i64) {
        if self.deadlines.get(&key).is_some_and(|known| *known <= deadline_ms) {
            return;
        }
        self.deadlines.insert(key, deadline_ms);
        // A slot that is processed already would be visited one turn too late.
        let tick = deadline_ms.div_euclid(self.tick_ms).max(self.tick + 1);
        self.slots[Self::slot(tick)].push((key, deadline_ms));
    }

    /// The key is gone.
    pub fn cancel(&mut self, key: K) {
        self.deadlines.remove(&key);
    }

    /// Removes and returns the keys that are due at `now_ms`.
    pub fn advance(&mut self, now_ms: i64) -> Vec<K> {
        let end = now_ms.div_euclid(self.tick_ms) - 1;
        let mut due = Vec::new();
        let first = self.tick + 1;
        for tick in first..=end.min(first + SLOTS - 1) {
            let slot = &mut self.slots[Self::slot(tick)];
            let deadlines = &mut self.deadlines;
            slot.retain(|(key, deadline_ms)| {
                if deadlines.get(key) != Some(deadline_ms) {
                    return false;
                }
                let is_due = *deadline_ms <= now_ms;
                if is_due {
                    deadlines.remove(key);
                    due.push(*key);
                }
                !is_due
            });
        }
        self.tick = self.tick.max(end);
        due
    }

    fn slot(tick: i64) -> usize {
        usize::try_from(tick.rem_euclid(SLOTS)).unwrap_or(0)
    }
}
