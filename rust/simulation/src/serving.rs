//! The fetches that a simulated broker answers: of followers and of consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};
use klamm_replica::{
    Awaits, CONSUMER, DEBUGGING, FetchWaiter, Fetched, LATEST, OffsetQuery, Partition, PartitionFetch,
};
use klamm_wire::fetch::{FetchRequest, FetchResponseWriter, FetchResult};
use klamm_wire::topic::TopicRef;

use super::broker::{SimulatedBroker, SimulationError};
use super::fetching::FETCH_VERSION;
use super::guard::Guard;

const CONSUMED_BYTES_MAX: usize = 1 << 16;

/// A fetch that found too little.
pub(super) struct WaitingFetch {
    body: Vec<u8>,
    woken: Arc<Woken>,
    waiter: Arc<FetchWaiter>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a look at all partitions of a fetch found.
struct Gathered {
    results: Vec<(Uuid, i32, Fetched)>,
    partitions: Vec<Arc<Partition>>,
    is_urgent: bool,
    bytes: usize,
}

/// What a consumer receives; offsets are -1 for most errors.
pub struct Consumed {
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub records: Vec<u8>,
    /// Producer id and first offset of each aborted transaction in the records.
    pub aborted: Vec<(i64, i64)>,
}

impl Consumed {
    fn refused(error: ErrorCode) -> Self {
        Self { error, high_watermark: -1, last_stable_offset: -1, records: Vec::new(), aborted: Vec::new() }
    }
}

impl SimulatedBroker {
    /// Answers a fetch, or lets it wait under this number.
    pub fn answer_fetch(
        &mut self,
        number: u64,
        body: Vec<u8>,
        now_ms: i64,
    ) -> Result<Option<Vec<u8>>, SimulationError> {
        self.clock.set(now_ms);
        let found = self.gather(&body, true)?;
        if let Some(answer) = self.answer_if_enough(&body, found, false)? {
            return Ok(Some(answer));
        }
        self.wait(number, body)
    }

    fn wait(&mut self, number: u64, body: Vec<u8>) -> Result<Option<Vec<u8>>, SimulationError> {
        let woken: Arc<Woken> = Arc::default();
        let waiter = Arc::new(FetchWaiter::new(Waker::from(woken.clone())));
        let found = self.gather(&body, false)?;
        let awaits = if parse(&body)?.is_from_follower() { Awaits::LogEnd } else { Awaits::HighWatermark };
        found.partitions.iter().for_each(|partition| partition.watch(awaits, waiter.clone()));
        let found = self.gather(&body, false)?;
        if let Some(answer) = self.answer_if_enough(&body, found, false)? {
            waiter.end();
            return Ok(Some(answer));
        }
        self.life()?.waiting.insert(number, WaitingFetch { body, woken, waiter });
        Ok(None)
    }

    /// The fetches that were woken and look again.
    pub(super) fn woken_fetches(&mut self) -> Result<Vec<u64>, SimulationError> {
        let waiting = self.life()?.waiting.iter();
        Ok(waiting.filter(|(_, fetch)| fetch.woken.0.load(Ordering::Relaxed)).map(|(number, _)| *number).collect())
    }

    /// A fetch looks again; `is_late`: its time is over, so that it is answered in any case. `None` if it still waits, or was
    /// answered already.
    pub fn look_again(&mut self, number: u64, is_late: bool, now_ms: i64) -> Result<Option<Vec<u8>>, SimulationError> {
        self.clock.set(now_ms);
        let Some(WaitingFetch { body, waiter, .. }) = self.life()?.waiting.remove(&number) else { return Ok(None) };
        waiter.end();
        let found = self.gather(&body, false)?;
        match self.answer_if_enough(&body, found, is_late)? {
            Some(answer) => Ok(Some(answer)),
            None => self.wait(number, body),
        }
    }

    /// Reads records as a consumer does that may read from followers, and perhaps only those of committed transactions.
    pub fn consume(
        &mut self,
        (topic_id, index): (Uuid, i32),
        fetch_offset: i64,
        current_leader_epoch: i32,
        read_committed: bool,
        now_ms: i64,
    ) -> Result<Consumed, SimulationError> {
        self.clock.set(now_ms);
        let partition = match self.partition(topic_id, index)? {
            Ok(partition) => partition,
            Err(code) => return Ok(Consumed::refused(code)),
        };
        let read_committed = read_committed && self.options.without != Some(Guard::StableOffset);
        let fetched = partition.fetch(&PartitionFetch {
            fetch_offset,
            max_bytes: CONSUMED_BYTES_MAX,
            current_leader_epoch,
            last_fetched_epoch: -1,
            read_committed,
            replica_id: if self.options.without == Some(Guard::ConsumerLimit) { DEBUGGING } else { CONSUMER },
            replica_epoch: -1,
            log_start_offset: -1,
            is_first_look: true,
            at_least_one: true,
            quiet: None,
            client_rack: Some(""),
        });
        let lists_aborted = self.options.without != Some(Guard::AbortedTransactions);
        let aborted = fetched.aborted.clone().filter(|_| lists_aborted).unwrap_or_default();
        Ok(Consumed {
            error: fetched.error,
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
            records: records(&fetched)?,
            aborted,
        })
    }

    /// The end offset that a leader returns to consumers (ListOffsets).
    pub fn end_offset(
        &mut self,
        (topic_id, index): (Uuid, i32),
        current_leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Result<i64, ErrorCode>, SimulationError> {
        self.clock.set(now_ms);
        let partition = self.partition(topic_id, index)?;
        let query = OffsetQuery {
            timestamp: LATEST,
            current_leader_epoch,
            read_committed: Some(false),
            only_from_leader: true,
        };
        Ok(partition.and_then(|partition| partition.find_offset(&query)).map(|found| found.offset))
    }

    /// Moves the log start up (DeleteRecords); returns what [`Self::low_watermark`] has to reach.
    pub fn delete_records(
        &mut self,
        (topic_id, index): (Uuid, i32),
        offset: i64,
        now_ms: i64,
    ) -> Result<Result<i64, ErrorCode>, SimulationError> {
        self.clock.set(now_ms);
        Ok(self.partition(topic_id, index)?.and_then(|partition| partition.delete_records(offset)))
    }

    /// The smallest log start of all live replicas.
    pub fn low_watermark(&mut self, (topic_id, index): (Uuid, i32)) -> Result<Result<i64, ErrorCode>, SimulationError> {
        Ok(self.partition(topic_id, index)?.and_then(|partition| partition.low_watermark()))
    }

    fn gather(&mut self, body: &[u8], is_first_look: bool) -> Result<Gathered, SimulationError> {
        let request = parse(body)?;
        let without = self.options.without;
        let unless = |guard, value| if without == Some(guard) { -1 } else { value };
        let is_follower = request.is_from_follower();
        let mut found = Gathered { results: Vec::new(), partitions: Vec::new(), is_urgent: false, bytes: 0 };
        let mut bytes_left = usize::try_from(request.max_bytes).unwrap_or(0);
        for topic in request.topics.clone() {
            let TopicRef::Id(topic_id) = topic.topic else { continue };
            for wanted in topic.partitions {
                let fetched = match self.partition(topic_id, wanted.index)? {
                    Err(code) => Fetched::error(code),
                    Ok(partition) => {
                        let fetched = partition.fetch(&PartitionFetch {
                            fetch_offset: wanted.fetch_offset,
                            max_bytes: usize::try_from(wanted.max_bytes).unwrap_or(0).min(bytes_left),
                            current_leader_epoch: unless(Guard::FetchEpoch, wanted.current_leader_epoch),
                            last_fetched_epoch: unless(Guard::Divergence, wanted.last_fetched_epoch),
                            read_committed: false,
                            replica_id: request.replica_id,
                            replica_epoch: if without == Some(Guard::FollowerEpoch) {
                                -1
                            } else {
                                request.replica_epoch
                            },
                            log_start_offset: wanted.log_start_offset,
                            is_first_look,
                            at_least_one: found.bytes == 0,
                            quiet: None,
                            client_rack: None,
                        });
                        found.is_urgent |= is_follower && fetched.high_watermark > wanted.high_watermark;
                        found.partitions.push(partition);
                        fetched
                    }
                };
                found.is_urgent |= fetched.error.is_error() || fetched.diverging.is_some();
                let len = fetched.records.as_ref().map_or(0, |records| records.len);
                found.bytes += len;
                bytes_left = bytes_left.saturating_sub(len);
                found.results.push((topic_id, wanted.index, fetched));
            }
        }
        Ok(found)
    }

    fn answer_if_enough(
        &mut self,
        body: &[u8],
        found: Gathered,
        at_once: bool,
    ) -> Result<Option<Vec<u8>>, SimulationError> {
        let min_bytes = usize::try_from(parse(body)?.min_bytes).unwrap_or(0);
        if !at_once && !found.is_urgent && !found.partitions.is_empty() && found.bytes < min_bytes {
            return Ok(None);
        }
        let mut writer = Writer::with_capacity(256 + found.bytes);
        let topics = found.results.chunk_by(|one, next| one.0 == next.0);
        let count = topics.clone().count();
        let mut out = FetchResponseWriter::begin(&mut writer, FETCH_VERSION, ErrorCode::NONE, 0, count);
        for partitions in topics {
            out.begin_topic("", partitions[0].0, partitions.len());
            for (_, index, fetched) in partitions {
                write(&mut out, *index, fetched)?;
            }
            out.end_topic();
        }
        out.end(&[]);
        Ok(Some(writer.into_bytes()))
    }
}

fn parse(body: &[u8]) -> Result<FetchRequest<'_>, SimulationError> {
    FetchRequest::parse(body, FETCH_VERSION).map_err(|error| SimulationError::Malformed(error.to_string()))
}

fn records(fetched: &Fetched) -> Result<Vec<u8>, SimulationError> {
    let records = fetched.records.as_ref();
    let mut bytes = vec![0; records.map_or(0, |records| records.len)];
    if let Some(records) = records {
        records.file.read_at(&mut bytes, records.position)?;
    }
    Ok(bytes)
}

fn write(out: &mut FetchResponseWriter<'_>, index: i32, fetched: &Fetched) -> Result<(), SimulationError> {
    let bytes = records(fetched)?;
    let result = FetchResult {
        high_watermark: fetched.high_watermark,
        last_stable_offset: fetched.last_stable_offset,
        log_start_offset: fetched.log_start_offset,
        aborted: fetched.aborted.clone(),
        diverging: fetched.diverging,
        records_len: bytes.len(),
        ..FetchResult::refused(fetched.error)
    };
    out.partition(index, &result);
    assert!(out.try_records(bytes.len(), |room| {
        room.copy_from_slice(&bytes);
        true
    }));
    out.end_partition(&result);
    Ok(())
}
