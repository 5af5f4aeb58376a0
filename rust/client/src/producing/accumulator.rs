//! The core of a producer: which batch is sent when, and how to handle a response.
//!
//! 1. Batches of a partition are sent in the order of their sequence numbers, and none is [`IN_FLIGHT_MAX`] or more
//!    ahead of an unacknowledged one: the broker remembers that many to detect duplicates (Apache Kafka's
//!    `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`). Otherwise it could forget a batch that was appended but whose
//!    response was lost. Before the first acknowledgement, only one batch is in flight: a broker that does not know a
//!    producer accepts any sequence number first, so a second batch that overtakes a failed first one would make the
//!    first one invalid.
//! 2. After a fault, nothing more of the partition is sent until all responses have arrived; then the failed batches
//!    are sent again, in order. The broker recognizes appended ones by their sequence numbers.
//! 3. A batch that fails permanently makes all others fail, because their sequence numbers would leave a gap.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use klamm_base::ErrorCode;

use super::super::attempts::{Fault, Remedy, RetryPolicy};
use super::super::cluster::{ClusterView, Leader};
use super::super::link_error::LinkError;
use super::super::messages::produce::ProducedPartition;

/// Limit on unanswered batches of a partition, and on unanswered requests to a broker.
pub const IN_FLIGHT_MAX: usize = 5;

/// Topic and partition.
pub type Place = (Arc<str>, i32);

/// A batch that waits to be sent or answered.
#[derive(Debug)]
pub struct ClosedBatch {
    pub bytes: Bytes,
    pub records: i32,
    /// When the batch expires.
    pub deadline_ms: u64,
}

/// A batch with its number within its partition.
type Numbered = (u64, ClosedBatch);

/// The batches of a partition.
#[derive(Debug, Default)]
struct PartitionBatches {
    queue: VecDeque<Numbered>,
    /// Each with the tag of its request.
    in_flight: VecDeque<(u64, Numbered)>,
    failed: Vec<Numbered>,
    next_number: u64,
    /// Whether the broker knows the producer.
    is_known: bool,
    failures: u32,
    not_before_ms: u64,
    last_fault: Option<Fault>,
}

/// A request to send.
#[derive(Debug)]
pub struct Send {
    pub tag: u64,
    pub address: String,
    pub batches: Vec<(Arc<str>, i32, Bytes)>,
}

/// What to do next.
#[derive(Debug, Default)]
pub struct Todo {
    pub sends: Vec<Send>,
    /// Topics whose metadata must be refreshed.
    pub refresh: BTreeSet<Arc<str>>,
    /// Partitions to add to the transaction before anything is sent to them.
    pub enlist: BTreeSet<Place>,
    /// When to poll again even without an event.
    pub wake_at_ms: Option<u64>,
}

/// Why a producer failed.
#[derive(Debug)]
pub struct Failure {
    pub place: Place,
    pub fault: Fault,
    /// The broker's error message.
    pub message: Option<String>,
    pub timed_out: bool,
    /// Records that were accepted and are not known to be in the log.
    pub records: u64,
}

/// All batches that are waiting or in flight.
#[derive(Debug)]
pub struct Accumulator {
    partitions: BTreeMap<Place, PartitionBatches>,
    /// The request's broker and partitions, by tag.
    requests: HashMap<u64, (String, Vec<Place>)>,
    by_broker: HashMap<String, usize>,
    next_tag: u64,
    /// Bytes of all batches.
    bytes: usize,
    retry_policy: RetryPolicy,
    request_bytes_max: usize,
    /// The transaction's partitions; `None` without a transaction.
    enlisted: Option<BTreeSet<Place>>,
    failure: Option<Failure>,
    has_lost: bool,
}

impl Accumulator {
    pub fn new(retry_policy: RetryPolicy, request_bytes_max: usize, transactional: bool) -> Self {
        Self {
            partitions: BTreeMap::new(),
            requests: HashMap::new(),
            by_broker: HashMap::new(),
            next_tag: 0,
            bytes: 0,
            retry_policy,
            request_bytes_max,
            enlisted: transactional.then(BTreeSet::new),
            failure: None,
            has_lost: false,
        }
    }

    /// Adds a batch with the next sequence number of its partition. After a failure it is lost with the others.
    pub fn push(&mut self, place: Place, batch: ClosedBatch) {
        if let Some(failure) = &mut self.failure {
            failure.records += batch.records as u64;
        }
        if self.has_lost {
            return;
        }
        self.bytes += batch.bytes.len();
        let entry = self.partitions.entry(place).or_default();
        entry.queue.push_back((entry.next_number, batch));
        entry.next_number += 1;
    }

    /// Bytes that wait to be sent or answered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether everything is answered.
    pub fn is_idle(&self) -> bool {
        self.bytes == 0 && self.requests.is_empty()
    }

    /// Whether no request is unanswered.
    pub fn has_nothing_in_flight(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether sequence numbers were used that no batch will have.
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Why batches were lost; returned once.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub fn has_failure(&self) -> bool {
        self.failure.is_some()
    }

    /// Drops everything that is not sent yet; requests in flight are still awaited.
    pub fn discard(&mut self) {
        for entry in self.partitions.values_mut() {
            self.has_lost |= !(entry.queue.is_empty() && entry.failed.is_empty());
            entry.queue.clear();
            entry.failed.clear();
        }
        self.bytes =
            self.partitions.values().flat_map(|entry| &entry.in_flight).map(|(_, (_, batch))| batch.bytes.len()).sum();
    }

    /// Restarts with a new identity. Nothing may be in flight.
    pub fn reset(&mut self) {
        assert!(self.requests.is_empty(), "in flight: {:?}", self.requests);
        self.partitions.clear();
        self.bytes = 0;
        self.has_lost = false;
        self.failure = None;
    }

    /// The partitions were added to the transaction.
    pub fn on_enlisted(&mut self, places: &BTreeSet<Place>) {
        if let Some(enlisted) = &mut self.enlisted {
            enlisted.extend(places.iter().cloned());
        }
    }

    /// Whether a batch waits for one of these partitions to be added to the transaction.
    pub fn waits_for(&self, places: &BTreeSet<Place>) -> bool {
        places.iter().any(|place| self.partitions.get(place).is_some_and(|entry| !entry.queue.is_empty()))
    }

    /// Whether the transaction contains any partition.
    pub fn has_enlisted(&self) -> bool {
        self.enlisted.as_ref().is_some_and(|enlisted| !enlisted.is_empty())
    }

    /// The transaction ended.
    pub fn end_transaction(&mut self) {
        if let Some(enlisted) = &mut self.enlisted {
            enlisted.clear();
        }
    }

    /// What can be sent to which broker, and what the rest needs.
    pub fn poll(&mut self, now_ms: u64, view: &ClusterView) -> Todo {
        let mut todo = Todo::default();
        self.give_up_late_ones(now_ms);
        while let Some(send) = self.next_send(now_ms, view, &mut todo) {
            todo.sends.push(send);
        }
        let open = self.partitions.values().filter(|entry| !entry.queue.is_empty() || !entry.failed.is_empty());
        let times = open.flat_map(|entry| {
            let deadline =
                entry.queue.front().filter(|_| entry.in_flight.is_empty()).map(|(_, batch)| batch.deadline_ms);
            [(entry.not_before_ms > now_ms).then_some(entry.not_before_ms), deadline].into_iter().flatten()
        });
        todo.wake_at_ms = times.min();
        todo
    }

    fn give_up_late_ones(&mut self, now_ms: u64) {
        let late = |entry: &PartitionBatches| {
            entry.in_flight.is_empty() && entry.queue.front().is_some_and(|(_, batch)| batch.deadline_ms <= now_ms)
        };
        let Some((place, entry)) = self.partitions.iter_mut().find(|(_, entry)| late(entry)) else { return };
        let fault = entry.last_fault.take().unwrap_or(Fault::Code(ErrorCode::LEADER_NOT_AVAILABLE));
        let place = place.clone();
        self.fail(Failure { place, fault, message: None, timed_out: true, records: 0 });
    }

    /// One request to one broker: the first sendable batch of each of its partitions.
    fn next_send(&mut self, now_ms: u64, view: &ClusterView, todo: &mut Todo) -> Option<Send> {
        let mut address: Option<String> = None;
        let (mut batches, mut places, mut size) = (Vec::new(), Vec::new(), 0);
        let tag = self.next_tag;
        for (place, entry) in &mut self.partitions {
            if !entry.may_send(now_ms) {
                continue;
            }
            if self.enlisted.as_ref().is_some_and(|enlisted| !enlisted.contains(place)) {
                todo.enlist.insert(place.clone());
                continue;
            }
            let Ok(Leader { address: leader, .. }) = view.leader(&place.0, place.1) else {
                todo.refresh.insert(place.0.clone());
                continue;
            };
            let is_full = self.by_broker.get(&leader).is_some_and(|requests| *requests >= IN_FLIGHT_MAX);
            let next = entry.queue.front().map_or(0, |(_, batch)| batch.bytes.len());
            let fits = batches.is_empty() || size + next <= self.request_bytes_max;
            if is_full || !fits || address.as_ref().is_some_and(|chosen| *chosen != leader) {
                continue;
            }
            let Some(numbered) = entry.queue.pop_front() else { continue };
            size += next;
            batches.push((place.0.clone(), place.1, numbered.1.bytes.clone()));
            entry.in_flight.push_back((tag, numbered));
            places.push(place.clone());
            address = Some(leader);
        }
        let address = address?;
        self.next_tag += 1;
        *self.by_broker.entry(address.clone()).or_default() += 1;
        self.requests.insert(tag, (address.clone(), places));
        Some(Send { tag, address, batches })
    }

    /// The leaders of a topic could not be determined.
    pub fn on_unknown(&mut self, topic: &str, fault: &Fault) {
        for (_, entry) in self.partitions.iter_mut().filter(|(place, _)| *place.0 == *topic) {
            entry.last_fault = Some(fault.clone());
        }
    }

    /// The producer cannot continue: everything is lost.
    pub fn on_fatal(&mut self, fault: Fault) {
        let waiting = self.partitions.iter().find(|(_, entry)| !entry.queue.is_empty());
        if let Some(place) = waiting.map(|(place, _)| place.clone()) {
            self.fail(Failure { place, fault, message: None, timed_out: false, records: 0 });
        }
    }

    /// Handles the response to a request, or its error. Returns the topics whose metadata may be outdated.
    pub fn on_answer(
        &mut self,
        now_ms: u64,
        tag: u64,
        outcome: &Result<Vec<ProducedPartition>, LinkError>,
    ) -> BTreeSet<Arc<str>> {
        let mut doubtful = BTreeSet::new();
        let Some((address, places)) = self.requests.remove(&tag) else { return doubtful };
        if let Some(requests) = self.by_broker.get_mut(&address) {
            *requests -= 1;
        }
        for place in places {
            let answered = match outcome {
                Ok(answer) => result_of(answer, &place),
                Err(error) => Err((Fault::Link(error.clone()), None)),
            };
            if self.on_partition(now_ms, tag, &place, answered) {
                doubtful.insert(place.0);
            }
        }
        doubtful
    }

    /// Handles a partition's result; returns whether the metadata may be outdated.
    fn on_partition(
        &mut self,
        now_ms: u64,
        tag: u64,
        place: &Place,
        answered: Result<(), (Fault, Option<String>)>,
    ) -> bool {
        let Some(entry) = self.partitions.get_mut(place) else { return false };
        let Some(at) = entry.in_flight.iter().position(|(of, _)| *of == tag) else { return false };
        let Some((_, (number, batch))) = entry.in_flight.remove(at) else { return false };
        let mut doubtful = false;
        match answered {
            Ok(()) => {
                self.bytes -= batch.bytes.len();
                entry.failures = 0;
                entry.is_known = true;
            }
            Err(_) if self.has_lost => self.bytes -= batch.bytes.len(),
            Err((fault, message)) => {
                let remedy = entry.remedy(&fault, number);
                doubtful = remedy == Remedy::Refresh;
                let is_late = now_ms >= batch.deadline_ms;
                entry.failed.push((number, batch));
                if remedy == Remedy::None || is_late {
                    let timed_out = remedy != Remedy::None;
                    self.fail(Failure { place: place.clone(), fault, message, timed_out, records: 0 });
                    return doubtful;
                }
                entry.last_fault = Some(fault);
            }
        }
        if let Some(entry) = self.partitions.get_mut(place) {
            entry.settle(now_ms, self.retry_policy);
        }
        doubtful
    }

    fn fail(&mut self, failure: Failure) {
        let lost = self.partitions.values().flat_map(|entry| entry.queue.iter().chain(&entry.failed));
        let records = lost.map(|(_, batch)| batch.records as u64).sum();
        self.failure.get_or_insert(Failure { records, ..failure });
        self.discard();
        self.has_lost = true;
    }
}

impl PartitionBatches {
    fn may_send(&self, now_ms: u64) -> bool {
        let Some((number, _)) = self.queue.front() else { return false };
        let ahead = self.in_flight.front().map_or(0, |(_, (oldest, _))| number - oldest);
        let most = if self.is_known { IN_FLIGHT_MAX as u64 } else { 1 };
        self.failed.is_empty() && ahead < most && now_ms >= self.not_before_ms
    }

    fn remedy(&self, fault: &Fault, number: u64) -> Remedy {
        match fault {
            // An earlier batch failed and is sent again first.
            Fault::Code(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)
                if self.failed.iter().any(|(earlier, _)| *earlier < number) =>
            {
                Remedy::Wait
            }
            Fault::Code(
                ErrorCode::NOT_ENOUGH_REPLICAS
                | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
                | ErrorCode::CONCURRENT_TRANSACTIONS
                | ErrorCode::CORRUPT_MESSAGE,
            ) => Remedy::Wait,
            // The topic existed when the record was accepted: its leader may be about to change.
            fault => match fault.remedy() {
                Remedy::WaitShortly => Remedy::Refresh,
                remedy => remedy,
            },
        }
    }

    /// After all responses have arrived, the failed batches are next.
    fn settle(&mut self, now_ms: u64, retry_policy: RetryPolicy) {
        if self.failed.is_empty() || !self.in_flight.is_empty() {
            return;
        }
        self.failed.sort_by_key(|(number, _)| *number);
        for batch in self.failed.drain(..).rev() {
            self.queue.push_front(batch);
        }
        self.not_before_ms = now_ms + retry_policy.backoff_after(self.failures);
        self.failures += 1;
    }
}

fn result_of(answer: &[ProducedPartition], place: &Place) -> Result<(), (Fault, Option<String>)> {
    let produced = answer.iter().find(|produced| *produced.topic == *place.0 && produced.partition == place.1);
    match produced {
        None => Err((Fault::LeftOut, None)),
        // An earlier attempt appended it, and its response was lost.
        Some(ProducedPartition { error: ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER, .. }) => Ok(()),
        Some(ProducedPartition { error, message, .. }) => Err((Fault::Code(*error), message.clone())),
    }
}
