//! One connection to a broker: a request, then its answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use super::link_error::LinkError;
use super::messages::api_versions::ApiVersionsRequest;
use super::messages::{Request, name_of, raw_frame, request_frame, split_answer};
use super::security::{ReadHalf, Security, Transport, WriteHalf};
use super::versions::Versions;

/// No honest answer is longer: one batch may be as large as its topic allows, but a frame's length is not trusted.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The same before the broker has answered anything else than what it speaks. The alert of a listener that speaks TLS
/// would be a length of 352 MB.
const FIRST_ANSWER_BYTES_MAX: usize = 1 << 24;
/// Room for an answer grows with what arrives, beginning with this.
const FIRST_ROOM: usize = 4 << 20;

/// A connection that was agreed on; used by one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Box<dyn Transport>>,
    pub(super) address: String,
    client_id: String,
    pub(super) versions: Versions,
    correlation_id: i32,
    pub(super) security: Arc<Security>,
    /// When the broker must be told again who this is (KIP-368).
    pub(super) renew_at: Option<Instant>,
    /// Whether the broker answered anything but what it speaks, which listeners answer to strangers, too.
    is_welcome: bool,
}

/// What is left of a connection whose directions went to tasks of their own.
pub(super) struct Halves {
    pub read: ReadHalf,
    pub write: WriteHalf,
    pub versions: Versions,
    pub renew_at: Option<Instant>,
    /// Of the last request.
    pub correlation_id: i32,
}

impl Connection {
    /// Connects, by TLS and with SASL where the configuration says so, and asks what the broker speaks.
    pub async fn open(
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
        let socket = timeout(within, connect(address)).await.map_err(late)??;
        Self::agree_on(socket, address, client_id, security, until.saturating_duration_since(Instant::now())).await
    }

    /// The same over a socket that is connected.
    pub(super) async fn agree_on(
        socket: TcpStream,
        address: &str,
        client_id: &str,
        security: &Arc<Security>,
        within: Duration,
    ) -> Result<Self, LinkError> {
        let until = Instant::now() + within;
        let mut opened = Self {
            stream: BufReader::new(transport(socket, address, security, within).await?),
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

    /// What the broker speaks.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Asks in the newest version that both sides know. After an error the connection is of no use.
    pub async fn call<R: Request>(&mut self, request: &R, within: Duration) -> Result<R::Answer, LinkError> {
        self.renew_if_due(within).await?;
        self.ask(request, within).await
    }

    /// The body of the answer to a request's body that was written elsewhere, in that version of an API.
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

    /// The second half: the answer to what was sent last.
    pub async fn receive_raw(&mut self, api: i16, version: i16, within: Duration) -> Result<Bytes, LinkError> {
        let frame = timeout(within, self.receive()).await.map_err(|_| self.late(api, within))?;
        let body = frame.and_then(|frame| self.body_of(&frame, api, version)).map_err(|error| self.puzzled(error))?;
        self.is_welcome = true;
        Ok(body)
    }

    /// As `call`, whatever the time.
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

    /// The body in the frame of an answer, which must be to what was sent last.
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

    /// What a connection that breaks at once may mean.
    fn puzzled(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::Broken { address, source } if !self.is_welcome => {
                let hint = if self.security.tls.is_some() { ", and does it want a client's certificate" } else { "" };
                LinkError::Unwelcome { address, source, protocol: self.security.protocol, hint }
            }
            other => other,
        }
    }

    /// The directions, for requests that do not wait for each other.
    pub(super) fn into_halves(self) -> Halves {
        // Nothing is buffered: every answer that was asked for has been read.
        let (read, write) = self.stream.into_inner().into_halves();
        let (versions, renew_at, correlation_id) = (self.versions, self.renew_at, self.correlation_id);
        Halves { read, write, versions, renew_at, correlation_id }
    }
}

/// Connects to the first of a host's addresses that accepts; an error is of refusal only if all of them refuse.
pub(super) async fn connect(address: &str) -> Result<TcpStream, LinkError> {
    let failed = |source| LinkError::connect(address, source);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut other = None;
    for found in lookup_host(address).await.map_err(failed)? {
        match connect_to(found).await {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => last = error,
            Err(error) => other = other.or(Some(error)),
        }
    }
    Err(failed(other.unwrap_or(last)))
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

async fn transport(
    socket: TcpStream,
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

/// Sends all of a frame: TLS keeps the end of it until it is told.
pub(super) async fn send<W: AsyncWriteExt + Unpin>(stream: &mut W, frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame).await?;
    stream.flush().await
}

/// The next answer's frame of at most so many bytes, without its length.
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

/// The next `len` bytes; memory grows with what really arrives, and there may be none.
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
