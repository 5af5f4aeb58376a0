//! One topic and its partitions.
use std::sync::Arc;

use crate::Uuid;
use crate::metadata::partition::Partition;

const CHUNK_BITS: u32 = 5;
const CHUNK: u32 = 1 << CHUNK_BITS;

/// A topic. A clone copies its first 32 partitions and shares the others in chunks.
#[derive(Clone, Debug)]
pub struct Topic {
    id: Uuid,
    name: Arc<str>,
    first: Chunk,
    /// Further chunks by ascending base; usually each at its place, base / 32 - 1.
    others: Vec<(u32, Arc<Chunk>)>,
}

/// Up to 32 partitions with consecutive numbers, of which some may be missing: records may come in any order.
#[derive(Clone, Debug, Default)]
struct Chunk {
    present: u32,
    partitions: Vec<Partition>,
}

impl Chunk {
    /// Where in `partitions` the partition at `offset` from the chunk's base is, or would be.
    #[inline]
    fn position(&self, offset: u32) -> Result<usize, usize> {
        let before = (self.present & ((1 << offset) - 1)).count_ones() as usize;
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
        Self { id, name, first: Chunk::default(), others: Vec::new() }
    }

    /// The topic's id.
    #[inline]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The topic's name.
    #[inline]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.chunks().map(|(_, chunk)| chunk.partitions.len()).sum()
    }

    /// A partition.
    #[inline]
    pub fn partition(&self, partition_id: i32) -> Option<&Partition> {
        let index = u32::try_from(partition_id).ok()?;
        let chunk = match index >> CHUNK_BITS {
            0 => &self.first,
            number => &self.others[self.other(number).ok()?].1,
        };
        let at = chunk.position(index & (CHUNK - 1)).ok()?;
        Some(&chunk.partitions[at])
    }

    /// The partitions by ascending number.
    pub fn partitions(&self) -> impl Iterator<Item = (i32, &Partition)> {
        self.chunks().flat_map(|(base, chunk)| chunk.iter(base))
    }

    /// Reads what a clone will read; the result means nothing.
    #[inline]
    pub(super) fn touch(&self) -> u32 {
        let name = Arc::strong_count(&self.name) as u32;
        self.first.partitions.iter().fold(name, |read, partition| read ^ partition.leader() as u32)
    }

    /// A partition, to be changed.
    #[inline]
    pub(super) fn partition_mut(&mut self, partition_id: i32) -> Option<&mut Partition> {
        let index = u32::try_from(partition_id).ok()?;
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

    /// Adds or replaces a partition; the one that was there. The number must not be negative.
    pub(super) fn set_partition(&mut self, partition_id: i32, partition: Partition) -> Option<Partition> {
        let index = u32::try_from(partition_id).expect("checked by the caller");
        let chunk = self.chunk_mut(index >> CHUNK_BITS);
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

    /// Every partition, to be changed.
    pub(super) fn for_each_partition_mut(&mut self, mut change: impl FnMut(&mut Partition)) {
        self.first.partitions.iter_mut().for_each(&mut change);
        for (_, chunk) in &mut self.others {
            Arc::make_mut(chunk).partitions.iter_mut().for_each(&mut change);
        }
    }

    /// Makes room for partitions of a topic that has none.
    pub(super) fn expect_partitions(&mut self, count: usize) {
        if self.first.partitions.is_empty() {
            self.first.partitions.reserve_exact(count.clamp(1, CHUNK as usize));
        }
    }

    /// Gives back room that growing left over.
    pub(super) fn shrink(&mut self) {
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
        self.id == other.id && self.name == other.name && self.partitions().eq(other.partitions())
    }
}

impl Eq for Topic {}
