//! Applies committed batches of the metadata log.
use klamm_records::{Records, RecordsError, batches, records};

use crate::MetadataImage;
use crate::image::{ApplyError, Provenance};
use crate::replay_error::ReplayError;

/// Limit on the decompressed size of a batch's records, in bytes.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Committed batches that cannot be applied: the log is damaged, or was written by a newer version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("the metadata log is damaged after offset {after}: {error}")]
    Batch { after: i64, error: RecordsError },
    #[error("the metadata record at offset {offset} has no value")]
    NoValue { offset: i64 },
    #[error("the metadata record at offset {offset} cannot be applied: {error}")]
    Record { offset: i64, error: ReplayError },
}

impl MetadataImage {
    /// The image with the records of complete batches, up to the last of them. Records that the image already
    /// contains are skipped, and so are control records of the quorum.
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
                image.replay_records(records(batch, &mut scratch, BATCH_BYTES_MAX).map_err(damaged)?, damaged)?;
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

    fn replay_records(
        &mut self,
        records: Records<'_>,
        damaged: impl Fn(RecordsError) -> LoadError,
    ) -> Result<(), LoadError> {
        let mut unread = None;
        let values = records.clone().map_while(|record| match record {
            Ok(record) => {
                unread = record.value.is_none().then_some(LoadError::NoValue { offset: record.offset });
                record.value
            }
            Err(error) => {
                unread = Some(damaged(error));
                None
            }
        });
        self.replay_all(values).map_err(|ApplyError { index, error }| {
            let record = records.flatten().nth(index).expect("it was read before");
            LoadError::Record { offset: record.offset, error }
        })?;
        unread.map_or(Ok(()), Err)
    }
}
