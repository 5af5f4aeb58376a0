//! A produce that waits for its acknowledgements: one answer, several partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicUsize, Ordering};

use klamm_base::ErrorCode;

use super::link::Link;

/// Shared between a waiting answer and the partitions it waits for.
pub struct AckWait {
    link: Arc<Link>,
    /// Acknowledgements that are missing, and one for the worker that still hands out callbacks.
    missing: AtomicUsize,
    /// Error code of each partition, pending until told.
    codes: Box<[AtomicI16]>,
}

/// No error code: what a partition has before it is acknowledged.
const PENDING: i16 = i16::MIN;

impl AckWait {
    /// Waits for `count` partitions; [`AckWait::is_done_after_setup`] follows when all callbacks are handed out.
    pub fn new(link: Arc<Link>, count: usize) -> Arc<Self> {
        let codes = (0..count).map(|_| AtomicI16::new(PENDING)).collect();
        Arc::new(Self { link, missing: AtomicUsize::new(count + 1), codes })
    }

    /// What the partition `at` calls.
    pub fn callback(self: &Arc<Self>, at: usize) -> Box<dyn FnOnce(ErrorCode) + Send> {
        let wait = self.clone();
        Box::new(move |code| wait.acknowledge(at, code))
    }

    fn acknowledge(&self, at: usize, code: ErrorCode) {
        self.codes[at].store(code.0, Ordering::Release);
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.link.wake();
        }
    }

    /// Ends the set-up: whether everything is acknowledged already.
    pub fn is_done_after_setup(&self) -> bool {
        self.missing.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub fn is_done(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// What each partition's answer says now: those that are still pending have timed out.
    pub fn codes(&self) -> impl Iterator<Item = ErrorCode> + '_ {
        self.codes.iter().map(|code| match code.load(Ordering::Acquire) {
            PENDING => ErrorCode::REQUEST_TIMED_OUT,
            code => ErrorCode(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use klamm_wire::api::ListenerKind;

    use super::*;
    use crate::listener::Listener;

    fn wait_for(count: usize) -> Arc<AckWait> {
        let listener = Listener::new("L", ListenerKind::Broker);
        AckWait::new(Arc::new(Link::new(1, ([127, 0, 0, 1], 1).into(), &listener)), count)
    }

    #[test]
    fn done_when_all_are_told_and_the_set_up_is_over() {
        let wait = wait_for(2);
        wait.callback(1)(ErrorCode::NONE);
        wait.callback(0)(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert!(!wait.is_done());
        assert!(wait.is_done_after_setup());
        assert!(wait.is_done());
        assert_eq!(wait.codes().collect::<Vec<_>>(), [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NONE]);
    }

    #[test]
    fn what_was_not_told_has_timed_out() {
        let wait = wait_for(2);
        assert!(!wait.is_done_after_setup());
        wait.callback(0)(ErrorCode::NONE);
        assert!(!wait.is_done());
        assert_eq!(wait.codes().collect::<Vec<_>>(), [ErrorCode::NONE, ErrorCode::REQUEST_TIMED_OUT]);
    }
}
