//! What callers and the sender of a producer share.

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
    /// To the sender: there is something to do.
    pub(super) work: Notify,
    /// To callers: something was answered.
    pub(super) progress: Notify,
    sender: Mutex<Option<AbortHandle>>,
    is_closed: AtomicBool,
    pub(super) stage: Mutex<Stage>,
    pub(super) coordinator: Mutex<Option<String>>,
    /// Calls that change who the producer is come one after the other.
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

    /// Ends the sender, and all waits for what it would have done.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(sender) = self.sender.lock().take() {
            sender.abort();
        }
        self.progress.notify_waiters();
    }

    /// Gives closed batches to the sender.
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
        // Within the lock, so that no later batch of a partition comes first.
        self.hand_over(closed);
        Ok(())
    }

    /// Waits until `is_done` says so; fails once the client is closed, when nothing more will be done.
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
    /// Makes the topic ready to be produced to: who the producer is, the topic's partitions, and the sender.
    ///
    /// Fails with what was lost before, if that was not told yet.
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

    /// Takes rows from `at` on, as many as there is room for; tells which is next. [`Client::room`] waits for more.
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
            return Err(ClientError::State { verb: "produce", why: "the producer is being made anew" });
        }
        if config.transactional_id.is_some() {
            // Within the lock, so that a commit has every record that was taken before it began.
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

    /// Waits until there is room for more, or an error to tell.
    pub async fn room(&self) -> Result<(), ClientError> {
        let most = self.config.producer.buffer_bytes;
        self.producer.until(|accumulator| accumulator.bytes() < most || accumulator.has_failure()).await?;
        self.tell_failure()
    }

    /// Sends what there is, and waits until all of it is acknowledged.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.check_open()?;
        self.producer.close_all(self.now_ms() + self.config.producer.delivery_timeout_ms)?;
        self.producer.until(|accumulator| accumulator.is_idle() || accumulator.has_failure()).await?;
        self.tell_failure()
    }

    /// The failure that was not told yet, with all that is lost by it.
    pub(super) fn tell_failure(&self) -> Result<(), ClientError> {
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

    /// An identity, made anew after batches were lost: their sequences are missing.
    async fn ready_identity(&self) -> Result<(), ClientError> {
        let producer = &self.producer;
        let _changing = producer.changing.lock().await;
        self.tell_failure()?;
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
