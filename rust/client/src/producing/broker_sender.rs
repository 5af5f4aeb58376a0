//! Sends requests to one broker, so that a slow or silent broker delays no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::super::client::Client;
use super::super::link_error::LinkError;
use super::super::messages::produce::ProduceRequest;
use super::super::pool::UnreachableAddresses;
use super::super::security::Security;
use super::accumulator::Send;
use super::pipe::{Answered, Pipe};

/// A task that connects to a broker, reconnects if necessary, and sends requests in order. Dropping this ends the
/// task.
pub struct BrokerSender {
    sends: UnboundedSender<Send>,
    task: JoinHandle<()>,
}

impl Drop for BrokerSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BrokerSender {
    /// Every request's result is sent to `answers`.
    pub fn start(client: &Client, address: &str, answers: UnboundedSender<Answered>) -> Self {
        let config = &client.config;
        let route = Route {
            address: address.to_owned(),
            client_id: config.client_id.clone(),
            security: config.security.clone(),
            unreachable: client.pool.unreachable(),
            transactional_id: config.producer.transactional_id.clone(),
            connect_within: Duration::from_millis(config.connect_timeout_ms.min(config.request_timeout_ms)),
            answer_within: Duration::from_millis(config.request_timeout_ms),
            answers,
        };
        let (sends, to_send) = unbounded_channel();
        Self { sends, task: tokio::spawn(route.run(to_send)) }
    }

    /// Queues a request; there are never more than may be in flight to a broker.
    pub fn send(&self, send: Send) {
        // The task ends only when this is dropped.
        let _ = self.sends.send(send);
    }
}

/// The route to a broker.
struct Route {
    address: String,
    client_id: String,
    security: Arc<Security>,
    unreachable: Arc<UnreachableAddresses>,
    transactional_id: Option<String>,
    connect_within: Duration,
    answer_within: Duration,
    answers: UnboundedSender<Answered>,
}

impl Route {
    async fn run(self, mut to_send: UnboundedReceiver<Send>) {
        let mut pipe = None;
        while let Some(send) = to_send.recv().await {
            let Err(error) = self.transmit(&mut pipe, &send).await else { continue };
            self.fail(&send, &error);
            // Requests that were queued meanwhile would have used the same connection.
            while let Ok(send) = to_send.try_recv() {
                self.fail(&send, &error);
            }
            if let Some(broken) = pipe.take() {
                // Earlier requests may still be answered.
                broken.finish().await;
            }
        }
    }

    fn fail(&self, send: &Send, error: &LinkError) {
        // Without a receiver the producer no longer exists.
        let _ = self.answers.send((send.tag, Err(error.clone())));
    }

    async fn transmit(&self, pipe: &mut Option<Pipe>, send: &Send) -> Result<(), LinkError> {
        if let Some(due) = pipe.take_if(|pipe| pipe.is_due()) {
            // Requests on another connection could overtake those in flight, and their sequence numbers would be out
            // of order.
            due.finish().await;
        }
        let whole = match pipe.take_if(|pipe| pipe.is_whole()) {
            Some(whole) => whole,
            None => self.open().await?,
        };
        let request = ProduceRequest {
            transactional_id: self.transactional_id.as_deref(),
            timeout_ms: self.answer_within.as_millis() as i32,
            batches: &send.batches,
        };
        pipe.insert(whole).send(send.tag, &request, self.answer_within).await
    }

    async fn open(&self) -> Result<Pipe, LinkError> {
        let (address, within) = (&self.address, self.connect_within);
        let opened = Pipe::open(address, &self.client_id, &self.security, within, self.answers.clone()).await;
        self.unreachable.note(address, opened.as_ref().err());
        opened
    }
}
