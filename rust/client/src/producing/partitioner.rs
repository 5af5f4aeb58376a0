//! Chooses the partition of a record without one.

/// The hash of the Java client's partitioner (murmur2 with its seed), so that keys map to the same partitions.
pub fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(M) ^ mixed.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// How records without a partition are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioner {
    /// By the hash of the key; records without a key stay with a partition for a batch, then move on (KIP-480).
    Keyed,
    /// In turn, whatever the key.
    RoundRobin,
}

/// The distribution of one topic's records so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    turn: usize,
    /// Bytes that were sent to the current partition.
    bytes: usize,
}

impl Spread {
    /// Chooses one of `partitions`, which are not empty, for a record of `bytes`.
    pub fn next(
        &mut self,
        partitioner: Partitioner,
        partitions: &[i32],
        key: Option<&[u8]>,
        record_bytes: usize,
        batch_bytes: usize,
    ) -> i32 {
        match (partitioner, key) {
            (Partitioner::Keyed, Some(key)) => {
                let hash = (murmur2(key) & 0x7fff_ffff) as usize;
                partitions[hash % partitions.len()]
            }
            (Partitioner::Keyed, None) => {
                if self.bytes >= batch_bytes {
                    (self.turn, self.bytes) = (self.turn.wrapping_add(1), 0);
                }
                self.bytes += record_bytes;
                partitions[self.turn % partitions.len()]
            }
            (Partitioner::RoundRobin, _) => {
                self.turn = self.turn.wrapping_add(1);
                partitions[self.turn % partitions.len()]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        // Kafka's own examples (`UtilsTest`).
        let known: [(&[u8], i32); 5] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
    }

    #[test]
    fn records_without_a_key_fill_a_batch_then_move_on() {
        let mut spread = Spread::default();
        let went: Vec<_> = (0..7).map(|_| spread.next(Partitioner::Keyed, &[4, 5, 6], None, 60, 100)).collect();
        assert_eq!(went, [4, 4, 5, 5, 6, 6, 4]);
        let mut spread = Spread::default();
        let went: Vec<_> = (0..4).map(|_| spread.next(Partitioner::RoundRobin, &[0, 1, 2], Some(b"k"), 1, 9)).collect();
        assert_eq!(went, [1, 2, 0, 1]);
    }
}
