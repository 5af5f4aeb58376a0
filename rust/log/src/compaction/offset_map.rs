//! The newest offset of each key, in bounded memory.
//!
//! A key is stored as a 128-bit hash under two random seeds, where Apache Kafka's `SkimpyOffsetMap` stores its MD5;
//! collisions are disregarded. Open addressing; the table doubles until it reaches its limit.

use std::hash::{BuildHasher, RandomState};

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    /// -1: the slot is free.
    offset: i64,
}

const FREE: Slot = Slot { hash: [0; 2], offset: -1 };
const SLOTS_MIN: usize = 1024;

/// Keys and their newest offsets.
pub struct OffsetMap {
    slots: Vec<Slot>,
    len: usize,
    /// The number of keys that fit.
    len_max: usize,
    seeds: [RandomState; 2],
    latest_offset: i64,
}

impl OffsetMap {
    /// Uses at most about `memory_bytes`, filled up to `load_factor` (`log.cleaner.dedupe.buffer.size`,
    /// `log.cleaner.io.buffer.load.factor`).
    pub fn new(memory_bytes: usize, load_factor: f64) -> Self {
        let slots_max = (memory_bytes / size_of::<Slot>()).max(SLOTS_MIN);
        let load_factor = load_factor.clamp(0.01, 0.9);
        let len_max = (slots_max as f64 * load_factor) as usize;
        Self { slots: Vec::new(), len: 0, len_max, seeds: [RandomState::new(), RandomState::new()], latest_offset: -1 }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no further key can be added.
    pub fn is_full(&self) -> bool {
        self.len >= self.len_max
    }

    /// All records up to this offset are in the map.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub fn reached(&mut self, offset: i64) {
        self.latest_offset = self.latest_offset.max(offset);
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        self.seeds.each_ref().map(|seed| seed.hash_one(key))
    }

    /// The slot of a hash, or the free slot where it would be stored.
    fn find(slots: &[Slot], hash: [u64; 2]) -> usize {
        let mut at = hash[0] as usize % slots.len();
        while slots[at].offset >= 0 && slots[at].hash != hash {
            at = if at + 1 == slots.len() { 0 } else { at + 1 };
        }
        at
    }

    /// Records that a key occurs at `offset`, which is larger than all earlier ones. The map must not be full.
    pub fn put(&mut self, key: &[u8], offset: i64) {
        debug_assert!(offset >= 0);
        if self.len * 10 >= self.slots.len() * 9 {
            self.grow();
        }
        let hash = self.hash(key);
        let at = Self::find(&self.slots, hash);
        if self.slots[at].offset < 0 {
            self.len += 1;
        }
        self.slots[at] = Slot { hash, offset };
    }

    fn grow(&mut self) {
        let largest = self.len_max * 10 / 9 + 2;
        let mut slots = vec![FREE; (self.slots.len() * 2).clamp(SLOTS_MIN.min(largest), largest)];
        for slot in self.slots.iter().filter(|slot| slot.offset >= 0) {
            let at = Self::find(&slots, slot.hash);
            slots[at] = *slot;
        }
        self.slots = slots;
    }

    /// The newest offset of a key, -1 if it is not in the map.
    pub fn get(&self, key: &[u8]) -> i64 {
        if self.slots.is_empty() {
            return -1;
        }
        self.slots[Self::find(&self.slots, self.hash(key))].offset
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(puts in proptest::collection::vec(0u16..3000, 0..6000)) {
            let mut map = OffsetMap::new(10_000 * 24, 0.9);
            let mut model = HashMap::new();
            for (offset, key) in puts.iter().enumerate() {
                map.put(&key.to_be_bytes(), offset as i64);
                model.insert(*key, offset as i64);
            }
            prop_assert_eq!(map.len(), model.len());
            for key in 0..3000u16 {
                prop_assert_eq!(map.get(&key.to_be_bytes()), model.get(&key).copied().unwrap_or(-1));
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut map = OffsetMap::new(SLOTS_MIN * 24, 0.9);
        let mut offset = 0;
        while !map.is_full() {
            map.put(&i64::to_be_bytes(offset), offset);
            offset += 1;
        }
        assert_eq!(map.len(), SLOTS_MIN * 9 / 10);
        assert!(map.slots.len() <= SLOTS_MIN + 8, "{}", map.slots.len());
        assert_eq!(map.get(b"another"), -1);
    }
}
