//! The ids of log directories, each kept once; partitions hold their numbers.
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::Uuid;
use crate::metadata::hash::IdHasher;

/// Directory ids by number.
///
/// The table only grows, and is shared by all images that come from one another: a number, once given, means the same in
/// each of them, also in those that do not use it. Numbers of directories that nobody uses any more go when an image is
/// loaded from a snapshot.
#[derive(Clone, Debug)]
pub struct DirectoryTable(Arc<RwLock<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    ids: Vec<Uuid>,
    by_id: HashMap<Uuid, u32, BuildHasherDefault<IdHasher>>,
}

impl Numbers {
    fn number(&mut self, id: Uuid) -> u32 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.ids.push(id);
            u32::try_from(self.ids.len() - 1).expect("fewer than 2^32 directories were ever seen")
        })
    }
}

impl Default for DirectoryTable {
    fn default() -> Self {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.number(Uuid::ZERO), DirectoryTable::MIGRATING);
        assert_eq!(numbers.number(Uuid::UNASSIGNED), DirectoryTable::UNASSIGNED);
        assert_eq!(numbers.number(Uuid::LOST), DirectoryTable::LOST);
        Self(Arc::new(RwLock::new(numbers)))
    }
}

impl DirectoryTable {
    /// Number of [`Uuid::ZERO`], a replica from before directories had ids.
    pub const MIGRATING: u32 = 0;
    /// Number of [`Uuid::UNASSIGNED`].
    pub const UNASSIGNED: u32 = 1;
    /// Number of [`Uuid::LOST`].
    pub const LOST: u32 = 2;

    /// The directory's number; a new one for a new directory.
    pub fn number(&self, id: Uuid) -> u32 {
        match self.find(id) {
            Some(number) => number,
            None => self.0.write().number(id),
        }
    }

    /// The number of a directory seen before.
    pub fn find(&self, id: Uuid) -> Option<u32> {
        self.0.read().by_id.get(&id).copied()
    }

    /// The ids behind numbers.
    pub fn ids(&self, numbers: impl Iterator<Item = u32>) -> Vec<Uuid> {
        let mut ids = Vec::new();
        self.add_ids(numbers, &mut ids);
        ids
    }

    /// Adds the ids behind numbers to a list.
    pub fn add_ids(&self, numbers: impl Iterator<Item = u32>, ids: &mut Vec<Uuid>) {
        let known = self.0.read();
        ids.extend(numbers.map(|number| known.ids[number as usize]));
    }

    /// Whether a number means the same directory in both.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
