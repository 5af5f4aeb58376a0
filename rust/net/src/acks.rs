//! A produce that waits for acknowledgements: one response for several partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicUsize, Ordering};

use klamm_base::ErrorCode;

use super::link::Link;

/// Shared between a waiting response and its partitions.
pub struct AckWait {
    link: Arc<Link>,
    /// Missing acknowledgements, plus one while the worker is still creating callbacks.
    missing: AtomicUsize,
    /// Error code of each partition, `PENDING` until it is acknowledged.
    codes: Box<[AtomicI16]>,
}

/// Not an error code: the value of a partition that is not acknowledged.
const PENDING: i16 = i16::MIN;

impl AckWait {
    /// Waits for `count` partitions; call [`AckWait::is_done_after_setup`] after all callbacks are created.
    pub fn new(link: Arc<Link>, count: usize) -> Arc<Self> {
        let codes = (0..count).map(|_| AtomicI16::new(PENDING)).collect();
        Arc::new(Self { link, missing: AtomicUsize::new(count + 1), codes })
    }

    /// The callback of the partition with index `at`.
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

    /// Ends the setup; returns whether everything is acknowledged already.
    pub fn is_done_after_setup(&self) -> bool {
        self.missing.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub fn is_done(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// The current error code of each partition: those that are still pending have timed out.
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
    fn done_when_all_are_acknowledged_and_the_setup_is_over() {
        let wait = wait_for(2);
        wait.callback(1)(ErrorCode::NONE);
        wait.callback(0)(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert!(!wait.is_done());
        assert!(wait.is_done_after_setup());
        assert!(wait.is_done());
        assert_eq!(wait.codes().collect::<Vec<_>>(), [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NONE]);
    }

    #[test]
    fn unacknowledged_partitions_have_timed_out() {
        let wait = wait_for(2);
        assert!(!wait.is_done_after_setup());
        wait.callback(0)(ErrorCode::NONE);
        assert!(!wait.is_done());
        assert_eq!(wait.codes().collect::<Vec<_>>(), [ErrorCode::NONE, ErrorCode::REQUEST_TIMED_OUT]);
    }
}
