//! A connection with any number of requests in flight, for an owner with its own event loop.
//!
//! Its events are [`ChannelEvent`]s in a [`ChannelQueue`]. The owner decides when to connect, how long to wait, and
//! how to handle a failure.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use klamm_base::conditions::Conditions;
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, BufReader};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::channel_queue::ChannelQueue;
use super::connection::{ANSWER_BYTES_MAX, Connection, Halves, read_frame};
use super::link_error::LinkError;
use super::messages::{raw_frame, split_answer};
use super::security::{ReadHalf, Security, WriteHalf};
use super::versions::Versions;
use super::wire::Wire;

/// The owner closes a channel that takes too long; this only ends forgotten ones.
const AGREE_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Small responses that arrive together are read together.
const READ_BYTES: usize = 16 << 10;

/// The events of a channel, in this order: it is accepted, it is opened, responses arrive, and it is closed.
#[derive(Debug)]
pub enum ChannelEvent {
    /// The peer accepted the connection; its address.
    Accepted(SocketAddr),
    /// The peer supports these versions: requests may be sent.
    Opened(Versions),
    /// A response body, and the correlation id of its request.
    Answered { correlation_id: i32, body: Bytes },
    /// The connection could not be made, or was lost. Open requests will not be answered.
    Closed(LinkError),
}

/// The address of a channel, and how to connect.
#[derive(Clone, Debug)]
pub struct ChannelPlan {
    /// host:port.
    pub address: String,
    pub client_id: String,
    pub security: Arc<Security>,
    /// Those of the node of an embedded cluster.
    pub conditions: Option<Arc<Conditions>>,
}

/// One connection. Dropping it closes it, and no event follows.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}

impl Channel {
    /// Starts to connect. Events have this `id`.
    pub fn open(handle: &Handle, plan: ChannelPlan, id: u64, queue: Arc<ChannelQueue>) -> Self {
        let retry = Arc::new(Retry(Notify::new()));
        let waker = Waker::from(retry.clone());
        let shared = Arc::new(Shared { plan, id, queue, outgoing: Mutex::default(), retry, waker });
        let run = shared.clone().run();
        let task = match shared.plan.conditions.clone() {
            None => handle.spawn(run),
            Some(conditions) => handle.spawn(async move { conditions.hold(run).await }),
        };
        let task = task.abort_handle();
        Self { shared, task }
    }

    /// Sends a request in a version that both sides support; returns the correlation id of its response. Does nothing
    /// if the channel is not open.
    pub fn send(&self, api: i16, version: i16, body: &[u8]) -> i32 {
        self.shared.send(api, version, body)
    }

    pub fn close(&self) {
        self.task.abort();
        self.shared.end();
    }
}

#[derive(Debug)]
struct Shared {
    plan: ChannelPlan,
    id: u64,
    queue: Arc<ChannelQueue>,
    outgoing: Mutex<Outgoing>,
    retry: Arc<Retry>,
    /// The waker of `retry`: wakes the task when a blocked write can continue.
    waker: Waker,
}

#[derive(Default)]
pub(super) struct Outgoing {
    /// `None` unless the channel is open.
    pub write: Option<WriteHalf>,
    /// Bytes that the operating system has not accepted yet.
    pub backlog: Vec<u8>,
    /// Whether everything that the transport buffers was flushed.
    is_flushed: bool,
    correlation_id: i32,
    /// API and version of each unanswered request.
    asked: HashMap<i32, (i16, i16)>,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outgoing").field("asked", &self.asked).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Retry(Notify);

impl Wake for Retry {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Outgoing {
    /// Writes as much as possible without blocking.
    pub fn write_on(&mut self, waker: &Waker) -> io::Result<()> {
        let Some(write) = &mut self.write else { return Ok(()) };
        let mut context = Context::from_waker(waker);
        let mut written = 0;
        while written < self.backlog.len() {
            match Pin::new(&mut *write).poll_write(&mut context, &self.backlog[written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => (written, self.is_flushed) = (written + bytes, false),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.backlog.drain(..written);
        if self.backlog.is_empty() {
            self.backlog = Vec::new();
        }
        // TLS buffers the end of a frame until it is flushed.
        if !self.is_flushed && self.backlog.is_empty() {
            match Pin::new(write).poll_flush(&mut context) {
                Poll::Ready(flushed) => flushed.map(|()| self.is_flushed = true)?,
                Poll::Pending => {}
            }
        }
        Ok(())
    }
}

impl Shared {
    async fn run(self: Arc<Self>) {
        let Err(error) = self.live().await;
        self.end();
        self.push_event(ChannelEvent::Closed(error));
    }

    async fn live(&self) -> Result<std::convert::Infallible, LinkError> {
        let ChannelPlan { address, client_id, security, conditions } = &self.plan;
        let wire = Wire::connect(address, conditions.as_ref()).await?;
        let peer = wire.peer_addr().map_err(|error| LinkError::broken(address, error))?;
        self.push_event(ChannelEvent::Accepted(peer));
        let opened = Connection::agree_on(wire, address, client_id, security, AGREE_WITHIN).await?;
        let Halves { read, write, versions, renew_at, correlation_id } = opened.into_halves();
        let mut read = BufReader::with_capacity(READ_BYTES, read);
        {
            let mut outgoing = self.outgoing.lock();
            (outgoing.write, outgoing.correlation_id) = (Some(write), correlation_id);
        }
        self.push_event(ChannelEvent::Opened(versions));
        tokio::select! {
            error = self.read_answers(&mut read) => Err(error),
            error = self.write_backlog() => Err(error),
            error = self.await_renewal(renew_at) => Err(error),
        }
    }

    async fn read_answers(&self, read: &mut BufReader<ReadHalf>) -> LinkError {
        loop {
            let answer = read_frame(read, &self.plan.address, ANSWER_BYTES_MAX).await;
            match answer.and_then(|frame| self.answer_of(&frame)) {
                Ok(event) => self.push_event(event),
                Err(error) => return error,
            }
        }
    }

    fn answer_of(&self, frame: &Bytes) -> Result<ChannelEvent, LinkError> {
        let address = || self.plan.address.clone();
        let found = frame.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
        let asked = self.outgoing.lock().asked.remove(&found);
        let (api, version) = asked.ok_or_else(|| LinkError::Unasked { address: address(), found })?;
        let what = super::messages::name_of(api);
        let malformed = |source| LinkError::Malformed { address: address(), what, source };
        let (correlation_id, body) = split_answer(api, version, frame).map_err(malformed)?;
        Ok(ChannelEvent::Answered { correlation_id, body })
    }

    /// Continues writes that were blocked.
    async fn write_backlog(&self) -> LinkError {
        loop {
            self.retry.0.notified().await;
            if let Err(error) = self.outgoing.lock().write_on(&self.waker) {
                return LinkError::broken(&self.plan.address, error);
            }
        }
    }

    /// Before the session expires (KIP-368), another channel must replace this one.
    async fn await_renewal(&self, renew_at: Option<Instant>) -> LinkError {
        match renew_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
        while !self.outgoing.lock().asked.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        LinkError::broken(&self.plan.address, io::Error::other("the SASL session ends"))
    }

    fn send(&self, api: i16, version: i16, body: &[u8]) -> i32 {
        let mut outgoing = self.outgoing.lock();
        outgoing.correlation_id = outgoing.correlation_id.wrapping_add(1) & i32::MAX;
        let correlation_id = outgoing.correlation_id;
        if outgoing.write.is_none() {
            return correlation_id;
        }
        outgoing.asked.insert(correlation_id, (api, version));
        let frame = raw_frame(api, version, correlation_id, &self.plan.client_id, body);
        if !outgoing.backlog.is_empty() {
            outgoing.backlog.extend_from_slice(&frame);
            return correlation_id;
        }
        outgoing.backlog = frame;
        if outgoing.write_on(&self.waker).is_err() {
            // The task encounters the same error and reports it.
            self.retry.0.notify_one();
        }
        correlation_id
    }

    fn push_event(&self, event: ChannelEvent) {
        self.queue.push(self.id, event);
    }

    fn end(&self) {
        let mut outgoing = self.outgoing.lock();
        (outgoing.write, outgoing.backlog) = (None, Vec::new());
        outgoing.asked.clear();
    }
}
