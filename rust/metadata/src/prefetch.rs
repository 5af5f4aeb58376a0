//! Prefetching: loads memory into the cache without waiting.

use std::ptr;

/// Prefetches the cache line in which a value begins.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let place = ptr::from_ref(value).cast::<i8>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that changes nothing; every processor of this architecture knows it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint that changes nothing.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    let _ = place;
}
