//! Where batches of the log begin and end.

use klamm_base::LogError;
use klamm_log::Log;
use klamm_records::batches;

/// Where the batch begins that holds `offset`; `offset` where none does.
pub fn batch_start(log: &mut Log, offset: i64) -> Result<i64, LogError> {
    if !(log.log_start_offset()..log.log_end_offset()).contains(&offset) {
        return Ok(offset);
    }
    let bytes = log.read(offset, 1, i64::MAX, true)?.read()?;
    let base_offset = batches(&bytes).next().and_then(Result::ok).map(|batch| batch.header().base_offset());
    Ok(base_offset.map_or(offset, |base_offset| base_offset.min(offset)))
}

/// How many of the bytes are whole batches.
pub fn whole_batches(bytes: &[u8]) -> usize {
    let mut whole = batches(bytes);
    while let Some(Ok(_)) = whole.next() {}
    whole.position()
}

/// Whether the epoch cache has an entry of that epoch.
pub fn has_epoch(log: &Log, epoch: i32) -> bool {
    log.epochs().iter().any(|entry| entry.0 == epoch)
}
