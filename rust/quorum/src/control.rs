//! A cache of the metadata log's control records: the quorum reads the newest ones after every append.

use klamm_records::control::ControlRecord;
use klamm_records::{RecordsError, batches, records};
use parking_lot::Mutex;

use super::log::BATCH_BYTES_MAX;

/// A control record with its offset: for a snapshot, the last offset that it contains, which is -1 for the first one,
/// 0-0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    pub offset: i64,
    pub kind: i16,
    pub value: Vec<u8>,
}

impl ControlEntry {
    /// Parses the record.
    pub fn parse(&self) -> Result<ControlRecord, RecordsError> {
        let [high, low] = self.kind.to_be_bytes();
        ControlRecord::parse(Some(&[0, 0, high, low]), Some(&self.value))
    }
}

/// The entries in ascending order of offset, after the first read; every change to the log updates them.
#[derive(Debug, Default)]
pub struct ControlEntries(Mutex<Option<Vec<ControlEntry>>>);

impl ControlEntries {
    /// The entries at or above `from`; `read` loads all of them the first time.
    pub fn from<E>(
        &self,
        from: i64,
        read: impl FnOnce() -> Result<Vec<ControlEntry>, E>,
    ) -> Result<Vec<ControlEntry>, E> {
        let mut known = self.0.lock();
        if known.is_none() {
            let mut found = read()?;
            found.sort_by_key(|entry| entry.offset);
            *known = Some(found);
        }
        let entries = known.as_deref().unwrap_or_default();
        Ok(entries[entries.partition_point(|entry| entry.offset < from)..].to_vec())
    }

    /// Adds entries that were appended.
    pub fn add(&self, entries: impl Iterator<Item = ControlEntry>) {
        if let Some(known) = self.0.lock().as_mut() {
            known.extend(entries);
        }
    }

    /// Adds the control records of batches that were appended up to `end_offset`.
    pub fn appended(&self, bytes: &[u8], end_offset: i64) {
        if let Some(known) = self.0.lock().as_mut() {
            collect(bytes, known);
            known.retain(|entry| entry.offset < end_offset);
        }
    }

    /// Clears the cache after the log was replaced: the entries are read on the next use.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Removes entries at or above `offset`.
    pub fn truncated(&self, offset: i64) {
        if let Some(known) = self.0.lock().as_mut() {
            known.retain(|entry| entry.offset < offset);
        }
    }
}

/// Adds the control records of these batches.
pub fn collect(bytes: &[u8], found: &mut Vec<ControlEntry>) {
    let mut buffer = Vec::new();
    for batch in batches(bytes).map_while(Result::ok).filter(|batch| batch.header().is_control()) {
        let Ok(list) = records(batch, &mut buffer, BATCH_BYTES_MAX) else { continue };
        for record in list.map_while(Result::ok) {
            let Some(&[_, _, high, low]) = record.key.and_then(|key| key.first_chunk()) else { continue };
            let value = record.value.unwrap_or_default().to_vec();
            found.push(ControlEntry { offset: record.offset, kind: i16::from_be_bytes([high, low]), value });
        }
    }
}
