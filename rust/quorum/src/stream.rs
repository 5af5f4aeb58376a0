//! A follower's fetches while no decision is needed: fetch, append, flush, and fetch again, on a separate thread.
//!
//! The core, in Python, makes the decisions. It holds the thread, takes its news and then decides. After the core
//! stops a run, the run appends and sends nothing more, so that no acknowledgement of an old epoch follows a vote.

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
use klamm_base::conditions::Conditions;
use klamm_base::primitives::STRING_LEN_MAX;
use parking_lot::Mutex;

pub use self::request::Position;
use self::run::Run;
use super::QuorumLog;

/// Which replica to fetch from, with which identity, and how.
#[derive(Clone, Debug)]
pub struct FetchPlan {
    pub host: String,
    pub port: u16,
    /// 17 or 18.
    pub version: i16,
    pub client_id: String,
    pub cluster_id: Option<String>,
    pub replica_id: i32,
    /// All zero if it is not known.
    pub directory_id: Uuid,
    pub epoch: i32,
    pub leader_id: i32,
    /// The known high watermark.
    pub high_watermark: i64,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
    /// For connecting, and for each answer.
    pub timeout_ms: u64,
    /// Whether a fetch acknowledges only flushed records; an observer need not wait for its disk.
    pub flushes: bool,
    /// Those of a node of an embedded cluster.
    pub conditions: Option<Arc<Conditions>>,
}

impl FetchPlan {
    /// Describes an invalid value; `None` if the plan is valid.
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

/// Why a run ended on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// An answer that requires a decision; none of its records were appended.
    Answer { version: i16, body: Vec<u8> },
    /// There is no connection, or the answer was invalid.
    Failed(String),
    /// A flush failed: the log must not be used any more.
    Disk(String),
}

/// What a run reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProgress {
    /// The position of the last fetch that was sent.
    pub sent: Option<Position>,
    pub since_sent: Option<Duration>,
    /// The time since the last answer; `None` if there was none since the previous news.
    pub since_heard: Option<Duration>,
    /// The leader's high watermark in its last answer; -1 if there was none.
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
    /// Threads, including those of stopped runs that are finishing a flush.
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

    /// Starts a run, which is not held; stops the previous one.
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

    /// Holds the run if that is possible without waiting.
    pub fn try_hold(&self) -> bool {
        self.current().is_none_or(|run| run.try_hold())
    }

    /// Holds the run between two steps until it is released or stopped.
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

    /// Stops the run: after this returns it appends, sends and reports nothing. A flush may still be in progress.
    pub fn stop(&self) {
        let current = self.runs.lock().current.take();
        if let Some(run) = current {
            run.stop();
        }
    }

    /// What is new since the last call. If it contains an end, the run is over.
    pub fn take(&self) -> Option<StreamProgress> {
        let news = self.current()?.take()?;
        if news.end.is_some() {
            self.stop();
        }
        Some(news)
    }

    /// Stops the run and waits for the threads.
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
