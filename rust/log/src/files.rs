//! All files of all logs: opened on use, bounded in number, and changed only through this module.
//!
//! A [`LogFile`] is a name; [`LogFile::open`] returns an [`OpenFile`] that stays usable while it is held, even after
//! the file was renamed or removed. The cache closes files that are not in use, in second-chance order (one reference
//! bit for each file, one clock hand). If all files are in use, opening another one fails without side effects.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use klamm_base::LogError;
use klamm_base::clock::now_ms;
use klamm_base::conditions::Conditions;
use parking_lot::{Mutex, RwLock};

use super::names::{FileName, Stage};
use super::recorder::{Change, Recorder};

/// The open files of a process.
pub struct FileCache {
    limit: usize,
    open: AtomicUsize,
    next_id: AtomicU64,
    ring: Mutex<Ring>,
    recorder: Option<Arc<Recorder>>,
    is_volatile: bool,
    /// Those of a node of an embedded cluster.
    conditions: Option<Arc<Conditions>>,
}

#[derive(Default)]
struct Ring {
    files: Vec<Weak<LogFile>>,
    hand: usize,
}

impl FileCache {
    /// A cache that holds at most `limit` files open.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::make(limit, None, false, None)
    }

    /// A cache for files that need not survive a power cut: nothing is ever synced.
    pub fn volatile(limit: usize) -> Arc<Self> {
        Self::make(limit, None, true, None)
    }

    /// A cache that also reports every file change to `recorder`, in order. Its syncs are only reported: the disk that
    /// loses power is simulated.
    pub fn with_recorder(limit: usize, recorder: Option<Arc<Recorder>>) -> Arc<Self> {
        Self::make(limit, recorder, false, None)
    }

    /// A cache for the files of a node of an embedded cluster.
    pub fn under(limit: usize, is_volatile: bool, conditions: Arc<Conditions>) -> Arc<Self> {
        Self::make(limit, None, is_volatile, Some(conditions))
    }

    fn make(
        limit: usize,
        recorder: Option<Arc<Recorder>>,
        is_volatile: bool,
        conditions: Option<Arc<Conditions>>,
    ) -> Arc<Self> {
        assert!(limit >= 4, "an append needs a log, two indexes and a checkpoint");
        Arc::new(Self {
            limit,
            open: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            ring: Mutex::default(),
            recorder,
            is_volatile,
            conditions,
        })
    }

    fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Before a flush: waits as long as the disk takes.
    pub fn wait_for_disk(&self) {
        if let Some(conditions) = &self.conditions {
            conditions.wait_for_disk();
        }
    }

    pub fn conditions(&self) -> Option<&Arc<Conditions>> {
        self.conditions.as_ref()
    }

    /// The time of day, in ms since 1970.
    pub fn now_ms(&self) -> i64 {
        now_ms() + self.conditions.as_ref().map_or(0, |conditions| conditions.wall_ms())
    }

    /// The number of open files.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Reserves one of the places; if none is free, closes a file that is not in use.
    fn reserve(self: &Arc<Self>) -> Result<Permit, LogError> {
        loop {
            let open = self.open.load(Ordering::Relaxed);
            if open < self.limit {
                let taken = self.open.compare_exchange(open, open + 1, Ordering::Relaxed, Ordering::Relaxed);
                if taken.is_ok() {
                    return Ok(Permit(self.clone()));
                }
            } else if !self.close_one() {
                return Err(LogError::TooManyOpenFiles { limit: self.limit });
            }
        }
    }

    /// Closes one file that is not in use; `false` if there is none.
    fn close_one(&self) -> bool {
        let mut ring = self.ring.lock();
        // Two rounds: the first one may only clear reference bits.
        let mut steps = 2 * ring.files.len();
        while steps > 0 && !ring.files.is_empty() {
            steps -= 1;
            let hand = ring.hand % ring.files.len();
            let Some(file) = ring.files[hand].upgrade() else {
                ring.files.swap_remove(hand);
                continue;
            };
            if file.used.swap(false, Ordering::Relaxed) || !file.close_if_idle() {
                ring.hand = hand + 1;
                continue;
            }
            ring.files.swap_remove(hand);
            return true;
        }
        false
    }

    fn record(&self, change: impl FnOnce() -> Change) {
        if let Some(recorder) = &self.recorder {
            recorder.push(change());
        }
    }

    /// Renames a file or directory.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), LogError> {
        fs::rename(from, to).map_err(LogError::io("cannot rename", from))?;
        self.record(|| Change::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    /// Removes a file; it may be missing.
    pub fn remove(&self, path: &Path) -> Result<(), LogError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => {
                result.map_err(LogError::io("cannot remove", path))?;
                self.record(|| Change::Remove { path: path.to_owned() });
                Ok(())
            }
        }
    }

    /// Removes a directory and everything in it.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)?;
        self.record(|| Change::Remove { path: path.to_owned() });
        Ok(())
    }

    /// Makes the content of a small file durable; it may be missing.
    pub fn sync_if_there(&self, path: &Path) -> Result<(), LogError> {
        if self.is_volatile {
            return Ok(());
        }
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ if self.is_recorded() => {}
            result => result.and_then(|file| file.sync_data()).map_err(LogError::io("cannot sync", path))?,
        }
        let id = self.next_id();
        self.record(|| Change::Open { id, path: path.to_owned() });
        self.record(|| Change::Sync { id });
        Ok(())
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(&self, path: &Path) -> Result<(), LogError> {
        if self.is_volatile {
            return Ok(());
        }
        let dir = File::open(path).map_err(LogError::io("cannot open", path))?;
        if !self.is_recorded() {
            dir.sync_all().map_err(LogError::io("cannot sync", path))?;
        }
        self.record(|| Change::SyncDir { path: path.to_owned() });
        Ok(())
    }

    /// Creates a directory unless it exists.
    pub fn create_dir(&self, path: &Path) -> Result<(), LogError> {
        fs::create_dir_all(path).map_err(LogError::io("cannot create", path))?;
        self.record(|| Change::CreateDir { path: path.to_owned() });
        Ok(())
    }

    /// Replaces a small file: writes `<path>.tmp`, syncs it if `durable`, renames it and syncs its directory.
    pub fn replace(self: &Arc<Self>, path: &Path, content: &[u8], durable: bool) -> Result<(), LogError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        self.write_whole(&temporary, content, durable)?;
        self.rename(&temporary, path)?;
        match path.parent() {
            Some(parent) if durable => self.sync_dir(parent),
            _ => Ok(()),
        }
    }

    /// Writes a complete new file, synced if `durable`.
    pub fn write_whole(self: &Arc<Self>, path: &Path, content: &[u8], durable: bool) -> Result<(), LogError> {
        let open = self.create_new(path)?;
        open.write_at(content, 0)?;
        if durable { open.sync() } else { Ok(()) }
    }

    /// Opens a file for reading; it need not be writable.
    pub fn open_read_only(self: &Arc<Self>, path: &Path) -> Result<OpenFile, LogError> {
        let permit = self.reserve()?;
        let file = File::open(path).map_err(LogError::io("cannot open", path))?;
        Ok(OpenFile { id: self.next_id(), file, path: path.to_owned(), permit, identity: OnceLock::new() })
    }

    /// Opens a new, empty file; existing content is removed.
    pub fn create_new(self: &Arc<Self>, path: &Path) -> Result<OpenFile, LogError> {
        let permit = self.reserve()?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(LogError::io("cannot create", path))?;
        let open = OpenFile { id: self.next_id(), file, path: path.to_owned(), permit, identity: OnceLock::new() };
        self.record(|| Change::Create { id: open.id, path: path.to_owned() });
        self.record(|| Change::SetLen { id: open.id, len: 0 });
        Ok(open)
    }

    /// Opens a file whose bytes are overwritten in place; creates it if it does not exist.
    pub fn open_in_place(self: &Arc<Self>, path: &Path) -> Result<OpenFile, LogError> {
        let permit = self.reserve()?;
        let file = open_read_write(self, path, true)?;
        let open = OpenFile { id: self.next_id(), file, path: path.to_owned(), permit, identity: OnceLock::new() };
        self.record(|| Change::Create { id: open.id, path: path.to_owned() });
        Ok(open)
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// One place among the open files, released on drop.
struct Permit(Arc<FileCache>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open file. Reads and writes need no lock; the log decides who may write.
pub struct OpenFile {
    id: u64,
    file: File,
    /// Its path when it was opened, for messages.
    path: PathBuf,
    permit: Permit,
    /// Device and inode, cached after the first use: they never change.
    identity: OnceLock<(u64, u64)>,
}

impl OpenFile {
    fn identity(&self) -> Result<(u64, u64), LogError> {
        if let Some(identity) = self.identity.get() {
            return Ok(*identity);
        }
        let held = self.file.metadata().map_err(LogError::io("cannot stat", &self.path))?;
        Ok(*self.identity.get_or_init(|| (held.dev(), held.ino())))
    }

    /// The descriptor, for `sendfile`.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes.
    pub fn size(&self) -> Result<u64, LogError> {
        Ok(self.file.metadata().map_err(LogError::io("cannot stat", &self.path))?.len())
    }

    /// Reads exactly `buffer.len()` bytes.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<(), LogError> {
        self.file.read_exact_at(buffer, position).map_err(LogError::io("cannot read", &self.path))
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    pub fn read_up_to(&self, buffer: &mut [u8], position: u64) -> Result<usize, LogError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LogError::io("cannot read", &self.path)(error)),
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes`.
    pub fn write_at(&self, bytes: &[u8], position: u64) -> Result<(), LogError> {
        self.cache().record(|| Change::Write { id: self.id, position, bytes: bytes.to_vec() });
        self.file.write_all_at(bytes, position).map_err(LogError::io("cannot write", &self.path))
    }

    /// Truncates or extends to `len` bytes.
    pub fn set_len(&self, len: u64) -> Result<(), LogError> {
        self.cache().record(|| Change::SetLen { id: self.id, len });
        self.file.set_len(len).map_err(LogError::io("cannot truncate", &self.path))
    }

    /// Syncs the content (`fdatasync`: not all metadata).
    pub fn sync(&self) -> Result<(), LogError> {
        if self.cache().is_volatile {
            return Ok(());
        }
        if !self.cache().is_recorded() {
            self.file.sync_data().map_err(LogError::io("cannot sync", &self.path))?;
        }
        self.cache().record(|| Change::Sync { id: self.id });
        Ok(())
    }

    /// Syncs the whole file system; `false` if the operating system has no such call.
    pub fn sync_file_system(&self) -> Result<bool, LogError> {
        if self.cache().is_volatile {
            return Ok(true);
        }
        let done = klamm_base::os::sync_file_system(&self.file).map_err(LogError::io("cannot sync", &self.path))?;
        if done {
            self.cache().record(|| Change::SyncAll);
        }
        Ok(done)
    }

    fn cache(&self) -> &FileCache {
        &self.permit.0
    }
}

/// The directory of a partition; its files follow when it is renamed.
pub struct PartitionDir {
    place: RwLock<Place>,
}

struct Place {
    path: PathBuf,
    is_away: bool,
}

impl PartitionDir {
    pub fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self { place: RwLock::new(Place { path: path.to_owned(), is_away: false }) })
    }

    pub fn path(&self) -> PathBuf {
        self.place.read().path.clone()
    }

    /// Renames the directory of a log that was deleted or moved away; open files stay usable.
    pub fn move_away(&self, cache: &FileCache, to: &Path) -> Result<(), LogError> {
        let mut place = self.place.write();
        cache.rename(&place.path, to)?;
        *place = Place { path: to.to_owned(), is_away: true };
        Ok(())
    }

    /// Renames the directory of a log that stays in use.
    pub fn rename(&self, cache: &FileCache, to: &Path) -> Result<(), LogError> {
        let mut place = self.place.write();
        cache.rename(&place.path, to)?;
        place.path = to.to_owned();
        Ok(())
    }

    /// Gives a directory that is not on disk another path.
    pub fn plan_at(&self, path: &Path) {
        self.place.write().path = path.to_owned();
    }

    /// Whether the directory was moved away: it may be removed at any time.
    pub fn is_away(&self) -> bool {
        self.place.read().is_away
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.read().path.join(name)
    }

    /// Runs `work` with the path of one of its files; the directory cannot be renamed meanwhile.
    pub fn at<T>(&self, name: impl AsRef<Path>, work: impl FnOnce(&Path) -> T) -> T {
        let place = self.place.read();
        work(&place.path.join(name))
    }

    /// Turns an error into success if the directory was moved away: nothing in it is needed any more.
    pub fn ignore_if_away(&self, result: Result<(), LogError>) -> Result<(), LogError> {
        match result {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound && self.is_away() => Ok(()),
            other => other,
        }
    }
}

/// A file of a partition, open or not.
pub struct LogFile {
    dir: Arc<PartitionDir>,
    state: Mutex<State>,
    used: AtomicBool,
}

struct State {
    name: FileName,
    open: Option<Arc<OpenFile>>,
}

impl LogFile {
    pub fn new(dir: &Arc<PartitionDir>, name: FileName) -> Arc<Self> {
        let state = Mutex::new(State { name, open: None });
        Arc::new(Self { dir: dir.clone(), state, used: AtomicBool::new(false) })
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(self.state.lock().name.to_string())
    }

    /// Opens the file, which must exist.
    pub fn open(self: &Arc<Self>, cache: &Arc<FileCache>) -> Result<Arc<OpenFile>, LogError> {
        self.open_with(cache, false)
    }

    /// Opens the file, created when it is absent.
    pub fn create(self: &Arc<Self>, cache: &Arc<FileCache>) -> Result<Arc<OpenFile>, LogError> {
        self.open_with(cache, true)
    }

    /// Runs `work`, which must be short, with the file opened: without a handle of its own, whose counter another
    /// processor may have changed last.
    pub fn with_open<T>(
        self: &Arc<Self>,
        cache: &Arc<FileCache>,
        work: impl FnOnce(&OpenFile) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let state = self.state.lock();
        if let Some(open) = &state.open {
            self.used.store(true, Ordering::Relaxed);
            return work(open);
        }
        drop(state);
        work(&*self.open(cache)?)
    }

    fn open_with(self: &Arc<Self>, cache: &Arc<FileCache>, create: bool) -> Result<Arc<OpenFile>, LogError> {
        self.used.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        if let Some(open) = &state.open {
            return Ok(open.clone());
        }
        // Lock order: our own state, then the ring. `close_if_idle`, which runs under the ring's lock, only tries to
        // lock a file.
        let permit = cache.reserve()?;
        let opened = self.dir.at(state.name.to_string(), |path| {
            open_read_write(cache, path, create).map(|file| (file, path.to_owned()))
        });
        let (file, path) = opened?;
        let open = Arc::new(OpenFile { id: cache.next_id(), file, path, permit, identity: OnceLock::new() });
        cache.record(|| match create {
            true => Change::Create { id: open.id, path: open.path.clone() },
            false => Change::Open { id: open.id, path: open.path.clone() },
        });
        state.open = Some(open.clone());
        drop(state);
        cache.ring.lock().files.push(Arc::downgrade(self));
        Ok(open)
    }

    /// Size in bytes, 0 if there is no such file; does not open it.
    pub fn len_on_disk(&self) -> Result<u64, LogError> {
        let path = self.path();
        match fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(LogError::io("cannot stat", &path)(error)),
        }
    }

    /// Whether the file is neither being created nor deleted.
    pub fn is_live(&self) -> bool {
        self.state.lock().name.stage == Stage::Live
    }

    /// Whether `open` is the file that has this name now. Returns `true` for a file that was deleted or moved away on
    /// purpose.
    pub fn is_there(&self, open: &OpenFile) -> Result<bool, LogError> {
        let state = self.state.lock();
        if state.name.stage != Stage::Live {
            return Ok(true);
        }
        let held = open.identity()?;
        let is_there = self.dir.at(state.name.to_string(), |path| match fs::metadata(path) {
            Ok(named) => Ok((named.dev(), named.ino()) == held),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(LogError::io("cannot stat", path)(error)),
        })?;
        Ok(is_there || self.dir.is_away())
    }

    /// Renames the file for another stage; a missing file only changes its name in memory.
    pub fn change_stage(&self, cache: &FileCache, stage: Stage) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let (from, to) = (state.name, state.name.at(stage));
        match cache.rename(&self.dir.join(from.to_string()), &self.dir.join(to.to_string())) {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
        state.name = to;
        Ok(())
    }

    /// Removes the file; holders of an open file can still read it.
    pub fn remove(&self, cache: &FileCache) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.open = None;
        cache.remove(&self.dir.join(state.name.to_string()))
    }

    /// Closes the file in the cache; holders of the open file keep it.
    pub fn close(&self) {
        self.state.lock().open = None;
    }

    fn close_if_idle(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        match &state.open {
            Some(open) if Arc::strong_count(open) > 1 => false,
            _ => {
                state.open = None;
                true
            }
        }
    }
}

/// Opens for reading and writing. If the process has no descriptor left, closes one of ours and retries.
fn open_read_write(cache: &FileCache, path: &Path, create: bool) -> Result<File, LogError> {
    loop {
        match OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) && cache.close_one() => {}
            result => return result.map_err(LogError::io("cannot open", path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes made by replacing a durable file and syncing its directory.
    fn changes(is_volatile: bool) -> Vec<Change> {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Arc::new(Recorder::default());
        let cache = FileCache::make(4, Some(recorder.clone()), is_volatile, None);
        let path = folder.path().join("file");
        cache.replace(&path, b"content", true).expect("replace");
        cache.sync_dir(folder.path()).expect("sync");
        assert_eq!(fs::read(&path).expect("read"), b"content");
        recorder.changes()
    }

    #[test]
    fn volatile_files_are_written_and_never_synced() {
        let is_sync =
            |change: &Change| matches!(change, Change::Sync { .. } | Change::SyncDir { .. } | Change::SyncAll);
        assert_eq!(changes(false).iter().filter(|change| is_sync(change)).count(), 3);
        assert!(!changes(true).iter().any(is_sync));
        assert_eq!(changes(true).len() + 3, changes(false).len());
    }
}
