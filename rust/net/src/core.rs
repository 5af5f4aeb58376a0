//! State that all connections of a server share.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use klamm_base::clock::now_ms;
use klamm_metadata::MetadataImage;
use klamm_metadata::version::KRAFT_VERSION;
use klamm_quorum::Answering;
use klamm_wire::api::{Api, ListenerKind};
use klamm_wire::api_versions::{ApiRange, Features};
use parking_lot::Mutex;

use super::backend::Backend;
use super::buffers::Buffers;
use super::config::NetConfig;
use super::counters::Counters;
use super::events::EventQueue;
use super::limits::ConnectionLimits;
use super::link::{Link, Note, Reply};
use super::listener::Listener;
use super::pipeline::Pipeline;
use super::sessions::{SessionOptions, Sessions};
use super::share::ShareGroups;

/// Information about features that the image does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupportedFeatures {
    /// Name, lowest and highest level that this node supports.
    pub ranges: Vec<(String, i16, i16)>,
    /// Finalized kraft.version: it is in the quorum's control records, not in the image.
    pub kraft_version: i16,
}

pub struct Core {
    pub config: Arc<NetConfig>,
    pub cluster_id: String,
    pub backend: Arc<dyn Backend>,
    pub supported_features: ArcSwap<SupportedFeatures>,
    /// The API versions of the active controller if it is another process; `None` if they are not known.
    pub controller_apis: ArcSwap<Option<Vec<ApiRange>>>,
    /// The image that ApiVersions uses before the backend has one.
    pub early_image: ArcSwapOption<MetadataImage>,
    pub events: EventQueue,
    /// Answers the quorum's fetches while the core has granted a lease, if this node has a quorum's log.
    pub answering: OnceLock<Arc<Answering>>,
    pub sessions: Sessions,
    pub shares: ShareGroups,
    pub buffers: Buffers,
    limits: Arc<ConnectionLimits>,
    controller_limits: Arc<ConnectionLimits>,
    pub counters: Counters,
    pub pipeline: Pipeline,
    links: Mutex<HashMap<u64, Arc<Link>>>,
    /// The origin of the links' times.
    begun: Instant,
    /// The connection that waits for the response to each handle.
    handles: Mutex<HashMap<u64, Arc<Link>>>,
    next_id: AtomicU64,
}

/// Bytes of idle receive buffers that are kept.
const IDLE_BUFFER_BYTES: usize = 8 << 20;

impl Core {
    pub fn new(
        config: NetConfig,
        cluster_id: String,
        backend: Arc<dyn Backend>,
        pipeline: Pipeline,
    ) -> std::io::Result<Self> {
        let config = Arc::new(config);
        Ok(Self {
            cluster_id,
            supported_features: ArcSwap::default(),
            controller_apis: ArcSwap::default(),
            early_image: ArcSwapOption::empty(),
            events: EventQueue::new(config.queued_requests_max)?,
            answering: OnceLock::new(),
            sessions: Sessions::new(SessionOptions::with_slots(config.fetch_session_slots)),
            shares: ShareGroups::new(config.share.clone(), backend.now_ms()),
            buffers: Buffers::new(IDLE_BUFFER_BYTES, usize::try_from(config.queued_bytes_max).unwrap_or(usize::MAX)),
            limits: ConnectionLimits::new(config.connections.clone()),
            controller_limits: ConnectionLimits::new(config.connections.clone()),
            begun: Instant::now(),
            counters: Counters::default(),
            pipeline,
            links: Mutex::default(),
            handles: Mutex::default(),
            next_id: AtomicU64::new(1),
            backend,
            config,
        })
    }

    /// The time of day, in ms since 1970.
    pub fn now_ms(&self) -> i64 {
        now_ms() + self.config.conditions.as_ref().map_or(0, |conditions| conditions.wall_ms())
    }

    /// The connections of all listeners of this kind.
    pub fn limits(&self, kind: ListenerKind) -> &Arc<ConnectionLimits> {
        match kind {
            ListenerKind::Broker => &self.limits,
            ListenerKind::Controller => &self.controller_limits,
        }
    }

    /// Both of them.
    pub fn all_limits(&self) -> [&Arc<ConnectionLimits>; 2] {
        [&self.limits, &self.controller_limits]
    }

    /// Records that a connection was used.
    pub fn touch(&self, link: &Link, now: Instant) {
        link.touch(u64::try_from((now - self.begun).as_millis()).unwrap_or(u64::MAX));
    }

    /// Closes connections beyond the limit, least recently used first.
    pub fn close_excess(&self, kind: ListenerKind) {
        let limits = self.limits(kind);
        let excess = limits.excess();
        if excess == 0 {
            return;
        }
        let links = self.links();
        let (closing, mut open): (Vec<_>, Vec<_>) =
            links.iter().filter(|link| link.kind == kind).partition(|link| link.is_asked_to_close());
        open.retain(|link| !limits.is_protected(&link.listener));
        open.sort_by_key(|link| (link.used_ms(), link.id));
        open.into_iter().take(excess.saturating_sub(closing.len())).for_each(|link| link.ask_to_close());
    }

    /// The features for an ApiVersions response.
    pub fn features(&self) -> Features {
        let image = self.early_image.load_full().unwrap_or_else(|| self.backend.image());
        let supported = self.supported_features.load();
        let mut finalized: Vec<_> = image.features().iter().map(|(name, level)| (name.clone(), *level)).collect();
        finalized.push((KRAFT_VERSION.to_owned(), supported.kraft_version));
        Features { supported: supported.ranges.clone(), finalized, finalized_epoch: image.provenance().last_offset }
    }

    /// The APIs for an ApiVersions response on a listener. Of forwarded APIs only versions that the active controller
    /// supports too are included, so that clients do not use a version that it rejects (Apache Kafka's
    /// `ApiVersionManager`).
    pub fn advertised_apis<'a>(&self, listener: &'a Listener) -> Cow<'a, [ApiRange]> {
        let there = self.controller_apis.load();
        let (ListenerKind::Broker, Some(there)) = (listener.kind, &**there) else {
            return Cow::Borrowed(listener.advertised());
        };
        let both = |own: &ApiRange| match Api::of(own.key).is_some_and(|api| api.is_forwarded) {
            true => own.intersect(there.iter().find(|one| one.key == own.key)?),
            false => Some(*own),
        };
        listener.advertised().iter().filter_map(both).collect()
    }

    /// A unique number for a connection or handle.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add_link(&self, link: &Arc<Link>) {
        self.links.lock().insert(link.id, link.clone());
    }

    pub fn remove_link(&self, id: u64) {
        self.links.lock().remove(&id);
    }

    pub fn link(&self, id: u64) -> Option<Arc<Link>> {
        self.links.lock().get(&id).cloned()
    }

    /// All current connections.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.links.lock().values().cloned().collect()
    }

    /// Records that the connection waits for the response to `handle`.
    pub fn expect_reply(&self, handle: u64, link: &Arc<Link>) {
        self.handles.lock().insert(handle, link.clone());
    }

    /// Whether a connection still waits for the response to `handle`.
    pub fn expects_reply(&self, handle: u64) -> bool {
        self.handles.lock().contains_key(&handle)
    }

    pub fn forget_handle(&self, handle: u64) {
        self.handles.lock().remove(&handle);
    }

    /// Stores what Python reports about the request with this handle, which has no response yet.
    pub fn note(&self, handle: u64, note: Note) {
        let link = self.handles.lock().get(&handle).cloned();
        if let Some(link) = link {
            link.note(handle, note);
        }
    }

    /// Passes a response to the connection that waits for it and returns the connection, which the caller then wakes;
    /// `None` if the connection is closed or the request was already answered.
    pub fn reply(&self, handle: u64, reply: Reply) -> Option<Arc<Link>> {
        let link = self.handles.lock().remove(&handle)?;
        link.set_reply(handle, reply);
        Some(link)
    }
}
