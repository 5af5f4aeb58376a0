//! The task that sends a producer's batches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::super::attempts::{Fault, Remedy};
use super::super::client::Client;
use super::super::link_error::LinkError;
use super::super::messages::produce::ProduceRequest;
use super::lanes::{Place, Send};
use super::pipe::{Answered, Outcome, Pipe};

/// How long the sender sleeps at most: then it looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until the client is gone.
pub async fn run(client: Weak<Client>) {
    let (answers, mut answered) = unbounded_channel();
    let mut pipes = HashMap::new();
    let mut refresh_after_ms = 0;
    loop {
        let Some(client) = client.upgrade() else { return };
        let wait = step(&client, &mut pipes, &answers, &mut refresh_after_ms).await;
        client.producer.progress.notify_waiters();
        let woken = async {
            tokio::select! {
                answer = answered.recv() => answer,
                () = client.producer.work.notified() => None,
            }
        };
        let mut next = timeout(wait.min(LOOK_EVERY), woken).await.ok().flatten();
        while let Some((tag, outcome)) = next {
            on_answer(&client, &mut pipes, tag, &outcome);
            next = answered.try_recv().ok();
        }
    }
}

/// Sends what can be sent. Gives the time until it must look again.
async fn step(
    client: &Arc<Client>,
    pipes: &mut HashMap<String, Pipe>,
    answers: &UnboundedSender<Answered>,
    refresh_after_ms: &mut u64,
) -> Duration {
    let producer = &client.producer;
    let mut wake_at_ms = close_ripe(client);
    let todo = {
        let view = client.view.lock();
        producer.lanes.lock().poll(client.now_ms(), &view)
    };
    for send in todo.sends {
        transmit(client, pipes, answers, send).await;
    }
    if !todo.enlist.is_empty() {
        enlist(client, &todo.enlist).await;
        return Duration::ZERO;
    }
    if !todo.refresh.is_empty() {
        if client.now_ms() >= *refresh_after_ms {
            refresh(client, &todo.refresh).await;
            *refresh_after_ms = client.now_ms() + client.config.backoff_ms.max(1);
            return Duration::ZERO;
        }
        wake_at_ms = wake_at_ms.min(*refresh_after_ms);
    }
    wake_at_ms = todo.wake_at_ms.map_or(wake_at_ms, |at_ms| at_ms.min(wake_at_ms));
    Duration::from_millis(wake_at_ms.saturating_sub(client.now_ms()))
}

/// Closes the batches that lingered long enough; tells when the next one will have.
fn close_ripe(client: &Client) -> u64 {
    let (producer, config) = (&client.producer, &client.config.producer);
    let now_ms = client.now_ms();
    let mut open = producer.open.lock();
    if let Some(ripe_ms) = now_ms.checked_sub(config.linger_ms) {
        // What cannot be built was refused when it was taken.
        if let Ok(closed) = open.close_until(ripe_ms, now_ms + config.delivery_timeout_ms)
            && !closed.is_empty()
        {
            producer.hand_over(closed);
        }
    }
    open.oldest_ms().map_or(u64::MAX, |opened_ms| opened_ms + config.linger_ms)
}

async fn transmit(client: &Client, pipes: &mut HashMap<String, Pipe>, answers: &UnboundedSender<Answered>, send: Send) {
    let sent = try_transmit(client, pipes, answers, &send).await;
    if let Err(error) = sent {
        pipes.remove(&send.address);
        on_answer(client, pipes, send.tag, &Err(error));
    }
}

async fn try_transmit(
    client: &Client,
    pipes: &mut HashMap<String, Pipe>,
    answers: &UnboundedSender<Answered>,
    send: &Send,
) -> Result<(), LinkError> {
    let config = &client.config;
    if pipes.get(&send.address).is_some_and(Pipe::is_due)
        && let Some(due) = pipes.remove(&send.address)
    {
        // What is sent by another connection could overtake what is under way, and its sequence would be out of order.
        due.finish().await;
    }
    if !pipes.get(&send.address).is_some_and(Pipe::is_whole) {
        let within = Duration::from_millis(config.connect_timeout_ms.min(config.request_timeout_ms));
        let (address, client_id) = (&send.address, &config.client_id);
        let pipe = Pipe::open(address, client_id, &config.security, within, answers.clone()).await?;
        pipes.insert(send.address.clone(), pipe);
    }
    let pipe = pipes.get_mut(&send.address).expect("it is there");
    let request = ProduceRequest {
        transactional_id: config.producer.transactional_id.as_deref(),
        timeout_ms: config.request_timeout_ms as i32,
        batches: &send.batches,
    };
    pipe.send(send.tag, &request, Duration::from_millis(config.request_timeout_ms)).await
}

fn on_answer(client: &Client, pipes: &mut HashMap<String, Pipe>, tag: u64, outcome: &Outcome) {
    let doubtful = client.producer.lanes.lock().on_answer(client.now_ms(), tag, outcome);
    if !doubtful.is_empty() {
        let mut view = client.view.lock();
        doubtful.iter().for_each(|topic| view.distrust(topic));
    }
    pipes.retain(|_, pipe| pipe.is_whole());
}

async fn refresh(client: &Client, topics: &BTreeSet<Arc<str>>) {
    for topic in topics {
        if let Err(fault) = client.refresh(topic, Duration::from_millis(client.config.request_timeout_ms)).await {
            let mut lanes = client.producer.lanes.lock();
            match &fault {
                Fault::Link(error) if error.is_mistrust() => lanes.on_fatal(fault),
                _ => lanes.on_unknown(topic, &fault),
            }
        }
    }
}

/// Makes partitions part of the transaction, unless it is just being ended.
async fn enlist(client: &Client, places: &BTreeSet<Place>) {
    let producer = &client.producer;
    let backoff = Duration::from_millis(client.config.backoff_ms);
    let Ok(_changing) = producer.changing.try_lock() else { return sleep(backoff).await };
    if !producer.lanes.lock().waits_for(places) {
        return;
    }
    match client.add_partitions(places).await {
        Ok(()) => producer.lanes.lock().on_enlisted(places),
        Err(fault) if fault.remedy() != Remedy::None => {
            for (topic, _) in places {
                producer.lanes.lock().on_unknown(topic, &fault);
            }
            sleep(backoff).await;
        }
        Err(fault) => producer.lanes.lock().on_fatal(fault),
    }
}
