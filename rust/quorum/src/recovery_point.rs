//! How far the metadata log was durable: the file `klamm-recovery-point` in the folder of the segments.
//!
//! The record is a lower bound. It is overwritten in place after each flush and not synced: after a kill it contains
//! the last flush, after a power cut that or an earlier one. It is lowered durably before the log is truncated on
//! purpose. Apache Kafka ignores the file. Records that it appends are above the bound. A log that it truncates ends
//! in a later epoch, and such a log contains everything that the bound covers (see [`LogEnd::is_up_to_date_with`]).

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_log::files::{FileCache, OpenFile};
use parking_lot::Mutex;

/// The file's name.
pub const FILE_NAME: &str = "klamm-recovery-point";

/// The end of a log: the offset after its last record, and that record's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub end_offset: i64,
    pub epoch: i32,
}

impl LogEnd {
    /// Whether a log that ends here contains everything that a log ending at `other` may have committed (Raft 5.4.1).
    pub fn is_up_to_date_with(self, other: Self) -> bool {
        (self.epoch, self.end_offset) >= (other.epoch, other.end_offset)
    }

    /// The later one of both.
    pub fn max(self, other: Self) -> Self {
        if self.is_up_to_date_with(other) { self } else { other }
    }
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The log was durable up to here.
    pub end: LogEnd,
    /// The newest epoch in which klamm began to append. Records of a later epoch were written by Apache Kafka since
    /// then.
    pub begun_epoch: i32,
}

impl Record {
    fn encode(self) -> String {
        let Self { end, begun_epoch } = self;
        let text = format!("0\n{:020} {:010} {begun_epoch:010}\n", end.end_offset, end.epoch);
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text}{crc:08x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let (body, crc) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let numbers = body.strip_prefix("0\n")?;
        if crc32c::crc32c(format!("{body}\n").as_bytes()) != u32::from_str_radix(crc, 16).ok()? {
            return None;
        }
        let mut numbers = numbers.split(' ');
        let end = LogEnd { end_offset: numbers.next()?.parse().ok()?, epoch: numbers.next()?.parse().ok()? };
        Some(Self { end, begun_epoch: numbers.next()?.parse().ok()? })
    }

    /// Reads the record of a log; `None` if there is none. A damaged one is an error.
    pub fn read(dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join(FILE_NAME);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result.map_err(LogError::io("cannot read", &path))?,
        };
        let record = std::str::from_utf8(&bytes).ok().and_then(Self::decode);
        match record {
            Some(record) => Ok(Some(record)),
            None => Err(LogError::Corrupt { path, position: 0, reason: "its checksum is wrong".to_owned() }),
        }
    }
}

/// The open file of a log.
pub struct RecoveryPoint {
    state: Mutex<State>,
}

struct State {
    /// `None` once the log is closed: remaining references to the log hold no descriptor.
    file: Option<OpenFile>,
    record: Record,
}

impl RecoveryPoint {
    /// Opens the file and stores what is known so far, durably if the file did not contain it.
    pub fn open(cache: &Arc<FileCache>, dir: &Path, stored: Option<Record>, known: Record) -> Result<Self, LogError> {
        let path = dir.join(FILE_NAME);
        let is_new = !path.exists();
        let state = State { file: Some(cache.open_in_place(&path)?), record: known };
        if stored != Some(known) {
            state.write()?;
            state.sync()?;
        }
        if is_new {
            cache.sync_dir(dir)?;
        }
        Ok(Self { state: Mutex::new(state) })
    }

    /// The log was durable up to here, or is now.
    pub fn end(&self) -> LogEnd {
        self.state.lock().record.end
    }

    /// Records that the log is durable up to `end`.
    pub fn raise(&self, end: LogEnd) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if end == state.record.end || !end.is_up_to_date_with(state.record.end) {
            return Ok(());
        }
        state.record.end = end;
        state.write()
    }

    /// Records durably that klamm appends in an epoch, before the first append of that epoch.
    pub fn begin_epoch(&self, epoch: i32) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if epoch <= state.record.begun_epoch {
            return Ok(());
        }
        state.record.begun_epoch = epoch;
        state.write()?;
        state.sync()
    }

    /// Records durably that the log is about to be truncated to `end`.
    pub fn set(&self, end: LogEnd) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.record.end = end;
        state.write()?;
        state.sync()
    }

    /// Makes the record durable and closes the file. Later updates are ignored.
    pub fn close(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let synced = state.sync();
        state.file = None;
        synced
    }
}

impl State {
    fn write(&self) -> Result<(), LogError> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_at(self.record.encode().as_bytes(), 0))
    }

    fn sync(&self) -> Result<(), LogError> {
        self.file.as_ref().map_or(Ok(()), OpenFile::sync)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    fn end(end_offset: i64, epoch: i32) -> LogEnd {
        LogEnd { end_offset, epoch }
    }

    fn open(dir: &Path) -> RecoveryPoint {
        let stored = Record::read(dir).expect("read");
        RecoveryPoint::open(&FileCache::new(4), dir, stored, stored.unwrap_or_default()).expect("open")
    }

    #[test]
    fn it_is_raised_by_epoch_and_offset_and_lowered_only_explicitly() {
        let dir = tempdir().expect("a folder");
        assert_eq!(Record::read(dir.path()).expect("read"), None);
        let point = open(dir.path());
        for (raised, expected) in [(end(10, 3), end(10, 3)), (end(9, 3), end(10, 3)), (end(5, 4), end(5, 4))] {
            point.raise(raised).expect("raise");
            assert_eq!(point.end(), expected);
            assert_eq!(Record::read(dir.path()).expect("read").map(|record| record.end), Some(expected));
        }
        point.begin_epoch(7).expect("begin");
        point.set(end(2, 1)).expect("set");
        assert_eq!(Record::read(dir.path()).expect("read"), Some(Record { end: end(2, 1), begun_epoch: 7 }));
        assert_eq!(open(dir.path()).end(), end(2, 1));
    }

    #[test]
    fn a_damaged_byte_is_detected() {
        let dir = tempdir().expect("a folder");
        open(dir.path()).raise(end(123, 4)).expect("raise");
        let path = dir.path().join(FILE_NAME);
        let whole = fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("write");
            let error = Record::read(dir.path()).expect_err("damaged").to_string();
            assert!(error.contains(FILE_NAME), "{error}");
        }
    }
}
