//! The metadata log's own flusher: one thread, one flush at a time, so that it never waits behind a partition's bytes.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use super::buffered::BufferedLog;
use crate::log::LogError;
use crate::os::ask_for_short_turns;

/// Called on the flusher's thread with the flushed offset, or with what went wrong: then nothing more can be trusted.
pub type OnFlushed = Box<dyn FnOnce(Result<i64, LogError>) + Send>;

/// The thread; it ends with `end`, or when this is dropped.
pub struct QuorumFlusher {
    orders: Mutex<Option<Sender<OnFlushed>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl QuorumFlusher {
    /// Starts the thread for a log.
    pub fn start(log: Arc<BufferedLog>) -> std::io::Result<Self> {
        let (orders, taken) = channel::<OnFlushed>();
        let thread = std::thread::Builder::new().name("klamm-raft-flush".to_owned()).spawn(move || {
            ask_for_short_turns();
            let mut failed = None;
            while let Ok(done) = taken.recv() {
                match failed.take() {
                    Some(error) => done(Err(error)),
                    None => failed = flush(&log, done).err(),
                }
            }
        })?;
        Ok(Self { orders: Mutex::new(Some(orders)), thread: Mutex::new(Some(thread)) })
    }

    /// Makes durable what the log holds now; `done` is called once.
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

    /// Finishes what was asked for, and ends the thread.
    pub fn end(&self) {
        drop(self.orders.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// An error is one that `done` did not hear of: whoever asks next has to, since a sync that failed is never tried again.
fn flush(log: &BufferedLog, done: OnFlushed) -> Result<(), LogError> {
    let job = match log.whole() {
        Ok(mut locked) => locked.begin_flush().ok_or_else(|| log.note_flushed(&locked)),
        Err(error) => {
            done(Err(error));
            return Ok(());
        }
    };
    let job = match job {
        Ok(job) => job,
        Err(flushed) => {
            done(Ok(flushed));
            return Ok(());
        }
    };
    let begun = Instant::now();
    match job.run() {
        Ok(()) => {
            let flushed = {
                let (mut locked, _) = log.written();
                locked.counters().flushes.add(1);
                locked.counters().flush_us.add_time(begun.elapsed());
                locked.complete_flush(job.end());
                log.note_flushed(&locked)
            };
            done(Ok(flushed));
            job.prepare()
        }
        Err(error) => {
            done(Err(error));
            Ok(())
        }
    }
}

impl Drop for QuorumFlusher {
    fn drop(&mut self) {
        self.end();
    }
}
