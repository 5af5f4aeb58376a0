//! A connection with pipelined requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::super::connection::{ANSWER_BYTES_MAX, Connection, Halves, read_frame, send};
use super::super::link_error::LinkError;
use super::super::messages::produce::{ProduceRequest, ProducedPartition};
use super::super::messages::{Request, name_of, request_frame, split_answer};
use super::super::security::{ReadHalf, Security, WriteHalf};
use super::super::versions::Versions;

/// A response, or its error.
pub type Outcome = Result<Vec<ProducedPartition>, LinkError>;
/// The outcome of the request with a tag.
pub type Answered = (u64, Outcome);

/// Writes requests; a separate task reads the responses, which arrive in the same order.
pub struct Pipe {
    address: String,
    client_id: String,
    write: WriteHalf,
    versions: Versions,
    correlation_id: i32,
    expected: UnboundedSender<Expected>,
    reader: Reader,
    /// When another connection must replace it, because the session expires.
    renew_at: Option<Instant>,
}

struct Expected {
    tag: u64,
    correlation_id: i32,
    version: i16,
    until: Instant,
    within: Duration,
}

/// The reading task; dropping this ends it.
struct Reader(JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pipe {
    pub async fn open(
        address: &str,
        client_id: &str,
        security: &Arc<Security>,
        within: Duration,
        answers: UnboundedSender<Answered>,
    ) -> Result<Self, LinkError> {
        let opened = Connection::open(address, client_id, security, within).await?;
        let Halves { read, write, versions, renew_at, correlation_id } = opened.into_halves();
        let (expected, to_come) = unbounded_channel();
        let reader = Reader(tokio::spawn(read_answers(read, address.to_owned(), to_come, answers)));
        let (address, client_id) = (address.to_owned(), client_id.to_owned());
        Ok(Self { address, client_id, write, versions, correlation_id, expected, reader, renew_at })
    }

    /// Whether responses can still arrive.
    pub fn is_whole(&self) -> bool {
        !self.expected.is_closed()
    }

    /// Whether another connection must replace it.
    pub fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| Instant::now() >= at)
    }

    /// Stops sending, and waits until every response was passed on or has timed out.
    pub async fn finish(self) {
        let Self { expected, mut reader, .. } = self;
        drop(expected);
        // The task neither panics nor is aborted before this.
        let _ = (&mut reader.0).await;
    }

    /// Sends a request whose outcome is reported under its tag, unless this returns an error.
    pub async fn send(&mut self, tag: u64, request: &ProduceRequest<'_>, within: Duration) -> Result<(), LinkError> {
        let version = self.versions.choose(request);
        let version = version.map_err(|source| LinkError::Version { address: self.address.clone(), source })?;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = request_frame(request, version, self.correlation_id, &self.client_id);
        let until = Instant::now() + within;
        match timeout_at(until, send(&mut self.write, &frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(LinkError::broken(&self.address, error)),
            Err(_) => return Err(late(&self.address, within)),
        }
        let expected = Expected { tag, correlation_id: self.correlation_id, version, until, within };
        let is_gone = |_| LinkError::broken(&self.address, io::ErrorKind::ConnectionReset.into());
        self.expected.send(expected).map_err(is_gone)
    }
}

fn late(address: &str, within: Duration) -> LinkError {
    LinkError::Late { address: address.to_owned(), what: name_of(ProduceRequest::API), after_ms: within.as_millis() }
}

/// Passes responses on until one is missing; then all later ones fail for the same reason.
async fn read_answers(
    mut read: ReadHalf,
    address: String,
    mut to_come: UnboundedReceiver<Expected>,
    answers: UnboundedSender<Answered>,
) {
    while let Some(expected) = to_come.recv().await {
        let outcome = read_answer(&mut read, &address, &expected).await;
        let failed = outcome.as_ref().err().cloned();
        if answers.send((expected.tag, outcome)).is_err() {
            return;
        }
        if let Some(error) = failed {
            to_come.close();
            while let Some(expected) = to_come.recv().await {
                let _ = answers.send((expected.tag, Err(error.clone())));
            }
        }
    }
}

async fn read_answer(read: &mut ReadHalf, address: &str, expected: &Expected) -> Outcome {
    let frame = timeout_at(expected.until, read_frame(read, address, ANSWER_BYTES_MAX)).await;
    let frame = frame.map_err(|_| late(address, expected.within))??;
    let what = name_of(ProduceRequest::API);
    let malformed = |source| LinkError::Malformed { address: address.to_owned(), what, source };
    let (found, body) = split_answer(ProduceRequest::API, expected.version, &frame).map_err(malformed)?;
    if found != expected.correlation_id {
        return Err(LinkError::OutOfTurn { address: address.to_owned(), expected: expected.correlation_id, found });
    }
    ProduceRequest::read(&body, expected.version).map_err(malformed)
}
