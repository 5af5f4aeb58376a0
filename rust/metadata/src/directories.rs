//! A table of log directory ids; partitions refer to them by number.
use std::sync::Arc;

use klamm_base::Uuid;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::hash::hash_id;
use crate::id_list::FEW;

/// Numbers of the directories of one partition.
pub type Numbers = SmallVec<[u32; 8]>;

/// Directory ids by number.
///
/// The table only grows, and is shared by all images that are derived from one another: a number means the same
/// directory in each of them, even in those that do not use it. Numbers of unused directories are dropped when an
/// image is loaded from a snapshot.
#[derive(Clone, Debug)]
pub struct DirectoryTable(Arc<RwLock<Arc<Table>>>);

/// The contents of a table at one time, which stay valid.
#[derive(Clone, Debug)]
pub struct KnownDirectories(Arc<Table>);

/// Ids, and a hash table of their indexes in `ids`.
///
/// `places` is a hash table with linear probing; its length is a power of two, and at least half of it is [`EMPTY`].
#[derive(Clone, Debug)]
struct Table {
    ids: Vec<Uuid>,
    places: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl Table {
    fn find(&self, id: Uuid) -> Option<u32> {
        self.search(id).ok()
    }

    /// The number of an id, or the place where it would be inserted.
    #[inline]
    fn search(&self, id: Uuid) -> Result<u32, usize> {
        let last = self.places.len() - 1;
        let mut at = hash_id(id) as usize & last;
        loop {
            match self.places[at] {
                EMPTY => return Err(at),
                number if self.ids[number as usize] == id => return Ok(number),
                _ => at = (at + 1) & last,
            }
        }
    }

    fn number(&mut self, id: Uuid) -> u32 {
        self.search(id).unwrap_or_else(|place| {
            let number = u32::try_from(self.ids.len()).ok().filter(|&number| number != EMPTY);
            let number = number.expect("fewer than 2^32 directories were ever seen");
            self.ids.push(id);
            self.places[place] = number;
            if self.ids.len() * 2 > self.places.len() {
                self.widen();
            }
            number
        })
    }

    fn widen(&mut self) {
        self.places = vec![EMPTY; self.places.len() * 2];
        for number in 0..self.ids.len() {
            let place = self.search(self.ids[number]).expect_err("ids are there once");
            self.places[place] = number as u32;
        }
    }
}

impl Default for DirectoryTable {
    fn default() -> Self {
        let mut table = Table { ids: Vec::new(), places: vec![EMPTY; 16] };
        assert_eq!(table.number(Uuid::ZERO), DirectoryTable::MIGRATING);
        assert_eq!(table.number(Uuid::UNASSIGNED), DirectoryTable::UNASSIGNED);
        assert_eq!(table.number(Uuid::LOST), DirectoryTable::LOST);
        Self(Arc::new(RwLock::new(Arc::new(table))))
    }
}

impl DirectoryTable {
    /// Number of [`Uuid::ZERO`] (MIGRATING): a replica from before directories had ids.
    pub const MIGRATING: u32 = 0;
    /// Number of [`Uuid::UNASSIGNED`].
    pub const UNASSIGNED: u32 = 1;
    /// Number of [`Uuid::LOST`].
    pub const LOST: u32 = 2;

    /// The numbers of these directories, in order; new directories are added.
    #[inline]
    pub fn numbers(&self, ids: impl Iterator<Item = Uuid> + Clone) -> Numbers {
        let mut numbers = Numbers::new();
        let known = self.0.read();
        for id in ids.clone() {
            match known.find(id) {
                Some(number) => numbers.push(number),
                None => {
                    drop(known);
                    return self.new_numbers(ids);
                }
            }
        }
        numbers
    }

    #[cold]
    fn new_numbers(&self, ids: impl Iterator<Item = Uuid>) -> Numbers {
        let mut table = self.0.write();
        let table = Arc::make_mut(&mut table);
        ids.map(|id| table.number(id)).collect()
    }

    /// A copy of the table for many lookups without a lock for each. Drop it before the table grows; otherwise the
    /// table is copied.
    pub fn known(&self) -> KnownDirectories {
        KnownDirectories(Arc::clone(&self.0.read()))
    }

    /// The number of a known directory.
    pub fn find(&self, id: Uuid) -> Option<u32> {
        self.0.read().find(id)
    }

    /// The ids for these numbers.
    pub fn ids(&self, numbers: impl Iterator<Item = u32>) -> Vec<Uuid> {
        let mut ids = Vec::new();
        self.add_ids(numbers, &mut ids);
        ids
    }

    /// Adds the ids for these numbers to a list.
    pub fn add_ids(&self, numbers: impl Iterator<Item = u32>, ids: &mut Vec<Uuid>) {
        let known = self.0.read();
        ids.extend(numbers.map(|number| known.ids[number as usize]));
    }

    /// Whether numbers mean the same directories in both.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl KnownDirectories {
    /// The numbers of a usual partition's directories, padded with zeroes; `None` if one is not known or too large.
    #[inline]
    pub fn few(&self, ids: &[[u8; 16]]) -> Option<[u16; FEW]> {
        let mut numbers = [0; FEW];
        for (number, id) in numbers.iter_mut().zip(ids) {
            *number = u16::try_from(self.0.find(Uuid(*id))?).ok()?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_number_when_others_are_added() {
        let table = DirectoryTable::default();
        let id = |index: u32| Uuid(u128::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c).to_be_bytes());
        let numbers = table.numbers((0..1000).map(id));
        assert_eq!(numbers[0], DirectoryTable::MIGRATING);
        assert_eq!(table.numbers((0..1000).map(id)), numbers);
        assert_eq!(table.ids(numbers.iter().copied()), (0..1000).map(id).collect::<Vec<_>>());
        assert_eq!(table.find(id(1000)), None);
        assert_eq!(table.find(Uuid::LOST), Some(DirectoryTable::LOST));
    }
}
