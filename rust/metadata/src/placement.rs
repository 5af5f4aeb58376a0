//! Striped, rack-aware placement of replicas (Apache Kafka's `StripedReplicaPlacer`).
//!
//! Racks take turns, and so do the brokers within a rack, each from a random start. The first replica of a partition
//! is placed on an unfenced broker, the others on one rack after the other. Fenced brokers of a rack are used only
//! when all of its unfenced ones have a replica. After as many partitions as there are unfenced brokers, everything
//! is shuffled, so that not always the same brokers share partitions.
use std::collections::BTreeMap;

use crate::MetadataImage;

/// Why replicas cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("the replication factor must be positive, not {0}")]
    NotPositive(i32),
    #[error("all brokers are fenced, in controlled shutdown or have all their log directories cordoned")]
    NoActiveBroker,
    #[error("a replication factor of {replication_factor} needs as many brokers: {usable} can take replicas now")]
    TooFewBrokers { replication_factor: i32, usable: usize },
}

/// A random number generator with a seed (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ (mixed >> 31);
        ((u128::from(mixed) * end as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

/// Brokers that take turns.
#[derive(Default)]
struct BrokerRing {
    brokers: Vec<i32>,
    next: usize,
}

impl BrokerRing {
    /// The next broker that is not in `taken`.
    fn next(&mut self, taken: &[i32]) -> Option<i32> {
        let count = self.brokers.len();
        let at = (self.next..self.next + count).find(|at| !taken.contains(&self.brokers[at % count]))?;
        self.next = (at + 1) % count;
        Some(self.brokers[at % count])
    }
}

/// The brokers of a rack. Leaders have a separate turn: if they shared that of all replicas, three racks of three
/// brokers would give all leaderships to one broker in each.
#[derive(Default)]
struct Rack {
    leaders: BrokerRing,
    unfenced: BrokerRing,
    fenced: BrokerRing,
}

impl Rack {
    fn rings(&mut self) -> [&mut BrokerRing; 3] {
        [&mut self.leaders, &mut self.unfenced, &mut self.fenced]
    }
}

/// Places the replicas of one topic after another.
pub struct Placer {
    rng: Rng,
    racks: Vec<Rack>,
    unfenced_count: usize,
    broker_count: usize,
    /// The number of partitions placed.
    placed: usize,
    /// The rack whose turn it is.
    start: usize,
}

impl Placer {
    /// A placer for the brokers that can take replicas now: registered, not in controlled shutdown, with an
    /// uncordoned directory.
    pub fn new(image: &MetadataImage, seed: u64) -> Self {
        let usable = image.brokers().values().filter(|broker| !broker.in_controlled_shutdown);
        Self::from_brokers(
            usable
                .filter(|broker| broker.has_uncordoned_dir())
                .map(|broker| (broker.id, broker.rack.as_deref(), broker.fenced)),
            seed,
        )
    }

    fn from_brokers<'r>(brokers: impl Iterator<Item = (i32, Option<&'r str>, bool)>, seed: u64) -> Self {
        let mut racks: BTreeMap<Option<&str>, Rack> = BTreeMap::new();
        for (id, rack, fenced) in brokers {
            let rack = racks.entry(rack).or_default();
            if fenced { &mut rack.fenced } else { &mut rack.unfenced }.brokers.push(id);
        }
        let racks: Vec<Rack> = racks.into_values().collect();
        let unfenced_count = racks.iter().map(|rack| rack.unfenced.brokers.len()).sum();
        let fenced_count: usize = racks.iter().map(|rack| rack.fenced.brokers.len()).sum();
        let broker_count = unfenced_count + fenced_count;
        let mut placer = Self { rng: Rng(seed), racks, unfenced_count, broker_count, placed: 0, start: 0 };
        placer.draw_starts();
        placer
    }

    fn draw_starts(&mut self) {
        for rack in &mut self.racks {
            rack.leaders.brokers.clone_from(&rack.unfenced.brokers);
            for ring in rack.rings() {
                ring.brokers.sort_unstable();
                ring.next = self.rng.below(ring.brokers.len().max(1));
            }
        }
        self.start = self.rng.below(self.racks.len().max(1));
    }

    /// The replicas of `partition_count` partitions, each with its preferred leader first.
    pub fn place(&mut self, partition_count: usize, replication_factor: i32) -> Result<Vec<Vec<i32>>, PlacementError> {
        let wanted = usize::try_from(replication_factor).unwrap_or(0);
        if wanted == 0 {
            return Err(PlacementError::NotPositive(replication_factor));
        }
        if self.unfenced_count == 0 {
            return Err(PlacementError::NoActiveBroker);
        }
        if wanted > self.broker_count {
            return Err(PlacementError::TooFewBrokers { replication_factor, usable: self.broker_count });
        }
        Ok((0..partition_count).map(|_| self.place_one(wanted)).collect())
    }

    fn place_one(&mut self, replication_factor: usize) -> Vec<i32> {
        if self.placed > 0 && self.placed.is_multiple_of(self.unfenced_count) {
            self.shuffle();
        }
        self.placed += 1;
        let count = self.racks.len();
        let start = self.start % count;
        self.start = start + 1;
        let (leader_rack, leader) = (start..start + count)
            .find_map(|at| Some((at % count, self.racks[at % count].leaders.next(&[])?)))
            .expect("there is an unfenced broker");
        let mut replicas = Vec::with_capacity(replication_factor);
        replicas.push(leader);
        let mut skip = Some(leader_rack);
        let mut at = start;
        while replicas.len() < replication_factor {
            if skip == Some(at) {
                skip = None; // The leader's rack has had its turn, once.
            } else {
                let rack = &mut self.racks[at];
                let next = rack.unfenced.next(&replicas).or_else(|| rack.fenced.next(&replicas));
                replicas.extend(next);
            }
            at = (at + 1) % count;
        }
        replicas
    }

    fn shuffle(&mut self) {
        self.rng.shuffle(&mut self.racks);
        for ring in self.racks.iter_mut().flat_map(Rack::rings) {
            self.rng.shuffle(&mut ring.brokers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    fn placer(brokers: &[(i32, Option<&str>, bool)], seed: u64) -> Placer {
        Placer::from_brokers(brokers.iter().copied(), seed)
    }

    #[test]
    fn impossible_placements_are_explained() {
        let mut one = placer(&[(1, None, false), (2, None, true)], 7);
        assert_eq!(one.place(1, 0), Err(PlacementError::NotPositive(0)));
        assert_eq!(one.place(1, 3), Err(PlacementError::TooFewBrokers { replication_factor: 3, usable: 2 }));
        assert_eq!(placer(&[(1, None, true)], 7).place(1, 1), Err(PlacementError::NoActiveBroker));
        assert_eq!(placer(&[], 7).place(1, 1), Err(PlacementError::NoActiveBroker));
    }

    #[test]
    fn the_only_unfenced_broker_leads_everything() {
        let placed = placer(&[(1, None, false), (2, None, true)], 7).place(5, 2).expect("two brokers");
        assert_eq!(placed, vec![vec![1, 2]; 5]);
    }

    #[test]
    fn the_seed_decides() {
        let brokers: Vec<_> = (0..9).map(|id| (id, None, false)).collect();
        assert_eq!(placer(&brokers, 5).place(20, 3), placer(&brokers, 5).place(20, 3));
        assert_ne!(placer(&brokers, 5).place(20, 3), placer(&brokers, 6).place(20, 3));
    }

    #[test]
    fn leaders_are_spread_over_racks_and_brokers() {
        let racks = ["a", "b", "c"];
        let brokers: Vec<_> = (0..9).map(|id| (id, Some(racks[id as usize % 3]), false)).collect();
        let placed = placer(&brokers, 3).place(9, 3).expect("nine brokers");
        let leaders: BTreeSet<i32> = placed.iter().map(|replicas| replicas[0]).collect();
        assert_eq!(leaders.len(), 9, "each broker leads one of nine partitions: {placed:?}");
        let mut load: HashMap<i32, usize> = HashMap::new();
        placed.iter().flatten().for_each(|&id| *load.entry(id).or_default() += 1);
        assert!(load.values().all(|&count| count == 3), "{placed:?}");
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_the_leader_unfenced_and_racks_evenly_used(
            fenced in proptest::collection::vec(any::<bool>(), 1..12),
            rack_count in 1usize..5, wanted in 1i32..5, seed in any::<u64>(),
        ) {
            let names = ["a", "b", "c", "d"];
            let brokers: Vec<_> = fenced.iter().enumerate()
                .map(|(id, &fenced)| (id as i32, Some(names[id % rack_count]), fenced)).collect();
            let Ok(placed) = placer(&brokers, seed).place(30, wanted) else {
                prop_assert!(fenced.iter().all(|&fenced| fenced) || wanted as usize > fenced.len());
                return Ok(());
            };
            for replicas in placed {
                let distinct: BTreeSet<i32> = replicas.iter().copied().collect();
                prop_assert_eq!(distinct.len(), wanted as usize);
                prop_assert!(!fenced[replicas[0] as usize]);
                let racks: BTreeSet<usize> = replicas.iter().map(|&id| id as usize % rack_count).collect();
                let all_racks = rack_count.min(fenced.len());
                prop_assert_eq!(racks.len(), all_racks.min(wanted as usize));
            }
        }
    }
}
