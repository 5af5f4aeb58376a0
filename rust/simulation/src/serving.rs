//! The requests that a simulated broker answers: fetches of followers and of consumers, and those of share groups.

use std::ops::Range;
use std::task::Waker;

use klamm_base::{ErrorCode, Uuid};
use klamm_net::{Looked, Unconnected};
use klamm_replica::{CONSUMER, DEBUGGING, Fetched, LATEST, OffsetQuery, PartitionFetch};
use klamm_wire::api::FETCH;
use klamm_wire::fetch::FetchRequest;

use super::broker::{SimulatedBroker, SimulationError};
use super::fetching::{FETCH_VERSION, InSession};
use super::guard::Guard;

const CONSUMED_BYTES_MAX: usize = 1 << 16;

/// What becomes of a follower's fetch.
pub struct AnsweredFetch {
    /// `None`: it waits.
    pub body: Option<Vec<u8>>,
    /// What its session contains now; `None`: it was refused, or it names all of its partitions.
    pub in_session: Option<Vec<InSession>>,
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
    /// Answers a follower's fetch, or lets it wait under this number.
    pub fn answer_fetch(&mut self, number: u64, body: &[u8], now_ms: i64) -> Result<AnsweredFetch, SimulationError> {
        let request =
            FetchRequest::parse(body, FETCH_VERSION).map_err(|error| SimulationError::Malformed(error.to_string()))?;
        let fetch = Unconnected { api_key: FETCH, version: FETCH_VERSION, connection_id: 0, body };
        let body = self.answer(number, fetch, now_ms)?;
        let is_refused = body.as_deref().is_some_and(has_error);
        let in_session = match request.session_epoch > 0 && !is_refused {
            true => Some(self.life()?.requests.in_session(request.session_id)),
            false => None,
        };
        let in_session = in_session.map(|found| found.into_iter().map(InSession::from).collect());
        Ok(AnsweredFetch { body, in_session })
    }

    /// Answers a request, or lets it wait under this number.
    pub fn answer(
        &mut self,
        number: u64,
        request: Unconnected<'_>,
        now_ms: i64,
    ) -> Result<Option<Vec<u8>>, SimulationError> {
        self.clock.set(now_ms);
        let looked = self.life()?.requests.take(request, Waker::noop())?;
        self.answered_or_waits(number, looked)
    }

    fn answered_or_waits(&mut self, number: u64, looked: Looked) -> Result<Option<Vec<u8>>, SimulationError> {
        match looked {
            Looked::Answered(body) => Ok(Some(body)),
            Looked::Waits(request) => {
                self.life()?.waiting.insert(number, request);
                Ok(None)
            }
        }
    }

    /// The requests that were woken and look again.
    pub(super) fn woken(&mut self) -> Result<Vec<u64>, SimulationError> {
        let waiting = self.life()?.waiting.iter();
        Ok(waiting.filter(|(_, request)| request.is_woken()).map(|(number, _)| *number).collect())
    }

    /// A request looks again; `is_late`: its time is over, so that it is answered in any case. `None` if it still waits, or was
    /// answered already.
    pub fn look_again(&mut self, number: u64, is_late: bool, now_ms: i64) -> Result<Option<Vec<u8>>, SimulationError> {
        self.clock.set(now_ms);
        let Some(request) = self.life()?.waiting.remove(&number) else { return Ok(None) };
        let looked = self.life()?.requests.look_again(request, Waker::noop(), is_late)?;
        self.answered_or_waits(number, looked)
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
}

/// Whether a response has an error besides those of partitions.
fn has_error(body: &[u8]) -> bool {
    const AFTER_THROTTLE_TIME: Range<usize> = 4..6;
    body.get(AFTER_THROTTLE_TIME) != Some(&[0, 0])
}

fn records(fetched: &Fetched) -> Result<Vec<u8>, SimulationError> {
    let records = fetched.records.as_ref();
    let mut bytes = vec![0; records.map_or(0, |records| records.len)];
    if let Some(records) = records {
        records.file.read_at(&mut bytes, records.position)?;
    }
    Ok(bytes)
}
