//! Finds offsets by time (ListOffsets).

use klamm_base::LogError;
use klamm_records::{Batch, ProduceRules, Record, records};

use super::files::OpenFile;
use super::index::{NO_TIMESTAMP, TimestampOffset};
use super::partition_log::Log;
use super::scan::BatchAt;

impl Log {
    /// The first record at or after the log start offset whose timestamp is at least `timestamp`: its timestamp and
    /// offset.
    pub fn offset_for_timestamp(&mut self, timestamp: i64) -> Result<Option<TimestampOffset>, LogError> {
        if self.is_planned() {
            return Ok(None);
        }
        let (cache, start) = (self.context.cache.clone(), self.log_start_offset);
        // Apache Kafka stops if the first segment that reaches the time ends below the log start offset; we continue.
        for at in self.floor_segment(start)..self.segments.len() {
            if self.largest_timestamp(at)? < timestamp {
                continue;
            }
            let segment = &mut self.segments[at];
            let from = segment.position_for_timestamp(&cache, timestamp, start)?;
            let file = segment.open(&cache)?;
            let mut headers = segment.headers(&file, from);
            while let Some(batch) = headers.find(|header| header.max_timestamp() >= timestamp)? {
                let wanted = |record: &Record<'_>| record.timestamp >= timestamp && record.offset >= start;
                match find_record(&file, &batch, wanted) {
                    // A fetch that reads it reports it.
                    Err(LogError::Corrupt { .. }) | Ok(None) => {}
                    found => return found,
                }
            }
        }
        Ok(None)
    }

    /// The first record with the largest timestamp; `None` if no record has one.
    pub fn offset_of_max_timestamp(&mut self) -> Result<Option<TimestampOffset>, LogError> {
        let cache = self.context.cache.clone();
        let mut best: Option<(usize, TimestampOffset)> = None;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            let largest = segment.max_timestamp(&cache)?;
            if best.is_none_or(|(_, before)| largest.timestamp > before.timestamp) {
                best = Some((at, largest));
            }
        }
        let Some((at, largest)) = best.filter(|(_, largest)| largest.timestamp != NO_TIMESTAMP) else {
            return Ok(None);
        };
        let segment = &mut self.segments[at];
        let from = segment.position_before(&cache, largest.offset)?;
        let file = segment.open(&cache)?;
        let mut headers = segment.headers(&file, from);
        match headers.find(|header| header.max_timestamp() == largest.timestamp)? {
            Some(batch) => find_record(&file, &batch, |record| record.timestamp == largest.timestamp),
            None => Ok(None),
        }
    }
}

/// The first record of a batch that satisfies `wanted`.
fn find_record(
    file: &OpenFile,
    at: &BatchAt,
    wanted: impl Fn(&Record<'_>) -> bool,
) -> Result<Option<TimestampOffset>, LogError> {
    let damage = |error: klamm_records::RecordsError| LogError::Corrupt {
        path: file.path().to_owned(),
        position: at.position,
        reason: error.to_string(),
    };
    let mut bytes = vec![0; at.size];
    file.read_at(&mut bytes, at.position)?;
    let batch = Batch::at_start_of(&bytes).map_err(damage)?;
    let mut buffer = Vec::new();
    for record in records(batch, &mut buffer, ProduceRules::DECOMPRESSED_BYTES_MAX).map_err(damage)? {
        let record = record.map_err(damage)?;
        if wanted(&record) {
            return Ok(Some(TimestampOffset { timestamp: record.timestamp, offset: record.offset }));
        }
    }
    Ok(None)
}
