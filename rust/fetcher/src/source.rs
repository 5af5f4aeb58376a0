//! One fetcher: a connection to a leader, and the partitions that it fetches through it.
//!
//! It sends one request at a time. What it appended is flushed before the next request, whose offsets acknowledge it
//! (`klamm.flush.before.ack`); flushes of all fetchers share the flusher of each log directory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use klamm_base::rate::{Rate, Windows};
use klamm_client::messages::list_offsets::{EARLIEST_LOCAL, LATEST, ListOffsetsRequest, OffsetQuery};
use klamm_client::{Connection, LinkError};
use klamm_replica::FetchWaiter;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, block_in_place};

use super::core::{Key, Plan};
use super::fetchers::Environment;
use super::followed::{Change, FollowedPartitions, Times};
use super::messages::{ReplicaFetch, ReplicaFetchAnswer};

/// The first pause after a failed connection; it doubles up to `replica.fetch.backoff.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The pause before a fetcher that failed starts again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The side of a fetcher that its manager sees. Dropping it ends the fetcher.
pub struct Source {
    inbox: Arc<Inbox>,
    requests: Arc<Requests>,
    task: AbortHandle,
}

/// The rate of a fetcher's requests.
#[derive(Default)]
struct Requests(Mutex<Rate>);

/// A minute, as the rate that Apache Kafka shows.
const RATE_WINDOWS: Windows = Windows { count: 7, window_ms: 10_000 };

#[derive(Default)]
struct Inbox {
    changes: Mutex<Vec<Change>>,
    wake: Notify,
}

impl Inbox {
    /// Returns when there are changes.
    async fn changed(&self) {
        loop {
            self.wake.notified().await;
            if !self.changes.lock().is_empty() {
                return;
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    /// Starts a fetcher without partitions. If it panics, the cause is reported and `on_failed` is called.
    pub fn start(environment: Arc<Environment>, leader: i32, on_failed: impl FnOnce() + Send + 'static) -> Self {
        let inbox: Arc<Inbox> = Arc::default();
        let requests: Arc<Requests> = Arc::default();
        let fetcher = Fetcher {
            followed: FollowedPartitions::new(leader, environment.setting("replica.fetch.backoff.ms")),
            environment: environment.clone(),
            leader,
            inbox: inbox.clone(),
            requests: requests.clone(),
            connection: None,
            pause: FIRST_PAUSE,
            has_reported: false,
            started: Instant::now(),
        };
        let running = environment.spawn(fetcher.run());
        let task = running.abort_handle();
        environment.runtime.clone().spawn(async move {
            let Err(error) = running.await else { return };
            if error.is_panic() {
                let id = environment.replicas.node_id();
                environment
                    .report(format!("a fetcher of broker {id} from broker {leader} failed, and starts again: {error}"));
                tokio::time::sleep(RESTART_PAUSE).await;
                on_failed();
            }
        });
        Self { inbox, requests, task }
    }

    /// Whether it has failed and does not run.
    pub fn is_dead(&self) -> bool {
        self.task.is_finished()
    }

    /// Requests per second.
    pub fn request_rate(&self, now_ms: i64) -> f64 {
        self.requests.0.lock().per_second(now_ms, RATE_WINDOWS)
    }

    /// Hands over changes; a request that the leader holds is given up for them.
    pub fn change(&self, changes: impl IntoIterator<Item = Change>) {
        self.inbox.changes.lock().extend(changes);
        self.inbox.wake.notify_one();
    }
}

struct Fetcher {
    environment: Arc<Environment>,
    leader: i32,
    inbox: Arc<Inbox>,
    requests: Arc<Requests>,
    followed: FollowedPartitions,
    connection: Option<Connection>,
    pause: Duration,
    /// The current failure of the connection is logged.
    has_reported: bool,
    started: Instant,
}

impl Fetcher {
    async fn run(mut self) {
        let inbox = self.inbox.clone();
        loop {
            block_in_place(|| self.take_changes());
            self.flush().await;
            let Some(plan) = self.followed.next_plan(self.now_ms()) else {
                let left = self.followed.due_at_ms().map(|due| u64::try_from(due - self.now_ms()).unwrap_or(0).max(1));
                // Without a delayed partition only a change can bring something to fetch.
                let left = left.map_or(Duration::MAX, Duration::from_millis);
                let _ = tokio::time::timeout(left, inbox.changed()).await;
                continue;
            };
            let fetched = tokio::select! {
                biased;
                fetched = self.fetch(&plan) => fetched,
                // The leader may hold the request for long, and it lacks the new partitions.
                () = inbox.changed() => {
                    self.disconnect();
                    continue;
                }
            };
            match fetched {
                Ok(answer) => self.take_answer(answer).await,
                Err(error) => self.fail(&error).await,
            }
        }
    }

    /// Monotonic.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn times(&self) -> Times {
        Times { now_ms: self.now_ms(), wall_ms: self.environment.replicas.wall_ms() }
    }

    fn take_changes(&mut self) {
        let changes = std::mem::take(&mut *self.inbox.changes.lock());
        let wall_ms = self.environment.replicas.wall_ms();
        changes.into_iter().for_each(|change| self.followed.change(change, wall_ms));
    }

    /// Waits until everything that was appended is flushed.
    async fn flush(&mut self) {
        for partition in self.followed.take_unflushed() {
            poll_fn(|context| {
                if partition.is_flushed() {
                    return Poll::Ready(());
                }
                partition.watch_flush(Arc::new(FetchWaiter::new(context.waker().clone())));
                if partition.is_flushed() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    async fn fetch(&mut self, plan: &Plan) -> Result<ReplicaFetchAnswer, LinkError> {
        let now_ms = self.environment.replicas.now_ms();
        self.requests.0.lock().add(now_ms, 1.0, RATE_WINDOWS);
        let request = ReplicaFetch::of(&self.environment.replicas, plan);
        self.call(&request).await
    }

    async fn call<R: klamm_client::messages::Request>(&mut self, request: &R) -> Result<R::Answer, LinkError> {
        let within =
            Duration::from_millis(u64::try_from(self.environment.setting("replica.socket.timeout.ms")).unwrap_or(0));
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.environment.connect(self.leader, within).await?,
        };
        let answer = connection.call(request, within).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.followed.on_lost_connection();
    }

    async fn fail(&mut self, error: &LinkError) {
        self.disconnect();
        if !std::mem::replace(&mut self.has_reported, true) {
            let (id, leader) = (self.environment.replicas.node_id(), self.leader);
            self.environment.report(format!("broker {id} cannot fetch from broker {leader}, and tries again: {error}"));
        }
        // A change of leaders ends the pause.
        let inbox = self.inbox.clone();
        let _ = tokio::time::timeout(self.pause, inbox.changed()).await;
        let most =
            Duration::from_millis(u64::try_from(self.environment.setting("replica.fetch.backoff.ms")).unwrap_or(0));
        self.pause = (2 * self.pause).min(most.max(FIRST_PAUSE));
    }

    async fn take_answer(&mut self, answer: ReplicaFetchAnswer) {
        (self.pause, self.has_reported) = (FIRST_PAUSE, false);
        let times = self.times();
        let lost = block_in_place(|| self.followed.on_answer(answer, times));
        for key in lost {
            self.find_offsets(key).await;
        }
    }

    /// Asks where the leader's log begins and ends: it does not contain the offset that was fetched.
    async fn find_offsets(&mut self, key: Key) {
        let Some((partition, epoch)) = self.followed.followed(key) else { return };
        let mut ends = [0; 2];
        for (end, timestamp) in ends.iter_mut().zip([EARLIEST_LOCAL, LATEST]) {
            let query = OffsetQuery { partition: key.1, leader_epoch: epoch, timestamp };
            let request = ListOffsetsRequest {
                replica_id: self.environment.replicas.node_id(),
                read_committed: false,
                topic: &partition.id.topic,
                partitions: &[query],
            };
            match self.call(&request).await.as_deref() {
                Ok([found]) if !found.error.is_error() && found.offset >= 0 => *end = found.offset,
                Ok(_) => return self.followed.on_leader_offsets(key, None, self.times()),
                Err(error) => return self.fail(error).await,
            }
        }
        let ([start, end], times) = (ends, self.times());
        block_in_place(|| self.followed.on_leader_offsets(key, Some((start, end)), times));
    }
}
