//! Receive buffers that connections borrow while bytes arrive.
//!
//! Reused memory is free, while fresh memory costs a page fault for every 4 KiB: a third of the cost of a produce of
//! 1 MiB. Therefore buffers are returned to this pool; the number of idle bytes in it is bounded.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use super::memory::{self, NoMemoryError};

/// Size of the buffer that every connection receives.
pub const SMALL_BYTES: usize = 64 << 10;
/// Large buffers have multiples of this size, so that they fit frames of similar sizes.
const LARGE_STEP: usize = 256 << 10;
/// Larger buffers are not kept.
const KEPT_BYTES_MAX: usize = 4 << 20;

thread_local! {
    /// The small buffer of this worker, which its connections use one after the other.
    static SMALL: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// The large buffers of a server.
pub struct Buffers {
    idle: Mutex<Vec<Box<[u8]>>>,
    idle_bytes_max: usize,
    lent_bytes: AtomicUsize,
    /// `queued.max.request.bytes`.
    lent_bytes_max: usize,
    /// Connections with the start of a large frame that found no room.
    waiting: Mutex<Vec<Waker>>,
}

impl Buffers {
    /// A pool with at most `idle_bytes_max` idle bytes. A large frame must wait while `lent_bytes_max` bytes or more
    /// are borrowed.
    pub fn new(idle_bytes_max: usize, lent_bytes_max: usize) -> Self {
        Self {
            idle: Mutex::default(),
            idle_bytes_max,
            lent_bytes: AtomicUsize::new(0),
            lent_bytes_max,
            waiting: Mutex::default(),
        }
    }

    /// A buffer of at least `len` bytes with arbitrary content.
    pub fn take(&self, len: usize) -> Result<Box<[u8]>, NoMemoryError> {
        if len <= SMALL_BYTES {
            return SMALL.take().map_or_else(|| memory::zeroed(SMALL_BYTES), Ok);
        }
        let buffer = match self.take_idle(len) {
            Some(idle) => idle,
            None => memory::zeroed(len.checked_next_multiple_of(LARGE_STEP).unwrap_or(len))?,
        };
        self.lent_bytes.fetch_add(buffer.len(), Ordering::AcqRel);
        Ok(buffer)
    }

    /// Whether a large frame may start; if not, `waker` is woken when another one has ended.
    ///
    /// As in Apache Kafka, one frame may exceed the limit, and a frame that has started is never stopped: so no
    /// connection waits for a buffer while it holds one.
    pub fn may_begin(&self, waker: &Waker) -> bool {
        if self.has_room() {
            return true;
        }
        self.waiting.lock().push(waker.clone());
        self.has_room()
    }

    /// Whether the limit is not reached.
    pub fn has_room(&self) -> bool {
        self.lent_bytes.load(Ordering::Acquire) < self.lent_bytes_max
    }

    fn take_idle(&self, len: usize) -> Option<Box<[u8]>> {
        let mut idle = self.idle.lock();
        let best = (0..idle.len()).filter(|&at| idle[at].len() >= len).min_by_key(|&at| idle[at].len())?;
        // A small frame must not take the only buffer for large ones.
        (idle[best].len() <= 4 * len.max(LARGE_STEP)).then(|| idle.swap_remove(best))
    }

    /// Returns a buffer to the pool.
    pub fn release(&self, buffer: Box<[u8]>) {
        match buffer.len() {
            0..SMALL_BYTES => {}
            SMALL_BYTES => SMALL.set(Some(buffer)),
            len => {
                self.lent_bytes.fetch_sub(len, Ordering::AcqRel);
                self.keep(buffer);
                let waiting = std::mem::take(&mut *self.waiting.lock());
                waiting.into_iter().for_each(Waker::wake);
            }
        }
    }

    fn keep(&self, buffer: Box<[u8]>) {
        let mut idle = self.idle.lock();
        let idle_bytes: usize = idle.iter().map(|buffer| buffer.len()).sum();
        if buffer.len() <= KEPT_BYTES_MAX && idle_bytes + buffer.len() <= self.idle_bytes_max {
            idle.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_buffer_is_reused() {
        let buffers = Buffers::new(1 << 20, usize::MAX);
        let first = buffers.take(300 << 10).expect("memory");
        assert_eq!(first.len(), 512 << 10);
        let address = first.as_ptr();
        buffers.release(first);
        let second = buffers.take(400 << 10).expect("memory");
        assert_eq!(second.as_ptr(), address);
    }

    #[test]
    fn an_allocation_failure_is_an_error_and_does_not_count() {
        let buffers = Buffers::new(1 << 20, 1 << 20);
        assert!(buffers.take(isize::MAX as usize - LARGE_STEP).is_err());
        assert!(buffers.take(usize::MAX).is_err());
        assert!(buffers.has_room());
    }

    #[test]
    fn idle_bytes_are_bounded() {
        let buffers = Buffers::new(1 << 20, usize::MAX);
        let taken: Vec<_> = (0..8).map(|_| buffers.take(512 << 10).expect("memory")).collect();
        taken.into_iter().for_each(|buffer| buffers.release(buffer));
        assert_eq!(buffers.idle.lock().len(), 2);
        buffers.release(buffers.take(64 << 20).expect("memory"));
        assert_eq!(buffers.idle.lock().len(), 2);
    }

    #[test]
    fn beyond_the_limit_a_frame_waits_for_another_to_end() {
        let buffers = Buffers::new(0, 1 << 20);
        let first = buffers.take(1 << 20).expect("memory");
        assert!(!buffers.may_begin(Waker::noop()));
        assert_eq!(buffers.waiting.lock().len(), 1);
        // A frame that has started may grow.
        let larger = buffers.take(2 << 20).expect("memory");
        buffers.release(first);
        assert!(!buffers.has_room() && buffers.waiting.lock().is_empty());
        buffers.release(larger);
        assert!(buffers.may_begin(Waker::noop()));
    }
}
