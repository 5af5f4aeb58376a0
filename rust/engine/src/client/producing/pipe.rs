//! A connection on which requests do not wait for each other's answers.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::super::connection::{Connection, LinkError, broken, read_frame};
use super::super::messages::produce::{ProduceRequest, ProducedPartition};
use super::super::messages::{Request, name_of, request_frame, split_answer};
use super::super::versions::Versions;

/// An answer, or why there is none.
pub type Outcome = Result<Vec<ProducedPartition>, LinkError>;
/// The outcome of the request of a tag.
pub type Answered = (u64, Outcome);

/// Writes requests; a task of its own reads the answers, which come in the same order.
#[derive(Debug)]
pub struct Pipe {
    address: String,
    client_id: String,
    write: OwnedWriteHalf,
    versions: Versions,
    correlation_id: i32,
    expected: UnboundedSender<Expected>,
    reader: AbortHandle,
}

struct Expected {
    tag: u64,
    correlation_id: i32,
    version: i16,
    until: Instant,
    within: Duration,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Pipe {
    pub async fn open(
        address: &str,
        client_id: &str,
        within: Duration,
        answers: UnboundedSender<Answered>,
    ) -> Result<Self, LinkError> {
        let (read, write, versions) = Connection::open(address, client_id, within).await?.into_halves();
        let (expected, to_come) = unbounded_channel();
        let reader = tokio::spawn(read_answers(read, address.to_owned(), to_come, answers)).abort_handle();
        let (address, client_id) = (address.to_owned(), client_id.to_owned());
        Ok(Self { address, client_id, write, versions, correlation_id: 0, expected, reader })
    }

    /// Whether answers still come.
    pub fn is_whole(&self) -> bool {
        !self.expected.is_closed()
    }

    /// Sends a request whose answer comes under its tag, unless this says why not.
    pub async fn send(&mut self, tag: u64, request: &ProduceRequest<'_>, within: Duration) -> Result<(), LinkError> {
        let version = self.versions.choose(request);
        let version = version.map_err(|source| LinkError::Version { address: self.address.clone(), source })?;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = request_frame(request, version, self.correlation_id, &self.client_id);
        let until = Instant::now() + within;
        match timeout_at(until, self.write.write_all(&frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(broken(&self.address, error)),
            Err(_) => return Err(late(&self.address, within)),
        }
        let expected = Expected { tag, correlation_id: self.correlation_id, version, until, within };
        self.expected.send(expected).map_err(|_| broken(&self.address, io::ErrorKind::ConnectionReset.into()))
    }
}

fn late(address: &str, within: Duration) -> LinkError {
    LinkError::Late { address: address.to_owned(), what: name_of(ProduceRequest::API), after_ms: within.as_millis() }
}

/// Gives answers on until one is missing; then all that are still expected are missing for the same reason.
async fn read_answers(
    mut read: OwnedReadHalf,
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

async fn read_answer(read: &mut OwnedReadHalf, address: &str, expected: &Expected) -> Outcome {
    let frame = timeout_at(expected.until, read_frame(read, address)).await;
    let frame = frame.map_err(|_| late(address, expected.within))??;
    let what = name_of(ProduceRequest::API);
    let malformed = |source| LinkError::Malformed { address: address.to_owned(), what, source };
    let (found, body) = split_answer(ProduceRequest::API, expected.version, &frame).map_err(malformed)?;
    if found != expected.correlation_id {
        return Err(LinkError::OutOfTurn { address: address.to_owned(), expected: expected.correlation_id, found });
    }
    ProduceRequest::read(&body, expected.version).map_err(malformed)
}
