//! Applying what raft committed: batches of the metadata log.
use klamm_records::{RecordsError, batches, records};

use crate::metadata::MetadataImage;
use crate::metadata::image::Provenance;
use crate::metadata::replay_error::ReplayError;

/// Bytes that the records of one batch take at most once decompressed.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Committed batches that cannot be applied: the log is damaged, or its writer knows more than this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("the metadata log is damaged behind offset {after}: {error}")]
    Batch { after: i64, error: RecordsError },
    #[error("the metadata record at offset {offset} has no value")]
    NoValue { offset: i64 },
    #[error("the metadata record at offset {offset} cannot be applied: {error}")]
    Record { offset: i64, error: ReplayError },
}

impl MetadataImage {
    /// The image with the records of whole batches, up to the last of them. What the image holds already is passed over, and
    /// so are raft's own records.
    pub fn apply_batches(&self, bytes: &[u8]) -> Result<Self, LoadError> {
        let mut image = self.clone();
        let mut provenance = self.provenance();
        let mut scratch = Vec::new();
        for batch in batches(bytes) {
            let damaged = |error| LoadError::Batch { after: provenance.last_offset, error };
            let batch = batch.map_err(damaged)?;
            batch.check().map_err(damaged)?;
            let header = batch.header();
            if header.last_offset() <= provenance.last_offset {
                continue;
            }
            if !header.is_control() {
                for record in records(batch, &mut scratch, BATCH_BYTES_MAX).map_err(damaged)? {
                    let record = record.map_err(damaged)?;
                    image.apply_record(record.offset, record.value)?;
                }
            }
            provenance = Provenance {
                last_offset: header.last_offset(),
                last_epoch: header.leader_epoch(),
                last_timestamp_ms: header.max_timestamp(),
            };
        }
        image.finish_batch();
        Ok(image.with_provenance(provenance))
    }

    fn apply_record(&mut self, offset: i64, value: Option<&[u8]>) -> Result<(), LoadError> {
        let value = value.ok_or(LoadError::NoValue { offset })?;
        self.replay_bytes(value).map_err(|error| LoadError::Record { offset, error })
    }
}
