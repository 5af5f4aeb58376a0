//! The log directories of a simulated broker: real files, and a record of what would survive a power cut.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_log::checkpoint::PROVEN_END;
use klamm_log::crash::{Disk, Rng};
use klamm_log::files::FileCache;
use klamm_log::recorder::{Change, Recorder};
use klamm_log::{BOOT_ID, LogContext, SOLE_WRITER};
use klamm_records::header::Header;

/// More than a simulated broker opens.
const OPEN_FILES_MAX: usize = 256;

pub struct SimulatedDisk {
    folder: PathBuf,
    root: PathBuf,
    dir_count: usize,
    recorder: Arc<Recorder>,
    model: Disk,
    cuts: u32,
}

impl SimulatedDisk {
    /// An empty disk below `folder`, with this number of log directories.
    pub fn new(folder: &Path, dir_count: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let folder = fs::canonicalize(folder)?;
        let root = folder.join("0");
        for dir in 0..dir_count {
            fs::create_dir_all(root.join(dir.to_string()))?;
        }
        let model = Disk::of(&root);
        Ok(Self { folder, root, dir_count, recorder: Arc::default(), model, cuts: 0 })
    }

    /// The log directories.
    pub fn dirs(&self) -> Vec<PathBuf> {
        (0..self.dir_count).map(|dir| self.root.join(dir.to_string())).collect()
    }

    /// Changes a bit of a batch in a segment that is complete; `seed` decides which. `ends` has the partitions to choose from, with
    /// the offset at which the last such batch may end. Returns the partition, `None` if there is no such batch. No file of it may be
    /// in use.
    pub fn flip_bit(&mut self, seed: u64, ends: &BTreeMap<String, i64>) -> io::Result<Option<String>> {
        let mut rng = Rng::new(seed);
        let mut found = Vec::new();
        for dir in self.dirs() {
            for folder in sorted(&dir)?.into_iter().filter(|path| path.is_dir()) {
                let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let Some(end_offset) = ends.get(&name) else { continue };
                let mut segments = sorted(&folder)?;
                segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
                segments.pop();
                for path in segments {
                    let length = length_up_to(&fs::read(&path)?, *end_offset);
                    found.extend((length > 0).then_some((name.clone(), path, length)));
                }
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let (partition, path, length) = &found[rng.below(found.len() as u64) as usize];
        let mut bytes = fs::read(path)?;
        let (position, mask) = (rng.below(*length as u64), 1 << rng.below(8));
        bytes[position as usize] ^= mask;
        fs::write(path, bytes)?;
        self.model.flip_bit(path, position, mask);
        Ok(Some(partition.clone()))
    }

    /// Removes the note that klamm alone has written to the log directories.
    pub fn forget_sole_writer(&self) -> io::Result<()> {
        self.forget(SOLE_WRITER)
    }

    /// Removes what is known of how far damaged logs were flushed.
    pub fn forget_proven_ends(&self) -> io::Result<()> {
        self.forget(PROVEN_END)
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        self.dirs().iter().try_for_each(|dir| remove_if_there(&dir.join(name)))
    }

    /// For the next life of the broker: every change to a file is recorded.
    pub fn context(&self) -> LogContext {
        LogContext::over(FileCache::with_recorder(OPEN_FILES_MAX, Some(self.recorder.clone())))
    }

    /// Replays what was recorded; returns the number of changes so far.
    pub fn settle(&mut self) -> usize {
        for change in self.recorder.take() {
            self.model.play(&change, self.model.played());
        }
        self.model.played()
    }

    /// Replays what a flush has recorded that began after `begun` changes: its syncs make durable what was written before.
    pub fn settle_flush(&mut self, begun: usize) {
        for change in self.recorder.take() {
            self.model.play(&change, begun);
        }
    }

    /// The same, without some of the changes.
    pub fn settle_but(&mut self, is_left_out: impl Fn(&Change) -> bool) {
        for change in self.recorder.take().into_iter().filter(|change| !is_left_out(change)) {
            self.model.play(&change, self.model.played());
        }
    }

    /// What was recorded since the last call that replayed it.
    pub fn take_changes(&self) -> Vec<Change> {
        self.recorder.take()
    }

    /// Loses what was not synced. No file of it may be in use.
    pub fn cut_power(&mut self, seed: u64) -> io::Result<()> {
        self.settle();
        self.lose_power(None, &mut Rng::new(seed))
    }

    /// The same, while these changes happen, of which `seed` decides how many have. What was recorded after them never happened.
    pub fn cut_power_within(&mut self, changes: &[Change], seed: u64) -> io::Result<()> {
        self.recorder.take();
        let mut rng = Rng::new(seed);
        let (before, after) = changes.split_at(rng.below(changes.len() as u64 + 1) as usize);
        before.iter().for_each(|change| self.model.play(change, self.model.played()));
        self.lose_power(after.first(), &mut rng)
    }

    fn lose_power(&mut self, torn: Option<&Change>, rng: &mut Rng) -> io::Result<()> {
        self.cuts += 1;
        let target = self.folder.join(self.cuts.to_string());
        fs::create_dir_all(&target)?;
        self.model.lose_power(&self.root, &target, torn, rng);
        // The machine has another boot id from now on.
        fs::remove_dir_all(&self.root)?;
        self.root = target;
        for dir in self.dirs() {
            fs::create_dir_all(&dir)?;
            remove_if_there(&dir.join(BOOT_ID))?;
        }
        self.model = Disk::of(&self.root);
        Ok(())
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort_unstable();
    Ok(paths)
}

/// The length of the batches at the begin of a segment that end at `end_offset` or below.
fn length_up_to(segment: &[u8], end_offset: i64) -> usize {
    let mut length = 0;
    while let Some(header) = segment.get(length..).and_then(Header::at_start_of)
        && let Some(size) = header.size()
        && header.next_offset() <= end_offset
    {
        length += size;
    }
    length.min(segment.len())
}
