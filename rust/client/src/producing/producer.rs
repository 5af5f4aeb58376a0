//! State that callers share with the sender of a producer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::super::attempts::RetryPolicy;
use super::super::client::{Client, check_topic};
use super::super::error::{ClientError, What};
use super::accumulator::{Accumulator, ClosedBatch, Failure, Place};
use super::open::{Open, RowRefused, Rows};
use super::sender;
use super::transactions::Stage;

/// A client's producer.
#[derive(Debug)]
pub struct Producer {
    pub(super) open: Mutex<Open>,
    pub(super) accumulator: Mutex<Accumulator>,
    /// Notifies the sender that there is something to do.
    pub(super) work: Notify,
    /// Notifies callers that a request was answered.
    pub(super) progress: Notify,
    sender: Mutex<Option<AbortHandle>>,
    is_closed: AtomicBool,
    pub(super) stage: Mutex<Stage>,
    pub(super) coordinator: Mutex<Option<String>>,
    /// Serializes calls that change the producer's identity.
    pub(super) changing: tokio::sync::Mutex<()>,
}

impl Producer {
    pub fn new(retry_policy: RetryPolicy, request_bytes_max: usize, transactional: bool) -> Self {
        Self {
            open: Mutex::default(),
            accumulator: Mutex::new(Accumulator::new(retry_policy, request_bytes_max, transactional)),
            work: Notify::new(),
            progress: Notify::new(),
            sender: Mutex::default(),
            is_closed: AtomicBool::new(false),
            stage: Mutex::new(Stage::Uninitialized),
            coordinator: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Ends the sender, and all waits for it.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(sender) = self.sender.lock().take() {
            sender.abort();
        }
        self.progress.notify_waiters();
    }

    /// Passes closed batches to the sender.
    pub(super) fn hand_over(&self, closed: Vec<(Place, ClosedBatch)>) {
        let mut accumulator = self.accumulator.lock();
        for (place, batch) in closed {
            accumulator.push(place, batch);
        }
        drop(accumulator);
        self.work.notify_one();
    }

    /// Closes every open batch.
    pub(super) fn close_all(&self, deadline_ms: u64) -> Result<(), ClientError> {
        let mut open = self.open.lock();
        let closed =
            open.close_until(u64::MAX, deadline_ms).map_err(|error| ClientError::Invalid(error.to_string()))?;
        // Under the lock, so that no later batch of a partition comes first.
        self.hand_over(closed);
        Ok(())
    }

    /// Waits until `is_done` returns true; fails once the client is closed, because nothing more will be done.
    pub(super) async fn until(&self, is_done: impl Fn(&Accumulator) -> bool) -> Result<(), ClientError> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if is_done(&self.accumulator.lock()) {
                return Ok(());
            }
            if self.is_closed.load(Ordering::Acquire) {
                return Err(ClientError::Closed);
            }
            progress.await;
        }
    }
}

impl Client {
    /// Prepares the topic for producing: the producer's identity, the topic's partitions, and the sender.
    ///
    /// Fails with an earlier loss that was not reported yet.
    pub async fn begin_produce(self: &Arc<Self>, topic: &str) -> Result<Vec<i32>, ClientError> {
        check_topic(topic)?;
        self.check_open()?;
        self.start_sender();
        self.ready_identity().await?;
        let known = self.view.lock().partitions(topic);
        let partitions = match known {
            Some(partitions) => partitions,
            None => self.partitions_to_produce_to(topic).await?,
        };
        if partitions.is_empty() {
            return Err(ClientError::Invalid(format!("{topic} has no partition")));
        }
        Ok(partitions)
    }

    /// Accepts as many rows from `at` on as there is room for; returns the next one. [`Client::room`] waits for more
    /// room.
    pub fn produce(
        &self,
        topic: &Arc<str>,
        partitions: &[i32],
        rows: &dyn Rows,
        at: usize,
    ) -> Result<usize, ClientError> {
        let (producer, config) = (&self.producer, &self.config.producer);
        let room = config.buffer_bytes.saturating_sub(producer.accumulator.lock().bytes());
        let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let mut closed = Vec::new();
        let mut open = producer.open.lock();
        if open.identity.is_none() {
            return Err(ClientError::State { verb: "produce", why: "the producer is being restarted" });
        }
        if config.transactional_id.is_some() {
            // Under the lock, so that a commit includes every record that was accepted before it began.
            producer.stage.lock().check_in_transaction("produce")?;
        }
        let now_ms = self.now_ms();
        let next = open.append(config, topic, partitions, rows, at, room, now_ms, wall_ms, &mut closed);
        producer.hand_over(closed);
        drop(open);
        next.map_err(|refused| match refused {
            RowRefused::TooLarge { at, size } => {
                ClientError::RecordTooLarge { topic: topic.to_string(), at, size, max: config.request_bytes_max }
            }
            RowRefused::NoSuchPartition { partition } => {
                let count = partitions.len();
                ClientError::Invalid(format!(
                    "{topic} has {count} partitions, numbered from 0: there is no {partition}"
                ))
            }
            RowRefused::Unbuildable(error) => ClientError::Invalid(error.to_string()),
        })
    }

    /// Waits until there is more room, or an error.
    pub async fn room(&self) -> Result<(), ClientError> {
        let most = self.config.producer.buffer_bytes;
        self.producer.until(|accumulator| accumulator.bytes() < most || accumulator.has_failure()).await?;
        self.report_failure()
    }

    /// Sends everything, and waits until all of it is acknowledged.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.check_open()?;
        self.producer.close_all(self.now_ms() + self.config.producer.delivery_timeout_ms)?;
        self.producer.until(|accumulator| accumulator.is_idle() || accumulator.has_failure()).await?;
        self.report_failure()
    }

    /// The failure that was not reported yet, with everything that it lost.
    pub(super) fn report_failure(&self) -> Result<(), ClientError> {
        if !self.producer.accumulator.lock().has_failure() {
            return Ok(());
        }
        self.producer.close_all(0)?;
        let failure = self.producer.accumulator.lock().take_failure();
        let Some(Failure { place: (topic, partition), fault, message, timed_out, records }) = failure else {
            return Ok(());
        };
        let source = Box::new(fault);
        Err(ClientError::NotDelivered { topic: topic.to_string(), partition, records, source, message, timed_out })
    }

    fn start_sender(self: &Arc<Self>) {
        let mut running = self.producer.sender.lock();
        if running.is_none() {
            *running = Some(tokio::spawn(sender::run(Arc::downgrade(self))).abort_handle());
        }
    }

    /// Ensures an identity; after batches were lost it is a new one, because their sequence numbers are missing.
    async fn ready_identity(&self) -> Result<(), ClientError> {
        let producer = &self.producer;
        let _changing = producer.changing.lock().await;
        self.report_failure()?;
        if self.config.producer.transactional_id.is_some() {
            return producer.stage.lock().check_in_transaction("produce");
        }
        let is_lost = producer.accumulator.lock().has_lost();
        if producer.open.lock().identity.is_some() && !is_lost {
            return Ok(());
        }
        producer.until(|accumulator| accumulator.has_nothing_in_flight()).await?;
        let mut call = self.producer_call(What::cluster("get a producer id"))?;
        let identity = loop {
            match self.ask_producer_id(call.within()).await {
                Ok(identity) => break identity,
                Err(fault) => call.wait_after(fault).await?,
            }
        };
        let mut open = producer.open.lock();
        open.reset(Some(identity));
        producer.accumulator.lock().reset();
        Ok(())
    }
}
