//! One connection to a broker: one request at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use klamm_base::ErrorCode;
use klamm_base::conditions::Conditions;
use klamm_base::primitives::WireError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::{Instant, timeout};

use super::link_error::LinkError;
use super::messages::api_versions::ApiVersionsRequest;
use super::messages::{Request, name_of, raw_frame, request_frame, split_answer};
use super::security::{ReadHalf, Security, Transport, WriteHalf};
use super::versions::Versions;
use super::wire::Wire;

/// The longest accepted response: a batch may be as large as its topic allows, but a frame's length is not trusted.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The longest response before the broker has answered anything except ApiVersions. The alert of a TLS listener would
/// be read as a length of 352 MB.
const FIRST_ANSWER_BYTES_MAX: usize = 1 << 24;
/// The buffer for a response grows as bytes arrive, starting with this size.
const FIRST_ROOM: usize = 4 << 20;

/// A connection after version negotiation; used by one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Box<dyn Transport>>,
    pub(super) address: String,
    client_id: String,
    pub(super) versions: Versions,
    correlation_id: i32,
    pub(super) security: Arc<Security>,
    /// When the client must re-authenticate (KIP-368).
    pub(super) renew_at: Option<Instant>,
    /// Whether the broker has answered anything except ApiVersions, which listeners answer to unauthenticated clients
    /// too.
    is_welcome: bool,
}

/// The parts of a connection whose two directions are moved to separate tasks.
pub(super) struct Halves {
    pub read: ReadHalf,
    pub write: WriteHalf,
    pub versions: Versions,
    pub renew_at: Option<Instant>,
    /// The correlation id of the last request.
    pub correlation_id: i32,
}

impl Connection {
    /// Connects, with TLS and SASL if configured, and queries the broker's API versions.
    pub async fn open(
        address: &str,
        client_id: &str,
        security: &Arc<Security>,
        within: Duration,
    ) -> Result<Self, LinkError> {
        Self::open_under(None, address, client_id, security, within).await
    }

    /// The same for a node of an embedded cluster, under its conditions if it has some.
    pub async fn open_under(
        conditions: Option<&Arc<Conditions>>,
        address: &str,
        client_id: &str,
        security: &Arc<Security>,
        within: Duration,
    ) -> Result<Self, LinkError> {
        let until = Instant::now() + within;
        let late = |_| {
            let text = format!("no answer within {} ms", within.as_millis());
            LinkError::connect(address, io::Error::new(io::ErrorKind::TimedOut, text))
        };
        let wire = timeout(within, Wire::connect(address, conditions)).await.map_err(late)??;
        Self::agree_on(wire, address, client_id, security, until.saturating_duration_since(Instant::now())).await
    }

    /// The same over a connected socket.
    pub(super) async fn agree_on(
        wire: Wire,
        address: &str,
        client_id: &str,
        security: &Arc<Security>,
        within: Duration,
    ) -> Result<Self, LinkError> {
        let until = Instant::now() + within;
        let mut opened = Self {
            stream: BufReader::new(transport(wire, address, security, within).await?),
            address: address.to_owned(),
            client_id: client_id.to_owned(),
            versions: Versions::default(),
            correlation_id: 0,
            security: security.clone(),
            renew_at: None,
            is_welcome: false,
        };
        opened.versions = opened.agree(until.saturating_duration_since(Instant::now())).await?;
        opened.authenticate(until).await?;
        Ok(opened)
    }

    async fn agree(&mut self, within: Duration) -> Result<Versions, LinkError> {
        for version in [ApiVersionsRequest::VERSION_MAX, 0] {
            let answer = self.exchange(&ApiVersionsRequest, version, within).await;
            let answer = answer.map_err(|error| self.puzzled(error))?;
            match answer.error {
                ErrorCode::NONE => return Ok(Versions::new(answer.apis)),
                ErrorCode::UNSUPPORTED_VERSION if version > 0 => {}
                code => return Err(LinkError::Refused { address: self.address.clone(), code }),
            }
        }
        unreachable!("version 0 is the last one")
    }

    /// The API versions of the broker.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Sends a request in the newest version that both sides support. After an error the connection must not be used.
    pub async fn call<R: Request>(&mut self, request: &R, within: Duration) -> Result<R::Answer, LinkError> {
        self.renew_if_due(within).await?;
        self.ask(request, within).await
    }

    /// Sends an encoded request body in this version of an API and returns the response body.
    pub async fn call_raw(
        &mut self,
        api: i16,
        version: i16,
        body: &[u8],
        within: Duration,
    ) -> Result<Bytes, LinkError> {
        let until = Instant::now() + within;
        self.send_raw(api, version, body, within).await?;
        self.receive_raw(api, version, until.saturating_duration_since(Instant::now())).await
    }

    /// The first half of `call_raw`.
    pub async fn send_raw(&mut self, api: i16, version: i16, body: &[u8], within: Duration) -> Result<(), LinkError> {
        self.renew_if_due(within).await?;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = raw_frame(api, version, self.correlation_id, &self.client_id, body);
        let sent = timeout(within, send(&mut self.stream, &frame)).await.map_err(|_| self.late(api, within))?;
        sent.map_err(|source| self.puzzled(LinkError::broken(&self.address, source)))
    }

    /// The second half: the response to the last request.
    pub async fn receive_raw(&mut self, api: i16, version: i16, within: Duration) -> Result<Bytes, LinkError> {
        let frame = timeout(within, self.receive()).await.map_err(|_| self.late(api, within))?;
        let body = frame.and_then(|frame| self.body_of(&frame, api, version)).map_err(|error| self.puzzled(error))?;
        self.is_welcome = true;
        Ok(body)
    }

    /// As `call`, but without checking for re-authentication.
    pub(super) async fn ask<R: Request>(&mut self, request: &R, within: Duration) -> Result<R::Answer, LinkError> {
        let version = self.versions.choose(request);
        let version = version.map_err(|source| LinkError::Version { address: self.address.clone(), source })?;
        let answer = self.exchange(request, version, within).await;
        let answer = answer.map_err(|error| self.puzzled(error))?;
        self.is_welcome = true;
        Ok(answer)
    }

    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = request_frame(request, version, self.correlation_id, &self.client_id);
        let exchange = async {
            let sent = send(&mut self.stream, &frame).await;
            sent.map_err(|source| LinkError::broken(&self.address, source))?;
            self.receive().await
        };
        let answer = timeout(within, exchange).await.map_err(|_| self.late(R::API, within))?;
        let body = self.body_of(&answer?, R::API, version)?;
        R::read(&body, version).map_err(|source| self.malformed(R::API, source))
    }

    async fn receive(&mut self) -> Result<Bytes, LinkError> {
        let most = if self.is_welcome { ANSWER_BYTES_MAX } else { FIRST_ANSWER_BYTES_MAX };
        read_frame(&mut self.stream, &self.address, most).await
    }

    /// The body in a response frame, which must belong to the last request.
    fn body_of(&self, frame: &Bytes, api: i16, version: i16) -> Result<Bytes, LinkError> {
        let (found, body) = split_answer(api, version, frame).map_err(|source| self.malformed(api, source))?;
        if found != self.correlation_id {
            let (address, expected) = (self.address.clone(), self.correlation_id);
            return Err(LinkError::OutOfTurn { address, expected, found });
        }
        Ok(body)
    }

    fn late(&self, api: i16, within: Duration) -> LinkError {
        LinkError::Late { address: self.address.clone(), what: name_of(api), after_ms: within.as_millis() }
    }

    fn malformed(&self, api: i16, source: WireError) -> LinkError {
        LinkError::Malformed { address: self.address.clone(), what: name_of(api), source }
    }

    /// Explains an immediately broken connection.
    fn puzzled(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::Broken { address, source } if !self.is_welcome => {
                let hint = if self.security.tls.is_some() { ", and does it want a client's certificate" } else { "" };
                LinkError::Unwelcome { address, source, protocol: self.security.protocol, hint }
            }
            other => other,
        }
    }

    /// Splits the directions, for requests that do not wait for each other.
    pub(super) fn into_halves(self) -> Halves {
        // Nothing is buffered, because all responses have been read.
        let (read, write) = self.stream.into_inner().into_halves();
        let (versions, renew_at, correlation_id) = (self.versions, self.renew_at, self.correlation_id);
        Halves { read, write, versions, renew_at, correlation_id }
    }
}

async fn transport(
    wire: Wire,
    address: &str,
    security: &Security,
    within: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    match wire {
        Wire::Plain(socket) => secured(socket, address, security, within).await,
        Wire::Conditional(socket) => secured(socket, address, security, within).await,
    }
}

async fn secured<S: Transport + 'static>(
    socket: S,
    address: &str,
    security: &Security,
    within: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    let Some(tls) = &security.tls else { return Ok(Box::new(socket)) };
    let agreed = timeout(within, tls.agree(address, socket)).await;
    let late =
        |_| LinkError::Late { address: address.to_owned(), what: "the TLS handshake", after_ms: within.as_millis() };
    let stream = agreed.map_err(late)?.map_err(|error| LinkError::security(address, error))?;
    Ok(Box::new(stream))
}

/// Sends and flushes a whole frame: TLS buffers the end of it.
pub(super) async fn send<W: AsyncWriteExt + Unpin>(stream: &mut W, frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame).await?;
    stream.flush().await
}

/// The next response frame without its length, limited to `max` bytes.
pub(super) async fn read_frame<R: AsyncRead + Unpin>(
    stream: &mut R,
    address: &str,
    bytes_max: usize,
) -> Result<Bytes, LinkError> {
    let broken = |source| LinkError::broken(address, source);
    let len = stream.read_i32().await.map_err(broken)?;
    match usize::try_from(len) {
        Ok(bytes) if (4..=bytes_max).contains(&bytes) => read_exactly(stream, bytes).await.map_err(broken),
        _ => Err(LinkError::TooLong { address: address.to_owned(), len }),
    }
}

/// The next `len` bytes; memory grows with the bytes that arrive, and an allocation may fail.
async fn read_exactly<R: AsyncRead + Unpin>(stream: &mut R, len: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(len.min(FIRST_ROOM));
    while bytes.len() < len {
        if bytes.len() == bytes.capacity() {
            bytes.try_reserve_exact(bytes.len().min(len - bytes.len()))?;
        }
        let left = len - bytes.len();
        if stream.read_buf(&mut (&mut bytes).limit(left)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.into())
}
