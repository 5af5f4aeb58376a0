//! All fetchers of a broker: up to `num.replica.fetchers` for each leader.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use klamm_base::conditions::Conditions;
use klamm_base::counters::Named;
use klamm_client::security::Security;
use klamm_client::{Connection, LinkError};
use klamm_replica::{Fetching, Partition, Replicas};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::assignments::{Assignments, FetcherId};
use super::core::Key;
use super::repairs::Repairs;
use super::source::Source;

/// The parts from which fetchers are created.
pub struct FetcherOptions {
    /// The listener through which brokers reach each other.
    pub inter_broker_listener: String,
    /// Receives a message for a person.
    pub report: Box<dyn Fn(String) + Send + Sync>,
    /// Those of a node of an embedded cluster.
    pub conditions: Option<Arc<Conditions>>,
}

/// What all fetchers of a broker share.
pub struct Environment {
    pub replicas: Arc<Replicas>,
    pub runtime: Handle,
    options: FetcherOptions,
    security: Arc<Security>,
}

impl Environment {
    pub fn setting(&self, name: &str) -> i64 {
        self.replicas.settings().number(name)
    }

    fn fetchers_per_leader(&self) -> u64 {
        u64::try_from(self.setting("num.replica.fetchers")).unwrap_or(1).max(1)
    }

    pub fn report(&self, message: String) {
        (self.options.report)(message);
    }

    /// A connection to a broker's listener for brokers.
    pub async fn connect(&self, broker: i32, within: Duration) -> Result<Connection, LinkError> {
        let image = self.replicas.image();
        let endpoints = image.brokers().get(&broker).map(|broker| &broker.endpoints[..]);
        let listener = &*self.options.inter_broker_listener;
        let endpoint = endpoints.and_then(|all| all.iter().find(|endpoint| endpoint.name == listener));
        let Some(endpoint) = endpoint else {
            let reason = format!("the metadata has no listener {listener} of it");
            return Err(LinkError::connect(
                &format!("broker {broker}"),
                io::Error::new(io::ErrorKind::NotFound, reason),
            ));
        };
        let address = format!("{}:{}", endpoint.host, endpoint.port);
        let client_id = format!("broker-{}-fetcher", self.replicas.node_id());
        let conditions = self.options.conditions.as_ref();
        Connection::open_under(conditions, &address, &client_id, &self.security, within).await
    }

    /// Waits until the node's clock shows so much more.
    async fn sleep(&self, duration: Duration) {
        let Some(conditions) = &self.options.conditions else { return tokio::time::sleep(duration).await };
        let (begun, ahead_ms) = (Instant::now(), conditions.running_ms());
        loop {
            let now_ahead_ms = conditions.running_ms();
            let advanced = Duration::from_millis(u64::try_from(now_ahead_ms - ahead_ms).unwrap_or(0));
            let Some(left) = duration.checked_sub(begun.elapsed() + advanced) else { return };
            // Whatever ends the wait, the loop looks at the clock.
            let _ = timeout(left, conditions.advanced_from(now_ahead_ms)).await;
        }
    }

    /// Starts a task, which is held while the node is paused.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        match self.options.conditions.clone() {
            None => self.runtime.spawn(task),
            Some(conditions) => self.runtime.spawn(async move { conditions.hold(task).await }),
        }
    }
}

/// The fetchers, and the tasks that keep them up to date. Dropping it ends them.
pub struct Fetchers {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 3],
}

struct Shared {
    own: Weak<Shared>,
    environment: Arc<Environment>,
    fetchers_per_leader: AtomicU64,
    assigned: Mutex<Assigned>,
    wake: Notify,
}

#[derive(Default)]
struct Assigned {
    fetchers: HashMap<FetcherId, Source>,
    assignments: Assignments,
}

impl Drop for Fetchers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        *self.shared.assigned.lock() = Assigned::default();
    }
}

impl Fetchers {
    /// Follows the roles of all partitions from now on, and lets leaders check which followers lag.
    pub fn start(replicas: &Arc<Replicas>, runtime: &Handle, options: FetcherOptions) -> Self {
        let security = Arc::new(Security::default());
        let (replicas, runtime) = (replicas.clone(), runtime.clone());
        let environment = Arc::new(Environment { replicas, runtime, options, security });
        let shared = Arc::new_cyclic(|own| Shared {
            own: own.clone(),
            fetchers_per_leader: AtomicU64::new(environment.fetchers_per_leader()),
            environment,
            assigned: Mutex::default(),
            wake: Notify::new(),
        });
        let environment = &shared.environment;
        let replicas = &environment.replicas;
        let on_first: Weak<Shared> = Arc::downgrade(&shared);
        replicas.changes().roles.notify(move || {
            if let Some(shared) = on_first.upgrade() {
                shared.wake.notify_one();
            }
        });
        // Partitions that were opened before the notification was set were not added to the queue.
        shared.assign(replicas.opened());
        let tasks = [
            environment.spawn(shared.clone().follow_roles()).abort_handle(),
            environment.spawn(check_lag(environment.clone())).abort_handle(),
            environment.spawn(Repairs::new(environment.clone()).run()).abort_handle(),
        ];
        Self { shared, tasks }
    }

    /// How far the fetches are, under the names of Apache Kafka's MBeans. Visits every open partition.
    pub fn gauges(&self) -> Vec<Named> {
        let replicas = &self.shared.environment.replicas;
        let (mut gauges, mut largest, mut failed) = (Vec::new(), 0, 0);
        for partition in replicas.opened() {
            match partition.fetching() {
                Some((following, Fetching::Behind(lag))) => {
                    largest = lag.max(largest);
                    let fetcher = format!("{}-{}", self.shared.fetcher_of(partition.key()), following.leader);
                    let name = format!(
                        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=ReplicaFetcherThread-{fetcher},topic={},partition={}",
                        partition.id.topic, partition.id.index
                    );
                    gauges.push((name, lag));
                }
                Some((_, Fetching::Failed)) => failed += 1,
                Some((_, Fetching::Begun)) | None => {}
            }
        }
        let assigned = self.shared.assigned.lock();
        let rates = assigned.fetchers.values().map(|fetcher| fetcher.request_rate(replicas.now_ms()));
        let least = rates.reduce(f64::min).unwrap_or(0.0);
        let dead = assigned.fetchers.values().filter(|fetcher| fetcher.is_dead()).count();
        let of_all = [
            ("MaxLag", largest),
            ("MinFetchRate", least as u64),
            ("FailedPartitionsCount", failed),
            ("DeadThreadCount", dead as u64),
        ];
        let named =
            |(name, value)| (format!("kafka.server:type=ReplicaFetcherManager,name={name},clientId=Replica"), value);
        gauges.extend(of_all.map(named));
        gauges
    }

    /// The configuration changed: moves partitions if there are to be more or fewer fetchers for each leader.
    pub fn reconfigure(&self) {
        let count = self.shared.environment.fetchers_per_leader();
        if self.shared.fetchers_per_leader.swap(count, Ordering::Relaxed) != count {
            self.shared.assign(self.shared.environment.replicas.opened());
        }
    }
}

async fn check_lag(environment: Arc<Environment>) {
    loop {
        let half = u64::try_from(environment.setting("replica.lag.time.max.ms") / 2).unwrap_or(0).max(1);
        environment.sleep(Duration::from_millis(half)).await;
        tokio::task::block_in_place(|| environment.replicas.check_lag());
    }
}

impl Shared {
    async fn follow_roles(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            self.assign(self.environment.replicas.changes().roles.take());
        }
    }

    /// Moves partitions to the fetchers of their leaders. A fetcher without partitions ends.
    fn assign(&self, partitions: Vec<Arc<Partition>>) {
        let mut assigned = self.assigned.lock();
        let changes = assigned.assignments.assign(partitions, |key| self.fetcher_of(key));
        for (id, changes) in changes {
            if assigned.assignments.is_used(id) {
                assigned.fetchers.entry(id).or_insert_with(|| self.start_fetcher(id)).change(changes);
            } else {
                assigned.fetchers.remove(&id);
            }
        }
    }

    fn start_fetcher(&self, id: FetcherId) -> Source {
        let shared = self.own.clone();
        Source::start(self.environment.clone(), id.0, move || {
            if let Some(shared) = shared.upgrade() {
                shared.restart(id);
            }
        })
    }

    /// Replaces a fetcher that failed.
    fn restart(&self, id: FetcherId) {
        let mut assigned = self.assigned.lock();
        assigned.fetchers.remove(&id);
        assigned.assignments.forget(id);
        drop(assigned);
        self.assign(self.environment.replicas.opened());
    }

    fn fetcher_of(&self, key: Key) -> u64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() % self.fetchers_per_leader.load(Ordering::Relaxed)
    }
}
