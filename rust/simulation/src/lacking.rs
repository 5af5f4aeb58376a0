//! A leader without one of the checks of its fetches, so that the simulator proves that it notices.

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_log::Claim;
use klamm_metadata::MetadataImage;
use klamm_net::{Backend, Partition};
use klamm_replica::{
    Appended, Awaits, CONSUMER, DEBUGGING, FetchWaiter, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Refused,
    Replicas, SessionEntry,
};

use super::guard::Guard;

/// The replicas of a broker that lacks a guard.
pub(super) struct Lacking {
    pub replicas: Arc<Replicas>,
    pub without: Guard,
}

struct LackingPartition {
    partition: Arc<klamm_replica::Partition>,
    without: Guard,
}

impl LackingPartition {
    fn unless<T>(&self, guard: Guard, value: T, none: T) -> T {
        if self.without == guard { none } else { value }
    }
}

impl Backend for Lacking {
    fn image(&self) -> Arc<MetadataImage> {
        self.replicas.image()
    }

    fn now_ms(&self) -> i64 {
        self.replicas.now_ms()
    }

    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode> {
        let partition = self.replicas.get(topic, index)?;
        Ok(Arc::new(LackingPartition { partition, without: self.without }))
    }
}

impl Partition for LackingPartition {
    fn append(
        &self,
        batch: &mut [u8],
        acks: i16,
        guard: Option<klamm_log::Guard>,
        now_ms: i64,
    ) -> Result<Appended, Refused> {
        self.partition.append_produced(batch, acks, guard, now_ms)
    }

    fn begin_verification(
        &self,
        claim: Claim,
        is_adding: bool,
        now_ms: i64,
    ) -> Result<Option<klamm_log::Guard>, ErrorCode> {
        self.partition.begin_verification(claim, is_adding, now_ms)
    }

    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>) {
        self.partition.when_acked(end_offset, done);
    }

    /// It is never quiet in a session, so that each look visits it.
    fn fetch(&self, request: &PartitionFetch<'_>) -> Fetched {
        self.partition.fetch(&PartitionFetch {
            current_leader_epoch: self.unless(Guard::FetchEpoch, request.current_leader_epoch, -1),
            last_fetched_epoch: self.unless(Guard::Divergence, request.last_fetched_epoch, -1),
            replica_epoch: self.unless(Guard::FollowerEpoch, request.replica_epoch, -1),
            quiet: None,
            replica_id: if request.replica_id == CONSUMER {
                self.unless(Guard::ShareLimit, CONSUMER, DEBUGGING)
            } else {
                request.replica_id
            },
            ..*request
        })
    }

    fn watch(&self, awaits: Awaits, waiter: Arc<FetchWaiter>) {
        self.partition.watch(awaits, waiter);
    }

    fn end_quiet(&self, entry: &SessionEntry) {
        self.partition.end_quiet(entry);
    }

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        self.partition.find_offset(query)
    }

    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        self.partition.end_of_epoch(current_leader_epoch, epoch)
    }
}
