//! The task that sends a producer's batches.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::attempts::{Fault, Remedy};
use super::super::client::Client;
use super::accumulator::Place;
use super::broker_sender::BrokerSender;
use super::pipe::{Answered, Outcome};

/// The longest sleep of the sender: then it checks whether its client still exists.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until the client is dropped.
pub async fn run(client: Weak<Client>) {
    let (answers, mut answered) = unbounded_channel();
    let mut senders = HashMap::new();
    let mut refreshing = Refreshing::default();
    loop {
        let Some(client) = client.upgrade() else { return };
        let wait = step(&client, &mut senders, &answers, &mut refreshing).await;
        client.producer.progress.notify_waiters();
        let woken = async {
            tokio::select! {
                answer = answered.recv() => answer,
                () = client.producer.work.notified() => None,
            }
        };
        let mut next = timeout(wait.min(LOOK_EVERY), woken).await.ok().flatten();
        while let Some((tag, outcome)) = next {
            on_answer(&client, tag, &outcome);
            next = answered.try_recv().ok();
        }
    }
}

/// Sends what can be sent. Returns the time until the next check.
async fn step(
    client: &Arc<Client>,
    senders: &mut HashMap<String, BrokerSender>,
    answers: &UnboundedSender<Answered>,
    refreshing: &mut Refreshing,
) -> Duration {
    let producer = &client.producer;
    let mut wake_at_ms = close_ripe(client);
    let todo = {
        let view = client.view.lock();
        producer.accumulator.lock().poll(client.now_ms(), &view)
    };
    for send in todo.sends {
        let sender = senders.entry(send.address.clone());
        sender.or_insert_with_key(|address| BrokerSender::start(client, address, answers.clone())).send(send);
    }
    if !todo.enlist.is_empty() {
        enlist(client, &todo.enlist).await;
        return Duration::ZERO;
    }
    if !todo.refresh.is_empty() {
        wake_at_ms = wake_at_ms.min(refreshing.begin(client, todo.refresh));
    }
    wake_at_ms = todo.wake_at_ms.map_or(wake_at_ms, |at_ms| at_ms.min(wake_at_ms));
    Duration::from_millis(wake_at_ms.saturating_sub(client.now_ms()))
}

/// Closes the batches that have lingered long enough; returns when the next one will have.
fn close_ripe(client: &Client) -> u64 {
    let (producer, config) = (&client.producer, &client.config.producer);
    let now_ms = client.now_ms();
    let mut open = producer.open.lock();
    if let Some(ripe_ms) = now_ms.checked_sub(config.linger_ms) {
        // Rows that cannot be encoded were rejected when they were passed in.
        if let Ok(closed) = open.close_until(ripe_ms, now_ms + config.delivery_timeout_ms)
            && !closed.is_empty()
        {
            producer.hand_over(closed);
        }
    }
    open.oldest_ms().map_or(u64::MAX, |opened_ms| opened_ms + config.linger_ms)
}

fn on_answer(client: &Client, tag: u64, outcome: &Outcome) {
    let doubtful = client.producer.accumulator.lock().on_answer(client.now_ms(), tag, outcome);
    if !doubtful.is_empty() {
        let mut view = client.view.lock();
        doubtful.iter().for_each(|topic| view.distrust(topic));
    }
}

/// Refreshes the metadata of topics concurrently with sending, because a broker may be slow to answer.
#[derive(Default)]
struct Refreshing {
    task: Option<JoinHandle<()>>,
    is_done: Arc<AtomicBool>,
    not_before_ms: u64,
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

impl Refreshing {
    /// Starts a refresh if it is time and none is running. Returns when to check again.
    fn begin(&mut self, client: &Arc<Client>, topics: BTreeSet<Arc<str>>) -> u64 {
        if self.task.is_some() && !self.is_done.swap(false, Ordering::AcqRel) {
            return u64::MAX;
        }
        if self.task.take().is_some() {
            self.not_before_ms = client.now_ms() + client.config.backoff_ms.max(1);
        }
        if client.now_ms() < self.not_before_ms {
            return self.not_before_ms;
        }
        let (client, is_done) = (client.clone(), self.is_done.clone());
        self.task = Some(tokio::spawn(async move {
            refresh(&client, &topics).await;
            is_done.store(true, Ordering::Release);
            client.producer.work.notify_one();
        }));
        u64::MAX
    }
}

async fn refresh(client: &Client, topics: &BTreeSet<Arc<str>>) {
    for topic in topics {
        if let Err(fault) = client.refresh(topic, Duration::from_millis(client.config.request_timeout_ms)).await {
            let mut accumulator = client.producer.accumulator.lock();
            match &fault {
                Fault::Link(error) if error.is_security() => accumulator.on_fatal(fault),
                _ => accumulator.on_unknown(topic, &fault),
            }
        }
    }
}

/// Adds partitions to the transaction, unless it is being ended.
async fn enlist(client: &Client, places: &BTreeSet<Place>) {
    let producer = &client.producer;
    let backoff = Duration::from_millis(client.config.backoff_ms);
    let Ok(_changing) = producer.changing.try_lock() else { return sleep(backoff).await };
    if !producer.accumulator.lock().waits_for(places) {
        return;
    }
    match client.add_partitions(places).await {
        Ok(()) => producer.accumulator.lock().on_enlisted(places),
        Err(fault) if fault.remedy() != Remedy::None => {
            for (topic, _) in places {
                producer.accumulator.lock().on_unknown(topic, &fault);
            }
            sleep(backoff).await;
        }
        Err(fault) => producer.accumulator.lock().on_fatal(fault),
    }
}
