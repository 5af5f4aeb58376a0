//! Boundaries of the batches in the log.

use klamm_base::LogError;
use klamm_log::Log;
use klamm_records::batches;

/// The base offset of the batch that contains `offset`; `offset` if no batch does.
pub fn batch_start(log: &mut Log, offset: i64) -> Result<i64, LogError> {
    if !(log.log_start_offset()..log.log_end_offset()).contains(&offset) {
        return Ok(offset);
    }
    let bytes = log.read(offset, 1, i64::MAX, true)?.read()?;
    let base_offset = batches(&bytes).next().and_then(Result::ok).map(|batch| batch.header().base_offset());
    Ok(base_offset.map_or(offset, |base_offset| base_offset.min(offset)))
}

/// How many of the bytes are complete batches.
pub fn whole_batches(bytes: &[u8]) -> usize {
    let mut whole = batches(bytes);
    while let Some(Ok(_)) = whole.next() {}
    whole.position()
}

/// Whether the epoch cache has an entry for that epoch.
pub fn has_epoch(log: &Log, epoch: i32) -> bool {
    log.epochs().iter().any(|entry| entry.0 == epoch)
}
