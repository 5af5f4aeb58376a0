//! ShareFetch: acknowledges, then acquires and returns records, or waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use klamm_base::ErrorCode;
use klamm_base::os::read_if_cached;
use klamm_metadata::MetadataImage;
use klamm_replica::FetchWaiter;
use klamm_share::{AcquireMode, Member};
use klamm_wire::api::Resource;
use klamm_wire::header::ResponseHeader;
use klamm_wire::share_fetch::{ShareFetchRequest, ShareFetchResponseWriter, ShareFetchResult};

use super::acks::{Acknowledging, Acks};
use super::gather::{FetchLimits, FetchTarget, Found, ShareResult, gather, watch};
use super::{Refusal, WaitingShare, by_topic, check_member};
use crate::answer::Answer;
use crate::core::Core;
use crate::handlers::leaders::Leaders;
use crate::handlers::{Call, Outcome};
use crate::link::Link;
use crate::pipeline::QuotaClient;
use crate::share::{FINAL_EPOCH, INITIAL_EPOCH, MemberKey, ShareKey, ShareTarget, Subscription};

/// Records of up to this many bytes are copied into the response.
const INLINE_BYTES_MAX: usize = 16 << 10;

/// How the request uses its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It opens it.
    Opens,
    /// It is at this epoch after the request.
    Continues(i32),
    /// It closes it.
    Closes,
}

/// A fetch that waits for the share coordinator, and then for records.
pub struct WaitingShareFetch {
    pub header: ResponseHeader,
    connection: Arc<Link>,
    key: MemberKey,
    session: Use,
    acks: Acks,
    targets: Vec<FetchTarget>,
    limits: FetchLimits,
    deadline: Instant,
    waiter: Option<Arc<FetchWaiter>>,
    client: Option<QuotaClient>,
}

pub fn handle(call: Call<'_>, header: ResponseHeader, waker: &Waker, body: &[u8]) -> Outcome {
    let request = match ShareFetchRequest::parse(body, call.context.version) {
        Ok(request) => request,
        Err(error) => return call.malformed(error),
    };
    let image = call.core.backend.image();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = Instant::now() + wait;
    let checked = check_member(&call, &image, request.group_id.as_deref(), request.member_id.as_deref());
    let opened = checked.and_then(|key| {
        check_renewal(&request)?;
        let (session, targets) = open(&call, &key, &request)?;
        Ok((key, session, targets))
    });
    let (key, session, targets) = match opened {
        Ok(opened) => opened,
        Err((ErrorCode::SHARE_SESSION_LIMIT_REACHED, _)) => {
            return Outcome::Share(Box::new(WaitingShare::TooManySessions { header, deadline }));
        }
        Err(refusal) => {
            write_refusal(call.answer, refusal);
            return Outcome::Answered;
        }
    };
    let mut fetch = match begin(&call, header, &image, &request, (key, session, targets), deadline) {
        Ok(fetch) => fetch,
        Err(refusal) => {
            write_refusal(call.answer, refusal);
            return Outcome::Answered;
        }
    };
    match fetch.answer_or_wait(call.core, call.answer, waker, false) {
        true => Outcome::Answered,
        false => Outcome::Share(Box::new(WaitingShare::Fetch(fetch))),
    }
}

/// A request that renews locks fetches nothing (KIP-1222).
fn check_renewal(request: &ShareFetchRequest<'_>) -> Result<(), Refusal> {
    let fetches = [request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms];
    match request.is_renew_ack && fetches.iter().any(|value| *value != 0) {
        true => Err((
            ErrorCode::INVALID_REQUEST,
            Some("maxBytes, minBytes, maxRecords and maxWaitMs must be 0 if isRenewAck is true"),
        )),
        false => Ok(()),
    }
}

/// Takes the request into its session; returns the partitions to fetch.
fn open(call: &Call<'_>, key: &MemberKey, request: &ShareFetchRequest<'_>) -> Result<(Use, Vec<ShareTarget>), Refusal> {
    let mut added: Vec<ShareTarget> = Vec::new();
    for topic in request.topics.clone() {
        let targets = topic.partitions.map(|partition| ShareTarget { topic: topic.id, index: partition.index });
        added.extend(targets);
    }
    let shares = &call.core.shares;
    let plain = |code| (code, None);
    match request.session_epoch {
        FINAL_EPOCH => {
            shares.sessions.lock().check_exists(key).map_err(plain)?;
            Ok((Use::Closes, Vec::new()))
        }
        INITIAL_EPOCH => {
            if request.has_acknowledgements() {
                return Err((ErrorCode::INVALID_REQUEST, None));
            }
            let connection_id = call.context.connection.id;
            let opened = shares.sessions.lock().open(key, connection_id, &added, shares.config.sessions_max);
            opened.map(|()| (Use::Opens, added)).map_err(plain)
        }
        epoch => {
            let mut sessions = shares.sessions.lock();
            let next = sessions.advance(key, epoch).map_err(plain)?;
            let forgotten = request
                .forgotten
                .clone()
                .flat_map(|topic| topic.partitions.map(move |index| ShareTarget { topic: topic.id, index }));
            let subscription = Subscription { added, forgotten: forgotten.collect() };
            Ok((Use::Continues(next), sessions.subscribe(key, &subscription)))
        }
    }
}

/// `None`: no version knows it.
fn acquire_mode(id: i8) -> Option<AcquireMode> {
    match id {
        0 => Some(AcquireMode::BatchOptimized),
        1 => Some(AcquireMode::RecordLimit),
        _ => None,
    }
}

/// Passes on the acknowledgements, and finds the share partitions. An unknown acquire mode is refused afterwards, and only if
/// there is a partition to fetch, as in Apache Kafka (`ShareFetch`).
fn begin(
    call: &Call<'_>,
    header: ResponseHeader,
    image: &MetadataImage,
    request: &ShareFetchRequest<'_>,
    (key, session, targets): (MemberKey, Use, Vec<ShareTarget>),
    deadline: Instant,
) -> Result<WaitingShareFetch, Refusal> {
    let core = call.core;
    let member = Member::new(&key.member);
    let acks = if request.has_acknowledgements() {
        let (version, is_renew) = (call.context.version, request.is_renew_ack);
        let by = Acknowledging { image, key: &key, member: &member, version, is_renew };
        Acks::begin(call, &by, request.topics.clone())
    } else {
        Acks::none()
    };
    let targets = if request.is_renew_ack || session == Use::Closes { Vec::new() } else { targets };
    let checked: Vec<_> = targets.into_iter().map(|target| (target, check(call, image, target))).collect();
    let has_target = checked.iter().any(|(_, check)| check.is_ok());
    let mode = match acquire_mode(request.acquire_mode) {
        None if has_target => return Err((ErrorCode::UNKNOWN_SERVER_ERROR, None)),
        mode => mode.unwrap_or(AcquireMode::BatchOptimized),
    };
    let quotas = &core.pipeline.quotas;
    let client = quotas.client(&call.context);
    let bytes_max = core.config.fetch_bytes_max.min(request.max_bytes);
    let bytes_max = client.as_ref().map_or(bytes_max, |client| quotas.fetch_bytes_max(client).min(bytes_max));
    let at_least_0 = |number: i32| usize::try_from(number).unwrap_or(0);
    let limits = FetchLimits {
        max_bytes: at_least_0(bytes_max),
        min_bytes: at_least_0(request.min_bytes.min(bytes_max)),
        records_max: i64::from(request.max_records.max(0)),
        batch_size: i64::from(request.batch_size.max(1)),
        mode,
        member,
    };
    let fetches = limits.records_max > 0 && limits.max_bytes > 0;
    if fetches && !checked.is_empty() {
        core.shares.metrics.fetch_requests.add(1);
    }
    let find = |(target, check): (ShareTarget, Result<(), ErrorCode>)| {
        let share = ShareKey { group: key.group.clone(), topic: target.topic, index: target.index };
        FetchTarget { target, live: check.and_then(|()| core.shares.find_or_load(core, image, &share)) }
    };
    let targets = checked.into_iter().filter(|(_, check)| fetches || check.is_err()).map(find).collect();
    let connection = call.context.connection.clone();
    Ok(WaitingShareFetch { header, connection, key, session, acks, targets, limits, deadline, waiter: None, client })
}

/// Whether the member may fetch the partition, and the partition exists.
fn check(call: &Call<'_>, image: &MetadataImage, target: ShareTarget) -> Result<(), ErrorCode> {
    match image.topics().by_id(target.topic) {
        None => Err(ErrorCode::UNKNOWN_TOPIC_ID),
        Some(topic) if !call.topics(image).allows(topic.name()) => Err(Resource::Topic.refusal()),
        Some(topic) if topic.partition(target.index).is_none() => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        Some(_) => Ok(()),
    }
}

impl WaitingShareFetch {
    /// When it is answered with what there is.
    pub fn deadline(&self) -> Option<Instant> {
        self.acks.is_done().then_some(self.deadline)
    }

    /// Whether an event occurred that may complete the fetch.
    pub fn is_woken(&self) -> bool {
        match &self.waiter {
            Some(waiter) => waiter.has_ended(),
            None => self.acks.is_done(),
        }
    }

    /// Writes the response once everything is acknowledged and there is enough to return, or with `at_once`.
    pub fn answer_or_wait(&mut self, core: &Core, answer: &mut Answer, waker: &Waker, at_once: bool) -> bool {
        if !at_once && !self.acks.is_done() {
            return false;
        }
        let image = core.backend.image();
        if let Use::Continues(epoch) = self.session
            && !core.shares.sessions.lock().is_at(&self.key, epoch)
        {
            write_refusal(answer, (ErrorCode::INVALID_SHARE_SESSION_EPOCH, None));
            return true;
        }
        let at_once = at_once || self.targets.is_empty() || Instant::now() >= self.deadline;
        let mut found = self.gather(core, &image, at_once);
        if !at_once && !found.is_urgent && !found.has_records {
            let waiter = Arc::new(FetchWaiter::new(waker.clone()));
            watch(core, &self.targets, &waiter);
            // A change between reading and watching woke nothing, so look again.
            found = self.gather(core, &image, false);
            if !found.is_urgent && !found.has_records {
                self.waiter = Some(waiter);
                return false;
            }
            waiter.end();
        }
        if !self.targets.is_empty() {
            core.shares.metrics.fetched(&self.key.group, found.read, self.targets.len());
            let has_expired = self.waiter.is_some() && Instant::now() >= self.deadline;
            core.shares.metrics.expirations.add(u64::from(has_expired));
        }
        self.write(core, &image, found, answer);
        true
    }

    fn gather(&self, core: &Core, image: &MetadataImage, at_once: bool) -> Found {
        if self.targets.is_empty() {
            return Found { is_urgent: true, ..Found::default() };
        }
        let settings = core.shares.settings(image, &self.key.group);
        gather(core, image, &settings, &self.targets, &self.limits, at_once)
    }

    /// The partitions of the response: those of the fetch that must be sent, with the results of acknowledgements.
    fn results(&self, core: &Core, found: Found) -> Vec<ShareResult> {
        let mut results = found.results;
        if self.session != Use::Closes {
            // An opening request gets all partitions.
            let is_first = self.session == Use::Opens;
            let mut sessions = core.shares.sessions.lock();
            results.retain(|result| {
                let (has_records, has_error) = (result.result.records_len > 0, result.result.error.is_error());
                sessions.must_send(&self.key, result.target, has_records, has_error && !is_first) || is_first
            });
        }
        let mut places: HashMap<ShareTarget, usize> = HashMap::new();
        for ack in self.acks.results(core) {
            if places.is_empty() {
                places.extend(results.iter().enumerate().map(|(place, result)| (result.target, place)));
            }
            let target = ShareTarget { topic: ack.topic, index: ack.index };
            let place = *places.entry(target).or_insert(results.len());
            if place == results.len() {
                results.push(ShareResult { target, result: ShareFetchResult::of(ErrorCode::NONE), records: None });
            }
            let result = &mut results[place].result;
            (result.acknowledge_error, result.acknowledge_message) = (ack.error, ack.message);
        }
        results
    }

    fn write(&mut self, core: &Core, image: &MetadataImage, found: Found, answer: &mut Answer) {
        let mut results = self.results(core, found);
        let mut leaders = Leaders::new(image, &self.connection.listener);
        for partition in &mut results {
            let result = &mut partition.result;
            if matches!(result.error, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH) {
                let topic = image.topics().by_id(partition.target.topic).map(|topic| &**topic);
                result.current_leader = leaders.name(topic, partition.target.index);
            }
            if result.error.is_error() {
                core.shares.metrics.failed_fetches.add(1);
            }
        }
        let bytes: usize = results.iter().map(|partition| partition.result.records_len).sum();
        if let Some(client) = &self.client {
            // What was acquired is sent in any case: otherwise no member would have it until its locks end.
            answer.throttle_ms = core.pipeline.quotas.fetched(client, || bytes);
        }
        core.counters.fetched(false, bytes);
        let lock_ms = core.shares.settings(image, &self.key.group).limits.lock_duration_ms;
        let lock_ms = i32::try_from(lock_ms).unwrap_or(i32::MAX);
        write_response(answer, lock_ms, &results, leaders);
        if self.session == Use::Closes {
            core.shares.end_session(core, &self.key);
        }
    }
}

impl Drop for WaitingShareFetch {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.end();
        }
    }
}

/// A response with an error of the whole request.
pub fn write_refusal(answer: &mut Answer, (code, message): Refusal) {
    ShareFetchResponseWriter::begin(&mut answer.writer, 0, code, message, 0, 0).end(&[]);
}

fn write_response(answer: &mut Answer, lock_ms: i32, results: &[ShareResult], leaders: Leaders<'_>) {
    let topics = by_topic(results.iter().map(|result| (result.target.topic, result)));
    let throttle_ms = answer.throttle_ms;
    let writer = &mut answer.writer;
    let mut out = ShareFetchResponseWriter::begin(writer, throttle_ms, ErrorCode::NONE, None, lock_ms, topics.len());
    let mut slices = Vec::new();
    for (topic, partitions) in &topics {
        out.begin_topic(*topic, partitions.len());
        for partition in partitions {
            out.partition(partition.target.index, &partition.result);
            if let Some(records) = &partition.records
                && !write_inline(&mut out, records)
            {
                slices.push((out.position(), records.clone()));
            }
            out.end_partition(&partition.result);
        }
        out.end_topic();
    }
    out.end(&leaders.into_endpoints());
    slices.into_iter().for_each(|(position, slice)| answer.add_slice(position, slice));
}

/// Copies a small number of records into the response if that needs no waiting.
fn write_inline(out: &mut ShareFetchResponseWriter<'_>, records: &klamm_log::FileSlice) -> bool {
    records.len <= INLINE_BYTES_MAX
        && out.try_records(records.len, |room| {
            read_if_cached(records.file.file(), room, records.position).is_ok_and(|read| read == Some(records.len))
        })
}
