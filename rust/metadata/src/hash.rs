//! Hashes of topic ids and names.
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::LazyLock;

use klamm_base::Uuid;

/// The hash of an id. The controller draws ids at random, so clients cannot choose colliding ones, and one
/// multiplication of the halves suffices.
#[inline]
pub fn hash_id(id: Uuid) -> u32 {
    let value = u128::from_be_bytes(id.0);
    let low = (value as u64) ^ 0x9e37_79b9_7f4a_7c15;
    let high = ((value >> 64) as u64) ^ 0xbf58_476d_1ce4_e5b9;
    let product = u128::from(low) * u128::from(high);
    let mixed = (product as u64) ^ ((product >> 64) as u64);
    (mixed ^ (mixed >> 32)) as u32
}

/// The hash of a name, with a random key, because clients choose names.
#[inline]
pub fn hash_name(name: &str) -> u32 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(name) as u32
}

/// Hashes a topic's id and a partition's index as [`hash_id`] does: only for keys that the controller created.
pub type ByIdAndIndex = BuildHasherDefault<IdHasher>;

/// See [`ByIdAndIndex`].
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    #[inline]
    fn write_i32(&mut self, index: i32) {
        self.write_u64(index as u64);
    }

    /// The length prefix of an id, which is the same for all.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_partitions_of_many_topics_have_different_hashes() {
        let id = |number: u64| {
            Uuid(u128::from(number).wrapping_mul(0x1234_5678_9abc_def1_0fed_cba9_8765_4321).to_be_bytes())
        };
        let keys = (1..100).flat_map(|topic| (0..100).map(move |index| (id(topic), index)));
        let hashes: Vec<u64> = keys.map(|key: (Uuid, i32)| ByIdAndIndex::default().hash_one(key)).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len());
        // A hash table uses the lowest bits and the highest seven.
        for shift in [0, 50] {
            let buckets: HashSet<_> = hashes.iter().map(|hash| (hash >> shift) % 16_384).collect();
            assert!(buckets.len() > 6_500, "{} buckets of 16,384 for 9,900 keys", buckets.len());
        }
    }
}
