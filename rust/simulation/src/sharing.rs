//! Share groups of a simulated broker: its share coordinator's calls, its locks, and what a test may see of them.

use klamm_base::{ErrorCode, Uuid};
use klamm_net::{Bounded, ShareConfig, ShareGauges, ShareStateCall};

use super::broker::{SimulatedBroker, SimulationError};
use super::guard::Guard;

/// A limit that nothing reaches.
const UNLIMITED: i64 = 30_000;
/// A lock that ends at once.
const NO_LOCK_MS: i64 = 0;

impl SimulatedBroker {
    /// The configuration of share groups; a group's own values count as they are.
    pub(super) fn share_config(&self) -> ShareConfig {
        let number = |name: &str| self.options.settings.number(&format!("group.share.{name}"));
        let bounded = |name: &str, guard: Guard, without: i64| match self.options.without == Some(guard) {
            true => Bounded { default: without, min: without, max: without },
            false => Bounded { default: number(name), min: 0, max: i64::MAX },
        };
        ShareConfig {
            sessions_max: usize::try_from(number("max.share.sessions")).unwrap_or(0),
            record_locks: Bounded { default: number("partition.max.record.locks"), min: 0, max: i64::MAX },
            delivery_count: bounded("delivery.count.limit", Guard::DeliveryLimit, UNLIMITED),
            lock_duration_ms: bounded("record.lock.duration.ms", Guard::HoldLocks, NO_LOCK_MS),
        }
    }

    /// A client's connection was closed: its requests that wait are dropped.
    pub fn disconnect(&mut self, connection_id: u64, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        let life = self.life()?;
        life.waiting.retain(|_, request| request.connection_id() != connection_id);
        life.requests.on_disconnect(connection_id);
        Ok(())
    }

    /// Ends the acquisition locks that are due.
    pub fn expire_locks(&mut self, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        if self.options.without != Some(Guard::ExpireLocks) {
            self.life()?.requests.expire_locks();
        }
        Ok(())
    }

    /// The calls of share coordinators that are due.
    pub fn take_share_calls(&mut self) -> Result<Vec<ShareStateCall>, SimulationError> {
        Ok(self.life()?.requests.take_share_calls()?)
    }

    /// A call has this result.
    pub fn share_state_answered(
        &mut self,
        request_id: u64,
        code: ErrorCode,
        body: &[u8],
        now_ms: i64,
    ) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        self.life()?.requests.share_state_answered(request_id, code, body);
        Ok(())
    }

    /// The share partition of a group, if it is loaded.
    pub fn share_gauges(
        &mut self,
        group: &str,
        (topic_id, index): (Uuid, i32),
    ) -> Result<Option<ShareGauges>, SimulationError> {
        Ok(self.life()?.requests.share_gauges(group, topic_id, index))
    }
}
