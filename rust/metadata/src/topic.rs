//! One topic and its partitions.
use std::sync::Arc;

use klamm_base::Uuid;
use smallvec::SmallVec;

use crate::partition::Partition;
use crate::prefetch::prefetch;

const CHUNK_BITS: u32 = 5;
const CHUNK: u32 = 1 << CHUNK_BITS;

/// The maximum number of patches of a body; a body with no more partitions than this is copied instead.
const PATCHES: usize = 4;
/// A body with at most this many partitions is copied, instead of allocating memory for more patches.
const SMALL: usize = 12;
/// Patches that are stored inline.
const PATCHES_INLINE: usize = 2;

/// A topic. A clone shares the body: the first few changed partitions are stored next to it, and it is copied only
/// when there are more. A zone outage changes one or two partitions of a topic, so most of a topic need not be read.
///
/// 1. `patches` contains a partition at most once, and only partitions that are also in `body`, where they are
///    outdated.
///
/// The order of the fields puts what every operation needs into one cache line.
#[derive(Debug)]
#[repr(C)]
pub struct Topic {
    id: Uuid,
    body: Arc<Body>,
    patches: SmallVec<[(u32, Partition); PATCHES_INLINE]>,
}

impl Clone for Topic {
    #[inline]
    fn clone(&self) -> Self {
        let patches = if self.patches.is_empty() { SmallVec::new() } else { self.patches.clone() };
        Self { id: self.id, body: Arc::clone(&self.body), patches }
    }
}

/// Name and partitions. A clone copies the first 32 partitions and shares the others in chunks.
#[derive(Clone, Debug)]
struct Body {
    name: Arc<str>,
    first: Chunk,
    /// Further chunks in ascending order of base; usually each at index base / 32 - 1.
    others: Vec<(u32, Arc<Chunk>)>,
}

/// A topic to which partitions are being added. Only full chunks of it are shared.
#[derive(Clone, Debug)]
pub(super) struct GrowingTopic {
    id: Uuid,
    body: Body,
}

/// Up to 32 partitions with consecutive numbers, possibly with gaps: records may come in any order.
#[derive(Clone, Debug, Default)]
struct Chunk {
    present: u32,
    partitions: Vec<Partition>,
}

impl Chunk {
    /// The index in `partitions` of the partition at `offset` from the chunk's base, existing or not.
    #[inline]
    fn position(&self, offset: u32) -> Result<usize, usize> {
        // There is nearly never a gap, and not every processor counts bits in one step.
        let lower = (1 << offset) - 1;
        let before = if self.present & lower == lower { offset } else { (self.present & lower).count_ones() } as usize;
        if self.present & (1 << offset) != 0 { Ok(before) } else { Err(before) }
    }

    fn iter(&self, base: u32) -> impl Iterator<Item = (i32, &Partition)> {
        let offsets = (0..CHUNK).filter(|offset| self.present & (1 << offset) != 0);
        offsets.zip(&self.partitions).map(move |(offset, partition)| ((base + offset) as i32, partition))
    }
}

impl Topic {
    /// A topic without partitions.
    pub fn new(id: Uuid, name: Arc<str>) -> Self {
        Self::from_body(id, Body { name, first: Chunk::default(), others: Vec::new() })
    }

    fn from_body(id: Uuid, body: Body) -> Self {
        Self { id, body: Arc::new(body), patches: SmallVec::new() }
    }

    /// The topic's id.
    #[inline]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The topic's name.
    #[inline]
    pub fn name(&self) -> &Arc<str> {
        &self.body.name
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.body.partition_count()
    }

    /// A partition.
    #[inline]
    pub fn partition(&self, partition_id: i32) -> Option<&Partition> {
        let index = u32::try_from(partition_id).ok()?;
        self.patch(index).or_else(|| self.body.partition(index))
    }

    /// The partitions in ascending order.
    pub fn partitions(&self) -> impl Iterator<Item = (i32, &Partition)> {
        let patched = |(number, partition)| (number, self.patch(number as u32).unwrap_or(partition));
        self.body.chunks().flat_map(|(base, chunk)| chunk.iter(base)).map(patched)
    }

    /// The numbers, in ascending order, of the partitions that may differ from another state of the topic.
    pub(super) fn maybe_different(&self, other: &Self) -> Vec<i32> {
        if !Arc::ptr_eq(&self.body, &other.body) {
            return self.partitions().map(|(number, _)| number).collect();
        }
        let patches = self.patches.iter().chain(&other.patches);
        let mut numbers: Vec<i32> = patches.map(|(index, _)| *index as i32).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    #[inline]
    fn patch(&self, index: u32) -> Option<&Partition> {
        self.patches.iter().find(|(patched, _)| *patched == index).map(|(_, partition)| partition)
    }

    /// Prefetches the data that locates the partitions.
    #[inline]
    pub(super) fn prefetch_body(&self) {
        prefetch(&self.body.first);
        prefetch(&self.body.others);
    }

    /// Prefetches a partition.
    #[inline]
    pub(super) fn prefetch_partition(&self, partition_id: i32) {
        if let Some(partition) = self.partition(partition_id) {
            partition.prefetch();
        }
    }

    /// A partition, for changes.
    #[inline]
    pub(super) fn partition_mut(&mut self, partition_id: i32) -> Option<&mut Partition> {
        let index = u32::try_from(partition_id).ok()?;
        if let Some(at) = self.patches.iter().position(|(patched, _)| *patched == index) {
            return Some(&mut self.patches[at].1);
        }
        if self.patches.len() >= self.body.patches_max() || is_unshared(&mut self.body) {
            return self.own_body().partition_mut(index);
        }
        let partition = self.body.partition(index)?.clone();
        self.patches.push((index, partition));
        self.patches.last_mut().map(|(_, partition)| partition)
    }

    /// The body with the patches applied, not shared.
    fn own_body(&mut self) -> &mut Body {
        let body = Arc::make_mut(&mut self.body);
        for (index, partition) in std::mem::take(&mut self.patches) {
            *body.partition_mut(index).expect("invariant 1") = partition;
        }
        body
    }

    /// Calls `change` for every partition.
    pub(super) fn for_each_partition_mut(&mut self, mut change: impl FnMut(&mut Partition)) {
        let body = self.own_body();
        body.first.partitions.iter_mut().for_each(&mut change);
        for (_, chunk) in &mut body.others {
            Arc::make_mut(chunk).partitions.iter_mut().for_each(&mut change);
        }
    }
}

/// Whether the value is not shared. It nearly always is, which is detected without a locked instruction.
#[inline]
fn is_unshared<T>(value: &mut Arc<T>) -> bool {
    Arc::strong_count(value) == 1 && Arc::get_mut(value).is_some()
}

impl GrowingTopic {
    /// Starts adding partitions to a topic; `count` of them are expected if it has none yet.
    pub fn new(topic: &Topic, count: usize) -> Self {
        let mut body = Body::clone(&topic.body);
        for (index, partition) in &topic.patches {
            *body.partition_mut(*index).expect("invariant 1") = partition.clone();
        }
        if body.first.partitions.is_empty() {
            body.first.partitions.reserve_exact(count.clamp(1, CHUNK as usize));
        }
        Self { id: topic.id, body }
    }

    /// The topic's id.
    #[inline]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.body.partition_count()
    }

    /// Adds or replaces a partition; returns the previous one. The number must not be negative.
    pub fn set_partition(&mut self, partition_id: i32, partition: Partition) -> Option<Partition> {
        let index = u32::try_from(partition_id).expect("checked by the caller");
        let chunk = self.body.chunk_mut(index >> CHUNK_BITS);
        let offset = index & (CHUNK - 1);
        match chunk.position(offset) {
            Ok(at) => Some(std::mem::replace(&mut chunk.partitions[at], partition)),
            Err(at) => {
                chunk.present |= 1 << offset;
                chunk.partitions.insert(at, partition);
                None
            }
        }
    }

    /// Replaces the previous state of the topic, in its own memory if that is not shared.
    pub fn replace(mut self, place: &mut Arc<Topic>) {
        self.body.shrink();
        let own = Arc::get_mut(place);
        if let Some(Topic { body, patches, .. }) = own
            && let Some(body) = Arc::get_mut(body)
        {
            *body = self.body;
            *patches = SmallVec::new();
        } else {
            *place = Arc::new(Topic::from_body(self.id, self.body));
        }
    }
}

impl Body {
    /// The maximum number of patches of this body.
    #[inline]
    fn patches_max(&self) -> usize {
        let count = self.first.partitions.len();
        if !self.others.is_empty() || count > SMALL {
            PATCHES
        } else if count > PATCHES {
            PATCHES_INLINE
        } else {
            0
        }
    }

    fn partition_count(&self) -> usize {
        self.chunks().map(|(_, chunk)| chunk.partitions.len()).sum()
    }

    #[inline]
    fn partition(&self, index: u32) -> Option<&Partition> {
        let chunk = match index >> CHUNK_BITS {
            0 => &self.first,
            number => &self.others[self.other(number).ok()?].1,
        };
        let at = chunk.position(index & (CHUNK - 1)).ok()?;
        Some(&chunk.partitions[at])
    }

    #[inline]
    fn partition_mut(&mut self, index: u32) -> Option<&mut Partition> {
        let chunk = match index >> CHUNK_BITS {
            0 => &mut self.first,
            number => {
                let at = self.other(number).ok()?;
                Arc::make_mut(&mut self.others[at].1)
            }
        };
        let at = chunk.position(index & (CHUNK - 1)).ok()?;
        Some(&mut chunk.partitions[at])
    }

    /// Releases unused capacity.
    fn shrink(&mut self) {
        self.first.partitions.shrink_to_fit();
        if let Some((_, chunk)) = self.others.last_mut()
            && let Some(chunk) = Arc::get_mut(chunk)
        {
            chunk.partitions.shrink_to_fit();
        }
    }

    fn chunks(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        let others = self.others.iter().map(|(number, chunk)| (number << CHUNK_BITS, &**chunk));
        std::iter::once((0, &self.first)).chain(others)
    }

    fn chunk_mut(&mut self, number: u32) -> &mut Chunk {
        if number == 0 {
            return &mut self.first;
        }
        let at = self.other(number).unwrap_or_else(|at| {
            self.others.insert(at, (number, Arc::default()));
            at
        });
        Arc::make_mut(&mut self.others[at].1)
    }

    #[inline]
    fn other(&self, number: u32) -> Result<usize, usize> {
        let guess = number as usize - 1;
        match self.others.get(guess) {
            Some((found, _)) if *found == number => Ok(guess),
            _ => self.others.binary_search_by_key(&number, |(number, _)| *number),
        }
    }
}

impl PartialEq for Topic {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name() == other.name() && self.partitions().eq(other.partitions())
    }
}

impl Eq for Topic {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::directories::DirectoryTable;
    use crate::records::PartitionRecord;

    fn led_by(leader: i32) -> Partition {
        let record = PartitionRecord { leader, leader_epoch: 1, partition_epoch: 1, ..PartitionRecord::default() };
        Partition::from_record(&record, &DirectoryTable::default()).expect("no replicas")
    }

    fn content(topic: &Topic) -> BTreeMap<i32, i32> {
        topic.partitions().map(|(number, partition)| (number, partition.leader())).collect()
    }

    proptest! {
        #[test]
        fn it_equals_a_map_and_earlier_versions_are_unchanged(
            count in prop_oneof![0..12, Just(40)],
            steps in prop::collection::vec((0..44i32, 0..4u8), 0..60),
        ) {
            let mut topic = Arc::new(Topic::new(Uuid::ZERO, "t".into()));
            let mut model = BTreeMap::new();
            let grow = |topic: &mut Arc<Topic>, number, leader| {
                let mut growing = GrowingTopic::new(topic, 1);
                let replaced = growing.set_partition(number, led_by(leader)).map(|partition| partition.leader());
                growing.replace(topic);
                replaced
            };
            for number in 0..count {
                prop_assert_eq!(grow(&mut topic, number, 7), model.insert(number, 7));
            }
            let mut kept = vec![(Arc::clone(&topic), model.clone())];
            for (leader, (number, step)) in (10..).zip(steps) {
                match step {
                    0 => kept.push((Arc::clone(&topic), model.clone())),
                    1 => prop_assert_eq!(grow(&mut topic, number, leader), model.insert(number, leader)),
                    _ => {
                        let found = Arc::make_mut(&mut topic).partition_mut(number).map(|found| *found = led_by(leader));
                        prop_assert_eq!(found.is_some(), model.contains_key(&number));
                        model.entry(number).and_modify(|old| *old = leader);
                    }
                }
                prop_assert_eq!(topic.partition(number).map(Partition::leader), model.get(&number).copied());
            }
            prop_assert_eq!(content(&topic), model.clone());
            prop_assert_eq!(topic.partition_count(), model.len());
            for (older, before) in &kept {
                prop_assert_eq!(&content(older), before);
                let maybe = topic.maybe_different(older);
                prop_assert!(maybe.is_sorted() && maybe.iter().all(|number| model.contains_key(number)));
                prop_assert!(model.iter().all(|(n, leader)| before.get(n) == Some(leader) || maybe.contains(n)));
            }
        }
    }
}
