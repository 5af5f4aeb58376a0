//! Produce: appends batches from the frame without copying, and holds the response until they are acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use klamm_base::ErrorCode;
use klamm_base::primitives::Writer;
use klamm_metadata::topic::Topic;
use klamm_replica::Appended;
use klamm_wire::produce::{ProduceItem, ProduceRequest, ProduceResponseWriter, ProduceResult};
use klamm_wire::topic::TopicRef;

use super::leaders::Leaders;
use super::repeats::{ByTopic, Repeats};
use super::verification::{self, ADDING_VERSION, NotVerified, Verification, Verified};
use super::{Call, Outcome};
use crate::acks::AckWait;
use crate::answer::Frame;
use crate::backend::Partition;
use crate::events::Verify;
use crate::pipeline::{Topics, id_with_partition};
use crate::produced::{first_batch, only_batch_len};
use crate::topic_name::is_internal;

/// acks of a produce that waits for all in-sync replicas.
const ALL: i16 = -1;
/// The only client that may write to internal topics.
const ADMIN_CLIENT: &str = "__admin_client";

/// A produce whose response is written except for the error codes of partitions that are not acknowledged yet.
pub struct WaitingProduce {
    pub wait: Arc<AckWait>,
    /// The position of each waiting partition's error code in the response.
    code_positions: Vec<usize>,
    pub deadline: Instant,
}

impl WaitingProduce {
    /// Stores the error codes in the response's frame.
    pub fn settle(&self, frame: &mut Frame) {
        set_codes(&mut frame.bytes, &self.code_positions, &self.wait);
    }
}

fn set_codes(bytes: &mut [u8], positions: &[usize], wait: &AckWait) {
    for (&position, code) in positions.iter().zip(wait.codes()) {
        bytes[position..position + 2].copy_from_slice(&code.0.to_be_bytes());
    }
}

/// A partition that appended its batch, until its end offset is committed.
struct Unacknowledged {
    partition: Arc<dyn Partition>,
    end_offset: i64,
    /// The position of its error code in the response.
    code_position: usize,
}

/// The partition that appended a batch, and the end offset that must be committed.
type Appending = (Arc<dyn Partition>, i64);

/// The result of one partition's batch, and what to wait for with acks=all.
pub(super) struct Answered {
    pub index: i32,
    result: ProduceResult,
    appending: Option<Appending>,
}

/// The unacknowledged partitions and the end of a response that is being written.
struct ResponseProgress<'a> {
    leaders: Leaders<'a>,
    throttle_ms: i32,
    unacknowledged: Vec<Unacknowledged>,
    first_error: Option<ErrorCode>,
}

impl<'a> ResponseProgress<'a> {
    fn new(leaders: Leaders<'a>, throttle_ms: i32) -> Self {
        Self { leaders, throttle_ms, unacknowledged: Vec::new(), first_error: None }
    }

    fn write(&mut self, out: &mut ProduceResponseWriter<'_>, topic: Result<&Topic, ErrorCode>, answered: Answered) {
        let Answered { index, mut result, appending } = answered;
        if result.error == ErrorCode::NOT_LEADER_OR_FOLLOWER {
            result.current_leader = Some(self.leaders.name(topic.ok(), index));
        }
        self.first_error = self.first_error.or(Some(result.error).filter(|error| error.is_error()));
        let code_position = out.partition(index, &result);
        if let Some((partition, end_offset)) = appending {
            self.unacknowledged.push(Unacknowledged { partition, end_offset, code_position });
        }
    }

    fn end(self, out: ProduceResponseWriter<'_>) -> (Vec<Unacknowledged>, Option<ErrorCode>) {
        out.end(self.throttle_ms, &self.leaders.into_endpoints());
        (self.unacknowledged, self.first_error)
    }
}

/// The parts of a request that its partitions share.
struct Produce<'a> {
    call: &'a Call<'a>,
    topics: Topics<'a>,
    acks: i16,
    now_ms: i64,
    refusals: Refusals,
    verified: Verified,
    throttle_ms: i32,
}

/// Errors of a request as a whole.
#[derive(Default)]
struct Refusals {
    /// The error for every partition, known or not.
    of_all: Option<ErrorCode>,
    /// The error for partitions that would otherwise be appended to.
    of_appends: Option<ErrorCode>,
    /// No error, but the transaction of each batch must be open or verified.
    is_transactional: bool,
}

/// Handles a request. `verified` is there when it is handled again after [`Outcome::Verifies`].
pub fn handle(call: Call<'_>, verified: Option<Verified>, body: &mut [u8]) -> Outcome {
    let request = match ProduceRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    let refusals = Refusals::of(&request, body);
    let mut writer = std::mem::take(&mut call.answer.writer);
    let (topics, acks, now_ms) = (call.topics(&image), request.acks, call.core.now_ms());
    let mut produce =
        Produce { call: &call, topics, acks, now_ms, refusals, verified: Verified::default(), throttle_ms: 0 };
    let known = match verified {
        Some(verified) => Ok(verified),
        None if produce.refusals.is_transactional => produce.verify(&request, body),
        None => Ok(Verified::default()),
    };
    match known {
        Ok(verified) => produce.verified = verified,
        Err(verification) => {
            call.answer.writer = writer;
            return Outcome::Verifies(verification);
        }
    }
    let client = call.core.pipeline.quotas.client(&call.context);
    let throttle_ms =
        client.map_or(0, |client| call.core.pipeline.quotas.produced(&client, call.context.request_bytes));
    produce.throttle_ms = throttle_ms;
    let (unacknowledged, first_error) = produce.append_all(&request, body, &mut writer);
    call.answer.throttle_ms = throttle_ms;
    call.answer.writer = writer;
    match first_error {
        None if request.acks == 0 => Outcome::Silent,
        // A producer that expects no response learns of an error when the connection is closed.
        Some(error) if request.acks == 0 => Outcome::Close(format!("a produce with acks=0 failed: {error}")),
        _ if request.acks != ALL || unacknowledged.is_empty() => Outcome::Answered,
        _ => wait_for_acks(call, request.timeout_ms, unacknowledged),
    }
}

impl Refusals {
    /// Only the first batch of each partition is checked, up to the first transactional one.
    fn of(request: &ProduceRequest, body: &[u8]) -> Self {
        let of_all = |code| Self { of_all: Some(code), ..Self::default() };
        let of_appends = |code| Self { of_appends: Some(code), ..Self::default() };
        match is_transactional(request, body) {
            Err(code) => of_all(code),
            Ok(true) if !request.is_with_transactional_id => of_all(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            Ok(true) if !verification::is_of_one_producer(request, body) => {
                of_all(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
            }
            Ok(_) if !(-1..=1).contains(&request.acks) => of_appends(ErrorCode::INVALID_REQUIRED_ACKS),
            Ok(is_transactional) => Self { is_transactional, ..Self::default() },
        }
    }
}

fn is_transactional(request: &ProduceRequest, body: &[u8]) -> Result<bool, ErrorCode> {
    let mut walk = request.walk();
    while let Some(item) = walk.next(body) {
        if let ProduceItem::Partition { records: Some(records), .. } = item
            && first_batch(&body[records])?.is_some_and(|(header, _)| header.is_transactional())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Produce<'_> {
    /// Asks the transaction coordinator for the partitions in which the transaction is not open; without any, returns the
    /// results.
    fn verify(&self, request: &ProduceRequest, body: &[u8]) -> Result<Verified, Box<Verification>> {
        let version = self.call.context.version;
        let is_adding = version >= ADDING_VERSION;
        let repeats = Repeats::of(request, body, version);
        let mut verified = Verified::default();
        let (mut asked, mut partitions, mut producer) = (Vec::new(), Vec::new(), None);
        let (mut walk, mut topic, mut at) = (request.walk(), Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), 0);
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { topic: named, .. } => topic = self.find(&named),
                ProduceItem::Partition { index, records } => {
                    at += 1;
                    if repeats.as_ref().is_some_and(|repeats| repeats.leaves_out(at - 1)) {
                        continue;
                    }
                    let records = records.map_or(&[][..], |range| &body[range]);
                    // What is refused here is refused again by the append.
                    let (Ok(topic), Ok((partition, _))) = (topic, self.check(topic, index, records)) else { continue };
                    let claim =
                        first_batch(records).ok().flatten().and_then(|(header, _)| verification::claim_of(&header));
                    let Some(claim) = claim else { continue };
                    match partition.begin_verification(claim, is_adding, self.now_ms) {
                        Ok(None) => {}
                        Ok(Some(guard)) => {
                            producer = Some((claim.producer_id, claim.producer_epoch));
                            asked.push((at - 1, guard));
                            partitions.push((topic.name().to_string(), index));
                        }
                        Err(code) => verified.refuse(at - 1, code),
                    }
                }
                ProduceItem::TopicEnd => {}
            }
        }
        let Some((producer_id, producer_epoch)) = producer else { return Ok(verified) };
        let transactional_id = request.transactional_id(body).unwrap_or_default().into_owned();
        let core = self.call.core;
        let handle = core.new_id();
        // Registered before it can be answered.
        core.expect_reply(handle, self.call.context.connection);
        core.events.push_verify(Box::new(Verify {
            handle,
            transactional_id,
            producer_id,
            producer_epoch,
            is_adding,
            version,
            partitions,
        }));
        Err(Verification::new(handle, self.call.context.deadline(), version, asked, verified))
    }

    /// Appends everything and writes the response. Returns the unacknowledged partitions, and the first error.
    fn append_all(
        &self,
        request: &ProduceRequest,
        body: &mut [u8],
        writer: &mut Writer,
    ) -> (Vec<Unacknowledged>, Option<ErrorCode>) {
        let progress =
            ResponseProgress::new(Leaders::new(self.topics.image, &self.call.context.listener.name), self.throttle_ms);
        match Repeats::of(request, body, self.call.context.version) {
            None => self.append_each(request, body, writer, progress),
            Some(repeats) => self.append_merged(request, body, writer, progress, &repeats),
        }
    }

    /// Without repeated partitions, each is answered at its position in the request.
    fn append_each(
        &self,
        request: &ProduceRequest,
        body: &mut [u8],
        writer: &mut Writer,
        mut progress: ResponseProgress<'_>,
    ) -> (Vec<Unacknowledged>, Option<ErrorCode>) {
        let mut out = ProduceResponseWriter::begin(writer, self.call.context.version, request.topic_count);
        let mut topic = Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let (mut walk, mut at) = (request.walk(), 0);
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { topic: named, partition_count } => {
                    out.begin_topic(&named, partition_count);
                    topic = self.find(&named);
                }
                ProduceItem::Partition { index, records } => {
                    let records = records.map_or(&mut [][..], |range| &mut body[range]);
                    progress.write(&mut out, topic, self.append(topic, index, at, records));
                    at += 1;
                }
                ProduceItem::TopicEnd => out.end_topic(),
            }
        }
        progress.end(out)
    }

    fn append_merged(
        &self,
        request: &ProduceRequest,
        body: &mut [u8],
        writer: &mut Writer,
        mut progress: ResponseProgress<'_>,
        repeats: &Repeats,
    ) -> (Vec<Unacknowledged>, Option<ErrorCode>) {
        let mut merged = ByTopic::default();
        let mut named = None;
        let (mut walk, mut at) = (request.walk(), 0);
        while let Some(item) = walk.next(body) {
            match item {
                ProduceItem::Topic { topic, .. } => named = Some(topic.into_owned()),
                ProduceItem::Partition { index, records } => {
                    at += 1;
                    if let Some(named) = named.as_ref().filter(|_| !repeats.leaves_out(at - 1)) {
                        let records = records.map_or(&mut [][..], |range| &mut body[range]);
                        let answered = self.append(self.find(named), index, at - 1, records);
                        merged.add(named, answered, repeats.is_malformed(at - 1));
                    }
                }
                ProduceItem::TopicEnd => {}
            }
        }
        let mut out = ProduceResponseWriter::begin(writer, self.call.context.version, merged.topics.len());
        for (named, partitions) in merged.topics {
            out.begin_topic(&named, partitions.len());
            partitions.into_iter().for_each(|answered| progress.write(&mut out, self.find(&named), answered));
            out.end_topic();
        }
        progress.end(out)
    }

    fn find(&self, named: &TopicRef<'_>) -> Result<&Topic, ErrorCode> {
        match named {
            TopicRef::Name(name) => self.topics.named(name),
            TopicRef::Id(id) => self.topics.with_id(*id),
        }
    }

    /// Appends the batch of the partition's entry `at`.
    fn append(&self, topic: Result<&Topic, ErrorCode>, index: i32, at: usize, records: &mut [u8]) -> Answered {
        let (partition, len) = match self.check(topic, index, records) {
            Ok(checked) => checked,
            Err(code) => {
                let corrupt = code == ErrorCode::CORRUPT_MESSAGE;
                let message = corrupt.then(|| "the bytes hold no record batch of a known format".to_owned());
                return Answered {
                    index,
                    result: ProduceResult { message, ..ProduceResult::refused(code) },
                    appending: None,
                };
            }
        };
        let guard = match self.verified.get(at).transpose() {
            Ok(guard) => guard,
            Err(NotVerified { code, message }) => {
                let result = ProduceResult { message, ..ProduceResult::refused(code) };
                return Answered { index, result, appending: None };
            }
        };
        match partition.append(&mut records[..len], self.acks, guard, self.now_ms) {
            Ok(Appended { base_offset, log_append_time_ms, log_start_offset, end_offset, is_acked }) => {
                let appended = ProduceResult::refused(ErrorCode::NONE);
                let result = ProduceResult { base_offset, log_append_time_ms, log_start_offset, ..appended };
                Answered {
                    index,
                    result,
                    appending: (self.acks == ALL && !is_acked).then_some((partition, end_offset)),
                }
            }
            Err(refused) => {
                let result = ProduceResult {
                    log_start_offset: refused.log_start_offset,
                    record_errors: refused.record_errors,
                    message: refused.message,
                    ..ProduceResult::refused(refused.code)
                };
                Answered { index, result, appending: None }
            }
        }
    }

    /// The partition, and the length of the batch in `records` to append.
    fn check(
        &self,
        topic: Result<&Topic, ErrorCode>,
        index: i32,
        records: &[u8],
    ) -> Result<(Arc<dyn Partition>, usize), ErrorCode> {
        self.refusals.of_all.map_or(Ok(()), Err)?;
        let topic = topic?;
        let id = id_with_partition(topic, index)?;
        let len = only_batch_len(records, self.call.context.version)?;
        self.refusals.of_appends.map_or(Ok(()), Err)?;
        if is_internal(topic.name()) && self.call.context.client_id != ADMIN_CLIENT {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        Ok((self.call.core.backend.partition(id, index)?, len))
    }
}

fn wait_for_acks(call: Call<'_>, timeout_ms: i32, waiting: Vec<Unacknowledged>) -> Outcome {
    let wait = AckWait::new(call.context.connection.clone(), waiting.len());
    let mut code_positions: Vec<_> = waiting.iter().map(|entry| entry.code_position).collect();
    for (at, entry) in waiting.into_iter().enumerate() {
        entry.partition.when_acked(entry.end_offset, wait.callback(at));
    }
    if wait.is_done_after_setup() {
        set_codes(call.answer.writer.as_mut_slice(), &code_positions, &wait);
        return Outcome::Answered;
    }
    code_positions.iter_mut().for_each(|position| *position -= call.answer.start());
    let timeout = Duration::from_millis(timeout_ms.max(0) as u64);
    Outcome::Acks(WaitingProduce { wait, code_positions, deadline: Instant::now() + timeout })
}
