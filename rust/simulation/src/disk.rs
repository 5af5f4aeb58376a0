//! The log directory of a simulated broker: real files, and a record of what would survive a power cut.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_log::crash::{Disk, Rng};
use klamm_log::files::FileCache;
use klamm_log::recorder::Recorder;
use klamm_log::{BOOT_ID, LogContext};

/// More than a simulated broker opens.
const OPEN_FILES_MAX: usize = 256;

pub struct SimulatedDisk {
    folder: PathBuf,
    root: PathBuf,
    recorder: Arc<Recorder>,
    model: Disk,
    cuts: u32,
}

impl SimulatedDisk {
    /// An empty disk below `folder`.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let root = folder.join("0");
        fs::create_dir_all(&root)?;
        let folder = fs::canonicalize(folder)?;
        let root = folder.join("0");
        Ok(Self { folder, root, recorder: Arc::default(), model: Disk::default(), cuts: 0 })
    }

    /// The log directory.
    pub fn root(&self) -> &Path {
        &self.root
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

    /// Loses what was not synced. No file of it may be in use.
    pub fn cut_power(&mut self, seed: u64) -> io::Result<()> {
        self.settle();
        self.cuts += 1;
        let target = self.folder.join(self.cuts.to_string());
        fs::create_dir_all(&target)?;
        self.model.lose_power(&self.root, &target, None, &mut Rng::new(seed));
        // The machine has another boot id from now on.
        match fs::remove_file(target.join(BOOT_ID)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(&self.root)?;
        self.root = target;
        self.model = Disk::of(&self.root);
        Ok(())
    }
}
