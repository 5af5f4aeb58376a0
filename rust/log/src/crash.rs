//! A simulated disk that loses power: it replays recorded changes up to a point, drops what was not synced, and
//! writes the rest to a directory.
//!
//! Durable are: the bytes of a file written before its last sync (or the file system's) began, and the names that a
//! directory had then. Of the later writes to each 4 KiB page or 512-byte sector, any prefix may survive, because what reaches
//! the disk is the page as it was at some time; and the last write may be torn. Of later name changes in a directory, any prefix
//! may survive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

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

#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    /// Writes that are not synced yet, each with its number among all changes.
    pending: Vec<(usize, Pending)>,
}

#[derive(Clone)]
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
        let mut ended = BTreeSet::new();
        for pending in self.pending.iter().map(|(_, pending)| pending).chain(torn) {
            match pending {
                Pending::SetLen(len) if luck > 0 => content.resize(*len as usize, 0),
                Pending::SetLen(_) => {}
                Pending::Write { position, bytes } => {
                    let (mut at, end) = (*position, *position + bytes.len() as u64);
                    while at < end {
                        let next = end.min((at / piece + 1) * piece);
                        if luck == 1 && rng.one_in(2) {
                            ended.insert(at / piece);
                        }
                        if luck == 2 || luck == 1 && !ended.contains(&(at / piece)) {
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

/// A file or a directory, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Dir(usize),
}

/// The number of `/`.
const ROOT: usize = 0;

/// A name in a directory: it moves with the directory.
type Name = (usize, OsString);

/// The names of all directories.
#[derive(Clone, Default)]
struct Names(BTreeMap<Name, Node>);

impl Names {
    fn apply(&mut self, changes: &[(Name, Option<Node>)]) {
        for (name, node) in changes {
            match node {
                Some(node) => drop(self.0.insert(name.clone(), *node)),
                None => drop(self.0.remove(name)),
            }
        }
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let mut found = Node::Dir(ROOT);
        for name in names_of(path) {
            let Node::Dir(dir) = found else { return None };
            found = *self.0.get(&(dir, name.to_owned()))?;
        }
        Some(found)
    }

    /// Calls `found` for everything below a directory, with its path from there; a directory before what it contains.
    fn walk(&self, dir: usize, path: &Path, found: &mut impl FnMut(PathBuf, Node)) {
        for ((_, name), node) in self.0.range((dir, OsString::new())..(dir + 1, OsString::new())) {
            let path = path.join(name);
            found(path.clone(), *node);
            if let Node::Dir(dir) = node {
                self.walk(*dir, &path, found);
            }
        }
    }
}

fn names_of(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

/// A change of names that is not durable yet.
#[derive(Clone)]
struct Naming {
    /// Its number among all changes.
    at: usize,
    /// The directory that must be synced for it.
    dir: usize,
    changes: Vec<(Name, Option<Node>)>,
}

/// The simulated disk.
#[derive(Clone, Default)]
pub struct Disk {
    inodes: Vec<Content>,
    /// The number of directories besides `/`.
    dirs: usize,
    /// Maps an id of the recorder to a file.
    ids: HashMap<u64, usize>,
    /// The names as a running process sees them.
    now: Names,
    /// The names that are durable.
    durable: Names,
    pending: Vec<Naming>,
    /// The number of changes replayed.
    played: usize,
}

impl Disk {
    /// A disk on which everything below `root` is durable.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(root: &Path) -> Self {
        let mut disk = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let dir = disk.dir(&folder);
            let mut paths: Vec<_> =
                fs::read_dir(&folder).expect("list").map(|entry| entry.expect("entry").path()).collect();
            paths.sort_unstable();
            for path in paths {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let durable = fs::read(&path).expect("read");
                disk.inodes.push(Content { durable, pending: Vec::new() });
                let name = (dir, path.file_name().expect("listed").to_owned());
                disk.now.0.insert(name, Node::File(disk.inodes.len() - 1));
            }
        }
        disk.durable = disk.now.clone();
        disk
    }

    /// The same disk with everything below `root` at `target`, for a process that continues there.
    #[cfg(test)]
    pub fn at(&self, root: &Path, target: &Path) -> Self {
        let mut disk = self.clone();
        let name = disk.name(target);
        let moved = disk.now.node(root).expect("it is there");
        disk.now.0.insert(name.clone(), moved);
        disk.durable.0.insert(name, moved);
        disk
    }

    /// The number of a directory; one whose creation is not recorded existed before, and is durable.
    fn dir(&mut self, path: &Path) -> usize {
        let mut dir = ROOT;
        for name in names_of(path) {
            let name = (dir, name.to_owned());
            dir = match self.now.0.get(&name) {
                Some(Node::Dir(dir)) => *dir,
                _ => {
                    self.dirs += 1;
                    self.now.0.insert(name.clone(), Node::Dir(self.dirs));
                    self.durable.0.insert(name, Node::Dir(self.dirs));
                    self.dirs
                }
            };
        }
        dir
    }

    fn name(&mut self, path: &Path) -> Name {
        let dir = self.dir(path.parent().expect("no change to the root"));
        (dir, path.file_name().expect("no change to the root").to_owned())
    }

    fn change_names(&mut self, dir: usize, changes: Vec<(Name, Option<Node>)>) {
        self.now.apply(&changes);
        self.pending.push(Naming { at: self.played, dir, changes });
    }

    fn put(&mut self, path: &Path, node: Option<Node>) {
        let name = self.name(path);
        self.change_names(name.0, vec![(name, node)]);
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let (from, to) = (self.name(from), self.name(to));
        if let Some(node) = self.now.0.get(&from).copied() {
            self.change_names(to.0, vec![(from, None), (to, Some(node))]);
        }
    }

    /// The number of changes replayed.
    pub fn played(&self) -> usize {
        self.played
    }

    /// Replays one change; a sync makes durable what was replayed before change number `begun`.
    pub fn play(&mut self, change: &Change, begun: usize) {
        match change {
            Change::Create { id, path } | Change::Open { id, path } => {
                let inode = match self.now.node(path) {
                    Some(Node::File(inode)) => inode,
                    _ => {
                        self.inodes.push(Content::default());
                        let inode = self.inodes.len() - 1;
                        self.put(path, Some(Node::File(inode)));
                        inode
                    }
                };
                self.ids.insert(*id, inode);
            }
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
            Change::Rename { from, to } => self.rename(from, to),
            Change::Remove { path } => self.put(path, None),
            Change::CreateDir { path } if self.now.node(path).is_some() => {}
            Change::CreateDir { path } => {
                self.dirs += 1;
                let node = Node::Dir(self.dirs);
                self.put(path, Some(node));
            }
            Change::SyncDir { path } => {
                if let Some(Node::Dir(synced)) = self.now.node(path) {
                    self.settle(begun, |dir| dir == synced);
                }
            }
        }
        self.played += 1;
    }

    /// Changes a bit of what a file contains, in the page cache and on the disk.
    #[cfg(any(test, feature = "testing"))]
    pub fn flip_bit(&mut self, path: &Path, position: u64, mask: u8) {
        let Some(Node::File(inode)) = self.now.node(path) else { return };
        let (content, position) = (&mut self.inodes[inode], position as usize);
        if let Some(byte) = content.durable.get_mut(position) {
            *byte ^= mask;
        }
        for (_, pending) in &mut content.pending {
            if let Pending::Write { position: from, bytes } = pending
                && let Some(byte) = position.checked_sub(*from as usize).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
    }

    fn settle(&mut self, begun: usize, is_synced: impl Fn(usize) -> bool) {
        for naming in std::mem::take(&mut self.pending) {
            if naming.at < begun && is_synced(naming.dir) {
                self.durable.apply(&naming.changes);
            } else {
                self.pending.push(naming);
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
        let mut left: BTreeMap<usize, u64> = BTreeMap::new();
        for naming in &self.pending {
            *left.entry(naming.dir).or_default() += 1;
        }
        left.values_mut().for_each(|count| *count = rng.below(*count + 1));
        let mut names = self.durable.clone();
        for naming in &self.pending {
            let count = left.get_mut(&naming.dir).expect("counted");
            if *count > 0 {
                *count -= 1;
                names.apply(&naming.changes);
            }
        }
        self.leave(&names, root, target, |inode| {
            let torn = torn.as_ref().filter(|(torn, _)| *torn == inode).map(|(_, write)| write);
            self.inodes[inode].survive(torn, rng)
        });
    }

    /// Writes what survives a kill of the process into `target`, which stands for `root`: all of its changes.
    pub fn stop(&self, root: &Path, target: &Path) {
        self.leave(&self.now, root, target, |inode| self.inodes[inode].whole());
    }

    fn leave(&self, names: &Names, root: &Path, target: &Path, mut content: impl FnMut(usize) -> Vec<u8>) {
        // The names above the root, and its own, are not part of the record: it is there in any case.
        let Some(Node::Dir(root)) = self.now.node(root) else { return };
        let mut files = Vec::new();
        names.walk(root, target, &mut |path, node| match node {
            Node::Dir(_) => fs::create_dir_all(&path).expect("create"),
            Node::File(inode) => files.push((inode, path)),
        });
        // Names may be random: the order of the files must not depend on them, so that a seed replays.
        files.sort_unstable();
        for (inode, path) in files {
            fs::write(&path, content(inode)).expect("write");
        }
    }
}
