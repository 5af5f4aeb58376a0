//! The task that lets acquisition locks end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use klamm_base::ErrorCode;
use klamm_base::panics::contained;
use tokio::sync::Notify;

use super::groups::{ShareGroups, TICK_MS};
use super::partition::{LivePartition, Phase};
use super::state_calls::report;
use crate::core::Core;

/// Lets locks end until the server is gone. While no lock is held, it waits for `has_timers`.
pub async fn run(core: Weak<Core>, has_timers: Arc<Notify>) {
    loop {
        let Some(held) = core.upgrade() else { return };
        held.shares.expire(&held);
        let is_idle = held.shares.timers.lock().wheel.is_empty();
        drop(held);
        if is_idle {
            has_timers.notified().await;
        } else {
            tokio::time::sleep(Duration::from_millis(TICK_MS.unsigned_abs())).await;
        }
    }
}

impl ShareGroups {
    /// Ends the locks that are due.
    pub fn expire(&self, core: &Core) {
        let now_ms = core.backend.now_ms();
        let mut timers = self.timers.lock();
        let due = timers.wheel.advance(now_ms);
        let due: Vec<Arc<LivePartition>> = due.iter().filter_map(|id| timers.partitions.remove(id)).collect();
        drop(timers);
        if due.is_empty() {
            return;
        }
        for live in due {
            if contained(|| self.expire_one(core, &live, now_ms)).is_none() {
                // What it holds is unknown. Its next fetch loads its state again.
                self.drop_partition(&live, ErrorCode::UNKNOWN_SERVER_ERROR);
                report(core, &live, "its locks could not be ended");
            }
        }
    }

    fn expire_one(&self, core: &Core, live: &Arc<LivePartition>, now_ms: i64) {
        let limits = self.settings(&core.backend.image(), &live.key.group).limits;
        let mut state = live.state.lock();
        let Phase::Active(partition) = &mut state.phase else { return };
        let expired = partition.expire(now_ms, &limits);
        self.after_change(core, live, &mut state);
        drop(state);
        if expired.count > 0 {
            self.metrics.lock_timeouts.add(u64::try_from(expired.count).unwrap_or(0));
            live.wake();
        }
    }
}
