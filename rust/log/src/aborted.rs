//! Checks the indexes of aborted transactions at start: compares them with the clean-stop record or with the log, and
//! rebuilds wrong ones.
//!
//! A read_committed consumer relies on this index alone to skip aborted records, so a wrong index would expose them.

use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{Header, compute_crc};

use super::clean_stop::ClosedLog;
use super::files::FileCache;
use super::index::AbortedTxn;
use super::partition_log::Log;
use super::recovery::Recovery;
use super::segment::Segment;

impl Log {
    /// Rebuilds the indexes of the first `count` segments that differ from their recorded state.
    pub(super) fn check_txn_indexes(
        &mut self,
        count: usize,
        closed: Option<&ClosedLog>,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        let cache = self.context.cache.clone();
        for at in 0..count {
            if let Some(reason) = self.wrong_txn_index(at, i64::MAX, closed)? {
                recovery.warnings.push(self.txn_index_warning(at, &reason));
                let aborted = self.read_aborted(at)?;
                let segment = &mut self.segments[at];
                let is_there = !aborted.is_empty();
                segment.txns().replace(&cache, aborted)?;
                if is_there {
                    segment.txn_file().open(&cache)?.sync()?;
                    self.dir_dirty = true;
                }
            }
        }
        Ok(())
    }

    pub(super) fn txn_index_warning(&self, at: usize, reason: &str) -> String {
        let file = self.segments[at].txn_file().path();
        format!("{} {reason}; it is rebuilt from the log", file.display())
    }

    /// Describes what is wrong with the index of a segment, for entries below offset `upto`. If its checksum is not
    /// known, its entries are compared with the batches that they name; a missing entry is then not noticed.
    pub(super) fn wrong_txn_index(
        &mut self,
        at: usize,
        upto: i64,
        closed: Option<&ClosedLog>,
    ) -> Result<Option<String>, LogError> {
        let cache = self.context.cache.clone();
        let segment = &mut self.segments[at];
        let expected = closed.and_then(|closed| closed.segment(segment.base_offset())?.txn_crc);
        if segment.txns().is_known_empty() && expected.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let entries = match segment.txns().load(&cache) {
            Err(LogError::Corrupt { position, reason, .. }) => {
                return Ok(Some(format!("is damaged at byte {position} ({reason})")));
            }
            entries => entries?.clone(),
        };
        if let Some(expected) = expected {
            let found = segment.txn_crc().unwrap_or(0);
            let differs = format!("has checksum {found:08x}, and had {expected:08x} when the node stopped cleanly");
            return Ok((found != expected).then_some(differs));
        }
        for entry in entries.iter().filter(|entry| entry.last_offset < upto) {
            if !has_marker(&cache, segment, entry)? {
                let AbortedTxn { producer_id, last_offset, .. } = entry;
                return Ok(Some(format!("has a wrong entry for producer {producer_id} and offset {last_offset}")));
            }
        }
        Ok(None)
    }
}

/// Whether the batch at an entry's last offset ends that transaction. A damaged batch counts as no evidence.
fn has_marker(cache: &Arc<FileCache>, segment: &mut Segment, entry: &AbortedTxn) -> Result<bool, LogError> {
    let Some(place) = segment.locate(cache, entry.last_offset)? else { return Ok(false) };
    let mut bytes = vec![0; place.size];
    segment.open(cache)?.read_at(&mut bytes, place.position)?;
    let Some(header) = Header::at_start_of(&bytes) else { return Ok(true) };
    let is_it = header.is_control()
        && header.producer_id() == entry.producer_id
        && (header.base_offset()..=header.last_offset()).contains(&entry.last_offset);
    Ok(is_it || header.crc() != compute_crc(&bytes))
}
