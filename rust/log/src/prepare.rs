//! Zeroes written ahead of a log that is being flushed.
//!
//! A sync of bytes that lie inside of written blocks touches no metadata of the file system: it is one write to the disk
//! instead of a journal commit. So the flusher writes zeroes ahead of the active segment, outside of the partition's lock,
//! and appends overwrite them. Invariants: (1) no zero is written below `appended_to`; (2) after `close` none is written at
//! all. An append that stays below `filled_to` takes no lock here.

use std::sync::atomic::{AtomicU64, Ordering};

use klamm_base::LogError;
use parking_lot::Mutex;

use super::files::OpenFile;

/// Zeroes written at once: an append that collides waits for that long at most.
const STEP: usize = 256 << 10;
/// Less than this ahead is not worth a write.
const LEAST: u64 = 64 << 10;

/// The prepared tail of one active segment.
pub struct Prepared {
    filled_to: AtomicU64,
    state: Mutex<State>,
}

struct State {
    appended_to: u64,
    closed: bool,
}

impl Prepared {
    /// Of a segment whose data ends at `size`, where its file ends too.
    pub fn new(size: u64) -> Self {
        let state = Mutex::new(State { appended_to: size, closed: false });
        Self { filled_to: AtomicU64::new(size), state }
    }

    /// To be called before bytes up to `end` are written.
    pub fn claim(&self, end: u64) {
        if end > self.filled_to.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            state.appended_to = state.appended_to.max(end);
        }
    }

    /// How far a flush of `size` bytes of data should fill: `None` when enough is ahead.
    ///
    /// `written` bytes went into the segment since it was opened: never more than that is prepared, so that a partition
    /// that is hardly written does not grow.
    pub fn target(&self, size: u64, written: u64, prepare_bytes: u32, segment_bytes: u32) -> Option<u64> {
        let ahead = written.min(u64::from(prepare_bytes));
        let target = (size + ahead).min(u64::from(segment_bytes));
        let filled_to = self.filled_to.load(Ordering::Acquire).max(size);
        (ahead >= LEAST && target >= filled_to + LEAST && filled_to < size + ahead / 2).then_some(target)
    }

    /// Writes zeroes up to `target`; stops early when the disk is full, which the next append will find out by itself.
    pub fn fill(&self, file: &OpenFile, target: u64) -> Result<(), LogError> {
        static ZEROES: [u8; STEP] = [0; STEP];
        loop {
            let state = self.state.lock();
            let from = state.appended_to.max(self.filled_to.load(Ordering::Relaxed));
            if state.closed || from >= target {
                return Ok(());
            }
            let len = (target - from).min(STEP as u64);
            match file.write_at(&ZEROES[..len as usize], from) {
                Err(LogError::Io { source, .. }) if source.raw_os_error() == Some(libc::ENOSPC) => return Ok(()),
                result => result?,
            }
            self.filled_to.store(from + len, Ordering::Release);
        }
    }

    /// Stops all filling; `true` when the file may be longer than `size`.
    pub fn close(&self, size: u64) -> bool {
        self.state.lock().closed = true;
        self.filled_to.load(Ordering::Acquire) > size
    }
}
