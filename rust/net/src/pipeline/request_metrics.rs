//! Apache Kafka's `RequestMetrics`: number and size of requests, the time of each processing stage, and the error
//! codes of responses. While measurement is off, requests are only counted.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use klamm_base::ErrorCode;
use klamm_base::counters::{Counter, Named};
use klamm_base::primitives::ErrorCounts;
use klamm_wire::api::{Api, FETCH};
use klamm_wire::fetch::FetchRequest;
use parking_lot::Mutex;

use super::histogram::{Distribution, Histogram};

/// Number of API keys with separate counters.
const KEYS: usize = 128;
/// Number of versions of an API with separate counters; ApiVersions accepts any version, and higher ones share a
/// counter.
const VERSIONS: usize = 20;
/// Times are stored in nanoseconds and reported in milliseconds.
const MS: f64 = 1e-6;
const TYPE: &str = "kafka.network:type=RequestMetrics";

/// A measured request with the time of each processing stage.
#[derive(Debug)]
pub struct Measured {
    name: Name,
    request_bytes: usize,
    received: Instant,
    /// When its handler began: on a network thread, or when Python took it from the queue.
    begun: Instant,
    /// When its handler had done everything possible without waiting.
    handled: Instant,
    /// When the response was complete.
    answered: Instant,
    /// When the response was next to be sent.
    queued: Instant,
    throttled: Duration,
    errors: ErrorCounts,
}

/// The name of a request in metrics: its API's name, or one of two additional names for Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    key: i16,
    is_follower: bool,
}

impl Measured {
    /// Starts the measurement when the request is taken.
    pub fn begin(api: &Api, version: i16, body: &[u8], request_bytes: usize, received: Instant) -> Box<Self> {
        let is_follower =
            api.key == FETCH && FetchRequest::parse(body, version).is_ok_and(|request| request.is_from_follower());
        let now = Instant::now();
        Box::new(Self {
            name: Name { key: api.key, is_follower },
            request_bytes,
            received,
            begun: now,
            handled: now,
            answered: now,
            queued: now,
            throttled: Duration::ZERO,
            errors: ErrorCounts::new(),
        })
    }

    /// Records the response's error codes.
    pub fn has_errors(&mut self, errors: ErrorCounts) {
        self.errors.extend(errors);
    }

    /// Records an error code that was not known when the response was written, where it counted as no error.
    pub fn has_later_error(&mut self, code: ErrorCode) {
        if code.is_error() {
            self.errors.push((code, 1));
            let none = self.errors.iter_mut().find(|(counted, _)| !counted.is_error());
            none.into_iter().for_each(|(_, count)| *count = count.saturating_sub(1));
        }
    }

    /// The handler has returned.
    pub fn handled(&mut self) {
        self.handled = Instant::now();
        self.answered = self.handled;
    }

    /// The response is complete, later than its handler returned.
    pub fn answered(&mut self) {
        self.answered = Instant::now();
    }

    /// The response came from Python, which took the request from its queue at `begun`.
    pub fn answered_outside(&mut self, begun: Option<Instant>) {
        self.begun = begun.unwrap_or(self.begun);
        self.handled();
    }

    /// The response is the next to be sent.
    pub fn queued(&mut self, throttled: Duration) {
        self.queued = Instant::now();
        self.throttled = throttled;
    }
}

/// The values of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestDistribution {
    /// The MBean's name.
    pub name: String,
    /// The factor from a value to the unit of the name.
    pub unit: f64,
    pub values: Distribution,
}

/// The metrics of a server.
pub struct RequestMetrics {
    is_on: AtomicBool,
    requests: Box<[[Counter; VERSIONS]]>,
    /// By API key; empty for APIs that were never measured.
    measured: Box<[OnceLock<Box<[ApiMetrics; 2]>>]>,
}

/// The metrics under one name.
#[derive(Default)]
struct ApiMetrics {
    total: Histogram,
    request_queue: Histogram,
    local: Histogram,
    remote: Histogram,
    response_queue: Histogram,
    response_send: Histogram,
    throttle: Histogram,
    request_bytes: Histogram,
    errors: Mutex<HashMap<i16, u64>>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            requests: (0..KEYS).map(|_| std::array::from_fn(|_| Counter::default())).collect(),
            measured: (0..KEYS).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl RequestMetrics {
    /// Turns measurement on or off.
    pub fn measure(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether requests are measured.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts a request that was taken.
    #[inline]
    pub fn add_request(&self, api: &Api, version: i16) {
        if let Some(versions) = self.requests.get(api.key as usize) {
            versions[usize::try_from(version).unwrap_or(VERSIONS).min(VERSIONS - 1)].add(1);
        }
    }

    /// The number of requests of each API that had any, by key.
    pub fn requests(&self) -> impl Iterator<Item = (i16, u64)> + '_ {
        let count = |api: &Api| self.requests[api.key as usize].iter().map(Counter::get).sum();
        Api::all().iter().map(move |api| (api.key, count(api))).filter(|(_, count)| *count > 0)
    }

    /// Records a request whose response was sent, or that expects none.
    pub fn record(&self, request: &Measured, sent: Instant) {
        let metrics = self.of(request.name);
        let between = |histogram: &Histogram, from: Instant, to: Instant| {
            histogram.add(u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX));
        };
        between(&metrics.total, request.received, sent);
        between(&metrics.request_queue, request.received, request.begun);
        between(&metrics.local, request.begun, request.handled);
        between(&metrics.remote, request.handled, request.answered);
        between(&metrics.response_queue, request.answered, request.queued);
        between(&metrics.response_send, request.queued, sent);
        metrics.throttle.add(u64::try_from(request.throttled.as_nanos()).unwrap_or(u64::MAX));
        metrics.request_bytes.add(request.request_bytes as u64);
        let mut errors = metrics.errors.lock();
        request.errors.iter().for_each(|(code, count)| *errors.entry(code.0).or_default() += count);
    }

    fn of(&self, name: Name) -> &ApiMetrics {
        &self.measured[name.key as usize].get_or_init(Box::default)[usize::from(name.is_follower)]
    }

    /// RequestsPerSec of each API and version that had requests, and ErrorsPerSec of measured ones.
    pub fn named(&self) -> impl Iterator<Item = Named> + '_ {
        Api::all().iter().flat_map(move |api| {
            let key = api.key as usize;
            let versions = self.requests[key].iter().enumerate().map(|(version, counter)| (version, counter.get()));
            let requests = versions.filter(|(_, count)| *count > 0).map(move |(version, count)| {
                (format!("{TYPE},name=RequestsPerSec,request={},version={version}", api.name), count)
            });
            requests.chain(self.errors_of(api))
        })
    }

    fn errors_of(&self, api: &Api) -> impl Iterator<Item = Named> {
        let mut errors = HashMap::new();
        for metrics in self.measured[api.key as usize].get().into_iter().flat_map(|both| both.iter()) {
            metrics.errors.lock().iter().for_each(|(code, count)| *errors.entry(*code).or_default() += count);
        }
        let name = api.name;
        let named =
            |(code, count)| (format!("{TYPE},name=ErrorsPerSec,request={name},error={}", ErrorCode(code)), count);
        errors.into_iter().filter(|(_, count)| *count > 0).map(named).collect::<Vec<_>>().into_iter()
    }

    /// The distributions of all measured requests.
    pub fn distributions(&self) -> Vec<RequestDistribution> {
        let mut found = Vec::new();
        for api in Api::all() {
            let Some(both) = self.measured[api.key as usize].get() else { continue };
            for (metrics, who) in both.iter().zip(["Consumer", "Follower"]) {
                let who = if api.key == FETCH { who } else { "" };
                for (name, unit, histogram) in metrics.histograms() {
                    let distribution = histogram.distribution();
                    if distribution.count > 0 {
                        let name = format!("{TYPE},name={name},request={}{who}", api.name);
                        found.push(RequestDistribution { name, unit, values: distribution });
                    }
                }
            }
        }
        found
    }
}

impl ApiMetrics {
    /// Name, unit and values of each histogram.
    fn histograms(&self) -> [(&'static str, f64, &Histogram); 8] {
        [
            ("TotalTimeMs", MS, &self.total),
            ("RequestQueueTimeMs", MS, &self.request_queue),
            ("LocalTimeMs", MS, &self.local),
            ("RemoteTimeMs", MS, &self.remote),
            ("ResponseQueueTimeMs", MS, &self.response_queue),
            ("ResponseSendTimeMs", MS, &self.response_send),
            ("ThrottleTimeMs", MS, &self.throttle),
            ("RequestBytes", 1.0, &self.request_bytes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_and_version_has_a_counter() {
        let metrics = RequestMetrics::default();
        for api in Api::all() {
            (api.version_min..=api.version_max).for_each(|version| metrics.add_request(api, version));
            assert!((api.version_max as usize) < VERSIONS - 1, "{}", api.name);
        }
        assert_eq!(metrics.requests().count(), Api::all().len());
        assert!(metrics.named().all(|(_, count)| count == 1));
        metrics.add_request(&Api::all()[0], i16::MAX);
        metrics.add_request(&Api::all()[0], -1);
        assert!(metrics.named().any(|(name, count)| name.ends_with("request=Produce,version=19") && count == 2));
    }
}
