//! Counts the heap bytes of a thread, so that a target can bound the allocations for an input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with counters for each thread. A bin that runs targets uses it as the global allocator.
pub struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no counters any more, and runs no target.
    let _ = LIVE_BYTES.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Only the resulting size counts; a large block is moved by remapping its pages, not copied.
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller fulfils the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The peak of the bytes that `work` allocated in addition to the thread's earlier ones.
///
/// Zero if [`Counting`] is not the global allocator.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, usize::try_from(PEAK_BYTES.get() - before).expect("the peak starts at what was held"))
}

/// Runs `work` and panics if it allocated more than four times the input, plus 64 KiB and `extra`.
pub fn bounded<T>(input: &[u8], extra: usize, work: impl FnOnce() -> T) -> T {
    let (result, peak) = peak_of(work);
    let most = 4 * input.len() + 64 * 1024 + extra;
    assert!(peak <= most, "{peak} bytes held for {} of input, {most} allowed", input.len());
    result
}
