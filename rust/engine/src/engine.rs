//! The engine of one node: combines its log directories, its partitions and its network.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use klamm_base::LogError;
use klamm_base::clock::{Clock, SystemClock, now_ms};
use klamm_base::conditions::{AdvancedClock, Conditions};
use klamm_base::counters::Named;
use klamm_base::os;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_fetcher::{FetcherOptions, Fetchers};
use klamm_log::{CleanerConfig, Event as LogEvent, Intervals, LockedDir, LogContext, LogManager, ManagerConfig};
use klamm_metadata::MetadataImage;
use klamm_net::{
    Bounded, ConnectionLimitsConfig, LogLevel, NetConfig, Pipeline, Quotas, Server, ShareConfig, Windows, host_address,
};
use klamm_replica::{Durability, Published, Replicas, ReplicasOptions, Unassigned};
use tokio::runtime::Handle;

use crate::appender::{Appender, OwnBatch};
use crate::isr::IsrUpdates;
use crate::moves::Moves;

/// The minimum for the metadata log and an append beside it.
const OPEN_FILES_LEAST: usize = 16;
/// Limit on open log files if the process has no practical limit.
const OPEN_FILES_MOST: usize = 100_000;

/// How long clients have to receive their last responses.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The parts from which a node's engine is created.
pub struct EngineOptions {
    pub node_id: i32,
    pub cluster_id: String,
    /// The log directories; an error of the first one that fails is returned only if all fail.
    pub log_dirs: Vec<(PathBuf, Uuid)>,
    pub settings: Settings,
    /// The files need not survive a power cut: nothing is synced.
    pub is_volatile: bool,
    /// Some configured directories are not in `log_dirs` because they cannot be read.
    pub is_missing_dirs: bool,
    /// Those of a node of an embedded cluster.
    pub conditions: Option<Arc<Conditions>>,
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot set up the network: {0}")]
    Net(#[from] std::io::Error),
}

/// A node's engine. Dropping it closes the network; [`Engine::shutdown`] closes the logs.
pub struct Engine {
    replicas: Arc<Replicas>,
    server: Arc<Server>,
    appender: Appender,
    isr: IsrUpdates,
    /// Until the shutdown: a handle keeps the descriptors of the runtime open.
    runtime: parking_lot::Mutex<Option<Handle>>,
    fetchers: parking_lot::Mutex<Option<Fetchers>>,
    moves: Arc<Moves>,
    /// Paths as they are configured.
    log_dirs: Vec<(PathBuf, Uuid)>,
    conditions: Option<Arc<Conditions>>,
}

impl Engine {
    /// Locks the directories, reads their contents and prepares the network. Nothing listens yet.
    pub fn start(options: EngineOptions, runtime: Handle) -> Result<Self, EngineError> {
        let EngineOptions { node_id, cluster_id, log_dirs, settings, is_volatile, is_missing_dirs, conditions } =
            options;
        let notices: Arc<Notices> = Arc::default();
        let locked = lock_all(&log_dirs, &notices)?;
        let is_missing_dirs = is_missing_dirs || locked.len() < log_dirs.len();
        let most = open_files_max(&settings);
        let context = log_context(most, is_volatile, conditions.as_ref());
        let sender = notices.clone();
        let on_event = Arc::new(move |event| sender.push(event));
        let logs = LogManager::start(locked, manager_config(&settings), context, now_ms(), on_event)?;
        let net = NetConfig { conditions: conditions.clone(), ..net_config(&settings) };
        let durability = Durability::of(&settings);
        let clock: Arc<dyn Clock> = match &conditions {
            None => Arc::new(SystemClock::default()),
            Some(conditions) => Arc::new(AdvancedClock::new(conditions.clone())),
        };
        let replicas = ReplicasOptions { node_id, durability, settings, logs, is_missing_dirs, clock };
        let replicas = Arc::new(Replicas::new(replicas));
        let pipeline = Pipeline { quotas: Quotas::new(net.connections.quota_windows), ..Pipeline::default() };
        let server = Arc::new(Server::new(runtime.clone(), net, cluster_id, replicas.clone(), pipeline)?);
        notices.connect(&server);
        let appender = Appender::new(replicas.clone(), server.clone());
        let isr = IsrUpdates::new(replicas.clone());
        let report = notices.clone();
        let moves = Moves::new(&replicas, move |message| report.push(LogEvent::Warning(message)));
        let (runtime, fetchers) = (Some(runtime).into(), None.into());
        let engine = Self { replicas, server, appender, isr, runtime, fetchers, moves, log_dirs, conditions };
        engine.set_cordoned();
        Ok(engine)
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// The counters of the network, the partitions' logs and their replication since the start, by name.
    pub fn counters(&self) -> Vec<Named> {
        let logs = self.replicas.logs().context().counters.of_partitions();
        let network = self.server.counters().named().chain(self.server.request_metrics().named());
        let network = network.chain(self.server.share_counters());
        let changes = self.replicas.changes();
        network.chain(logs).chain(changes.counters.named()).chain(changes.throttles.named()).collect()
    }

    /// Numbers of the moment: partitions, log directories, and how far this broker's fetches are.
    pub fn gauges(&self) -> Vec<Named> {
        let mut gauges: Vec<Named> = self.replicas.gauges().named().collect();
        gauges.extend(self.replicas.partition_gauges());
        gauges.extend(self.replicas.logs().dir_gauges(&self.log_dirs));
        gauges.extend(self.server.share_gauges());
        gauges.extend(self.fetchers.lock().iter().flat_map(Fetchers::gauges));
        gauges
    }

    /// Publishes a newly committed image; disk errors that occur meanwhile are logged. Returns the partitions whose
    /// directory differs from the image.
    pub fn publish(&self, image: Arc<MetadataImage>) -> Vec<Unassigned> {
        self.server.set_quotas(&image);
        let Published { unassigned, errors, has_to_open } = self.replicas.publish(image.clone());
        self.server.drop_stale_shares(&image);
        if has_to_open {
            let replicas = self.replicas.clone();
            // A log may have to be recovered.
            if let Some(runtime) = &*self.runtime.lock() {
                runtime.spawn_blocking(move || replicas.open_followed());
            }
        }
        for error in errors {
            self.server.events().log(LogLevel::Error, error.to_string());
        }
        unassigned
    }

    /// Applies a new node configuration: dynamic settings apply immediately (KIP-226).
    pub fn set_settings(&self, settings: Settings) {
        self.server.set_limits(connection_limits(&settings));
        self.replicas.logs().reconfigure(manager_config(&settings));
        self.replicas.set_settings(settings);
        self.set_cordoned();
        if let Some(fetchers) = &*self.fetchers.lock() {
            fetchers.reconfigure();
        }
    }

    fn set_cordoned(&self) {
        let cordoned = self.replicas.settings().text("cordoned.log.dirs");
        let is_named =
            |path: &PathBuf| cordoned.split(',').map(str::trim).any(|name| name == "*" || path.as_os_str() == name);
        let ids: Vec<Uuid> = self.log_dirs.iter().filter(|(path, _)| is_named(path)).map(|(_, id)| *id).collect();
        self.replicas.logs().set_cordoned(&ids);
    }

    /// Opens the logs on disk that are not open yet, on a separate thread; strays are set aside. From now on this broker fetches
    /// what it follows, from the leaders' `inter_broker_listener`, and proposes ISRs.
    pub fn open_the_rest(&self, inter_broker_listener: String) -> std::io::Result<()> {
        // Not on the thread: a stop may come before it runs.
        self.replicas.begin_opening();
        let server = Arc::downgrade(&self.server);
        self.replicas.changes().isr.notify(move || {
            if let Some(server) = server.upgrade() {
                server.events().push_isr_changed();
            }
        });
        let server = Arc::downgrade(&self.server);
        self.replicas.changes().directories.notify(move || {
            if let Some(server) = server.upgrade() {
                server.events().push_directories_changed();
            }
        });
        self.moves.start();
        let server = Arc::downgrade(&self.server);
        let report = Box::new(move |message| {
            if let Some(server) = server.upgrade() {
                server.events().log(LogLevel::Warn, message);
            }
        });
        let options = FetcherOptions { inter_broker_listener, report, conditions: self.conditions.clone() };
        if let Some(runtime) = &*self.runtime.lock() {
            *self.fetchers.lock() = Some(Fetchers::start(&self.replicas, runtime, options));
        }
        let (replicas, server) = (Arc::downgrade(&self.replicas), Arc::downgrade(&self.server));
        std::thread::Builder::new().name("klamm-open-logs".to_owned()).spawn(move || {
            let Some(replicas) = replicas.upgrade() else { return };
            for error in replicas.open_the_rest() {
                if let Some(server) = server.upgrade() {
                    server.events().log(LogLevel::Error, error.to_string());
                }
            }
        })?;
        Ok(())
    }

    /// The ISRs that leaders propose to the controller.
    pub fn isr(&self) -> &IsrUpdates {
        &self.isr
    }

    /// Queues batches of this node's coordinators. Each token is returned in an event.
    pub fn append(&self, batches: Vec<OwnBatch>) -> std::io::Result<()> {
        self.appender.append(batches)
    }

    /// Complete batches of a partition from `offset` on, up to the log's end, committed or not; empty at the end.
    /// Includes everything that was passed to [`Engine::append`] before.
    pub fn read(&self, topic: Uuid, index: i32, offset: i64, max_bytes: usize) -> Result<(i64, Vec<u8>), ErrorCode> {
        self.appender.settle();
        self.replicas.get(topic, index)?.read_led(offset, max_bytes)
    }

    /// Sends the responses that are due and closes the network, then the logs; `broker_epoch` marks the shutdown as
    /// clean.
    pub fn shutdown(&self, broker_epoch: i64) {
        *self.fetchers.lock() = None;
        self.moves.stop();
        self.runtime.lock().take();
        self.server.finish();
        let deadline = Instant::now() + LAST_ANSWERS;
        while self.server.connection_count() > 0 && Instant::now() < deadline {
            self.server.refuse_queued();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.server.close();
        self.appender.end();
        self.replicas.shutdown(broker_epoch);
        self.server.events().close();
    }
}

/// How the files of a node are accessed.
pub(crate) fn log_context(
    open_files_max: usize,
    is_volatile: bool,
    conditions: Option<&Arc<Conditions>>,
) -> LogContext {
    match conditions {
        Some(conditions) => LogContext::under(open_files_max, is_volatile, conditions.clone()),
        None if is_volatile => LogContext::volatile(open_files_max),
        None => LogContext::new(open_files_max),
    }
}

fn lock_all(dirs: &[(PathBuf, Uuid)], notices: &Notices) -> Result<Vec<LockedDir>, LogError> {
    let mut locked = Vec::new();
    let mut failed = Vec::new();
    for (path, id) in dirs {
        match LockedDir::open(path, *id) {
            Ok(dir) => locked.push(dir),
            Err(error) => failed.push(error),
        }
    }
    for error in failed {
        if locked.is_empty() {
            return Err(error);
        }
        notices.push(LogEvent::Warning(format!("going on without a log directory: {error}")));
    }
    Ok(locked)
}

fn open_files_max(settings: &Settings) -> usize {
    match usize::try_from(settings.number("klamm.open.files.max")) {
        Ok(most) => most.max(OPEN_FILES_LEAST),
        Err(_) => open_files_of(os::descriptor_limit()),
    }
}

/// The number of log files for a process with this many descriptors: the other half is for connections.
fn open_files_of(descriptors: u64) -> usize {
    usize::try_from(descriptors / 2).unwrap_or(OPEN_FILES_MOST).clamp(OPEN_FILES_LEAST, OPEN_FILES_MOST)
}

fn manager_config(settings: &Settings) -> ManagerConfig {
    ManagerConfig {
        recovery_threads: settings.number("num.recovery.threads.per.data.dir") as usize,
        intervals: Some(Intervals {
            recovery_point_checkpoint_ms: settings.number("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_ms: settings.number("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_checkpoint_ms: settings.number("replica.high.watermark.checkpoint.interval.ms"),
            retention_check_ms: settings.number("log.retention.check.interval.ms"),
            flush_check_ms: settings.number("log.flush.scheduler.interval.ms"),
            initial_delay_ms: settings.number("log.initial.task.delay.ms"),
            producer_expiration_check_ms: settings.number("producer.id.expiration.check.interval.ms"),
            ..Intervals::default()
        }),
        file_delete_delay_ms: settings.number("log.segment.delete.delay.ms"),
        cleaner: settings.is_true("log.cleaner.enable").then(|| cleaner_config(settings)),
        ..ManagerConfig::default()
    }
}

fn cleaner_config(settings: &Settings) -> CleanerConfig {
    let default = CleanerConfig::default();
    let float = |name: &str, default: f64| settings.text(name).parse().unwrap_or(default);
    CleanerConfig {
        threads: settings.number("log.cleaner.threads") as usize,
        io_buffer_bytes: settings.number("log.cleaner.io.buffer.size") as usize,
        dedupe_buffer_bytes: settings.number("log.cleaner.dedupe.buffer.size") as usize,
        load_factor: float("log.cleaner.io.buffer.load.factor", default.load_factor),
        io_bytes_per_second_max: float("log.cleaner.io.max.bytes.per.second", default.io_bytes_per_second_max),
        backoff_ms: settings.number("log.cleaner.backoff.ms") as u64,
    }
}

/// The network part of a node's configuration.
pub fn net_config(settings: &Settings) -> NetConfig {
    let count = |name: &str| settings.number(name) as usize;
    NetConfig {
        send_buffer_bytes: settings.number("socket.send.buffer.bytes") as i32,
        receive_buffer_bytes: settings.number("socket.receive.buffer.bytes") as i32,
        request_bytes_max: settings.number("socket.request.max.bytes") as i32,
        listen_backlog: settings.number("socket.listen.backlog.size") as i32,
        connections: connection_limits(settings),
        idle_ms_max: settings.number("connections.max.idle.ms"),
        queued_requests_max: count("queued.max.requests"),
        queued_bytes_max: settings.number("queued.max.request.bytes"),
        fetch_bytes_max: settings.number("fetch.max.bytes") as i32,
        fetch_session_slots: count("max.incremental.fetch.session.cache.slots"),
        request_partitions_max: settings.number("max.request.partition.size.limit") as i32,
        auto_create_topics: settings.is_true("auto.create.topics.enable"),
        share: share_config(settings),
        ..NetConfig::default()
    }
}

fn share_config(settings: &Settings) -> ShareConfig {
    let bounded = |name: &str| Bounded {
        default: settings.number(&format!("group.share.{name}")),
        min: settings.number(&format!("group.share.min.{name}")),
        max: settings.number(&format!("group.share.max.{name}")),
    };
    ShareConfig {
        sessions_max: settings.number("group.share.max.share.sessions") as usize,
        record_locks: bounded("partition.max.record.locks"),
        delivery_count: bounded("delivery.count.limit"),
        lock_duration_ms: bounded("record.lock.duration.ms"),
    }
}

fn connection_limits(settings: &Settings) -> ConnectionLimitsConfig {
    let count = |name: &str| settings.number(name) as usize;
    let overrides = settings.text("max.connections.per.ip.overrides");
    ConnectionLimitsConfig {
        most: count("max.connections"),
        per_ip_max: count("max.connections.per.ip"),
        per_ip_overrides: overrides.split(',').filter_map(address_limit).collect(),
        creation_rate: count("max.connection.creation.rate"),
        quota_windows: Windows {
            count: count("quota.window.num"),
            window_ms: 1000 * settings.number("quota.window.size.seconds"),
        },
    }
}

/// Parses `host:count`; a host without an address cannot have connections.
fn address_limit(pair: &str) -> Option<(IpAddr, usize)> {
    let (host, most) = pair.rsplit_once(':')?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    Some((host_address(host)?.to_canonical(), most.trim().parse().ok()?))
}

/// Passes events of the logs to the server; events before the server exists are kept until then.
#[derive(Default)]
struct Notices {
    server: OnceLock<Weak<Server>>,
    early: parking_lot::Mutex<Vec<LogEvent>>,
}

impl Notices {
    fn connect(&self, server: &Arc<Server>) {
        if self.server.set(Arc::downgrade(server)).is_ok() {
            let early = std::mem::take(&mut *self.early.lock());
            early.into_iter().for_each(|event| self.push(event));
        }
    }

    fn push(&self, event: LogEvent) {
        let Some(server) = self.server.get() else {
            self.early.lock().push(event);
            return;
        };
        let Some(server) = server.upgrade() else { return };
        match event {
            LogEvent::Warning(message) => server.events().log(LogLevel::Warn, message),
            LogEvent::DirFailed { dir, id, cause } => {
                let message = format!("log directory {} is out of use: {cause}", dir.display());
                server.events().log(LogLevel::Error, message);
                server.events().push_dir_failed(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_leave_descriptors_to_connections_under_any_limit() {
        assert_eq!([256, 1024, 1 << 20, u64::MAX].map(open_files_of), [128, 512, OPEN_FILES_MOST, OPEN_FILES_MOST]);
        assert_eq!([0, 6].map(open_files_of), [OPEN_FILES_LEAST; 2]);
    }
}
