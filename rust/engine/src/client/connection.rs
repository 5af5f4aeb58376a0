//! One connection to a broker: a request, then its answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::messages::api_versions::ApiVersionsRequest;
use super::messages::{Request, name_of, request_frame, split_answer};
use super::versions::{NoCommonVersion, Versions};
use crate::ErrorCode;
use crate::wire::primitives::WireError;

/// No honest answer is longer: one batch may be as large as its topic allows, but a frame's length is not trusted.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Room for an answer grows with what arrives, beginning with this.
const FIRST_ROOM: usize = 4 << 20;

/// Why a broker was not asked, or gave no answer that can be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: Arc<io::Error> },
    #[error("the connection to {address} broke: {source}")]
    Broken { address: String, source: Arc<io::Error> },
    #[error("{address} did not answer {what} within {after_ms} ms")]
    Late { address: String, what: &'static str, after_ms: u128 },
    #[error("{address} answered {what} with what is no such answer: {source}")]
    Malformed { address: String, what: &'static str, source: WireError },
    #[error("{address} announced an answer of {len} bytes: it is no Kafka broker, or speaks TLS")]
    TooLong { address: String, len: i32 },
    #[error("{address} answered request {found} where {expected} was asked")]
    OutOfTurn { address: String, expected: i32, found: i32 },
    #[error("{address} cannot be asked: {source}")]
    Version { address: String, source: NoCommonVersion },
    #[error("{address} refused to say what it speaks: {code}")]
    Refused { address: String, code: ErrorCode },
}

impl LinkError {
    /// Whether another try may find another state of things.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Broken { .. } | Self::Late { .. })
    }
}

/// A connection that was agreed on; used by one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: String,
    versions: Versions,
    correlation_id: i32,
}

impl Connection {
    /// Connects and asks what the broker speaks.
    pub async fn open(address: &str, client_id: &str, within: Duration) -> Result<Self, LinkError> {
        let failed = |source| LinkError::Connect { address: address.to_owned(), source: Arc::new(source) };
        let connect = timeout(within, TcpStream::connect(address));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} ms", within.as_millis()));
        let stream = connect.await.map_err(|error| failed(late(error)))?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut opened = Self { stream, address: address.to_owned(), versions: Versions::default(), correlation_id: 0 };
        opened.versions = opened.agree(client_id, within).await?;
        Ok(opened)
    }

    async fn agree(&mut self, client_id: &str, within: Duration) -> Result<Versions, LinkError> {
        for version in [ApiVersionsRequest::VERSION_MAX, 0] {
            let answer = self.exchange(&ApiVersionsRequest, version, client_id, within).await?;
            match answer.error {
                ErrorCode::NONE => return Ok(Versions::new(answer.apis)),
                ErrorCode::UNSUPPORTED_VERSION if version > 0 => {}
                code => return Err(LinkError::Refused { address: self.address.clone(), code }),
            }
        }
        unreachable!("version 0 is the last one")
    }

    /// Asks in the newest version that both sides know. After an error the connection is of no use.
    pub async fn call<R: Request>(
        &mut self,
        request: &R,
        client_id: &str,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        let version = self.versions.choose(request);
        let version = version.map_err(|source| LinkError::Version { address: self.address.clone(), source })?;
        self.exchange(request, version, client_id, within).await
    }

    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        client_id: &str,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = request_frame(request, version, self.correlation_id, client_id);
        let what = name_of(R::API);
        let answer = timeout(within, self.send_and_receive(&frame)).await;
        let late = |_| LinkError::Late { address: self.address.clone(), what, after_ms: within.as_millis() };
        let frame = answer.map_err(late)??;
        let malformed = |source| LinkError::Malformed { address: self.address.clone(), what, source };
        let (found, body) = split_answer(R::API, version, &frame).map_err(malformed)?;
        if found != self.correlation_id {
            let (address, expected) = (self.address.clone(), self.correlation_id);
            return Err(LinkError::OutOfTurn { address, expected, found });
        }
        R::read(&body, version).map_err(malformed)
    }

    async fn send_and_receive(&mut self, frame: &[u8]) -> Result<Bytes, LinkError> {
        self.stream.write_all(frame).await.map_err(|source| broken(&self.address, source))?;
        read_frame(&mut self.stream, &self.address).await
    }

    /// The halves, for requests that do not wait for each other.
    pub(super) fn into_halves(self) -> (OwnedReadHalf, OwnedWriteHalf, Versions) {
        let (read, write) = self.stream.into_split();
        (read, write, self.versions)
    }
}

pub(super) fn broken(address: &str, source: io::Error) -> LinkError {
    LinkError::Broken { address: address.to_owned(), source: Arc::new(source) }
}

/// The next answer's frame, without its length.
pub(super) async fn read_frame<R: AsyncRead + Unpin>(stream: &mut R, address: &str) -> Result<Bytes, LinkError> {
    let len = stream.read_i32().await.map_err(|source| broken(address, source))?;
    match usize::try_from(len) {
        Ok(len @ 4..=ANSWER_BYTES_MAX) => read_exactly(stream, len).await.map_err(|source| broken(address, source)),
        _ => Err(LinkError::TooLong { address: address.to_owned(), len }),
    }
}

/// The next `len` bytes; memory grows with what really arrives.
async fn read_exactly<R: AsyncRead + Unpin>(stream: &mut R, len: usize) -> io::Result<Bytes> {
    let mut bytes = BytesMut::with_capacity(len.min(FIRST_ROOM));
    while bytes.len() < len {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len().min(len - bytes.len()));
        }
        let left = len - bytes.len();
        if stream.read_buf(&mut (&mut bytes).limit(left)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.freeze())
}
