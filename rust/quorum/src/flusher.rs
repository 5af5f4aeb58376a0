//! The metadata log's own flusher: one thread, one flush at a time, so that it never waits for a partition's data.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use klamm_base::LogError;
use klamm_base::os::request_short_time_slices;
use klamm_log::{FlushJob, Log};
use parking_lot::{Mutex, MutexGuard};

use super::buffered::BufferedLog;
use super::recovery_point::{LogEnd, RecoveryPoint};

/// Called on the flusher's thread with the flushed offset, or with the error: the log must not be used after an
/// error.
pub type OnFlushed = Box<dyn FnOnce(Result<i64, LogError>) + Send>;

/// The flushes of one log, on any thread: one at a time, because a log allows one flush in progress.
///
/// A thread that waits here must not hold anything that the other thread needs to finish.
pub struct Flushes {
    log: Arc<BufferedLog>,
    /// An error that no caller received: the next flush returns it, because a failed sync must not be retried.
    failed: Mutex<Option<LogError>>,
    recovery_point: Arc<RecoveryPoint>,
}

impl Flushes {
    pub fn new(log: Arc<BufferedLog>, recovery_point: Arc<RecoveryPoint>) -> Self {
        Self { log, failed: Mutex::new(None), recovery_point }
    }

    /// Raises the recovery point to what the log holds durably.
    pub fn note_durable(&self) -> Result<(), LogError> {
        let (locked, _) = self.log.written();
        self.raise_recovery_point(&locked)
    }

    /// Called with the log locked, so that it is not truncated meanwhile.
    fn raise_recovery_point(&self, log: &Log) -> Result<(), LogError> {
        let end_offset = log.flushed_offset();
        match log.epoch_for_offset(end_offset - 1).filter(|_| end_offset > log.log_start_offset()) {
            Some(epoch) => self.recovery_point.raise(LogEnd { end_offset, epoch }),
            None => Ok(()),
        }
    }

    /// Makes the current log durable; returns the flushed offset, and the job for [`Flushes::prepare`] after the
    /// offset was reported.
    pub fn flush(&self) -> Result<(i64, Option<FlushJob>), LogError> {
        let mut failed = self.failed.lock();
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let log = &self.log;
        let mut locked = log.whole()?;
        let Some(job) = locked.begin_flush() else { return Ok((log.note_flushed(&locked), None)) };
        drop(locked);
        let begun = Instant::now();
        job.run()?;
        let (mut locked, _) = log.written();
        locked.counters().flushes.add(1);
        locked.counters().flush_us.add_time(begun.elapsed());
        locked.complete_flush(job.end());
        self.raise_recovery_point(&locked)?;
        Ok((log.note_flushed(&locked), Some(job)))
    }

    /// Makes the next flushes cheap.
    pub fn prepare(&self, job: Option<FlushJob>) {
        let Some(job) = job else { return };
        let mut failed = self.failed.lock();
        if let Err(error) = job.prepare() {
            failed.get_or_insert(error);
        }
    }

    /// Makes the next flush fail with this error.
    pub fn fail(&self, error: LogError) {
        self.failed.lock().get_or_insert(error);
    }

    /// Waits for the flush in progress and prevents new ones while the guard lives.
    pub fn pause(&self) -> MutexGuard<'_, Option<LogError>> {
        self.failed.lock()
    }
}

/// The flusher thread; it ends with `end`, or when this is dropped.
pub struct QuorumFlusher {
    orders: Mutex<Option<Sender<OnFlushed>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl QuorumFlusher {
    /// Starts the thread for a log.
    pub fn start(flushes: Arc<Flushes>) -> std::io::Result<Self> {
        let (orders, taken) = channel::<OnFlushed>();
        let thread = std::thread::Builder::new().name("klamm-raft-flush".to_owned()).spawn(move || {
            request_short_time_slices();
            while let Ok(done) = taken.recv() {
                match flushes.flush() {
                    Ok((flushed, job)) => {
                        done(Ok(flushed));
                        flushes.prepare(job);
                    }
                    Err(error) => done(Err(error)),
                }
            }
        })?;
        Ok(Self { orders: Mutex::new(Some(orders)), thread: Mutex::new(Some(thread)) })
    }

    /// Makes the current log durable; `done` is called once.
    pub fn flush(&self, done: OnFlushed) {
        let refused = match &*self.orders.lock() {
            Some(orders) => orders.send(done).err().map(|refused| refused.0),
            None => Some(done),
        };
        if let Some(done) = refused {
            done(Err(LogError::io("cannot flush", std::path::Path::new("the metadata log"))(std::io::Error::other(
                "the flusher's thread has ended",
            ))));
        }
    }

    /// Finishes the requested flushes and ends the thread.
    pub fn end(&self) {
        drop(self.orders.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for QuorumFlusher {
    fn drop(&mut self) {
        self.end();
    }
}
