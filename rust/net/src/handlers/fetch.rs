//! Fetch: answered immediately if there is enough data, otherwise the request waits on its partitions (KIP-74,
//! KIP-227).

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use klamm_base::ErrorCode;
use klamm_base::Uuid;
use klamm_base::os::read_if_cached;
use klamm_base::primitives::Writer;
use klamm_metadata::MetadataImage;
use klamm_replica::FetchWaiter;
use klamm_wire::api::Api;
use klamm_wire::fetch::{FetchRequest, FetchResponseWriter, FetchResult, TOPIC_ID_VERSION};
use klamm_wire::header::ResponseHeader;

use super::leaders::Leaders;
use super::{Call, Outcome};
use crate::answer::Answer;
use crate::core::Core;
use crate::fetch_context::Context;
use crate::fetch_read::{Gathered, Limits, PartitionResult, Sent};
use crate::link::Link;
use crate::pipeline::{QuotaClient, Topics};
use crate::session::TopicKey;

/// Records of up to this many bytes are copied into the response: one `send` is cheaper than `send` and `sendfile`.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// At most this many bytes of a response's records are in memory.
const INLINE_BYTES_MAX_OF_ANSWER: usize = 256 << 10;
/// Up to this version clients do not know KAFKA_STORAGE_ERROR.
const NO_STORAGE_ERROR_VERSION: i16 = 5;
/// First version with the current leader (KIP-951).
const LEADER_VERSION: i16 = 16;

/// A fetch that found too little data and waits for more.
pub struct WaitingFetch {
    api: &'static Api,
    version: i16,
    header: ResponseHeader,
    connection: Arc<Link>,
    context: Context,
    limits: Limits,
    /// The client whose quota counts it; `None` for a follower, and while there are no quotas.
    client: Option<QuotaClient>,
    pub deadline: Instant,
    waiter: Option<Arc<FetchWaiter>>,
    /// The number of readable partitions when the fetch began to wait.
    watched: usize,
}

pub fn handle(call: Call<'_>, header: ResponseHeader, waker: &Waker, body: &[u8]) -> Outcome {
    let request = match FetchRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    if !(0..=1).contains(&request.isolation_level) {
        write_error(call.answer, call.context.version, &request, ErrorCode::UNKNOWN_SERVER_ERROR);
        return Outcome::Answered;
    }
    let now = Instant::now();
    let context = match Context::open(&call.core.sessions, &request, call.context.version, &*call.core.backend) {
        Ok(context) => context,
        Err(code) => {
            FetchResponseWriter::begin(&mut call.answer.writer, call.context.version, code, 0, 0).end(&[]);
            return Outcome::Answered;
        }
    };
    let quotas = &call.core.pipeline.quotas;
    call.answer.is_exempt = request.is_from_follower();
    let client = if request.is_from_follower() { None } else { quotas.client(&call.context) };
    let bytes_max = call.core.config.fetch_bytes_max;
    let bytes_max = client.as_ref().map_or(bytes_max, |client| quotas.fetch_bytes_max(client).min(bytes_max));
    let mut fetch = Box::new(WaitingFetch {
        api: call.context.api,
        version: call.context.version,
        header,
        connection: call.context.connection.clone(),
        context,
        limits: Limits::of(&request, call.context.version, bytes_max),
        client,
        deadline: now + Duration::from_millis(request.max_wait_ms.max(0) as u64),
        waiter: None,
        watched: 0,
    });
    let may_wait = request.max_wait_ms > 0;
    match fetch.answer_or_wait(call.core, call.answer, waker, !may_wait) {
        true => Outcome::Answered,
        false => Outcome::Fetch(fetch),
    }
}

impl WaitingFetch {
    /// The header of the response.
    pub fn header(&self) -> ResponseHeader {
        self.header
    }

    /// Whether an event occurred that may complete the fetch.
    pub fn is_woken(&self) -> bool {
        self.waiter.as_ref().is_none_or(|waiter| waiter.has_ended())
    }

    /// Writes the response if there is enough data or if `at_once` is set; otherwise waits on every partition of the
    /// fetch.
    pub fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool {
        let image = core.backend.image();
        let found = self.gather(core, &image, self.waiter.is_none());
        let has_lost_one = found.readable() < self.watched;
        if at_once || has_lost_one || found.is_enough(&self.limits) {
            self.write(core, &image, found, answer);
            return true;
        }
        let waiter = Arc::new(FetchWaiter::new(waker.clone()));
        for partition in &found.partitions {
            partition.watch(self.limits.awaits(), waiter.clone());
        }
        if let Context::Session { session, .. } = &self.context {
            session.lock().partitions.wake_at_change(&waiter);
        }
        // A change between reading and watching woke nothing, so read again.
        let found = self.gather(core, &image, false);
        if found.is_enough(&self.limits) {
            waiter.end();
            self.write(core, &image, found, answer);
            return true;
        }
        self.watched = found.readable();
        self.waiter = Some(waiter);
        false
    }

    fn gather(&self, core: &Core, image: &MetadataImage, is_first_look: bool) -> Gathered {
        let mut found = Gathered::new(&self.limits, is_first_look);
        let topics = Topics::new(&core.pipeline.authorizer, &self.connection, self.api, image);
        match &self.context {
            Context::Sessionless(wanted) | Context::Full { wanted, .. } => {
                for wanted in wanted {
                    let (partition, _) = found.read(core, topics, wanted, &self.limits, Sent::NOTHING, None);
                    found.results.push(partition);
                }
            }
            Context::Session { session, epoch } => {
                let mut session = session.lock();
                // After another request has used the session, there is nothing to wait for.
                found.is_urgent |= session.epoch != *epoch;
                session.see_brokers(image);
                for number in session.partitions.due() {
                    let (cached, entry) = session.partitions.visit(number);
                    let (partition, quiet_on) =
                        found.read(core, topics, &cached.wanted, &self.limits, cached.sent(), Some(&entry));
                    if cached.must_send(&partition.result) {
                        found.results.push(partition);
                    }
                    if let Some(partition) = quiet_on {
                        session.partitions.become_quiet(number, &partition);
                    }
                }
                found.quiet = session.partitions.quiet_len();
            }
        }
        found
    }

    fn write(&mut self, core: &Core, image: &MetadataImage, mut found: Gathered, answer: &mut Answer) {
        if self.is_throttled(core, &found, answer) {
            return;
        }
        if self.version <= NO_STORAGE_ERROR_VERSION {
            for partition in &mut found.results {
                if partition.result.error == ErrorCode::KAFKA_STORAGE_ERROR {
                    partition.result.error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
                }
            }
        }
        // Partitions with errors for missing topics come last, as in Apache Kafka.
        found.results.sort_by_key(|partition| {
            matches!(partition.result.error, ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        });
        let mut leaders = Leaders::new(image, &self.connection.listener);
        if self.version >= LEADER_VERSION {
            name_leaders(&mut leaders, image, &mut found.results);
        }
        let (error, session_id) = self.context.record(&core.sessions, &found.results, core.backend.now_ms());
        let results = if error.is_error() { &[][..] } else { &found.results[..] };
        let mut slices = Vec::new();
        let mut inline_left = INLINE_BYTES_MAX_OF_ANSWER;
        let mut out = FetchResponseWriter::begin(&mut answer.writer, self.version, error, session_id, topics(results));
        write_topics(&mut out, results, |out, partition| {
            if let Some(records) = &partition.records
                && !write_inline(out, partition, &mut inline_left)
            {
                slices.push((out.position(), records.clone()));
            }
        });
        out.end(&leaders.into_endpoints());
        let bytes: usize = results.iter().map(|partition| partition.result.records_len).sum();
        core.counters.fetched(self.limits.by.is_follower(), bytes);
        slices.into_iter().for_each(|(position, slice)| answer.add_slice(position, slice));
    }
}

impl WaitingFetch {
    /// Counts what was found. If the client's quota does not allow it, writes a response without it.
    fn is_throttled(&self, core: &Core, found: &Gathered, answer: &mut Answer) -> bool {
        let Some(client) = &self.client else { return false };
        answer.throttle_ms = core.pipeline.quotas.fetched(client, || counted_bytes(self.version, &found.results));
        if answer.throttle_ms == 0 {
            return false;
        }
        let (error, session_id) = self.context.without_partitions();
        FetchResponseWriter::throttled(&mut answer.writer, self.version, answer.throttle_ms, error, session_id);
        true
    }
}

impl Drop for WaitingFetch {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.end();
        }
    }
}

/// The bytes of a response that count, as in Apache Kafka: those of its body, and four.
fn counted_bytes(version: i16, results: &[PartitionResult]) -> usize {
    let mut around = Writer::new();
    let mut records_len = 0;
    let mut out = FetchResponseWriter::begin(&mut around, version, ErrorCode::NONE, 0, topics(results));
    write_topics(&mut out, results, |_, partition| records_len += partition.result.records_len);
    out.end(&[]);
    4 + around.len() + records_len
}

/// The number of topics of a response: results of the same topic follow each other.
fn topics(results: &[PartitionResult]) -> usize {
    results.chunk_by(|one, next| one.topic == next.topic).count()
}

/// Writes the results; `write_records` adds the records of each, or notes where they belong.
fn write_topics(
    out: &mut FetchResponseWriter<'_>,
    results: &[PartitionResult],
    mut write_records: impl FnMut(&mut FetchResponseWriter<'_>, &PartitionResult),
) {
    for partitions in results.chunk_by(|one, next| one.topic == next.topic) {
        let (name, id) = match &partitions[0].topic {
            TopicKey::Name(name) => (&**name, Uuid::ZERO),
            TopicKey::Id(id) => ("", *id),
        };
        out.begin_topic(name, id, partitions.len());
        for partition in partitions {
            out.partition(partition.index, &partition.result);
            write_records(out, partition);
            out.end_partition(&partition.result);
        }
        out.end_topic();
    }
}

/// Copies a small number of records into the response if that needs no waiting.
fn write_inline(out: &mut FetchResponseWriter<'_>, partition: &PartitionResult, left: &mut usize) -> bool {
    let Some(records) = &partition.records else { return true };
    if records.len > INLINE_BYTES_MAX.min(*left) {
        return false;
    }
    *left -= records.len;
    out.try_records(records.len, |room| {
        read_if_cached(records.file.file(), room, records.position).is_ok_and(|read| read == Some(records.len))
    })
}

fn name_leaders(leaders: &mut Leaders<'_>, image: &MetadataImage, results: &mut [PartitionResult]) {
    for partition in results {
        if matches!(partition.result.error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH) {
            let topic = match &partition.topic {
                TopicKey::Name(name) => image.topics().by_name(name),
                TopicKey::Id(id) => image.topics().by_id(*id),
            };
            partition.result.current_leader = Some(leaders.name(topic.map(|topic| &**topic), partition.index));
        }
    }
}

/// A response with the same error everywhere; newer clients read only the top-level error.
fn write_error(answer: &mut Answer, version: i16, request: &FetchRequest<'_>, code: ErrorCode) {
    let topics = request.topics.clone();
    let topic_count = if version < TOPIC_ID_VERSION { topics.len() } else { 0 };
    let mut out = FetchResponseWriter::begin(&mut answer.writer, version, code, request.session_id, topic_count);
    for topic in topics.take(topic_count) {
        let key = TopicKey::of(&topic.topic);
        let name = if let TopicKey::Name(name) = &key { name } else { "" };
        out.begin_topic(name, Uuid::ZERO, topic.partitions.len());
        for partition in topic.partitions {
            let result = FetchResult::refused(code);
            out.partition(partition.index, &result);
            out.end_partition(&result);
        }
        out.end_topic();
    }
    out.end(&[]);
}
