//! A node's logs: a log manager over two directories whose file changes are recorded, and the owners of the open logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use klamm_base::Uuid;
use parking_lot::Mutex;

use crate::boot::BOOT_ID;
use crate::files::FileCache;
use crate::recorder::Recorder;
use crate::*;

/// The log directories, below one folder.
pub const DIRS: [&str; 2] = ["one", "two"];

/// No interval of the manager's own thread passes: a history does its work, at times that its seed decides.
const NEVER_MS: i64 = i64::MAX;

/// The owner of an open log.
pub struct Owner {
    flush_state: FlushState,
    log: Mutex<Log>,
    high_watermark: AtomicI64,
}

impl Owner {
    pub fn set_high_watermark(&self, offset: i64) {
        self.high_watermark.store(offset, Ordering::Relaxed);
    }
}

impl LogOwner for Owner {
    fn flush_state(&self) -> &FlushState {
        &self.flush_state
    }

    fn begin_flush(&self) -> Option<FlushJob> {
        self.log.lock().begin_flush()
    }

    fn complete_flush(&self, end: FlushEnd) {
        self.log.lock().complete_flush(end);
    }

    fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Relaxed)
    }

    fn with_log(&self, work: &mut dyn FnMut(&mut Log)) {
        work(&mut self.log.lock());
    }

    fn go_offline(&self) {}
}

/// A running node.
pub struct Node {
    pub manager: Arc<LogManager>,
    pub owners: BTreeMap<Key, Arc<Owner>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Node {
    pub fn start(root: &Path, recorder: Arc<Recorder>) -> Self {
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = warnings.clone();
        let on_event: OnEvent = Arc::new(move |event| match event {
            Event::Warning(warning) => shared.lock().push(warning),
            Event::DirFailed { dir, cause, .. } => panic!("{} failed: {cause}", dir.display()),
        });
        let open = |(at, dir): (usize, &str)| LockedDir::open(&root.join(dir), Uuid([at as u8 + 1; 16])).expect("free");
        let locked = DIRS.into_iter().enumerate().map(open).collect();
        let intervals = Intervals {
            recovery_point_checkpoint_ms: NEVER_MS,
            log_start_checkpoint_ms: NEVER_MS,
            high_watermark_checkpoint_ms: NEVER_MS,
            retention_check_ms: NEVER_MS,
            producer_expiration_check_ms: NEVER_MS,
            flush_check_ms: NEVER_MS,
            initial_delay_ms: NEVER_MS,
            idle_tail_ms: NEVER_MS,
        };
        // Nothing becomes due by the clock.
        let file_delete_delay_ms = i64::MAX;
        let config = ManagerConfig {
            intervals: Some(intervals),
            file_delete_delay_ms,
            cleaner: None,
            ..ManagerConfig::default()
        };
        let context = LogContext::over(FileCache::with_recorder(24, Some(recorder)));
        let manager = LogManager::start(locked, config, context, i64::MAX, on_event).expect("start");
        Self { manager, owners: BTreeMap::new(), warnings }
    }

    /// The warnings since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    pub fn cache(&self) -> &Arc<FileCache> {
        &self.manager.context().cache
    }

    /// Registers an open log.
    pub fn adopt(&mut self, dir: usize, key: &Key, log: Log, high_watermark: i64) -> Arc<Owner> {
        let (flush_state, log) = (FlushState::default(), Mutex::new(log));
        let owner = Arc::new(Owner { flush_state, log, high_watermark: AtomicI64::new(high_watermark) });
        self.manager.adopt(dir, &key.0, key.1, owner.clone());
        self.owners.insert(key.clone(), owner.clone());
        owner
    }

    pub fn empty_trash(&self) {
        let errors = self.manager.context().trash.remove_due(self.cache(), i64::MAX);
        assert!(errors.is_empty(), "{errors:?}");
    }

    /// Ends the process.
    pub fn kill(self) {
        self.manager.stop_threads();
        self.manager.dirs().iter().for_each(|dir| dir.release());
    }

    /// Stops cleanly.
    pub fn stop(self) {
        self.manager.shutdown(1);
    }
}

/// The machine boots again.
pub fn forget_boot(root: &Path) {
    for dir in DIRS {
        let _ = fs::remove_file(root.join(dir).join(BOOT_ID));
    }
}
