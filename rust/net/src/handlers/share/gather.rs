//! Reads the log for the share partitions of a fetch, and acquires what was read.

use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_log::FileSlice;
use klamm_metadata::MetadataImage;
use klamm_replica::{Awaits, CONSUMER, FetchWaiter, Fetched, OffsetQuery, PartitionFetch};
use klamm_share::{Acquire, AcquireMode, Acquired, Member};
use klamm_wire::share_fetch::{AcquiredOffsets, ShareFetchResult};

use crate::core::Core;
use crate::events::LogLevel;
use crate::share::{GroupSettings, LivePartition, Looked, Phase, ShareTarget, read_batches};

/// The timestamp of ListOffsets that stands for the log start offset.
const EARLIEST: i64 = -2;
/// How often a fetch reads again when all that it has read was of aborted transactions.
const ROUNDS_MAX: usize = 100;

/// What a fetch asks of every partition.
pub struct FetchLimits {
    pub max_bytes: usize,
    pub min_bytes: usize,
    pub records_max: i64,
    pub batch_size: i64,
    pub mode: AcquireMode,
    pub member: Member,
}

/// A partition of the fetch.
pub struct FetchTarget {
    pub target: ShareTarget,
    /// The share partition, or why it is not fetched.
    pub live: Result<Arc<LivePartition>, ErrorCode>,
}

/// The part of a response for one partition.
pub struct ShareResult {
    pub target: ShareTarget,
    pub result: ShareFetchResult,
    pub records: Option<FileSlice>,
}

/// What a fetch has found.
#[derive(Default)]
pub struct Found {
    pub results: Vec<ShareResult>,
    /// Whether it must be answered now.
    pub is_urgent: bool,
    pub has_records: bool,
    /// The number of share partitions that could be read.
    pub read: usize,
}

/// A share partition that may be read.
struct LookedAt<'a> {
    target: ShareTarget,
    live: &'a Arc<LivePartition>,
    fetch_offset: i64,
    last_offset: i64,
}

/// A share partition that was read.
struct Read<'a> {
    target: ShareTarget,
    live: &'a Arc<LivePartition>,
    fetch_offset: i64,
    last_offset: i64,
    fetched: Fetched,
}

impl Read<'_> {
    fn len(&self) -> usize {
        self.fetched.records.as_ref().map_or(0, |records| records.len)
    }
}

/// Share partitions that this fetch reads, until it is dropped.
struct Reading<'a> {
    partitions: Vec<&'a Arc<LivePartition>>,
    /// The fetch is answered after this look.
    is_last: bool,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        for live in &self.partitions {
            live.end_fetch(self.is_last);
        }
    }
}

/// Registers `waiter` with everything that may let the fetch find more.
pub fn watch(core: &Core, targets: &[FetchTarget], waiter: &Arc<FetchWaiter>) {
    for target in targets {
        let Ok(live) = &target.live else { continue };
        live.watch(waiter.clone());
        if let Ok(partition) = core.backend.partition(target.target.topic, target.target.index) {
            partition.watch(Awaits::HighWatermark, waiter.clone());
        }
    }
}

/// Reads, and acquires if there are enough bytes, an error, or with `at_once`. No further share partition is read once the
/// records of the request are acquired.
pub fn gather(
    core: &Core,
    image: &MetadataImage,
    settings: &GroupSettings,
    targets: &[FetchTarget],
    limits: &FetchLimits,
    at_once: bool,
) -> Found {
    for _ in 0..ROUNDS_MAX {
        let (found, has_skipped) = gather_once(core, image, settings, targets, limits, at_once);
        if found.has_records || found.is_urgent || !has_skipped {
            return found;
        }
    }
    Found::default()
}

/// Returns also whether share partitions have moved on although nothing was acquired.
fn gather_once(
    core: &Core,
    image: &MetadataImage,
    settings: &GroupSettings,
    targets: &[FetchTarget],
    limits: &FetchLimits,
    at_once: bool,
) -> (Found, bool) {
    let mut found = Found::default();
    let mut reading = Reading { partitions: Vec::new(), is_last: at_once };
    let mut looked = Vec::new();
    for target in targets {
        let live = match &target.live {
            Ok(live) => live,
            Err(code) => {
                found.refuse(target.target, *code);
                continue;
            }
        };
        if core.shares.find(image, &live.key).is_none_or(|known| !Arc::ptr_eq(&known, live)) {
            // Dropped; why is in its phase.
            let code = live.gone().unwrap_or(ErrorCode::NOT_LEADER_OR_FOLLOWER);
            found.refuse(target.target, code);
            found.is_urgent = true;
            continue;
        }
        match live.begin_fetch(&settings.limits, limits.records_max, at_once) {
            Looked::Reads { fetch_offset, last_offset } => {
                reading.partitions.push(live);
                looked.push(LookedAt { target: target.target, live, fetch_offset, last_offset });
            }
            Looked::Waits => {}
            Looked::Gone(code) => {
                found.refuse(target.target, code);
                found.is_urgent = true;
            }
        }
    }
    found.is_urgent |= found.results.len() == targets.len();
    found.read = looked.len();
    let acquirable = Acquirable { core, settings, max_bytes: limits.max_bytes / looked.len().max(1) };
    let mut unread = looked.into_iter();
    let mut reads = Vec::new();
    let (mut bytes, mut has_error) = (0, false);
    while bytes == 0 || bytes < limits.min_bytes {
        let Some(next) = unread.next() else { break };
        let read = acquirable.read(next, bytes == 0);
        bytes += read.len();
        has_error |= read.fetched.error.is_error();
        reads.push(read);
    }
    if !(at_once || has_error || found.is_urgent || (bytes > 0 && bytes >= limits.min_bytes)) {
        return (found, false);
    }
    let mut records_left = limits.records_max;
    let mut has_skipped = false;
    let mut reads = reads.into_iter();
    while records_left > 0 {
        let next = reads.next().or_else(|| {
            let read = acquirable.read(unread.next()?, bytes == 0);
            bytes += read.len();
            Some(read)
        });
        let Some(read) = next else { break };
        if read.fetched.error.is_error() {
            found.failed(core, &read);
            continue;
        }
        let before = read.live.next_fetch_offset();
        match acquire(core, settings, limits, &read, records_left) {
            Ok((acquired, records)) => {
                records_left -= acquired.count;
                has_skipped |= acquired.count == 0 && read.live.next_fetch_offset() != before;
                found.push(read.target, &acquired, records);
            }
            Err(code) => found.refuse(read.target, code),
        }
    }
    // The others come first in the next fetch.
    let left = reads.map(|read| read.target).chain(unread.map(|looked| looked.target));
    left.for_each(|target| found.refuse(target, ErrorCode::NONE));
    reading.is_last = at_once || found.is_urgent || found.has_records;
    (found, has_skipped)
}

/// What all share partitions of a fetch have in common that it may read.
struct Acquirable<'a> {
    core: &'a Core,
    settings: &'a GroupSettings,
    /// Of each: the bytes of the request are divided evenly.
    max_bytes: usize,
}

impl Acquirable<'_> {
    /// Reads the log of one. `at_least_one`: a batch of any size.
    fn read<'l>(&self, looked: LookedAt<'l>, at_least_one: bool) -> Read<'l> {
        let LookedAt { target, live, fetch_offset, last_offset } = looked;
        let request = PartitionFetch {
            fetch_offset,
            max_bytes: self.max_bytes,
            current_leader_epoch: live.leader_epoch,
            last_fetched_epoch: -1,
            read_committed: self.settings.reads_committed,
            replica_id: CONSUMER,
            client_rack: None,
            replica_epoch: -1,
            log_start_offset: -1,
            is_first_look: true,
            at_least_one,
            quiet: None,
        };
        let fetched = match self.core.backend.partition(target.topic, target.index) {
            Ok(partition) => partition.fetch(&request),
            Err(code) => Fetched::error(code),
        };
        Read { target, live, fetch_offset, last_offset, fetched }
    }
}

/// Acquires what was read, and the records to send with it.
fn acquire(
    core: &Core,
    settings: &GroupSettings,
    limits: &FetchLimits,
    read: &Read<'_>,
    records_max: i64,
) -> Result<(Acquired, Option<FileSlice>), ErrorCode> {
    let Some(slice) = read.fetched.records.as_ref().filter(|records| records.len > 0) else {
        return Ok((Acquired::default(), None));
    };
    let aborted = read.fetched.aborted.as_deref().unwrap_or_default();
    let found = read_batches(slice, read.last_offset, aborted).map_err(|error| {
        core.events.log(LogLevel::Error, format!("the batches of {slice:?} are not readable: {error}"));
        ErrorCode::KAFKA_STORAGE_ERROR
    })?;
    let mut state = read.live.state.lock();
    let Phase::Active(partition) = &mut state.phase else { return Ok((Acquired::default(), None)) };
    let acquired = partition.acquire(&Acquire {
        member: &limits.member,
        mode: limits.mode,
        batch_size: limits.batch_size,
        records_max,
        fetch_offset: read.fetch_offset,
        batches: &found.batches,
        aborted: &found.aborted,
        now_ms: core.backend.now_ms(),
        limits: &settings.limits,
    });
    core.shares.after_change(core, read.live, &mut state);
    drop(state);
    let records = found.cut(slice, &acquired.ranges);
    Ok((acquired, records))
}

impl Found {
    fn refuse(&mut self, target: ShareTarget, code: ErrorCode) {
        self.results.push(ShareResult { target, result: ShareFetchResult::of(code), records: None });
    }

    fn push(&mut self, target: ShareTarget, acquired: &Acquired, records: Option<FileSlice>) {
        let mut result = ShareFetchResult::of(ErrorCode::NONE);
        result.records_len = records.as_ref().map_or(0, |records| records.len);
        let offsets = acquired.ranges.iter().map(|range| AcquiredOffsets {
            first: range.first,
            last: range.last,
            delivery_count: i16::try_from(range.delivery_count).unwrap_or(i16::MAX),
        });
        result.acquired = offsets.collect();
        self.has_records |= acquired.count > 0;
        self.results.push(ShareResult { target, result, records });
    }

    /// A read failed. If the log begins above the offset, so does the share partition.
    fn failed(&mut self, core: &Core, read: &Read<'_>) {
        if read.fetched.error != ErrorCode::OFFSET_OUT_OF_RANGE {
            if matches!(read.fetched.error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) {
                core.shares.drop_partition(read.live, read.fetched.error);
            }
            let code = match read.fetched.error {
                ErrorCode::FENCED_LEADER_EPOCH | ErrorCode::UNKNOWN_LEADER_EPOCH => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                code => code,
            };
            self.is_urgent = true;
            return self.refuse(read.target, code);
        }
        let query = OffsetQuery {
            timestamp: EARLIEST,
            current_leader_epoch: read.live.leader_epoch,
            read_committed: None,
            only_from_leader: true,
        };
        let partition = core.backend.partition(read.target.topic, read.target.index);
        match partition.and_then(|partition| partition.find_offset(&query)) {
            Ok(start) => {
                self.is_urgent |= read.live.on_log_start(start.offset);
                self.refuse(read.target, ErrorCode::NONE);
            }
            Err(code) => {
                self.is_urgent = true;
                self.refuse(read.target, code);
            }
        }
    }
}
