//! Making a log durable: a job is taken under the partition's lock, runs without it, and is completed under it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_base::os;

use super::epochs::EpochWrite;
use super::files::{FileCache, LogFile, OpenFile, PartitionDir};
use super::partition_log::Log;
use super::prepare::Prepared;
use super::producers::snapshot_path;

/// The end of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushEnd {
    pub offset: i64,
    generation: u64,
}

/// Which parts of a log a flush includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Inactive segments only.
    Rolled,
    /// The active segment too, because acknowledgements wait for it.
    All,
    /// The indexes of the active segment too.
    Closing,
}

/// The unflushed parts of one log. A log has at most one job at a time.
pub struct FlushJob {
    cache: Arc<FileCache>,
    files: Vec<Arc<LogFile>>,
    /// Small files that were written without a sync.
    paths: Vec<PathBuf>,
    epochs: Option<EpochWrite>,
    dir: Arc<PartitionDir>,
    /// Whether the partition's directory is to be synced.
    names: bool,
    /// The parent of the partition's directory, while the directory's name may not be durable there.
    parent: Option<PathBuf>,
    /// A range of the active segment that the operating system should start to write back.
    write_back: Option<(Arc<LogFile>, u64, u64)>,
    prepare: Option<(Arc<Prepared>, Arc<LogFile>, u64)>,
    /// Bytes of the inactive segments among them.
    rolled_bytes: u64,
    /// The active segment's log if its bytes are to be durable: the file must still exist at the path that recovery
    /// uses.
    active: Option<Arc<LogFile>>,
    end: FlushEnd,
}

impl FlushJob {
    /// Fails if the active segment's file was removed or moved by another process: the synced bytes would be lost.
    pub fn check_there(&self) -> Result<(), LogError> {
        let Some(active) = &self.active else { return Ok(()) };
        let is_there = match open_if_there(&self.cache, active)? {
            Some(open) => active.is_there(&open)?,
            None => self.dir.is_away() || !active.is_live(),
        };
        if is_there {
            return Ok(());
        }
        let reason = "it was removed or moved while the node ran";
        Err(LogError::io("cannot find", &active.path())(io::Error::new(io::ErrorKind::NotFound, reason)))
    }

    /// Prepares the tail, so that the next syncs are cheap. Call it after the flush was completed, so that no request
    /// waits for it; it pays off for a log that is synced alone.
    pub fn prepare(&self) -> Result<(), LogError> {
        let Some((prepared, file, target)) = &self.prepare else { return Ok(()) };
        let Some(file) = open_if_there(&self.cache, file)? else { return Ok(()) };
        prepared.fill(&file, *target)?;
        file.sync()
    }

    /// Writes what must be written before the sync.
    pub fn write(&self) -> Result<(), LogError> {
        if let Some((file, from, to)) = &self.write_back
            && let Some(file) = open_if_there(&self.cache, file)?
        {
            os::start_write_back(file.file(), *from, to - from);
        }
        match &self.epochs {
            Some(epochs) => self.dir.ignore_if_away(epochs.write(&self.cache, true)),
            None => Ok(()),
        }
    }

    /// Syncs every file, then the directories. Missing files were deleted by the log meanwhile.
    pub fn sync(&self) -> Result<(), LogError> {
        self.cache.wait_for_disk();
        for file in &self.files {
            if let Some(file) = open_if_there(&self.cache, file)? {
                file.sync()?;
            }
        }
        self.paths.iter().try_for_each(|path| self.cache.sync_if_there(path))?;
        if self.names {
            self.dir.ignore_if_away(self.dir.at("", |path| self.cache.sync_dir(path)))?;
        }
        self.parent.iter().try_for_each(|parent| self.cache.sync_dir(parent))
    }

    /// Writes and syncs.
    pub fn run(&self) -> Result<(), LogError> {
        self.write()?;
        self.sync()
    }

    /// The number of files that [`FlushJob::sync`] would sync.
    pub fn file_count(&self) -> usize {
        self.files.len() + self.paths.len() + usize::from(self.names) + usize::from(self.parent.is_some())
    }

    /// Syncs the whole file system instead of [`FlushJob::sync`]; `false` if the system cannot.
    pub fn sync_file_system(&self) -> Result<bool, LogError> {
        self.cache.wait_for_disk();
        match self.files.first().map(|file| open_if_there(&self.cache, file)).transpose()?.flatten() {
            Some(file) => file.sync_file_system(),
            None => Ok(false),
        }
    }

    /// Bytes that recovery can skip once this job is done and the checkpoint is written.
    pub fn rolled_bytes(&self) -> u64 {
        self.rolled_bytes
    }

    /// How far the log is durable once this job is done.
    pub fn end(&self) -> FlushEnd {
        self.end
    }
}

pub(super) fn open_if_there(cache: &Arc<FileCache>, file: &Arc<LogFile>) -> Result<Option<Arc<OpenFile>>, LogError> {
    match file.open(cache) {
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Log {
    /// Whether anything is not durable yet.
    pub fn is_dirty(&self) -> bool {
        if self.is_planned() {
            return false;
        }
        self.flushed_offset < self.log_end_offset
            || self.dir_dirty
            || self.epochs.is_dirty()
            || self.segments[self.first_unflushed()..].iter().any(|segment| segment.dirty)
    }

    /// The first segment that may be unflushed. This includes a segment that ends at the flushed offset: its indexes
    /// were written when it rolled.
    fn first_unflushed(&self) -> usize {
        self.floor_segment(self.flushed_offset).saturating_sub(1)
    }

    /// Whether the flusher should be notified of an append.
    pub fn wants_flush(&self) -> bool {
        self.config.flush_before_ack
            || self.rolled_offset.is_some()
            || self.log_end_offset - self.flushed_offset >= self.config.flush_messages
            || self.segments.last().expect("at least one segment").write_back().is_due()
    }

    /// Takes what is due; `None` if nothing is, or if another job is not completed. A job that failed must not be
    /// completed, because a failed sync must not be retried.
    pub fn begin_flush(&mut self) -> Option<FlushJob> {
        let is_due = std::mem::take(&mut self.flush_asked)
            || self.config.flush_before_ack
            || self.has_unsynced_cut
            || self.log_end_offset - self.flushed_offset >= self.config.flush_messages;
        self.take_dirty(if is_due { Extent::All } else { Extent::Rolled })
    }

    /// Whether something has been unflushed for longer than `flush.ms`; the next flush then includes it. Call it
    /// periodically: the time counts from the last call that found everything flushed or requested a flush.
    pub fn request_overdue_flush(&mut self, now_ms: i64) -> bool {
        let waits = !self.is_planned() && self.flushed_offset < self.log_end_offset;
        if waits && now_ms.saturating_sub(self.flushed_ms) < self.config.flush_ms {
            return false;
        }
        self.flushed_ms = now_ms;
        self.flush_asked |= waits;
        waits
    }

    pub(super) fn take_dirty(&mut self, extent: Extent) -> Option<FlushJob> {
        if self.is_flushing || self.is_planned() {
            return None;
        }
        let first = self.first_unflushed();
        let last = self.segments.len() - 1;
        let (mut files, mut rolled_bytes) = (Vec::new(), 0);
        let remade = self.remade.as_ref().map_or(i64::MIN, |remade| remade.to);
        for (at, segment) in self.segments.iter_mut().enumerate().skip(first) {
            // The indexes of the active segment are rebuilt after a crash, so they need not be durable.
            let count = match extent {
                Extent::Rolled if at == last => continue,
                Extent::All if at == last => 1,
                // Rebuilt segments are synced with the next mark.
                _ if segment.base_offset() < remade => 1,
                _ => 4,
            };
            if std::mem::take(&mut segment.dirty) {
                rolled_bytes += if at == last { 0 } else { segment.size() };
                files.extend(segment.files().into_iter().take(count).cloned());
            }
        }
        let active = &mut self.segments[last];
        let log_file = active.log_file().clone();
        let (target, write_back) = match extent {
            Extent::All => (active.prepare_target(&self.config), None),
            Extent::Rolled => (None, active.write_back_mut().take()),
            Extent::Closing => (None, None),
        };
        let offset = if extent == Extent::Rolled { active.base_offset() } else { self.log_end_offset };
        let takes_active = extent != Extent::Rolled;
        let epochs = self.epochs.take_dirty().map(|entries| self.epoch_file.next_write(entries));
        let names = std::mem::take(&mut self.dir_dirty);
        if files.is_empty() && epochs.is_none() && !names && write_back.is_none() {
            self.flushed_offset = self.flushed_offset.max(offset);
            return None;
        }
        self.syncing_rolled = self.rolled_offset.take();
        self.is_flushing = true;
        self.is_syncing_cut = self.has_unsynced_cut && takes_active;
        Some(FlushJob {
            cache: self.context.cache.clone(),
            files,
            paths: std::mem::take(&mut self.unsynced),
            epochs,
            dir: self.dir.clone(),
            names,
            parent: if names { self.take_new_parent() } else { None },
            write_back: write_back.map(|(from, to)| (log_file.clone(), from, to)),
            active: takes_active.then(|| log_file.clone()),
            prepare: target.map(|(prepared, target)| (prepared, log_file, target)),
            rolled_bytes,
            end: FlushEnd { offset, generation: self.generation },
        })
    }

    /// Returns the parent directory, once after the partition's directory was created.
    fn take_new_parent(&mut self) -> Option<PathBuf> {
        let is_new = std::mem::take(&mut self.is_new);
        is_new.then(|| self.dir.path().parent().map(Path::to_owned)).flatten()
    }

    /// Completes a job. Returns the flushed offset, which does not advance if the log was truncated meanwhile.
    pub fn complete_flush(&mut self, end: FlushEnd) -> i64 {
        self.syncing_rolled = None;
        self.is_flushing = false;
        let has_synced_cut = std::mem::take(&mut self.is_syncing_cut);
        if end.generation == self.generation {
            self.flushed_offset = self.flushed_offset.max(end.offset.min(self.log_end_offset));
        }
        // A later truncation may have cut nothing.
        let is_cut_again = end.generation != self.generation && self.segments.last().is_none_or(|active| active.dirty);
        self.has_unsynced_cut &= !has_synced_cut || is_cut_again;
        self.flushed_offset
    }

    /// Makes the whole log durable synchronously.
    pub fn flush(&mut self) -> Result<i64, LogError> {
        if let Some(job) = self.take_dirty(Extent::All) {
            job.run()?;
            self.complete_flush(job.end());
            job.prepare()?;
        }
        Ok(self.flushed_offset)
    }
}

/// Makes an offset one at which recovery can resume: syncs indexes and producer state up to it.
pub struct MarkJob {
    cache: Arc<FileCache>,
    files: Vec<Arc<LogFile>>,
    snapshots: Vec<PathBuf>,
    /// The partition's directory if it has new names.
    dir: Option<Arc<PartitionDir>>,
    end: FlushEnd,
}

impl MarkJob {
    /// Syncs what was written.
    pub fn sync(&self) -> Result<(), LogError> {
        for file in &self.files {
            if let Some(file) = open_if_there(&self.cache, file)? {
                file.sync()?;
            }
        }
        self.snapshots.iter().try_for_each(|path| self.cache.sync_if_there(path))?;
        match &self.dir {
            Some(dir) => dir.ignore_if_away(dir.at("", |path| self.cache.sync_dir(path))),
            None => Ok(()),
        }
    }

    /// The number of files that [`MarkJob::sync`] would sync.
    pub fn file_count(&self) -> usize {
        self.files.len() + self.snapshots.len()
    }

    /// Syncs the whole file system instead of [`MarkJob::sync`]; `false` if the system cannot.
    pub fn sync_file_system(&self) -> Result<bool, LogError> {
        match self.files.first().map(|file| open_if_there(&self.cache, file)).transpose()?.flatten() {
            Some(file) => file.sync_file_system(),
            None => Ok(false),
        }
    }

    pub fn end(&self) -> FlushEnd {
        self.end
    }
}

impl Log {
    /// Writes what recovery needs to resume at the log's end, and includes what recovery left unsynced. Returns
    /// `None` if nothing was left unsynced and the log either is not flushed within its segments or has no appends
    /// since the last mark.
    pub fn begin_mark(&mut self) -> Result<Option<MarkJob>, LogError> {
        let is_flushed = self.flushed_offset > self.active_base_offset();
        let is_marked = self.marks.last() == Some(&self.log_end_offset);
        if self.remade.is_none() && (!is_flushed || is_marked) {
            return Ok(None);
        }
        let cache = self.context.cache.clone();
        let active = self.segments.last_mut().expect("at least one segment");
        active.write_indexes(&cache, false)?;
        let mut files: Vec<_> = active.files().into_iter().skip(1).cloned().collect();
        self.producers.take_snapshot(&cache, &self.dir, false)?;
        let mut snapshots = vec![snapshot_path(&self.dir, self.log_end_offset)];
        if let Some(remade) = &self.remade {
            let first = self.floor_segment(remade.from);
            let segments = self.segments[first..].iter().take_while(|segment| segment.base_offset() < remade.to);
            files.extend(segments.flat_map(|segment| segment.files().into_iter().skip(1).cloned()));
            snapshots.extend_from_slice(&remade.snapshots);
        }
        let dir = self.remade.as_ref().map(|_| self.dir.clone());
        let end = FlushEnd { offset: self.log_end_offset, generation: self.generation };
        Ok(Some(MarkJob { cache, files, snapshots, dir, end }))
    }

    /// Whether recovery left files for the next mark to sync.
    pub(super) fn is_remade(&self) -> bool {
        self.remade.is_some()
    }

    /// Completes a mark. The mark before it is kept, because the checkpoint may still contain that offset.
    pub fn complete_mark(&mut self, end: FlushEnd) -> Result<(), LogError> {
        if end.generation != self.generation {
            return Ok(());
        }
        self.remade = None;
        if self.marks.last() != Some(&end.offset) {
            self.marks.push(end.offset);
        }
        while self.marks.len() > 2 {
            let old = self.marks.remove(0);
            if self.segments.binary_search_by_key(&old, |segment| segment.base_offset()).is_err() {
                self.producers.remove_snapshot(&self.context.cache, &self.dir, old)?;
            }
        }
        Ok(())
    }
}
