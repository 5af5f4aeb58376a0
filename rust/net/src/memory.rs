//! Allocates memory for a peer's data. If it fails, one connection ends instead of the process.

use std::alloc::{Layout, alloc_zeroed};

use super::os;

/// Large allocations leave this much free for the rest of the process, where a failed allocation is fatal.
const LEFT_FREE_BYTES: usize = 32 << 20;
/// Smaller allocations are made without checking the free memory.
const LOOKED_AT_BYTES: usize = 256 << 10;

/// There is not enough memory for this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {bytes} bytes")]
pub struct NoMemoryError {
    pub bytes: usize,
}

/// A zeroed buffer; the system provides the zeroes on first access.
pub fn zeroed(bytes: usize) -> Result<Box<[u8]>, NoMemoryError> {
    check(bytes)?;
    let layout = Layout::array::<u8>(bytes).map_err(|_| NoMemoryError { bytes })?;
    if layout.size() == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(NoMemoryError { bytes });
    }
    // SAFETY: `bytes` initialized bytes from the global allocator, with the layout that a boxed slice of them has.
    Ok(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, bytes)) })
}

/// A copy.
pub fn copied(bytes: &[u8]) -> Result<Vec<u8>, NoMemoryError> {
    check(bytes.len())?;
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| NoMemoryError { bytes: bytes.len() })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn check(bytes: usize) -> Result<(), NoMemoryError> {
    let is_small = bytes < LOOKED_AT_BYTES;
    let is_there = || bytes.checked_add(LEFT_FREE_BYTES).is_some_and(os::has_address_space);
    if is_small || is_there() { Ok(()) } else { Err(NoMemoryError { bytes }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_allocated_or_an_error() {
        assert_eq!(zeroed(3).expect("there is"), Box::from([0, 0, 0]));
        assert_eq!(zeroed(0).expect("there is").len(), 0);
        assert_eq!(zeroed(1 << 20).expect("there is").len(), 1 << 20);
        assert_eq!(copied(b"abc").expect("there is"), b"abc");
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 50] {
            assert_eq!(zeroed(bytes), Err(NoMemoryError { bytes }));
        }
    }
}
