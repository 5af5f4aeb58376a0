//! A log whose newest batches are buffered in memory until its flusher writes them.
//!
//! A write is sometimes blocked while the file system commits other writes. Neither an append nor a query for the log
//! end offset may be blocked with it: both use only the tail. The log's lock, which is acquired first, is held while
//! batches are written.

use std::collections::VecDeque;
use std::path::PathBuf;

use klamm_base::LogError;
use klamm_log::{AppendError, Log, Origin};
use parking_lot::{Mutex, MutexGuard};

pub struct BufferedLog {
    dir: PathBuf,
    log: Mutex<Log>,
    tail: Mutex<Tail>,
}

/// The end of the log, and its unwritten batches.
///
/// 1. The batches of `queued` are consecutive, from the written log's end up to `end_offset`.
/// 2. `latest_epoch` is the epoch of the last batch, queued or written.
/// 3. After a failure nothing is queued and nothing can be appended: acknowledged batches may be missing.
struct Tail {
    queued: VecDeque<Queued>,
    queued_bytes: u64,
    end_offset: i64,
    latest_epoch: Option<i32>,
    flushed_offset: i64,
    failure: Option<String>,
}

struct Queued {
    batch: Vec<u8>,
    epoch: i32,
    now_ms: i64,
}

impl BufferedLog {
    pub fn new(dir: PathBuf, log: Log) -> Self {
        let tail = Tail {
            queued: VecDeque::new(),
            queued_bytes: 0,
            end_offset: log.log_end_offset(),
            latest_epoch: log.latest_epoch(),
            flushed_offset: log.flushed_offset(),
            failure: None,
        };
        Self { dir, log: Mutex::new(log), tail: Mutex::new(tail) }
    }

    /// The offset that the next record receives.
    pub fn end_offset(&self) -> i64 {
        self.tail.lock().end_offset
    }

    /// The epoch of the last batch, if there is one.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.tail.lock().latest_epoch
    }

    /// Everything below is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.tail.lock().flushed_offset
    }

    /// Appends a batch of `count` records in memory and returns its last offset. The next flush writes it.
    pub fn append(&self, batch: Vec<u8>, count: usize, epoch: i32, now_ms: i64) -> Result<i64, AppendError> {
        let mut tail = self.tail.lock();
        if let Some(failure) = &tail.failure {
            return Err(offline(failure).into());
        }
        tail.queued_bytes += batch.len() as u64;
        tail.queued.push_back(Queued { batch, epoch, now_ms });
        tail.latest_epoch = Some(epoch);
        tail.end_offset += count as i64;
        Ok(tail.end_offset - 1)
    }

    /// The written part of the log, and the number of unwritten bytes.
    pub fn written(&self) -> (MutexGuard<'_, Log>, u64) {
        let log = self.log.lock();
        let queued_bytes = self.tail.lock().queued_bytes;
        (log, queued_bytes)
    }

    /// The log with all batches that were appended, except for those lost by a failure, which the next flush reports.
    pub fn settled(&self) -> MutexGuard<'_, Log> {
        let mut log = self.log.lock();
        // The error is kept in the tail.
        let _ = self.settle(&mut log);
        log
    }

    /// The log with all batches that were appended.
    pub fn whole(&self) -> Result<MutexGuard<'_, Log>, LogError> {
        let mut log = self.log.lock();
        self.settle(&mut log)?;
        match &self.tail.lock().failure {
            None => Ok(log),
            Some(failure) => Err(offline(failure)),
        }
    }

    fn settle(&self, log: &mut Log) -> Result<(), LogError> {
        self.write_queued(log).map_err(|error| {
            let error = match error {
                AppendError::Log(error) => error,
                other => LogError::Directory { path: self.dir.clone(), reason: other.to_string() },
            };
            self.tail.lock().fail(error.to_string());
            error
        })
    }

    fn write_queued(&self, log: &mut Log) -> Result<(), AppendError> {
        loop {
            let Some(next) = self.tail.lock().take() else { return Ok(()) };
            let Queued { mut batch, epoch, now_ms } = next;
            log.append_as_leader(&mut batch, epoch, now_ms, Origin::RaftLeader)?;
        }
    }

    /// Updates the tail after the log was changed by something other than an append.
    pub fn note_changed(&self, log: &Log) {
        let mut tail = self.tail.lock();
        if tail.queued.is_empty() {
            tail.end_offset = log.log_end_offset();
            tail.latest_epoch = log.latest_epoch();
        }
        tail.flushed_offset = log.flushed_offset();
    }

    /// Updates the tail after a flush.
    pub fn note_flushed(&self, log: &Log) -> i64 {
        let flushed_offset = log.flushed_offset();
        self.tail.lock().flushed_offset = flushed_offset;
        flushed_offset
    }
}

/// The first failure, unchanged.
fn offline(failure: &str) -> LogError {
    LogError::Offline { cause: failure.to_owned() }
}

impl Tail {
    fn take(&mut self) -> Option<Queued> {
        let next = self.queued.pop_front()?;
        self.queued_bytes -= next.batch.len() as u64;
        Some(next)
    }

    fn fail(&mut self, reason: String) {
        (self.queued, self.queued_bytes) = (VecDeque::new(), 0);
        self.failure.get_or_insert(reason);
    }
}

impl Drop for BufferedLog {
    /// Writes the buffered batches, as if each had been written immediately: only a power cut loses them.
    fn drop(&mut self) {
        drop(self.settled());
    }
}

#[cfg(test)]
mod tests {
    use klamm_log::testing::{config, create};
    use klamm_records::{BatchBuilder, BatchFields, Compression};
    use tempfile::tempdir;

    use super::*;

    fn batch(values: &[&[u8]]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
        values.iter().for_each(|value| builder.append(0, None, Some(value), &[]).expect("small"));
        builder.finish().expect("small")
    }

    fn bytes(log: &mut Log) -> Vec<u8> {
        log.read(0, usize::MAX >> 1, i64::MAX, true).and_then(|slice| slice.read()).expect("read")
    }

    #[test]
    fn queued_batches_count_and_are_written_unchanged() {
        let dir = tempdir().expect("temporary directory");
        let mut plain = create(&dir.path().join("plain-0"), config());
        let buffered = BufferedLog::new(dir.path().to_owned(), create(&dir.path().join("buffered-0"), config()));
        let values: [&[&[u8]]; 4] = [&[b"a"], &[b"b", b"c"], &[b"d"], &[b"e", b"f", b"g"]];
        for (at, values) in values.into_iter().enumerate() {
            let epoch = at as i32 / 2;
            let appended = plain.append_as_leader(&mut batch(values), epoch, 0, Origin::RaftLeader).expect("append");
            let last_offset = buffered.append(batch(values), values.len(), epoch, 0).expect("append");
            assert_eq!(last_offset, appended.last_offset);
            assert_eq!((buffered.end_offset(), buffered.latest_epoch()), (last_offset + 1, plain.latest_epoch()));
            if at == 1 {
                assert_eq!(buffered.settled().log_end_offset(), 3);
            }
        }
        let (written, queued_bytes) = buffered.written();
        assert_eq!((written.log_end_offset(), written.size() + queued_bytes), (3, plain.size()));
        drop(written);
        assert_eq!(bytes(&mut buffered.whole().expect("written")), bytes(&mut plain));
        assert_eq!((buffered.written().1, buffered.flushed_offset()), (0, 0));
        let mut log = buffered.settled();
        log.flush().expect("flush");
        assert_eq!(buffered.note_flushed(&log), 7);
        assert_eq!(buffered.flushed_offset(), 7);
    }

    #[test]
    fn a_truncated_log_continues_at_its_end() {
        let dir = tempdir().expect("temporary directory");
        let buffered = BufferedLog::new(dir.path().to_owned(), create(&dir.path().join("t-0"), config()));
        for epoch in 0..3 {
            buffered.append(batch(&[b"a"]), 1, epoch, 0).expect("append");
        }
        let mut log = buffered.whole().expect("written");
        log.truncate_to(1, 0).expect("truncate");
        buffered.note_changed(&log);
        drop(log);
        assert_eq!((buffered.end_offset(), buffered.latest_epoch()), (1, Some(0)));
        assert_eq!(buffered.append(batch(&[b"b"]), 1, 5, 0).expect("append"), 1);
        assert_eq!(buffered.settled().latest_epoch(), Some(5));
    }

    #[test]
    fn a_failed_write_ends_the_log() {
        let dir = tempdir().expect("temporary directory");
        let config = klamm_log::LogConfig { segment_bytes: 1000, ..config() };
        let buffered = BufferedLog::new(dir.path().to_owned(), create(&dir.path().join("t-0"), config));
        buffered.append(batch(&[b"a"]), 1, 0, 0).expect("append");
        buffered.append(batch(&[&[0; 2000]]), 1, 0, 0).expect("nothing was written yet");
        buffered.append(batch(&[b"b"]), 1, 0, 0).expect("nothing was written yet");
        let [Err(first), Err(second)] = [buffered.whole(), buffered.whole()] else { panic!("the second does not fit") };
        assert!(first.to_string().contains("1000"), "{first}");
        assert_eq!(second.to_string(), first.to_string());
        let third = buffered.append(batch(&[b"c"]), 1, 0, 0).expect_err("it ended");
        assert_eq!(third.to_string(), first.to_string());
        assert_eq!(buffered.settled().log_end_offset(), 1);
    }

    #[test]
    fn dropping_writes_everything() {
        let dir = tempdir().expect("temporary directory");
        let path = dir.path().join("t-0");
        let buffered = BufferedLog::new(dir.path().to_owned(), create(&path, config()));
        buffered.append(batch(&[b"a"]), 1, 0, 0).expect("append");
        drop(buffered);
        assert!(std::fs::read(path.join("00000000000000000000.log")).expect("read").starts_with(&[0; 8]));
    }
}
