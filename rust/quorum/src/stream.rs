//! A follower's fetches as long as nothing is to be decided: fetch, append, flush, and fetch again, on a thread of its own.
//!
//! What is decided, and when, is the core's, in Python. It holds the thread, takes its news and then decides; what it has
//! stopped appends and sends nothing more, so that no acknowledgement of an old epoch follows a vote.

mod answer;
mod request;
mod run;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use klamm_base::Uuid;
use klamm_base::WakeUp;
use klamm_base::primitives::STRING_LEN_MAX;
use parking_lot::Mutex;

pub use self::request::Position;
use self::run::Run;
use super::QuorumLog;

/// Whom to fetch from, as whom, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPlan {
    pub host: String,
    pub port: u16,
    /// 17 or 18.
    pub version: i16,
    pub client_id: String,
    pub cluster_id: Option<String>,
    pub replica_id: i32,
    /// All zero when it is not known.
    pub directory_id: Uuid,
    pub epoch: i32,
    pub leader_id: i32,
    /// What is known to be committed.
    pub high_watermark: i64,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
    /// For the connection, and for each answer.
    pub timeout_ms: u64,
    /// Whether a fetch acknowledges only what is flushed; who never votes need not wait for its disk.
    pub flushes: bool,
}

impl FetchPlan {
    /// What of it cannot be asked for.
    fn fault(&self) -> Option<&'static str> {
        let is_long = |text: &str| text.len() > STRING_LEN_MAX;
        if !(17..=18).contains(&self.version) {
            Some("a fetch stream speaks versions 17 and 18")
        } else if is_long(&self.client_id) || self.cluster_id.as_deref().is_some_and(is_long) {
            Some("a client id or cluster id is longer than a string can be")
        } else if self.timeout_ms == 0 {
            Some("a time-out of 0 ms leaves no time to answer")
        } else {
            None
        }
    }
}

/// Why a run has ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// An answer that somebody has to decide about; nothing of it is appended.
    Answer { version: i16, body: Vec<u8> },
    /// There is no connection, or nothing that could be an answer.
    Failed(String),
    /// A flush failed: nothing more can be trusted.
    Disk(String),
}

/// What a run has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// From where the last request asked.
    pub sent: Option<Position>,
    pub since_sent: Option<Duration>,
    /// None: no answer came since the news before.
    pub since_heard: Option<Duration>,
    /// As the leader told it last; -1 when it has not.
    pub leader_high_watermark: i64,
    pub end: Option<End>,
}

/// Runs of fetches into one log, one at a time.
pub struct FetchStream {
    log: Arc<QuorumLog>,
    wake_up: Arc<WakeUp>,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    current: Option<Arc<Run>>,
    /// Of runs that were stopped, too, as long as they finish a flush.
    threads: Vec<JoinHandle<()>>,
}

impl FetchStream {
    pub fn new(log: Arc<QuorumLog>) -> io::Result<Self> {
        Ok(Self { log, wake_up: Arc::new(WakeUp::new()?), runs: Mutex::default() })
    }

    /// Readable when there is news.
    pub fn fd(&self) -> RawFd {
        self.wake_up.as_raw_fd()
    }

    /// Begins a run, which nobody holds; the one before is stopped.
    pub fn start(&self, plan: FetchPlan) -> io::Result<()> {
        if let Some(fault) = plan.fault() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault));
        }
        self.stop();
        let run = Arc::new(Run::new(self.log.clone(), plan, self.wake_up.clone()));
        let thread = {
            let run = run.clone();
            std::thread::Builder::new().name("klamm-raft-fetch".to_owned()).spawn(move || run.run())?
        };
        let mut runs = self.runs.lock();
        runs.threads.retain(|thread| !thread.is_finished());
        runs.threads.push(thread);
        runs.current = Some(run);
        Ok(())
    }

    /// Holds the run, if that needs no waiting.
    pub fn try_hold(&self) -> bool {
        self.current().is_none_or(|run| run.try_hold())
    }

    /// Holds the run between two pieces of its work, until it is released or stopped.
    pub fn hold(&self) {
        if let Some(run) = self.current() {
            run.hold();
        }
    }

    pub fn release(&self) {
        if let Some(run) = self.current() {
            run.release();
        }
    }

    /// Ends the run: when this returns nothing is appended, sent or told any more. A flush may still go on.
    pub fn stop(&self) {
        let current = self.runs.lock().current.take();
        if let Some(run) = current {
            run.stop();
        }
    }

    /// What is new since the last call. The run is over with its end.
    pub fn take(&self) -> Option<News> {
        let news = self.current()?.take()?;
        if news.end.is_some() {
            self.stop();
        }
        Some(news)
    }

    /// Stops, and waits for the threads.
    pub fn close(&self) {
        self.stop();
        let threads = std::mem::take(&mut self.runs.lock().threads);
        for thread in threads {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }

    fn current(&self) -> Option<Arc<Run>> {
        self.runs.lock().current.clone()
    }
}

impl Drop for FetchStream {
    fn drop(&mut self) {
        self.close();
    }
}
