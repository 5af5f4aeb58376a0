//! Contains panics: a bug that concerns one piece of work must not end a thread or task that others need.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `work`, or `None` if it panicked. The panic hook has printed where and why.
///
/// Locks that `work` held are released and not poisoned, so the caller must give up what it was changing.
pub fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::contained;

    #[test]
    fn a_panic_ends_its_work_alone() {
        let state = RefCell::new(0);
        let fail = |is_broken: bool| {
            let mut held = state.borrow_mut();
            *held += 1;
            assert!(!is_broken, "injected for the test");
            *held
        };
        assert_eq!((contained(|| fail(true)), contained(|| fail(false))), (None, Some(2)));
    }
}
