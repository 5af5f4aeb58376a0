//! Of records with equal keys the last one: what reading a compacted log needs of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

/// A record that none with the same key has followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestRecord {
    pub offset: i64,
    /// Key and value: to replace the value of a key that was just compared needs no other memory.
    bytes: Vec<u8>,
    key_len: usize,
    is_tombstone: bool,
}

impl LatestRecord {
    pub fn new(offset: i64, key: &[u8], value: Option<&[u8]>) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        let mut record = Self { offset, bytes, key_len: key.len(), is_tombstone: false };
        record.replace(offset, value);
        record
    }

    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    /// `None` is a tombstone.
    pub fn value(&self) -> Option<&[u8]> {
        (!self.is_tombstone).then(|| &self.bytes[self.key_len..])
    }

    fn replace(&mut self, offset: i64, value: Option<&[u8]>) {
        self.offset = offset;
        self.is_tombstone = value.is_none();
        self.bytes.truncate(self.key_len);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }
}

/// Offset, key and value of a record to add.
pub type Keyed<'a> = (i64, &'a [u8], Option<&'a [u8]>);

/// Records in offset order; a caller keeps other entries of type `T` unchanged.
///
/// An earlier compaction would have left the same, so a reader that accepts compacted logs accepts this.
///
/// The keys of a log come in no order that a cache could use, and the time is that of the memory. So records are added
/// in groups: the first pass over a group only reads what the second one needs, and its cache misses overlap.
#[derive(Debug)]
pub struct LatestRecords<T> {
    /// One for each key, in the order in which the keys appeared.
    latest: Vec<LatestRecord>,
    /// A hash table with linear probing, at most half full; its length is a power of two.
    slots: Vec<Slot>,
    /// Clients choose the keys, so the hash has a secret.
    hashes: RandomState,
    /// With their offsets, which ascend.
    kept: Vec<(i64, T)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The upper half of the key's hash; the lower half gives the place of the slot.
    tag: u32,
    /// One more than the record's index; 0 if the slot is free.
    number: u32,
}

/// A record, or an entry that the caller keeps unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    Latest(LatestRecord),
    Kept(T),
}

const SLOTS_MIN: usize = 64;
const GROUP: usize = 32;

impl<T> Default for LatestRecords<T> {
    fn default() -> Self {
        Self {
            latest: Vec::new(),
            slots: vec![Slot::default(); SLOTS_MIN],
            hashes: RandomState::new(),
            kept: Vec::new(),
            bytes: 0,
        }
    }
}

impl<T> LatestRecords<T> {
    /// Adds records, whose offsets are higher than all before. Each replaces an earlier one with its key.
    pub fn add(&mut self, records: &[Keyed<'_>]) {
        let mut hashes = [0; GROUP];
        for group in records.chunks(GROUP) {
            for (hash, (_, key, _)) in hashes.iter_mut().zip(group) {
                *hash = self.hash(key);
            }
            self.read_ahead(&hashes[..group.len()]);
            for (hash, record) in hashes.iter().zip(group) {
                self.add_hashed(*hash, *record);
            }
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// Brings the records that these hashes probably find into the cache.
    fn read_ahead(&self, hashes: &[u64]) {
        let mut numbers = [0; GROUP];
        for (number, hash) in numbers.iter_mut().zip(hashes) {
            *number = self.slots[self.place(*hash)].number;
        }
        for number in &numbers[..hashes.len()] {
            let record = (*number as usize).checked_sub(1).map(|index| &self.latest[index]);
            black_box(record.and_then(|record| record.bytes.first().copied()));
        }
    }

    fn add_hashed(&mut self, hash: u64, (offset, key, value): Keyed<'_>) {
        let mut place = self.place(hash);
        while self.slots[place].number > 0 {
            let Slot { tag, number } = self.slots[place];
            if tag == tag_of(hash) {
                let record = &mut self.latest[number as usize - 1];
                if record.key() == key {
                    self.bytes -= record.bytes.len();
                    record.replace(offset, value);
                    self.bytes += record.bytes.len();
                    return;
                }
            }
            place = self.after(place);
        }
        let record = LatestRecord::new(offset, key, value);
        self.bytes += record.bytes.len();
        self.latest.push(record);
        let number = u32::try_from(self.latest.len()).expect("a part of a log has fewer records");
        self.slots[place] = Slot { tag: tag_of(hash), number };
        if 2 * self.latest.len() > self.slots.len() {
            self.double_slots();
        }
    }

    fn double_slots(&mut self) {
        self.slots = vec![Slot::default(); 2 * self.slots.len()];
        for (number, record) in (1..).zip(&self.latest) {
            let hash = self.hash(record.key());
            let mut place = self.place(hash);
            while self.slots[place].number > 0 {
                place = self.after(place);
            }
            self.slots[place] = Slot { tag: tag_of(hash), number };
        }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.slots.len() - 1)
    }

    /// Adds something of `bytes` bytes that no record replaces, and that replaces none.
    pub fn keep(&mut self, offset: i64, kept: T, bytes: usize) {
        self.bytes += bytes;
        self.kept.push((offset, kept));
    }

    /// Bytes of the keys and values that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is held, in the order of offsets.
    pub fn into_entries(self) -> impl Iterator<Item = Entry<T>> + Send
    where
        T: Send,
    {
        let mut latest = self.latest;
        latest.sort_unstable_by_key(|record| record.offset);
        let (mut latest, mut kept) = (latest.into_iter().peekable(), self.kept.into_iter().peekable());
        std::iter::from_fn(move || match (latest.peek(), kept.peek()) {
            (Some(record), Some((offset, _))) if record.offset < *offset => latest.next().map(Entry::Latest),
            (Some(_), None) => latest.next().map(Entry::Latest),
            _ => kept.next().map(|(_, kept)| Entry::Kept(kept)),
        })
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The last record of each key and all unkeyed ones, by offset, however the records are divided.
        #[test]
        fn the_last_record_of_each_key_is_kept(
            records in prop::collection::vec((0u16..300, prop::option::of(0u8..4), prop::bool::weighted(0.1)), 0..5_000),
            together in 1usize..100,
        ) {
            let mut latest = LatestRecords::default();
            let (mut of_key, mut expected) = (BTreeMap::new(), BTreeMap::new());
            let keys: Vec<_> = records.iter().map(|(key, ..)| vec![*key as u8; usize::from(*key / 64)]).collect();
            let values: Vec<_> = records.iter().map(|(_, length, _)| length.map(|length| vec![1; length.into()])).collect();
            let mut added: Vec<Keyed<'_>> = Vec::new();
            for (offset, (_, _, is_kept)) in records.iter().enumerate() {
                let (key, value, offset) = (&keys[offset], values[offset].as_deref(), offset as i64);
                if *is_kept {
                    latest.keep(offset, offset, 1);
                    expected.insert(offset, Entry::Kept(offset));
                    continue;
                }
                added.push((offset, key, value));
                if added.len() == together {
                    latest.add(&std::mem::take(&mut added));
                }
                if let Some(before) = of_key.insert(key, offset) {
                    expected.remove(&before);
                }
                expected.insert(offset, Entry::Latest(LatestRecord::new(offset, key, value)));
            }
            latest.add(&added);
            let bytes: usize = expected.values().map(|entry| match entry {
                Entry::Kept(_) => 1,
                Entry::Latest(record) => record.key().len() + record.value().map_or(0, <[u8]>::len),
            }).sum();
            prop_assert_eq!(latest.bytes(), bytes);
            prop_assert_eq!(latest.into_entries().collect::<Vec<_>>(), expected.into_values().collect::<Vec<_>>());
        }
    }
}
