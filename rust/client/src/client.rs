//! The driver: runs the decisions of the cores over connections and the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use klamm_base::{ErrorCode, Uuid};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::attempts::{Attempts, Fault, GiveUpReason, Known, Next, RetryPolicy};
use super::cluster::{ClusterView, Leader, NoLeader};
use super::config::ClientConfig;
use super::error::{ClientError, What};
use super::fetching::Kept;
use super::messages::Request;
use super::messages::metadata::{MetadataAnswer, MetadataRequest};
use super::pool::Pool;
use super::producing::Producer;

/// A client of one cluster. Any number of calls may run at once.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) pool: Pool,
    pub(super) view: Mutex<ClusterView>,
    pub(super) kept: Mutex<Kept>,
    pub(super) producer: Producer,
    began: Instant,
    is_closed: AtomicBool,
}

/// The attempts of one call, with its purpose.
pub(super) struct Call<'a> {
    client: &'a Client,
    what: What,
    attempts: Attempts,
    retry_policy: RetryPolicy,
    tries: u32,
    /// The configuration key that limits the time.
    key: &'static str,
}

impl Client {
    /// Does not connect before the first call.
    pub fn new(config: ClientConfig) -> Self {
        let connect_within = Duration::from_millis(config.connect_timeout_ms);
        let pool = Pool::new(config.client_id.clone(), config.security.clone(), connect_within);
        let retry_policy = config.producer.retry_policy(&config);
        let transactional = config.producer.transactional_id.is_some();
        let producer = Producer::new(retry_policy, config.producer.request_bytes_max, transactional);
        Self {
            config,
            pool,
            view: Mutex::default(),
            kept: Mutex::default(),
            producer,
            began: Instant::now(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Closes connections and drops kept bytes; later calls fail.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.producer.close();
        self.pool.close();
        *self.kept.lock() = Kept::default();
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(super) fn check_open(&self) -> Result<(), ClientError> {
        if self.is_closed.load(Ordering::Acquire) { Err(ClientError::Closed) } else { Ok(()) }
    }

    pub(super) fn call(&self, what: What) -> Result<Call<'_>, ClientError> {
        self.call_with(what, self.config.retry_policy(), "default.api.timeout.ms")
    }

    /// A call of the producer: as in the Java producer, it waits for the time of this one key.
    pub(super) fn producer_call(&self, what: What) -> Result<Call<'_>, ClientError> {
        self.call_with(what, self.config.producer.retry_policy_of_calls(&self.config), "max.block.ms")
    }

    fn call_with(&self, what: What, retry_policy: RetryPolicy, key: &'static str) -> Result<Call<'_>, ClientError> {
        self.check_open()?;
        let attempts = Attempts::new(retry_policy, self.now_ms());
        Ok(Call { client: self, what, attempts, retry_policy, tries: 0, key })
    }

    /// Asks brokers until one answers: known brokers before bootstrap servers, and unreachable ones last.
    pub(super) async fn ask_any<R: Request>(&self, request: &R, within: Duration) -> Result<R::Answer, Fault> {
        let mut addresses = self.view.lock().addresses();
        addresses.extend(self.config.bootstrap.iter().cloned());
        let mut last = Fault::LeftOut;
        for address in self.pool.likely_first(addresses) {
            match self.pool.call(&address, request, within).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_security() => return Err(Fault::Link(error)),
                // A refused connection is less informative than a broker that does not answer.
                Err(error) if error.is_refused() && matches!(&last, Fault::Link(before) if !before.is_refused()) => {}
                Err(error) => last = Fault::Link(error),
            }
        }
        Err(last)
    }

    async fn ask_metadata(&self, topics: Option<&[&str]>, within: Duration) -> Result<MetadataAnswer, Fault> {
        let answer = self.ask_any(&MetadataRequest { topics }, within).await?;
        if let Some(code) = answer.error {
            return Err(Fault::Code(code));
        }
        self.view.lock().on_metadata(&answer);
        Ok(answer)
    }

    /// Refreshes the metadata of one topic.
    pub(super) async fn refresh(&self, topic: &str, within: Duration) -> Result<(), Fault> {
        let answer = self.ask_metadata(Some(&[topic]), within).await?;
        let found = answer.topics.iter().find(|found| found.name == topic).ok_or(Fault::LeftOut)?;
        if found.error.is_error() { Err(Fault::Code(found.error)) } else { Ok(()) }
    }

    /// The leader of a partition; requests metadata if it is not known.
    pub(super) async fn leader(&self, topic: &str, partition: i32, within: Duration) -> Result<Leader, Fault> {
        let known = self.view.lock().leader(topic, partition);
        if let Ok(leader) = known {
            return Ok(leader);
        }
        self.refresh(topic, within).await?;
        let found = self.view.lock().leader(topic, partition);
        found.map_err(|reason| match reason {
            NoLeader::Unknown | NoLeader::Leaderless => Fault::Code(ErrorCode::LEADER_NOT_AVAILABLE),
            NoLeader::NoSuchPartition { count } => Fault::NoSuchPartition { count },
        })
    }

    /// The names of all topics, in ascending order, each with whether it is internal.
    pub async fn topics(&self) -> Result<Vec<(String, bool)>, ClientError> {
        let mut call = self.call(What::cluster("list the topics"))?;
        loop {
            match self.ask_metadata(None, call.within()).await {
                Ok(answer) => {
                    let usable = answer.topics.into_iter().filter(|topic| !topic.error.is_error());
                    let mut topics: Vec<_> = usable.map(|topic| (topic.name, topic.is_internal)).collect();
                    topics.sort_unstable();
                    return Ok(topics);
                }
                Err(fault) => call.wait_after(fault).await?,
            }
        }
    }

    /// The partitions of a topic, in ascending order, from new metadata.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<i32>, ClientError> {
        check_topic(topic)?;
        self.find_partitions(topic, self.call(What::topic(FIND_PARTITIONS, topic))?).await
    }

    /// The id of a topic from the last metadata; requests metadata if it is not known. `None` if the brokers have no
    /// topic ids (before Apache Kafka 2.8).
    pub async fn topic_id(&self, topic: &str) -> Result<Option<Uuid>, ClientError> {
        check_topic(topic)?;
        let mut call = self.call(What::topic("find the id of", topic))?;
        loop {
            let known = self.view.lock().topic_id(topic);
            if let Some(id) = known {
                return Ok(Some(id).filter(|id| *id != Uuid::ZERO));
            }
            if let Err(fault) = self.refresh(topic, call.within()).await {
                call.wait_after(fault).await?;
            }
        }
    }

    /// [`Client::partitions`] for the producer.
    pub(super) async fn partitions_to_produce_to(&self, topic: &str) -> Result<Vec<i32>, ClientError> {
        self.find_partitions(topic, self.producer_call(What::topic(FIND_PARTITIONS, topic))?).await
    }

    async fn find_partitions(&self, topic: &str, mut call: Call<'_>) -> Result<Vec<i32>, ClientError> {
        loop {
            match self.refresh(topic, call.within()).await {
                Ok(()) => return Ok(self.view.lock().partitions(topic).unwrap_or_default()),
                Err(fault) => call.wait_after(fault).await?,
            }
        }
    }
}

impl Call<'_> {
    /// The timeout of one request.
    pub fn within(&self) -> Duration {
        let left = self.attempts.left_ms(self.client.now_ms()).max(1);
        Duration::from_millis(left.min(self.client.config.request_timeout_ms))
    }

    /// Sets the partition that the call currently handles.
    pub fn now_at(&mut self, partition: i32) {
        self.what.partition = Some(partition);
    }

    /// Waits until the next attempt, or returns an error if there is none.
    pub async fn wait_after(&mut self, fault: Fault) -> Result<(), ClientError> {
        self.tries += 1;
        let topic = self.what.topic.as_deref();
        let known = {
            let view = self.client.view.lock();
            let knows_topic = topic.is_some_and(|topic| view.knows(topic, self.what.partition));
            Known { topic: knows_topic, cluster: view.has_brokers() }
        };
        let what = || Box::new(self.what.clone());
        match self.attempts.on_fault(self.client.now_ms(), &fault, known) {
            Next::Retry { after_ms, refresh } => {
                if let Some(topic) = topic.filter(|_| refresh) {
                    self.client.view.lock().distrust(topic);
                }
                sleep(Duration::from_millis(after_ms)).await;
                Ok(())
            }
            Next::GiveUp(GiveUpReason::TimedOut) => Err(ClientError::TimedOut {
                what: what(),
                bootstrap: self.client.config.bootstrap.join(","),
                timeout_ms: self.retry_policy.timeout_ms,
                tries: self.tries,
                key: self.key,
                last: Box::new(fault),
            }),
            Next::GiveUp(GiveUpReason::Refused) => Err(ClientError::Refused {
                what: what(),
                bootstrap: self.client.config.bootstrap.join(","),
                after_ms: self.retry_policy.refused_ms,
                last: Box::new(fault),
            }),
            Next::GiveUp(GiveUpReason::Final) => Err(ClientError::Failed { what: what(), source: Box::new(fault) }),
        }
    }
}

const FIND_PARTITIONS: &str = "find the partitions of";
/// The longest topic name in bytes.
const TOPIC_BYTES_MAX: usize = 249;

pub(super) fn check_topic(topic: &str) -> Result<(), ClientError> {
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
        let why = format!("'{topic:.60}' is no name of a topic: it has 1 to {TOPIC_BYTES_MAX} bytes");
        return Err(ClientError::Invalid(why));
    }
    Ok(())
}
