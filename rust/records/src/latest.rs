//! Of records with equal keys the last one: what reading a compacted log needs of them.

use std::collections::HashMap;
use std::sync::Arc;

/// A record that none with the same key has followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestRecord {
    pub offset: i64,
    pub key: Arc<[u8]>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// Records in offset order; a caller keeps other entries of type `T` unchanged.
///
/// An earlier compaction would have left the same, so a reader that accepts compacted logs accepts this.
#[derive(Debug)]
pub struct LatestRecords<T> {
    /// In the order of offsets; `None` where a later record has the key.
    entries: Vec<Option<Entry<T>>>,
    /// The entry of each key.
    places: HashMap<Arc<[u8]>, usize>,
    replaced: usize,
    bytes: usize,
}

/// A record, or an entry that the caller keeps unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    Latest(LatestRecord),
    Kept(T),
}

/// Fewer replaced entries are not worth the time to remove them.
const REPLACED_MIN: usize = 1024;

impl<T> Default for LatestRecords<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: HashMap::new(), replaced: 0, bytes: 0 }
    }
}

impl<T> LatestRecords<T> {
    /// Adds a record. An earlier one with its key is removed.
    pub fn add(&mut self, offset: i64, key: &[u8], value: Option<&[u8]>) {
        let length = value.map_or(0, <[u8]>::len);
        if let Some(place) = self.places.get_mut(key) {
            let Some(Entry::Latest(mut record)) = self.entries[*place].take() else {
                unreachable!("the place of a key has a record");
            };
            self.bytes = self.bytes + length - record.value.as_ref().map_or(0, Vec::len);
            record.offset = offset;
            match (&mut record.value, value) {
                (Some(before), Some(value)) => {
                    before.clear();
                    before.extend_from_slice(value);
                }
                (before, value) => *before = value.map(<[u8]>::to_vec),
            }
            *place = self.entries.len();
            self.entries.push(Some(Entry::Latest(record)));
            self.replaced += 1;
            self.remove_replaced();
            return;
        }
        let key: Arc<[u8]> = key.into();
        self.bytes += key.len() + length;
        self.places.insert(key.clone(), self.entries.len());
        self.entries.push(Some(Entry::Latest(LatestRecord { offset, key, value: value.map(<[u8]>::to_vec) })));
    }

    /// Adds something of `bytes` bytes that no record replaces, and that replaces none.
    pub fn keep(&mut self, kept: T, bytes: usize) {
        self.bytes += bytes;
        self.entries.push(Some(Entry::Kept(kept)));
    }

    fn remove_replaced(&mut self) {
        if self.replaced < REPLACED_MIN || self.replaced < self.entries.len() / 2 {
            return;
        }
        self.entries.retain(Option::is_some);
        self.replaced = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            if let Some(Entry::Latest(record)) = entry {
                *self.places.get_mut(&record.key).expect("each record has a place") = place;
            }
        }
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
        self.entries.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The last record of each key and all unkeyed ones, by offset.
        #[test]
        fn the_last_record_of_each_key_is_kept(records in prop::collection::vec(
            (0u8..20, prop::option::of(0u8..4), prop::bool::weighted(0.1)), 0..5_000
        )) {
            let mut latest = LatestRecords::default();
            let (mut of_key, mut expected) = (BTreeMap::new(), BTreeMap::new());
            for (offset, (key, value, is_kept)) in (0i64..).zip(records) {
                let value = value.map(|length| vec![key; usize::from(length)]);
                if is_kept {
                    latest.keep(offset, 1);
                    expected.insert(offset, Entry::Kept(offset));
                    continue;
                }
                latest.add(offset, &[key], value.as_deref());
                if let Some(before) = of_key.insert(key, offset) {
                    expected.remove(&before);
                }
                expected.insert(offset, Entry::Latest(LatestRecord { offset, key: [key].into(), value }));
            }
            let bytes: usize = expected.values().map(|entry| match entry {
                Entry::Kept(_) => 1,
                Entry::Latest(record) => 1 + record.value.as_ref().map_or(0, Vec::len),
            }).sum();
            prop_assert_eq!(latest.bytes(), bytes);
            prop_assert_eq!(latest.into_entries().collect::<Vec<_>>(), expected.into_values().collect::<Vec<_>>());
        }
    }
}
