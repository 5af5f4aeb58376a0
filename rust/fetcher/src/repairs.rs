//! Replaces damaged batches of this broker's logs by those of another replica in sync.
//!
//! Damage is found by a start or by a fetch. What cannot be replaced now is tried again after growing pauses, because the replica
//! that has it may be away.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use klamm_client::{Connection, LinkError};
use klamm_replica::{DamagedRange, Partition, Position};
use tokio::sync::Notify;
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::core::{Key, Plan, Wanted};
use super::fetchers::Environment;
use super::messages::ReplicaFetch;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The minimum size of a response, for a response besides the batch.
const ANSWER_BYTES_MIN: u64 = 1 << 20;
const CONSUMER: i32 = -1;
/// Larger damage is not replaced: a replica that lost so much is better removed, and fetched from its leader as a whole.
const REPAIRED_BYTES_MAX: u64 = 64 << 20;

pub(super) struct Attempt {
    pub(super) partition: Arc<Partition>,
    due: Instant,
    pause: Duration,
}

/// When each damaged partition is repaired next.
#[derive(Default)]
pub(super) struct Attempts(HashMap<Key, Attempt>);

impl Attempts {
    /// Adds a partition in which damage was found, maybe not for the first time: a pause does not end early. A replica that was
    /// removed and added again is another one, with an attempt of its own.
    pub(super) fn add(&mut self, partition: Arc<Partition>, now: Instant) {
        let key = partition.key();
        let is_known = self.0.get(&key).is_some_and(|attempt| Arc::ptr_eq(&attempt.partition, &partition));
        if !is_known && partition.is_serving() {
            self.0.insert(key, Attempt { partition, due: now, pause: FIRST_PAUSE });
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.values().map(|attempt| attempt.due).min()
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Attempt> {
        self.0.extract_if(|_, attempt| attempt.due <= now).map(|(_, attempt)| attempt).collect()
    }

    /// An attempt failed; the next one comes after a longer pause.
    pub(super) fn put_back(&mut self, failed: Attempt, now: Instant) {
        let pause = (2 * failed.pause).min(LONGEST_PAUSE);
        let again = Attempt { due: now + failed.pause, pause, ..failed };
        self.0.insert(again.partition.key(), again);
    }
}

/// The damage that is to be repaired.
pub struct Repairs {
    environment: Arc<Environment>,
    wake: Arc<Notify>,
    attempts: Attempts,
    /// Damage that was logged as not replaceable yet.
    reported: HashSet<(PathBuf, u64)>,
}

impl Repairs {
    /// Follows what is found from now on, and what was found before.
    pub fn new(environment: Arc<Environment>) -> Self {
        let wake: Arc<Notify> = Arc::default();
        let replicas = environment.replicas.clone();
        let on_first = wake.clone();
        replicas.changes().damaged.notify(move || on_first.notify_one());
        let found = replicas.opened().into_iter().filter(|partition| !partition.damaged().is_empty()).collect();
        let mut repairs = Self { environment, wake, attempts: Attempts::default(), reported: HashSet::new() };
        repairs.add(found);
        repairs
    }

    fn add(&mut self, found: Vec<Arc<Partition>>) {
        let now = Instant::now();
        for partition in found {
            self.attempts.add(partition, now);
        }
    }

    pub async fn run(mut self) {
        loop {
            match self.attempts.next_due() {
                None => self.wake.notified().await,
                Some(due) => drop(tokio::time::timeout_at(due, self.wake.notified()).await),
            }
            self.add(self.environment.replicas.changes().damaged.take());
            for attempt in self.attempts.take_due(Instant::now()) {
                if !self.repair(&attempt.partition).await {
                    self.attempts.put_back(attempt, Instant::now());
                }
            }
        }
    }

    /// True if nothing is left to repair, or the replica serves no longer.
    async fn repair(&mut self, partition: &Arc<Partition>) -> bool {
        if !partition.is_serving() {
            return true;
        }
        let mut is_whole = true;
        for range in block_in_place(|| partition.damaged()) {
            is_whole &= self.repair_range(partition, &range).await;
        }
        is_whole
    }

    async fn repair_range(&mut self, partition: &Arc<Partition>, range: &DamagedRange) -> bool {
        let (id, mut others) = (&partition.id, partition.others_in_sync());
        if range.bytes > REPAIRED_BYTES_MAX {
            others.clear();
        }
        let what = format!(
            "{}-{}: offsets {} to {} in {}",
            id.topic,
            id.index,
            range.first_offset,
            range.next_offset - 1,
            range.file.display()
        );
        for broker in others.iter().copied() {
            if let Ok(Some(batches)) = self.fetch(broker, partition, range).await
                && block_in_place(|| partition.repair(range, &batches))
            {
                self.reported.remove(&range.place());
                self.environment.report(format!("{what} were damaged, and are replaced by those of broker {broker}"));
                return true;
            }
        }
        if !others.is_empty() && self.reported.insert(range.place()) {
            let reason = "no other replica in sync has the same batches intact; they are looked for again";
            self.environment.report(format!("{what} are damaged, and cannot be replaced: {reason}"));
        }
        false
    }

    /// The batches of the range from another broker; `None` if it does not have them.
    async fn fetch(
        &self,
        broker: i32,
        partition: &Partition,
        range: &DamagedRange,
    ) -> Result<Option<Vec<u8>>, LinkError> {
        let within = u64::try_from(self.environment.setting("replica.socket.timeout.ms")).unwrap_or(0);
        let within = Duration::from_millis(within);
        let mut connection = self.environment.connect(broker, within).await?;
        let mut found = Vec::new();
        let mut offset = range.fetch_offset;
        while offset < range.next_offset && (found.len() as u64) < range.bytes {
            let Some(bytes) = fetch_at(&mut connection, partition.key(), offset, range.bytes, within).await? else {
                return Ok(None);
            };
            let next = range.take(&bytes, &mut found);
            if next <= offset {
                return Ok(None);
            }
            offset = next;
        }
        Ok(Some(found))
    }
}

/// The batches from `offset` on, as a consumer reads them; `None` after an error.
async fn fetch_at(
    connection: &mut Connection,
    key: Key,
    offset: i64,
    bytes: u64,
    within: Duration,
) -> Result<Option<bytes::Bytes>, LinkError> {
    let position = Position {
        fetch_offset: offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        high_watermark: i64::MAX,
        is_flushed: true,
    };
    let plan = Plan {
        session_id: 0,
        session_epoch: -1,
        wanted: vec![Wanted { key, leader_epoch: -1, position }],
        forgotten: Vec::new(),
    };
    let bytes = i32::try_from(bytes.max(ANSWER_BYTES_MIN)).unwrap_or(i32::MAX);
    let request = ReplicaFetch {
        replica_id: CONSUMER,
        broker_epoch: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: bytes,
        partition_max_bytes: bytes,
        plan: &plan,
    };
    let answer = connection.call(&request, within).await?;
    let found = answer.partitions.into_iter().next();
    Ok(found.filter(|found| !answer.error.is_error() && !found.error.is_error()).map(|found| found.records))
}
