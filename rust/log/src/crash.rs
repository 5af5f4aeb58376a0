//! A simulated disk that loses power: it replays recorded changes up to a point, drops what was not synced, and
//! writes the rest to a directory.
//!
//! Durable are: the bytes of a file written before its last sync (or the file system's) began, and the names that a
//! directory had then. Of later writes, any subset of 4 KiB pages or 512-byte sectors may survive, and the last write
//! may be torn. Of later name changes in a directory, any prefix may survive.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::recorder::Change;

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// A deterministic random number generator.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    /// Writes that are not synced yet, each with its number among all changes.
    pending: Vec<(usize, Pending)>,
}

enum Pending {
    Write { position: u64, bytes: Vec<u8> },
    SetLen(u64),
}

impl Pending {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Pending::Write { position, bytes } => write(content, *position, bytes),
            Pending::SetLen(len) => content.resize(*len as usize, 0),
        }
    }
}

fn write(content: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    let end = position as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[position as usize..end].copy_from_slice(bytes);
}

impl Content {
    /// The content with all changes.
    #[cfg(test)]
    fn whole(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (_, pending) in &self.pending {
            pending.apply(&mut content);
        }
        content
    }

    fn sync(&mut self, begun: usize) {
        let later = self.pending.partition_point(|(at, _)| *at < begun);
        for (_, pending) in self.pending.drain(..later) {
            pending.apply(&mut self.durable);
        }
    }

    /// The content after a power cut: `rng` chooses which pages or sectors of each unsynced write survive. `torn` is
    /// a write that was in progress.
    fn survive(&self, torn: Option<&Pending>, rng: &mut Rng) -> Vec<u8> {
        let mut content = self.durable.clone();
        // All, none, or some of the pieces.
        let luck = rng.below(3);
        let piece = if rng.one_in(2) { PAGE } else { SECTOR };
        for pending in self.pending.iter().map(|(_, pending)| pending).chain(torn) {
            match pending {
                Pending::SetLen(len) if luck > 0 => content.resize(*len as usize, 0),
                Pending::SetLen(_) => {}
                Pending::Write { position, bytes } => {
                    let (mut at, end) = (*position, *position + bytes.len() as u64);
                    while at < end {
                        let next = end.min((at / piece + 1) * piece);
                        if luck == 2 || luck == 1 && rng.one_in(2) {
                            let from = (at - position) as usize;
                            write(&mut content, at, &bytes[from..from + (next - at) as usize]);
                        }
                        at = next;
                    }
                }
            }
        }
        content
    }
}

/// A change to the names in one directory.
enum NameChange {
    Put { path: PathBuf, inode: usize },
    Dir { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
}

#[derive(Clone, Copy, PartialEq)]
enum Entry {
    File(usize),
    Dir,
}

#[derive(Clone, Default)]
struct Names(BTreeMap<PathBuf, Entry>);

impl Names {
    fn apply(&mut self, naming: &NameChange) {
        match naming {
            NameChange::Put { path, inode } => drop(self.0.insert(path.clone(), Entry::File(*inode))),
            NameChange::Dir { path } => drop(self.0.insert(path.clone(), Entry::Dir)),
            NameChange::Remove { path } => drop(self.0.remove(path)),
            NameChange::Rename { from, to } => {
                let moved: Vec<PathBuf> = self.0.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in moved {
                    let entry = self.0.remove(&path).expect("listed");
                    let rest = path.strip_prefix(from).expect("filtered");
                    let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    self.0.insert(target, entry);
                }
            }
        }
    }
}

/// The simulated disk.
#[derive(Default)]
pub struct Disk {
    inodes: Vec<Content>,
    /// Maps an id of the recorder to a file.
    ids: HashMap<u64, usize>,
    /// The names as a running process sees them.
    now: Names,
    /// The names that are durable.
    durable: Names,
    /// Name changes that are not durable yet, each with its number among all changes and the directory that must be
    /// synced for it.
    pending: Vec<(usize, PathBuf, NameChange)>,
    /// The number of changes replayed.
    played: usize,
}

impl Disk {
    /// A disk on which everything below `root` is durable.
    #[cfg(test)]
    pub fn of(root: &Path) -> Self {
        let mut disk = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("list") {
                let path = entry.expect("entry").path();
                let entry = if path.is_dir() {
                    folders.push(path.clone());
                    Entry::Dir
                } else {
                    let durable = fs::read(&path).expect("read");
                    disk.inodes.push(Content { durable, pending: Vec::new() });
                    Entry::File(disk.inodes.len() - 1)
                };
                disk.now.0.insert(path, entry);
            }
        }
        disk.durable = disk.now.clone();
        disk
    }

    fn name(&mut self, naming: NameChange) {
        let of = match &naming {
            NameChange::Put { path, .. } | NameChange::Dir { path } | NameChange::Remove { path } => path,
            NameChange::Rename { to, .. } => to,
        };
        let dir = of.parent().expect("no change to the root").to_owned();
        self.now.apply(&naming);
        self.pending.push((self.played, dir, naming));
    }

    /// The number of changes replayed.
    pub fn played(&self) -> usize {
        self.played
    }

    /// Replays one change; a sync makes durable what was replayed before change number `begun`.
    pub fn play(&mut self, change: &Change, begun: usize) {
        match change {
            Change::Create { id, path } | Change::Open { id, path } => match self.now.0.get(path) {
                Some(Entry::File(inode)) => drop(self.ids.insert(*id, *inode)),
                _ => {
                    let inode = self.inodes.len();
                    self.inodes.push(Content::default());
                    self.ids.insert(*id, inode);
                    self.name(NameChange::Put { path: path.clone(), inode });
                }
            },
            Change::Write { id, position, bytes } => {
                let write = Pending::Write { position: *position, bytes: bytes.clone() };
                self.inodes[self.ids[id]].pending.push((self.played, write));
            }
            Change::SetLen { id, len } => {
                self.inodes[self.ids[id]].pending.push((self.played, Pending::SetLen(*len)));
            }
            Change::Sync { id } => self.inodes[self.ids[id]].sync(begun),
            Change::SyncAll => {
                self.inodes.iter_mut().for_each(|inode| inode.sync(begun));
                self.settle(begun, |_| true);
            }
            Change::Rename { from, to } => self.name(NameChange::Rename { from: from.clone(), to: to.clone() }),
            Change::Remove { path } => self.name(NameChange::Remove { path: path.clone() }),
            Change::CreateDir { path } if self.now.0.contains_key(path) => {}
            Change::CreateDir { path } => self.name(NameChange::Dir { path: path.clone() }),
            Change::SyncDir { path } => self.settle(begun, |dir| dir == path),
        }
        self.played += 1;
    }

    fn settle(&mut self, begun: usize, is_synced: impl Fn(&Path) -> bool) {
        for (at, dir, naming) in std::mem::take(&mut self.pending) {
            if at < begun && is_synced(&dir) {
                self.durable.apply(&naming);
            } else {
                self.pending.push((at, dir, naming));
            }
        }
    }

    /// Writes what survives a power cut into `target`, which stands for `root`. `torn` is a write that was in
    /// progress.
    pub fn lose_power(&self, root: &Path, target: &Path, torn: Option<&Change>, rng: &mut Rng) {
        let torn = match torn {
            Some(Change::Write { id, position, bytes }) => {
                let len = rng.below(bytes.len() as u64 + 1) as usize;
                Some((self.ids[id], Pending::Write { position: *position, bytes: bytes[..len].to_vec() }))
            }
            _ => None,
        };
        // Of each directory, a prefix of the unsynced name changes survives.
        let mut left: HashMap<PathBuf, u64> = HashMap::new();
        for (_, dir, _) in &self.pending {
            *left.entry(dir.clone()).or_default() += 1;
        }
        left.values_mut().for_each(|count| *count = rng.below(*count + 1));
        let mut names = self.durable.clone();
        for (_, dir, naming) in &self.pending {
            let count = left.get_mut(dir).expect("counted");
            if *count > 0 {
                *count -= 1;
                names.apply(naming);
            }
        }
        self.leave(&names, root, target, |inode| {
            let torn = torn.as_ref().filter(|(torn, _)| *torn == inode).map(|(_, write)| write);
            self.inodes[inode].survive(torn, rng)
        });
    }

    /// Writes what survives a kill of the process into `target`, which stands for `root`: all of its changes.
    #[cfg(test)]
    pub fn stop(&self, root: &Path, target: &Path) {
        self.leave(&self.now, root, target, |inode| self.inodes[inode].whole());
    }

    fn leave(&self, names: &Names, root: &Path, target: &Path, mut content: impl FnMut(usize) -> Vec<u8>) {
        for (path, entry) in &names.0 {
            let to = target.join(path.strip_prefix(root).expect("everything is below the root"));
            match entry {
                Entry::Dir => fs::create_dir_all(&to).expect("create"),
                Entry::File(_) if to.parent().is_none_or(|parent| !parent.exists()) => {}
                Entry::File(inode) => fs::write(&to, content(*inode)).expect("write"),
            }
        }
    }
}
