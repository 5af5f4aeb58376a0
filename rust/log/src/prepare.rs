//! Writes zeroes ahead of a log that is being flushed.
//!
//! A sync of bytes within allocated, written blocks changes no metadata of the file system: it is one write to the
//! disk instead of a journal commit. The flusher therefore writes zeroes ahead of the active segment, without the
//! partition's lock, and appends overwrite them. Invariants: (1) no zero is written below `appended_to`; (2) after
//! `close` no zero is written at all. An append that stays below `filled_to` takes no lock here.

use std::sync::atomic::{AtomicU64, Ordering};

use klamm_base::LogError;
use parking_lot::Mutex;

use super::files::OpenFile;

/// Zeroes written at a time; an append that collides waits for one such write at most.
const STEP: usize = 256 << 10;
/// A smaller fill is not worth a write.
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
    /// For a segment whose data and file end at `size`.
    pub fn new(size: u64) -> Self {
        let state = Mutex::new(State { appended_to: size, closed: false });
        Self { filled_to: AtomicU64::new(size), state }
    }

    /// Must be called before bytes up to `end` are written.
    pub fn claim(&self, end: u64) {
        if end > self.filled_to.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            state.appended_to = state.appended_to.max(end);
        }
    }

    /// The position up to which a flush of `size` bytes of data should fill; `None` if enough is prepared.
    ///
    /// `written` is the number of bytes written to the segment since it was opened. No more than that is prepared, so
    /// that a partition with few writes does not grow.
    pub fn target(&self, size: u64, written: u64, prepare_bytes: u32, segment_bytes: u32) -> Option<u64> {
        let ahead = written.min(u64::from(prepare_bytes));
        let target = (size + ahead).min(u64::from(segment_bytes));
        let filled_to = self.filled_to.load(Ordering::Acquire).max(size);
        (ahead >= LEAST && target >= filled_to + LEAST && filled_to < size + ahead / 2).then_some(target)
    }

    /// Writes zeroes up to `target`; stops early if the disk is full, which the next append will report itself.
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

    /// Stops all filling; `true` if the file may be longer than `size`.
    pub fn close(&self, size: u64) -> bool {
        self.state.lock().closed = true;
        self.filled_to.load(Ordering::Acquire) > size
    }
}
