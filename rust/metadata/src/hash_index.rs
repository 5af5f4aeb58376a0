//! A persistent hash table from the hash of a key to a slot number. It stores no keys: the caller of a lookup
//! compares the key in the slot. Two of these tables find topics by id and by name.
//!
//! Entries are stored in chunks of plain numbers, so that a change copies a kilobyte without updating reference
//! counts, and a lookup touches one or two cache lines.
use std::sync::Arc;

use crate::prefetch::prefetch;
use crate::slots::Slots;

const CHUNK_BITS: u32 = 7;
const CHUNK: usize = 1 << CHUNK_BITS;
const EMPTY: Entry = Entry { hash: 0, slot: u32::MAX };
const REMOVED: Entry = Entry { hash: 0, slot: u32::MAX - 1 };

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u32,
    slot: u32,
}

type Chunk = [Entry; CHUNK];

/// Slots by hash, with linear probing.
///
/// 1. There are `2^bits` entries; the home of one is the top `bits` of its hash.
/// 2. At least a quarter of them is EMPTY, so that every search ends.
#[derive(Clone)]
pub struct HashIndex {
    chunks: Slots<Chunk>,
    bits: u32,
    live: u32,
    /// The number of entries that are not EMPTY.
    used: u32,
}

/// The entries in a chunk from the start of a search on.
#[derive(Clone, Copy)]
pub struct Start<'a>(&'a [Entry]);

impl Start<'_> {
    /// Prefetches the first entry.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.0);
    }

    /// The first slot with that hash in this chunk; another key may have the same hash.
    #[inline]
    pub fn probable(self, hash: u32) -> Option<u32> {
        let entry = self.0.iter().find(|entry| entry.hash == hash || **entry == EMPTY)?;
        (entry.slot < REMOVED.slot).then_some(entry.slot)
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        Self::with_bits(CHUNK_BITS)
    }
}

impl HashIndex {
    fn with_bits(bits: u32) -> Self {
        let mut chunks = Slots::default();
        let empty = Arc::new([EMPTY; CHUNK]);
        (0..1 << (bits - CHUNK_BITS)).for_each(|index| chunks.set(index, Arc::clone(&empty)));
        Self { chunks, bits, live: 0, used: 0 }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    fn home(&self, hash: u32) -> u32 {
        hash >> (32 - self.bits)
    }

    fn next(&self, at: u32) -> u32 {
        (at + 1) & ((1 << self.bits) - 1)
    }

    /// The slot with that hash that satisfies `is_it`.
    #[inline]
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|(_, slot)| slot)
    }

    /// The entries with which a search for that hash starts.
    #[inline]
    pub fn start(&self, hash: u32) -> Start<'_> {
        let at = self.home(hash);
        let chunk = self.chunks.get(at >> CHUNK_BITS).expect("every chunk is there");
        Start(&chunk[at as usize % CHUNK..])
    }

    fn position(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        let mut at = self.home(hash);
        loop {
            let chunk = self.chunks.get(at >> CHUNK_BITS).expect("every chunk is there");
            // Most searches end in the chunk in which they start.
            for entry in &chunk[at as usize % CHUNK..] {
                if *entry == EMPTY {
                    return None;
                }
                if entry.hash == hash && *entry != REMOVED && is_it(entry.slot) {
                    return Some((at, entry.slot));
                }
                at = self.next(at);
            }
        }
    }

    /// Adds a slot, which must not be in the table.
    pub fn insert(&mut self, hash: u32, slot: u32) {
        assert!(slot < REMOVED.slot, "slot numbers end before the marks");
        if u64::from(self.used + 1) * 4 > 3 << self.bits {
            self.rebuild();
        }
        self.insert_into_room(Entry { hash, slot });
    }

    fn insert_into_room(&mut self, entry: Entry) {
        let mut at = self.home(entry.hash);
        loop {
            let chunk = Arc::make_mut(self.chunks.get_mut(at >> CHUNK_BITS).expect("every chunk is there"));
            for place in &mut chunk[at as usize % CHUNK..] {
                if place.slot >= REMOVED.slot {
                    self.used += u32::from(*place == EMPTY);
                    self.live += 1;
                    *place = entry;
                    return;
                }
                at = (at + 1) & ((1 << self.bits) - 1);
            }
        }
    }

    /// Removes the slot with that hash that satisfies `is_it`.
    pub fn remove(&mut self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (at, slot) = self.position(hash, is_it)?;
        let chunk = Arc::make_mut(self.chunks.get_mut(at >> CHUNK_BITS).expect("every chunk is there"));
        chunk[at as usize % CHUNK] = REMOVED;
        self.live -= 1;
        Some(slot)
    }

    /// Makes room: doubles the number of entries, or only drops removed ones.
    fn rebuild(&mut self) {
        let bits = if u64::from(self.live) * 2 >= 1 << self.bits { self.bits + 1 } else { self.bits };
        let mut wider = Self::with_bits(bits);
        for (_, chunk) in self.chunks.iter() {
            let live = chunk.iter().filter(|entry| entry.slot < REMOVED.slot);
            live.for_each(|entry| wider.insert_into_room(*entry));
        }
        *self = wider;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0u32..400, any::<bool>()), 0..2000), spread in any::<bool>()) {
            let hash = |key: u32| if spread { key.wrapping_mul(0x9e37_79b9) } else { u32::MAX - key / 50 };
            let mut index = HashIndex::default();
            let mut model: HashMap<u32, u32> = HashMap::new();
            for (key, is_insert) in steps {
                let before = index.clone();
                prop_assert_eq!(index.find(hash(key), |slot| slot == key), model.get(&key).copied());
                if is_insert && !model.contains_key(&key) {
                    index.insert(hash(key), key);
                    model.insert(key, key);
                    prop_assert_eq!(before.find(hash(key), |slot| slot == key), None);
                } else if !is_insert {
                    prop_assert_eq!(index.remove(hash(key), |slot| slot == key), model.remove(&key));
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for key in 0..400 {
                prop_assert_eq!(index.find(hash(key), |slot| slot == key), model.get(&key).copied());
            }
        }
    }
}
