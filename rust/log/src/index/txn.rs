//! The index of aborted transactions, which tells a read_committed consumer what to skip.

use std::sync::Arc;

use klamm_base::LogError;

use super::store::number;
use crate::files::{FileCache, LogFile};

/// A transaction that was aborted (34 bytes in the file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    /// Offset of the transaction's first record.
    pub first_offset: i64,
    /// Offset of the abort marker.
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

const ENTRY_SIZE: usize = 34;
const VERSION: i16 = 0;

impl AbortedTxn {
    /// Bytes in the file.
    pub const SIZE: usize = ENTRY_SIZE;

    fn to_bytes(self) -> [u8; ENTRY_SIZE] {
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (at, field) in fields.into_iter().enumerate() {
            bytes[2 + 8 * at..10 + 8 * at].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Parses the entry that follows the entry with last offset `before`; the error describes what is wrong.
    fn parse(bytes: &[u8; ENTRY_SIZE], before: i64) -> Result<Self, String> {
        let version = number!(i16, bytes, 0);
        let entry = Self {
            producer_id: number!(i64, bytes, 2),
            first_offset: number!(i64, bytes, 10),
            last_offset: number!(i64, bytes, 18),
            last_stable_offset: number!(i64, bytes, 26),
        };
        if version != VERSION {
            return Err(format!("an entry of version {version}"));
        }
        if entry.last_offset <= before {
            return Err(format!("an entry of offset {} after {before}", entry.last_offset));
        }
        // A transaction has a record before its marker, and the last stable offset does not exceed the marker while
        // it is open.
        let offsets = [entry.first_offset, entry.last_stable_offset - 1];
        if offsets.iter().any(|offset| !(-1..=entry.last_offset).contains(offset)) || entry.first_offset < 0 {
            return Err(format!("an entry that is no aborted transaction: {entry:?}"));
        }
        Ok(entry)
    }

    /// Parses the index of a segment that begins at `base_offset`; the error contains position and reason.
    pub fn parse_all(bytes: &[u8], base_offset: i64) -> Result<Vec<Self>, (u64, String)> {
        let (whole, rest) = bytes.as_chunks::<ENTRY_SIZE>();
        let mut entries: Vec<Self> = Vec::with_capacity(whole.len());
        for (at, bytes) in whole.iter().enumerate() {
            let before = entries.last().map_or(base_offset - 1, |entry| entry.last_offset);
            let entry = Self::parse(bytes, before).map_err(|reason| ((at * ENTRY_SIZE) as u64, reason))?;
            entries.push(entry);
        }
        match rest.is_empty() {
            true => Ok(entries),
            false => Err(((whole.len() * ENTRY_SIZE) as u64, format!("{} bytes are no whole entries", bytes.len()))),
        }
    }
}

/// The aborted transactions of one segment, in order of last offset. The file is created with the first entry.
pub struct TxnIndex {
    file: Arc<LogFile>,
    base_offset: i64,
    entries: Option<Vec<AbortedTxn>>,
    /// The number of entries in the file.
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

    /// Reads the file; `LogError::Corrupt` if it cannot be an index of this segment.
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
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.file.open(cache)?.read_at(&mut bytes, 0)?;
        AbortedTxn::parse_all(&bytes, self.base_offset).map_err(|(position, reason)| LogError::Corrupt {
            path: self.file.path(),
            position,
            reason,
        })
    }

    /// Whether the index is known to be empty without reading the file.
    pub fn is_known_empty(&self) -> bool {
        self.entries.as_ref().is_some_and(Vec::is_empty)
    }

    /// Checksum of the file's content, 0 if it is empty; `None` if it was not read yet.
    pub fn checksum(&self) -> Option<u32> {
        let entries = self.entries.as_ref()?;
        Some(entries[..self.stored].iter().fold(0, |crc, entry| crc32c::crc32c_append(crc, &entry.to_bytes())))
    }

    /// Replaces the entries.
    pub fn replace(&mut self, cache: &Arc<FileCache>, entries: Vec<AbortedTxn>) -> Result<(), LogError> {
        self.reset(cache)?;
        self.entries = Some(entries);
        self.write(cache)
    }

    /// Replaces the entries durably: after a crash the file contains either all old ones or all new ones.
    pub fn exchange(&mut self, cache: &Arc<FileCache>, entries: Vec<AbortedTxn>) -> Result<(), LogError> {
        if *self.load(cache)? == entries {
            return Ok(());
        }
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
        self.file.close();
        cache.replace(&self.file.path(), &bytes, true)?;
        self.stored = entries.len();
        self.entries = Some(entries);
        Ok(())
    }

    pub fn push(&mut self, cache: &Arc<FileCache>, entry: AbortedTxn) -> Result<(), LogError> {
        self.load(cache)?.push(entry);
        match self.write(cache) {
            // The entry stays in memory until the next attempt.
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

    /// Removes transactions whose last offset is at or above `offset`.
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

    /// Whether the index has a file.
    pub fn has_file(&mut self, cache: &Arc<FileCache>) -> Result<bool, LogError> {
        Ok(!self.load(cache)?.is_empty())
    }

    /// Adds the transactions that overlap `[from, to)`; `true` if later segments cannot contain more.
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
