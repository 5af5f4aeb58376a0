//! The network's interface to a broker: its partitions and the metadata image. Tests use fakes instead.

use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};
use klamm_log::{Claim, Guard};
use klamm_metadata::MetadataImage;
use klamm_replica::{
    Appended, Awaits, FetchWaiter, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Refused, Replicas, SessionEntry,
};

/// The broker that the network serves.
pub trait Backend: Send + Sync + 'static {
    /// The current committed image.
    fn image(&self) -> Arc<MetadataImage>;

    /// The time at which a follower's fetch counts; monotonic.
    fn now_ms(&self) -> i64;

    /// The partition on this node; opens it if necessary.
    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode>;
}

/// A partition on this node.
pub trait Partition: Send + Sync {
    /// Validates one batch, modifies it in place and appends it. `guard` is that of its verification.
    fn append(&self, batch: &mut [u8], acks: i16, guard: Option<Guard>, now_ms: i64) -> Result<Appended, Refused>;

    /// The guard of a transactional batch for which the transaction coordinator must be asked; `None` if its transaction
    /// is open here.
    fn begin_verification(&self, claim: Claim, is_adding: bool, now_ms: i64) -> Result<Option<Guard>, ErrorCode>;

    /// Calls `done` once: with `NONE` when everything below `end_offset` is committed, or with an error if that is no
    /// longer possible.
    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>);

    fn fetch(&self, request: &PartitionFetch<'_>) -> Fetched;

    /// Wakes `waiter` at the next change that is visible to a fetch that waits for `awaits`. The caller must read once more after this call.
    fn watch(&self, awaits: Awaits, waiter: Arc<FetchWaiter>);

    /// Removes the entry of a session in which the partition was quiet.
    fn end_quiet(&self, entry: &SessionEntry);

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode>;

    /// The largest known epoch up to `epoch` and its end offset; both -1 if there is none.
    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode>;
}

impl Backend for Replicas {
    fn image(&self) -> Arc<MetadataImage> {
        Replicas::image(self)
    }

    fn now_ms(&self) -> i64 {
        Replicas::now_ms(self)
    }

    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode> {
        Ok(self.get_in_task(topic, index)?)
    }
}

impl Partition for klamm_replica::Partition {
    fn append(&self, batch: &mut [u8], acks: i16, guard: Option<Guard>, now_ms: i64) -> Result<Appended, Refused> {
        self.append_produced(batch, acks, guard, now_ms)
    }

    fn begin_verification(&self, claim: Claim, is_adding: bool, now_ms: i64) -> Result<Option<Guard>, ErrorCode> {
        klamm_replica::Partition::begin_verification(self, claim, is_adding, now_ms)
    }

    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>) {
        klamm_replica::Partition::when_acked(self, end_offset, done);
    }

    fn fetch(&self, request: &PartitionFetch<'_>) -> Fetched {
        klamm_replica::Partition::fetch(self, request)
    }

    fn watch(&self, awaits: Awaits, waiter: Arc<FetchWaiter>) {
        klamm_replica::Partition::watch(self, awaits, waiter);
    }

    fn end_quiet(&self, entry: &SessionEntry) {
        klamm_replica::Partition::end_quiet(self, entry);
    }

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        klamm_replica::Partition::find_offset(self, query)
    }

    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        klamm_replica::Partition::end_of_epoch(self, current_leader_epoch, epoch)
    }
}
