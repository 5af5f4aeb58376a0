//! The index of aborted transactions: what a read_committed fetch has to skip.

use std::sync::Arc;

use super::store::number;
use crate::log::error::LogError;
use crate::log::files::{FileCache, LogFile};

/// A transaction that was aborted (34 bytes in the file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    /// Of the first record.
    pub first_offset: i64,
    /// Of the abort marker.
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

const ENTRY_SIZE: usize = 34;
const VERSION: i16 = 0;

impl AbortedTxn {
    fn to_bytes(self) -> [u8; ENTRY_SIZE] {
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (at, field) in fields.into_iter().enumerate() {
            bytes[2 + 8 * at..10 + 8 * at].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; ENTRY_SIZE]) -> Option<Self> {
        // Kafka refuses versions above its own only.
        (number!(i16, bytes, 0) <= VERSION).then(|| Self {
            producer_id: number!(i64, bytes, 2),
            first_offset: number!(i64, bytes, 10),
            last_offset: number!(i64, bytes, 18),
            last_stable_offset: number!(i64, bytes, 26),
        })
    }
}

/// The aborted transactions of one segment, by rising last offset. The file is made with the first entry.
pub struct TxnIndex {
    file: Arc<LogFile>,
    base_offset: i64,
    entries: Option<Vec<AbortedTxn>>,
    /// Entries that the file has.
    stored: usize,
}

impl TxnIndex {
    /// `known_empty`: there is no file.
    pub fn new(file: Arc<LogFile>, base_offset: i64, known_empty: bool) -> Self {
        Self { file, base_offset, entries: known_empty.then(Vec::new), stored: 0 }
    }

    pub fn file(&self) -> &Arc<LogFile> {
        &self.file
    }

    /// Reads the file; an entry that ends below the base offset or has another version is damage.
    pub fn load(&mut self, cache: &Arc<FileCache>) -> Result<&mut Vec<AbortedTxn>, LogError> {
        if self.entries.is_none() {
            let entries = self.read(cache)?;
            self.stored = entries.len();
            self.entries = Some(entries);
        }
        Ok(self.entries.as_mut().expect("set above"))
    }

    fn read(&self, cache: &Arc<FileCache>) -> Result<Vec<AbortedTxn>, LogError> {
        let len = self.file.len_on_disk()?;
        if len == 0 {
            return Ok(Vec::new());
        }
        // A torn last entry is left out, as Kafka does.
        let count = usize::try_from(len).unwrap_or(0) / ENTRY_SIZE;
        let mut bytes = vec![[0; ENTRY_SIZE]; count];
        self.file.open(cache)?.read_at(bytes.as_flattened_mut(), 0)?;
        let mut entries = Vec::with_capacity(count);
        for (at, bytes) in bytes.iter().enumerate() {
            match AbortedTxn::parse(bytes) {
                Some(entry) if entry.last_offset >= self.base_offset => entries.push(entry),
                found => {
                    let (position, reason) = ((at * ENTRY_SIZE) as u64, format!("entry {found:?}"));
                    return Err(LogError::Corrupt { path: self.file.path(), position, reason });
                }
            }
        }
        Ok(entries)
    }

    pub fn push(&mut self, cache: &Arc<FileCache>, entry: AbortedTxn) -> Result<(), LogError> {
        self.load(cache)?.push(entry);
        match self.write(cache) {
            // The entry stays in memory for the next time.
            Err(error) if error.is_limit() => Ok(()),
            result => result,
        }
    }

    /// Writes entries that are only in memory.
    pub fn write(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        let entries = self.entries.as_deref().unwrap_or_default();
        if self.stored < entries.len() {
            let bytes: Vec<u8> = entries[self.stored..].iter().flat_map(|entry| entry.to_bytes()).collect();
            self.file.create(cache)?.write_at(&bytes, (self.stored * ENTRY_SIZE) as u64)?;
            self.stored = entries.len();
        }
        Ok(())
    }

    /// Drops what ended at or above `offset`.
    pub fn truncate_to(&mut self, cache: &Arc<FileCache>, offset: i64) -> Result<(), LogError> {
        let entries = self.load(cache)?;
        let keep = entries.partition_point(|entry| entry.last_offset < offset);
        entries.truncate(keep);
        if keep < self.stored {
            self.file.create(cache)?.set_len((keep * ENTRY_SIZE) as u64)?;
            self.stored = keep;
        }
        Ok(())
    }

    /// Empties the index, damaged or not.
    pub fn reset(&mut self, cache: &Arc<FileCache>) -> Result<(), LogError> {
        self.entries = Some(Vec::new());
        self.stored = 0;
        if self.file.len_on_disk()? > 0 {
            self.file.create(cache)?.set_len(0)?;
        }
        Ok(())
    }

    /// Whether a file belongs to this index.
    pub fn has_file(&mut self, cache: &Arc<FileCache>) -> Result<bool, LogError> {
        Ok(!self.load(cache)?.is_empty())
    }

    /// Adds what overlaps `[from, to)`; `true` when later segments need not be asked.
    pub fn collect(
        &mut self,
        cache: &Arc<FileCache>,
        from: i64,
        to: i64,
        found: &mut Vec<AbortedTxn>,
    ) -> Result<bool, LogError> {
        for entry in self.load(cache)?.iter() {
            if entry.last_offset >= from && entry.first_offset < to {
                found.push(*entry);
            }
            if entry.last_stable_offset >= to {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
