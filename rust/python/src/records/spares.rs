//! Recycles the memory of released columns and of finished batches.
//!
//! Such buffers are large and short-lived: the allocator returns their memory to the system, and fresh memory costs a
//! page fault for every 4 KiB, in total twice the time of filling it. A caller that decodes many batches reuses the same
//! memory.
use parking_lot::Mutex;

/// The maximum total size of all spares.
const SIZE_MAX: usize = 4 << 20;
/// Smaller vectors are left to the allocator.
const KEPT_MIN: usize = 16 << 10;
/// A spare is not used where this fraction of it would be enough: it may be held for long.
const TOO_LARGE: usize = 8;

/// Empty vectors with capacity.
pub struct Spares {
    bytes: Vec<Vec<u8>>,
    int32: Vec<Vec<i32>>,
    int64: Vec<Vec<i64>>,
    /// Their total size in bytes.
    size: usize,
}

static SPARES: Mutex<Spares> = Mutex::new(Spares { bytes: Vec::new(), int32: Vec::new(), int64: Vec::new(), size: 0 });

/// The element types of columns.
pub trait Element: Sized {
    fn kept(spares: &mut Spares) -> &mut Vec<Vec<Self>>;
}

impl Element for u8 {
    fn kept(spares: &mut Spares) -> &mut Vec<Vec<u8>> {
        &mut spares.bytes
    }
}

impl Element for i32 {
    fn kept(spares: &mut Spares) -> &mut Vec<Vec<i32>> {
        &mut spares.int32
    }
}

impl Element for i64 {
    fn kept(spares: &mut Spares) -> &mut Vec<Vec<i64>> {
        &mut spares.int64
    }
}

fn size_of_room<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

/// An empty vector with room for this number of elements.
pub fn take<T: Element>(count: usize) -> Vec<T> {
    if size_of_room::<T>(count) < KEPT_MIN {
        return Vec::with_capacity(count);
    }
    let mut spares = SPARES.lock();
    let kept = T::kept(&mut spares);
    let fits = |spare: &Vec<T>| (count..=count.saturating_mul(TOO_LARGE)).contains(&spare.capacity());
    let Some(at) = kept.iter().position(fits) else {
        drop(spares);
        return Vec::with_capacity(count);
    };
    let spare = kept.swap_remove(at);
    spares.size -= size_of_room::<T>(spare.capacity());
    spare
}

/// Keeps a vector that is no longer used, if there is room for it among the spares.
pub fn give<T: Element>(mut spare: Vec<T>) {
    let size = size_of_room::<T>(spare.capacity());
    if size < KEPT_MIN {
        return;
    }
    spare.clear();
    let mut spares = SPARES.lock();
    if spares.size + size <= SIZE_MAX {
        spares.size += size;
        T::kept(&mut spares).push(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_by_size_and_bounded() {
        let mut first: Vec<i64> = take(100_000);
        first.push(7);
        let room = first.capacity();
        give(first);
        assert!(take::<i64>(10_000).capacity() < room, "it would waste most of it");
        let again = take::<i64>(90_000);
        assert!(again.is_empty() && again.capacity() == room);
        assert!(take::<i64>(90_000).capacity() < room, "there was one");
        for _ in 0..100 {
            give(Vec::<u8>::with_capacity(SIZE_MAX / 3));
        }
        let spares = SPARES.lock();
        assert!(spares.size <= SIZE_MAX && spares.bytes.len() <= 3);
    }
}
