//! The tokio runtime of the process, shared by every node in it: it is there while one of them runs.

use std::io;
use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use klamm_net::block_broken_pipe_signal;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long running tasks may take after the last node was dropped.
const LAST_TASKS: Duration = Duration::from_secs(5);

static SHARED: Mutex<Weak<Owned>> = Mutex::new(Weak::new());

/// A share of the runtime. With the last one its threads end.
pub struct SharedRuntime(Arc<Owned>);

/// The runtime and the process that it is of: a fork takes none of its threads along.
struct Owned {
    runtime: Option<Runtime>,
    process_id: u32,
}

impl SharedRuntime {
    /// The process's runtime, made when there is none.
    pub fn get() -> io::Result<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owned) = shared.upgrade().filter(|owned| owned.process_id == process::id()) {
            return Ok(Self(owned));
        }
        let mut builder = Builder::new_multi_thread();
        let runtime =
            builder.thread_name("klamm-net").on_thread_start(block_broken_pipe_signal).enable_all().build()?;
        let owned = Arc::new(Owned { runtime: Some(runtime), process_id: process::id() });
        *shared = Arc::downgrade(&owned);
        Ok(Self(owned))
    }

    pub fn handle(&self) -> Handle {
        self.0.runtime.as_ref().expect("taken only by drop").handle().clone()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process_id == process::id() {
            runtime.shutdown_timeout(LAST_TASKS);
        } else {
            std::mem::forget(runtime);
        }
    }
}
