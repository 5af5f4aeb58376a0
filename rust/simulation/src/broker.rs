//! The simulated broker: its lives on one disk, and the steps of the current life.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use klamm_base::{ErrorCode, LogError, Uuid};
use klamm_config::Settings;
use klamm_engine::isr::IsrUpdates;
use klamm_fetcher::{Assignments, FollowedPartitions};
use klamm_log::crash::Rng;
use klamm_log::{Claim, Event, LockedDir, LogManager, ManagerConfig, OneFlush, Origin};
use klamm_metadata::MetadataImage;
use klamm_net::{Backend, SessionOptions, UnconnectedRequests, WaitingRequest};
use klamm_records::control::end_transaction_marker;
use klamm_records::header::{Header, compute_crc};
use klamm_replica::{
    Appended, Durability, EndedSeries, Partition, Refused, Replicas, ReplicasOptions, Series, Unassigned,
};
use parking_lot::Mutex;

use super::clock::SetClock;
use super::directories::FAILED;
use super::disk::SimulatedDisk;
use super::guard::Guard;
use super::lacking::Lacking;

/// Far less than in the product, as all times of a simulation.
const SESSION_EVICTION_AGE_MS: i64 = 300;

/// Why a step failed. The simulation ends: no step fails in the product either.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the simulated disk: {0}")]
    Disk(#[from] io::Error),
    #[error("broker {0} is not running")]
    NotRunning(i32),
    #[error("{0}")]
    Reported(String),
    #[error("malformed message: {0}")]
    Malformed(String),
}

/// The parts from which a simulated broker is created.
pub struct BrokerOptions {
    pub node_id: i32,
    /// Of its log directories.
    pub directory_ids: Vec<Uuid>,
    pub settings: Settings,
    /// What this broker lacks.
    pub without: Option<Guard>,
}

/// What has become possible.
#[derive(Default)]
pub struct Due {
    /// Roles have changed: [`SimulatedBroker::follow_roles`] is due.
    pub has_roles: bool,
    /// The leaders from which this broker fetches.
    pub leaders: Vec<i32>,
    /// The waiting requests that look again.
    pub woken: Vec<u64>,
    /// The flushes that have begun.
    pub flushes: Vec<u64>,
    /// The appends whose result is known by now.
    pub acks: Vec<(u64, ErrorCode)>,
}

/// The result of an append.
pub enum Produced {
    /// Its end offset; an acknowledgement by all follows.
    Appended(i64),
    Refused(ErrorCode),
}

/// What a transaction coordinator writes to a partition.
#[derive(Clone, Copy, Debug)]
pub struct TransactionMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub commits: bool,
    pub coordinator_epoch: i32,
    pub transaction_version: i8,
}

/// See [`SimulatedBroker::led_log`].
pub struct LedLog {
    replicas: Weak<Replicas>,
    key: (Uuid, i32),
}

impl LedLog {
    /// Complete batches from an offset on, and the offset from which on they count; empty at the end.
    pub fn read(&self, offset: i64, max_bytes: usize) -> Result<(i64, Vec<u8>), ErrorCode> {
        let replicas = self.replicas.upgrade().ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        replicas.get(self.key.0, self.key.1)?.read_led(offset, max_bytes)
    }
}

/// A replica whose state has changed; `None`: it is not open any more.
pub type ChangedReplica = ((Uuid, i32), Option<Gauges>);

/// What a test may see of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauges {
    pub is_leader: bool,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    /// The committed ISR; empty unless it leads.
    pub isr: Vec<i32>,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub flushed_offset: i64,
    pub log_end_offset: i64,
    /// Leader epochs of the log with their start offsets.
    pub epochs: Vec<(i32, i64)>,
}

/// A broker that is stopped, or in one of its lives.
pub struct SimulatedBroker {
    pub(super) options: BrokerOptions,
    pub(super) clock: Arc<SetClock>,
    pub(super) disk: SimulatedDisk,
    lives: u64,
    pub(super) life: Option<Life>,
}

/// A flush that has begun after a number of changes of the disk.
struct Flush {
    dir: usize,
    flush: OneFlush,
    begun: usize,
}

/// What a process has in memory.
pub(super) struct Life {
    pub(super) replicas: Arc<Replicas>,
    isr: IsrUpdates,
    pub(super) assignments: Assignments,
    pub(super) followed: BTreeMap<i32, FollowedPartitions>,
    has_roles: Arc<AtomicBool>,
    acks: Arc<Mutex<Vec<(u64, ErrorCode)>>>,
    /// Of verified batches, by the ticket of their produce.
    verified: BTreeMap<u64, klamm_log::Guard>,
    ended_series: EndedSeries,
    pub(super) requests: UnconnectedRequests,
    pub(super) waiting: BTreeMap<u64, WaitingRequest>,
    flushes: BTreeMap<u64, Flush>,
    /// Those whose damage was found.
    pub(super) damaged: BTreeMap<(Uuid, i32), Arc<Partition>>,
    next_flush: u64,
    reported: Arc<Mutex<Vec<String>>>,
    /// Of each open replica, as the caller knows it.
    seen: BTreeMap<(Uuid, i32), Gauges>,
}

impl SimulatedBroker {
    /// A stopped broker with an empty disk below `folder`.
    pub fn new(options: BrokerOptions, folder: &Path) -> Result<Self, SimulationError> {
        let disk = SimulatedDisk::new(folder, options.directory_ids.len())?;
        Ok(Self { options, clock: Arc::default(), disk, lives: 0, life: None })
    }

    pub(super) fn life(&mut self) -> Result<&mut Life, SimulationError> {
        self.life.as_mut().ok_or(SimulationError::NotRunning(self.options.node_id))
    }

    /// Starts a life; returns the broker epoch of the last one if that ended with a clean shutdown, otherwise -1.
    pub fn start(&mut self, now_ms: i64) -> Result<i64, SimulationError> {
        assert!(self.life.is_none(), "broker {} runs already", self.options.node_id);
        self.clock.set(now_ms);
        self.lives += 1;
        let reported: Arc<Mutex<Vec<String>>> = Arc::default();
        let report = reported.clone();
        let on_event = Arc::new(move |event| {
            if let Event::DirFailed { cause, .. } = event
                && cause != FAILED
            {
                report.lock().push(cause);
            }
        });
        if self.options.without == Some(Guard::GapsAreLosses) {
            self.disk.forget_sole_writer()?;
        }
        if self.options.without == Some(Guard::ProvenEnds) {
            self.disk.forget_proven_ends()?;
        }
        let dirs = self.disk.dirs();
        let dirs = dirs.iter().zip(&self.options.directory_ids);
        let locked = dirs.map(|(path, id)| LockedDir::open(path, *id)).collect::<Result<Vec<_>, _>>()?;
        let config = ManagerConfig {
            flush_threads: 0,
            recovery_threads: 1,
            intervals: None,
            cleaner: None,
            ..ManagerConfig::default()
        };
        let logs = LogManager::start(locked, config, self.disk.context(), now_ms, on_event)?;
        let previous_epoch = logs.previous_broker_epoch();
        let settings = self.options.settings.clone();
        let durability = match self.options.without {
            Some(Guard::Flush) => Durability::PageCache,
            _ => Durability::of(&settings),
        };
        let options = ReplicasOptions {
            node_id: self.options.node_id,
            durability,
            settings,
            logs,
            is_missing_dirs: false,
            clock: self.clock.clone(),
        };
        let replicas = Arc::new(Replicas::without(options, self.options.without.and_then(Guard::rule)));
        let requests = self.requests(&replicas)?;
        self.life = Some(Life {
            isr: IsrUpdates::new(replicas.clone()),
            replicas,
            assignments: Assignments::default(),
            followed: BTreeMap::new(),
            has_roles: Arc::default(),
            acks: Arc::default(),
            verified: BTreeMap::new(),
            ended_series: EndedSeries::default(),
            requests,
            waiting: BTreeMap::new(),
            flushes: BTreeMap::new(),
            damaged: BTreeMap::new(),
            next_flush: 0,
            reported,
            seen: BTreeMap::new(),
        });
        Ok(previous_epoch)
    }

    /// How a life answers requests. The ids of its fetch sessions are those of no other life.
    fn requests(&self, replicas: &Arc<Replicas>) -> Result<UnconnectedRequests, SimulationError> {
        let without = self.options.without;
        let backend: Arc<dyn Backend> = match without {
            Some(without @ (Guard::FetchEpoch | Guard::Divergence | Guard::FollowerEpoch | Guard::ShareLimit)) => {
                Arc::new(Lacking { replicas: replicas.clone(), without })
            }
            _ => replicas.clone(),
        };
        let slots = self.options.settings.number("max.incremental.fetch.session.cache.slots");
        let mut ids = Rng::new((self.lives << 32) + u64::from(self.options.node_id.unsigned_abs()));
        let sessions = SessionOptions {
            slots: usize::try_from(slots).unwrap_or(0),
            eviction_age_ms: SESSION_EVICTION_AGE_MS,
            draw_id: Box::new(move || ids.below(u64::MAX)),
            without: without.and_then(Guard::leader_session_rule),
        };
        Ok(UnconnectedRequests::new(backend, sessions, self.share_config())?)
    }

    /// The process ends: what it wrote stays.
    pub fn kill(&mut self) -> Result<(), SimulationError> {
        self.end_process()?;
        self.disk.settle();
        Ok(())
    }

    pub(super) fn end_process(&mut self) -> Result<(), SimulationError> {
        let life = self.life.take().ok_or(SimulationError::NotRunning(self.options.node_id))?;
        let logs = life.replicas.logs().clone();
        drop(life);
        logs.abandon();
        Ok(())
    }

    /// The machine loses power: of what was not synced, `seed` decides what survives.
    pub fn cut_power(&mut self, seed: u64) -> Result<(), SimulationError> {
        if self.life.is_some() {
            self.kill()?;
        }
        Ok(self.disk.cut_power(seed)?)
    }

    /// A clean shutdown.
    pub fn shut_down(&mut self, broker_epoch: i64) -> Result<(), SimulationError> {
        let life = self.life.take().ok_or(SimulationError::NotRunning(self.options.node_id))?;
        life.replicas.shutdown(broker_epoch);
        self.disk.settle();
        Ok(())
    }

    /// The first image of this life is published: opens the logs on disk. From now on this broker fetches what it follows, and
    /// proposes ISRs.
    pub fn open_the_rest(&mut self, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        let replicas = self.life()?.replicas.clone();
        replicas.begin_opening();
        replicas.changes().isr.notify(|| {});
        replicas.changes().directories.notify(|| {});
        replicas.changes().damaged.notify(|| {});
        let has_roles = self.life()?.has_roles.clone();
        replicas.changes().roles.notify(move || has_roles.store(true, Ordering::Relaxed));
        let opened = replicas.opened();
        self.assign(opened)?;
        let errors = replicas.open_the_rest();
        self.check(errors)
    }

    /// Publishes a newer image. Returns the partitions whose directory the image does not contain.
    pub fn publish(&mut self, image: Arc<MetadataImage>, now_ms: i64) -> Result<Vec<Unassigned>, SimulationError> {
        self.clock.set(now_ms);
        let replicas = self.life()?.replicas.clone();
        let published = replicas.publish(image.clone());
        self.life()?.requests.drop_stale_shares(&image);
        if published.has_to_open {
            replicas.open_followed();
        }
        self.check(published.errors)?;
        Ok(published.unassigned)
    }

    pub(super) fn check(&mut self, errors: Vec<LogError>) -> Result<(), SimulationError> {
        if let Some(error) = errors.into_iter().next() {
            return Err(error.into());
        }
        match self.life()?.reported.lock().pop() {
            Some(reported) => Err(SimulationError::Reported(reported)),
            None => Ok(()),
        }
    }

    /// The partition; opens it if necessary.
    pub(super) fn partition(
        &mut self,
        topic_id: Uuid,
        index: i32,
    ) -> Result<Result<Arc<Partition>, ErrorCode>, SimulationError> {
        Ok(self.life()?.replicas.get(topic_id, index))
    }

    /// A transactional batch of a client arrived: whether its transaction coordinator must be asked. Then it is produced with
    /// the same `ticket`.
    pub fn begin_verification(
        &mut self,
        (topic_id, index): (Uuid, i32),
        claim: Claim,
        is_adding: bool,
        ticket: u64,
        now_ms: i64,
    ) -> Result<Result<bool, ErrorCode>, SimulationError> {
        self.clock.set(now_ms);
        let partition = self.partition(topic_id, index)?;
        let begun = partition.and_then(|partition| partition.begin_verification(claim, is_adding, now_ms));
        if let Ok(Some(guard)) = begun {
            self.life()?.verified.insert(ticket, guard);
        }
        Ok(begun.map(|guard| guard.is_some()))
    }

    /// Appends a batch of a coordinator on this broker; its result follows as that of acks -1.
    pub fn append_own(
        &mut self,
        key: (Uuid, i32),
        batch: &mut [u8],
        series: Option<Series>,
        ticket: u64,
        now_ms: i64,
    ) -> Result<Produced, SimulationError> {
        self.append_in_series(key, batch, (-1, Origin::Coordinator), series, ticket, now_ms)
    }

    fn append_in_series(
        &mut self,
        key: (Uuid, i32),
        batch: &mut [u8],
        (required_acks, origin): (i16, Origin),
        series: Option<Series>,
        ticket: u64,
        now_ms: i64,
    ) -> Result<Produced, SimulationError> {
        let without = self.options.without;
        let leader_epoch = series.map(|series| series.leader_epoch).filter(|_| without != Some(Guard::AppendInEpoch));
        let series = series.filter(|_| without != Some(Guard::AppendInSeries));
        let mut ended = std::mem::take(&mut self.life()?.ended_series);
        let produced = ended.append(key, series, || {
            let produced = self.append(key, batch, -1, ticket, now_ms, |partition, batch| {
                let (appended, wants_flush) =
                    partition.append_own(batch, required_acks, origin, leader_epoch, now_ms)?;
                if wants_flush {
                    partition.mark_dirty();
                }
                Ok(appended)
            });
            match produced {
                Ok(Produced::Refused(code)) => Err(code),
                other => Ok(other),
            }
        });
        self.life()?.ended_series = ended;
        produced.unwrap_or_else(|code| Ok(Produced::Refused(code)))
    }

    /// Reads complete batches of a partition that this broker leads, for its coordinator. The reader outlives this life, in
    /// which alone it returns something.
    pub fn led_log(&mut self, key: (Uuid, i32)) -> Result<LedLog, SimulationError> {
        Ok(LedLog { replicas: Arc::downgrade(&self.life()?.replicas), key })
    }

    /// Appends a marker that ends a transaction; its result follows as that of acks -1. A group coordinator needs no min ISR
    /// for it.
    pub fn append_marker(
        &mut self,
        key: (Uuid, i32),
        marker: &TransactionMarker,
        needs_min_isr: bool,
        series: Option<Series>,
        ticket: u64,
        now_ms: i64,
    ) -> Result<Produced, SimulationError> {
        let TransactionMarker { producer_id, producer_epoch, commits, coordinator_epoch, transaction_version } =
            *marker;
        let batch = end_transaction_marker(producer_id, producer_epoch, now_ms, commits, coordinator_epoch);
        let is_strict = self.options.without != Some(Guard::MarkerEpoch);
        let transaction_version = if is_strict { transaction_version } else { 0 };
        let mut batch = batch.map_err(|error| SimulationError::Malformed(error.to_string()))?;
        let required_acks = if needs_min_isr { -1 } else { 1 };
        let origin = Origin::Markers { transaction_version };
        self.append_in_series(key, &mut batch, (required_acks, origin), series, ticket, now_ms)
    }

    /// Appends batches of a client. The result of acks -1 is in [`SimulatedBroker::take_acks`], with this `ticket`.
    pub fn produce(
        &mut self,
        key: (Uuid, i32),
        batches: &mut [u8],
        acks: i16,
        ticket: u64,
        now_ms: i64,
    ) -> Result<Produced, SimulationError> {
        let guard = self.life()?.verified.remove(&ticket);
        let is_guarded = self.options.without != Some(Guard::VerifiedTransactions);
        self.append(key, batches, acks, ticket, now_ms, |partition, batches| match is_guarded {
            true => partition.append_produced(batches, acks, guard, now_ms),
            false => partition.append(batches, acks, Origin::Client, now_ms),
        })
    }

    fn append(
        &mut self,
        (topic_id, index): (Uuid, i32),
        batches: &mut [u8],
        acks: i16,
        ticket: u64,
        now_ms: i64,
        append: impl FnOnce(&Partition, &mut [u8]) -> Result<Appended, Refused>,
    ) -> Result<Produced, SimulationError> {
        self.clock.set(now_ms);
        let partition = match self.partition(topic_id, index)? {
            Ok(partition) => partition,
            Err(code) => return Ok(Produced::Refused(code)),
        };
        match append(&partition, batches) {
            Ok(appended) => {
                if acks == -1 {
                    let acked = self.life()?.acks.clone();
                    partition.when_acked(appended.end_offset, Box::new(move |code| acked.lock().push((ticket, code))));
                }
                Ok(Produced::Appended(appended.end_offset))
            }
            Err(refused) => Ok(Produced::Refused(refused.code)),
        }
    }

    /// Begins the flushes that are due, and returns what has become possible.
    pub fn take_due(&mut self, now_ms: i64) -> Result<Due, SimulationError> {
        self.clock.set(now_ms);
        let woken = self.woken()?;
        let mut flushes = Vec::new();
        while let Some(flush) = self.begin_flush()? {
            flushes.push(flush);
        }
        let life = self.life()?;
        let leaders = life.followed.keys().copied().collect();
        let acks = std::mem::take(&mut *life.acks.lock());
        let has_roles = life.has_roles.swap(false, Ordering::Relaxed);
        Ok(Due { has_roles, leaders, woken, flushes, acks })
    }

    /// Begins the next flush that is due; returns its number.
    fn begin_flush(&mut self) -> Result<Option<u64>, SimulationError> {
        let dirs = self.life()?.replicas.logs().dirs().to_vec();
        let begun = dirs.iter().enumerate().find_map(|(dir, it)| Some((dir, it.flusher().begin_one()?)));
        let Some((dir, flush)) = begun else { return Ok(None) };
        let begun = self.disk.settle();
        let life = self.life()?;
        life.next_flush += 1;
        let number = life.next_flush;
        life.flushes.insert(number, Flush { dir, flush, begun });
        Ok(Some(number))
    }

    /// Ends a flush: what was written before it began is durable.
    pub fn end_flush(&mut self, number: u64, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        self.disk.settle();
        let life = self.life()?;
        let Some(Flush { dir, flush, begun }) = life.flushes.remove(&number) else { return Ok(()) };
        life.replicas.logs().dirs()[dir].flusher().end_one(flush);
        self.disk.settle_flush(begun);
        self.check(Vec::new())
    }

    /// Writes the checkpoints of the log directory, which its periodic tasks do in the product.
    pub fn checkpoint(&mut self) -> Result<(), SimulationError> {
        self.life()?.replicas.logs().checkpoint();
        self.disk.settle();
        self.check(Vec::new())
    }

    /// Removes what retention allows, which a periodic task does in the product.
    pub fn retain(&mut self, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        for partition in self.life()?.replicas.opened() {
            let high_watermark = partition.standing().high_watermark;
            partition.with(|log| log.delete_expired(high_watermark, now_ms))?;
        }
        self.disk.settle();
        self.check(Vec::new())
    }

    /// Lets leaders propose to remove replicas that lag.
    pub fn check_lag(&mut self, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        self.life()?.replicas.check_lag();
        Ok(())
    }

    /// See [`IsrUpdates::next_request`].
    pub fn alter_partition_request(&mut self, broker_epoch: i64) -> Result<Option<Vec<u8>>, SimulationError> {
        Ok(self.life()?.isr.next_request(broker_epoch))
    }

    /// See [`IsrUpdates::on_response`].
    pub fn on_alter_partition_response(&mut self, body: Option<&[u8]>) -> Result<(), SimulationError> {
        self.life()?.isr.on_response(body);
        Ok(())
    }

    /// The replicas whose state has changed since the last call.
    pub fn take_changed(&mut self) -> Result<Vec<ChangedReplica>, SimulationError> {
        let life = self.life()?;
        let now: BTreeMap<_, _> = life.replicas.opened().iter().map(|it| (it.key(), gauges(it))).collect();
        let closed = life.seen.keys().filter(|key| !now.contains_key(key)).map(|key| (*key, None));
        let changed = now.iter().filter(|(key, gauges)| life.seen.get(key) != Some(*gauges));
        let changed = closed.chain(changed.map(|(key, gauges)| (*key, Some(gauges.clone())))).collect();
        life.seen = now;
        Ok(changed)
    }

    /// Complete batches of a replica's log from `offset` on up to its end or damage, committed or not.
    pub fn batches(&mut self, key: (Uuid, i32), offset: i64) -> Result<Vec<u8>, SimulationError> {
        let opened = self.life()?.replicas.opened();
        let Some(partition) = opened.into_iter().find(|partition| partition.key() == key) else {
            return Ok(Vec::new());
        };
        Ok(partition.with(|log| {
            let (mut from, end) = (offset.max(log.log_start_offset()), log.log_end_offset());
            let mut all = Vec::new();
            while from < end {
                // One read ends with its segment.
                let bytes = match log.read(from, usize::MAX >> 1, end, true) {
                    Err(LogError::Corrupt { .. }) => break,
                    slice => slice?.read()?,
                };
                let whole = whole_len(&bytes);
                let Some(Ok(last)) = klamm_records::batches(&bytes[..whole]).last() else { break };
                from = last.header().next_offset();
                all.extend(&bytes[..whole]);
            }
            Ok::<_, LogError>(all)
        })?)
    }
}

/// The length of the intact batches before damage.
fn whole_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    while let Some(size) = Header::at_start_of(&bytes[len..]).and_then(|header| header.size())
        && let Some(batch) = bytes.get(len..len + size)
        && Header::at_start_of(batch).is_some_and(|header| header.crc() == compute_crc(batch))
    {
        len += size;
    }
    len
}

fn gauges(partition: &Partition) -> Gauges {
    let standing = partition.standing();
    partition.with(|log| Gauges {
        is_leader: standing.is_leader,
        leader_epoch: standing.leader_epoch,
        partition_epoch: standing.partition_epoch,
        isr: standing.isr,
        high_watermark: standing.high_watermark,
        log_start_offset: log.log_start_offset(),
        flushed_offset: log.flushed_offset(),
        log_end_offset: log.log_end_offset(),
        epochs: log.epochs().to_vec(),
    })
}
