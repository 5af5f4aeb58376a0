//! Short lists of broker ids, and replicas with their directories, without an allocation for the usual sizes.
use std::sync::Arc;

const INLINE: usize = 3;

/// Broker ids in order, up to three in place.
#[derive(Clone, Debug)]
pub enum IdList {
    Few { count: u8, ids: [i32; INLINE] },
    Many(Arc<Vec<i32>>),
}

impl IdList {
    /// No ids.
    pub const EMPTY: IdList = IdList::Few { count: 0, ids: [0; INLINE] };

    /// The ids.
    #[inline]
    pub fn as_slice(&self) -> &[i32] {
        match self {
            IdList::Few { count, ids } => &ids[..usize::from(*count)],
            IdList::Many(ids) => ids,
        }
    }
}

impl<I: ExactSizeIterator<Item = i32>> From<I> for IdList {
    fn from(from: I) -> Self {
        if from.len() > INLINE {
            return IdList::Many(Arc::new(from.collect()));
        }
        let mut ids = [0; INLINE];
        let mut count = 0;
        for id in from {
            ids[count] = id;
            count += 1;
        }
        IdList::Few { count: count as u8, ids }
    }
}

impl PartialEq for IdList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for IdList {}

/// The replicas of a partition and, parallel to them, where the image keeps the id of each one's directory.
#[derive(Clone, Debug)]
pub enum Assignment {
    Few { count: u8, directories: [u16; INLINE], replicas: [i32; INLINE] },
    Many(Arc<ManyReplicas>),
}

/// What does not fit in place: more than three replicas, or a directory numbered above 65 535.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManyReplicas {
    replicas: Vec<i32>,
    directories: Vec<u32>,
}

impl Assignment {
    /// Replicas with as many directory numbers.
    pub fn new(replicas: &[i32], directories: &[u32]) -> Self {
        assert_eq!(replicas.len(), directories.len(), "a directory for each replica");
        Self::few(replicas, directories).unwrap_or_else(|| {
            Assignment::Many(Arc::new(ManyReplicas { replicas: replicas.to_vec(), directories: directories.to_vec() }))
        })
    }

    fn few(from: &[i32], numbers: &[u32]) -> Option<Self> {
        if from.len() > INLINE {
            return None;
        }
        let (mut directories, mut replicas) = ([0; INLINE], [0; INLINE]);
        replicas[..from.len()].copy_from_slice(from);
        for (slot, &number) in directories.iter_mut().zip(numbers) {
            *slot = u16::try_from(number).ok()?;
        }
        Some(Assignment::Few { count: from.len() as u8, directories, replicas })
    }

    /// The replicas, preferred leader first.
    #[inline]
    pub fn replicas(&self) -> &[i32] {
        match self {
            Assignment::Few { count, replicas, .. } => &replicas[..usize::from(*count)],
            Assignment::Many(many) => &many.replicas,
        }
    }

    /// The number of the directory of the replica at `at` in the list.
    #[inline]
    pub fn directory(&self, at: usize) -> u32 {
        match self {
            Assignment::Few { directories, .. } => u32::from(directories[at]),
            Assignment::Many(many) => many.directories[at],
        }
    }

    /// The directory numbers in the order of the replicas.
    pub fn directories(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        (0..self.replicas().len()).map(|at| self.directory(at))
    }
}

impl PartialEq for Assignment {
    fn eq(&self, other: &Self) -> bool {
        self.replicas() == other.replicas() && self.directories().eq(other.directories())
    }
}

impl Eq for Assignment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_ids_at_any_length() {
        for count in 0..6 {
            let ids: Vec<i32> = (10..10 + count).collect();
            assert_eq!(IdList::from(ids.iter().copied()).as_slice(), ids);
        }
        assert_eq!(size_of::<IdList>(), 16);
    }

    #[test]
    fn an_assignment_keeps_replicas_and_directories() {
        for count in 0..6u32 {
            for first in [0, 65_534] {
                let replicas: Vec<i32> = (10..10 + count as i32).collect();
                let directories: Vec<u32> = (first..first + count).collect();
                let assignment = Assignment::new(&replicas, &directories);
                assert_eq!(assignment.replicas(), replicas);
                assert_eq!(assignment.directories().collect::<Vec<_>>(), directories);
            }
        }
        assert_eq!(size_of::<Assignment>(), 24);
    }
}
