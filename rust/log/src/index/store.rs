//! Entries of `N` bytes: older ones in a file, the newest in memory.

use std::sync::Arc;

use klamm_base::LogError;

use crate::files::{FileCache, LogFile};

/// Entries that are kept in memory before they are written (without a sync).
const TAIL_MAX: usize = 1024;
/// A search reads all remaining entries at once when this few are left.
const WINDOW: u32 = 256;

pub(super) struct Store<const N: usize> {
    pub(super) file: Arc<LogFile>,
    /// The number of entries in the file; `None` until it is loaded.
    stored: Option<u32>,
    tail: Vec<[u8; N]>,
    /// Whether the file exists.
    on_disk: bool,
}

impl<const N: usize> Store<N> {
    /// Opens a file with `stored` entries, or with an unknown number.
    pub(super) fn new(file: Arc<LogFile>, stored: Option<u32>) -> Self {
        let on_disk = stored.is_none();
        Self { file, stored, tail: Vec::new(), on_disk }
    }

    /// Whether the number of entries is known.
    pub(super) fn is_loaded(&self) -> bool {
        self.stored.is_some()
    }

    /// Determines the number of entries in the file; fails if its size is not a multiple of an entry's size.
    pub(super) fn load(&mut self) -> Result<u32, LogError> {
        if let Some(stored) = self.stored {
            return Ok(stored);
        }
        let len = self.file.len_on_disk()?;
        if len % N as u64 != 0 {
            return Err(self.corrupt(len, format!("{len} bytes are no multiple of {N}")));
        }
        let stored = u32::try_from(len / N as u64).map_err(|_| self.corrupt(len, "too long".into()))?;
        self.stored = Some(stored);
        Ok(stored)
    }

    pub(super) fn corrupt(&self, position: u64, reason: String) -> LogError {
        LogError::Corrupt { path: self.file.path(), position, reason }
    }

    /// Number of entries; the store must be loaded.
    pub(super) fn len(&self) -> u32 {
        self.stored.expect("loaded before use") + self.tail.len() as u32
    }

    /// The entry with index `at`, which must exist.
    pub(super) fn get(&self, cache: &Arc<FileCache>, at: u32) -> Result<[u8; N], LogError> {
        let stored = self.stored.expect("loaded before use");
        if at >= stored {
            return Ok(self.tail[(at - stored) as usize]);
        }
        let mut entry = [0; N];
        self.file.open(cache)?.read_at(&mut entry, u64::from(at) * N as u64)?;
        Ok(entry)
    }

    /// The number of leading entries that satisfy `before`. No entry after the first one that does not satisfy it may
    /// satisfy it.
    pub(super) fn count_while(
        &self,
        cache: &Arc<FileCache>,
        before: impl Fn(&[u8; N]) -> bool,
    ) -> Result<u32, LogError> {
        let stored = self.stored.expect("loaded before use");
        if stored == 0 || self.tail.first().is_some_and(&before) {
            return Ok(stored + self.tail.partition_point(before) as u32);
        }
        let (mut low, mut high) = (0, stored);
        while high - low > WINDOW {
            let middle = low + (high - low) / 2;
            if before(&self.get(cache, middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut window = [[0; N]; WINDOW as usize];
        let window = &mut window[..(high - low) as usize];
        self.file.open(cache)?.read_at(window.as_flattened_mut(), u64::from(low) * N as u64)?;
        Ok(low + window.partition_point(before) as u32)
    }

    /// Adds an entry; a long tail is written to the file.
    pub(super) fn push(&mut self, cache: &Arc<FileCache>, entry: [u8; N]) -> Result<(), LogError> {
        self.tail.push(entry);
        if self.tail.len() < TAIL_MAX {
            return Ok(());
        }
        match self.write(cache) {
            // The tail stays in memory until the next attempt.
            Err(error) if error.is_limit() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Writes the tail to the file, creating it if necessary; `true` if the file changed.
    pub(super) fn write(&mut self, cache: &Arc<FileCache>) -> Result<bool, LogError> {
        let stored = self.load()?;
        if self.tail.is_empty() && self.on_disk {
            return Ok(false);
        }
        let file = self.file.create(cache)?;
        if !self.tail.is_empty() {
            file.write_at(self.tail.as_flattened(), u64::from(stored) * N as u64)?;
            self.stored = Some(stored + self.tail.len() as u32);
            self.tail = Vec::new();
        }
        self.on_disk = true;
        Ok(true)
    }

    /// Removes all entries from index `len` on.
    pub(super) fn truncate(&mut self, cache: &Arc<FileCache>, len: u32) -> Result<(), LogError> {
        let stored = self.load()?;
        if len < stored {
            self.file.create(cache)?.set_len(u64::from(len) * N as u64)?;
            self.stored = Some(len);
        }
        self.tail.truncate(len.saturating_sub(stored) as usize);
        Ok(())
    }

    /// Recovers the first entries of a file that a crash may have left in any state: those for which `follows` holds
    /// between each and the one before it. At most `entries_max` are kept.
    pub(super) fn restore(
        &mut self,
        cache: &Arc<FileCache>,
        entries_max: u64,
        follows: impl Fn(Option<&[u8; N]>, &[u8; N]) -> bool,
    ) -> Result<(), LogError> {
        let count = (self.file.len_on_disk()? / N as u64).min(entries_max) as usize;
        let mut entries = vec![[0; N]; count];
        if count > 0 {
            self.file.open(cache)?.read_at(entries.as_flattened_mut(), 0)?;
        }
        let good = (0..count).take_while(|&at| follows(at.checked_sub(1).map(|at| &entries[at]), &entries[at])).count();
        // The rest of the file is truncated.
        (self.stored, self.tail) = (Some(u32::MAX), Vec::new());
        self.truncate(cache, good as u32)
    }

    /// Discards the contents of the file, damaged or not.
    pub(super) fn reset(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.tail = Vec::new();
        self.stored = Some(0);
        self.on_disk = false;
        if self.file.len_on_disk()? > 0 {
            self.file.create(cache)?.set_len(0)?;
        }
        Ok(())
    }
}

/// The big-endian number in `bytes[at..]`.
macro_rules! number {
    ($ty:ty, $bytes:expr, $at:expr) => {{
        let mut raw = [0u8; size_of::<$ty>()];
        raw.copy_from_slice(&$bytes[$at..$at + size_of::<$ty>()]);
        <$ty>::from_be_bytes(raw)
    }};
}
pub(super) use number;
