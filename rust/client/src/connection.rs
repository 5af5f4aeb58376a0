//! One connection to a broker: a request, then its answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use klamm_base::ErrorCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::link_error::LinkError;
use super::messages::api_versions::ApiVersionsRequest;
use super::messages::{Request, name_of, request_frame, split_answer};
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
    stream: Box<dyn Transport>,
    pub(super) address: String,
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
        let mut opened = Self {
            stream: transport(address, security, within).await?,
            address: address.to_owned(),
            versions: Versions::default(),
            correlation_id: 0,
            security: security.clone(),
            renew_at: None,
            is_welcome: false,
        };
        opened.versions = opened.agree(client_id, until.saturating_duration_since(Instant::now())).await?;
        opened.authenticate(client_id, until).await?;
        Ok(opened)
    }

    async fn agree(&mut self, client_id: &str, within: Duration) -> Result<Versions, LinkError> {
        for version in [ApiVersionsRequest::VERSION_MAX, 0] {
            let answer = self.exchange(&ApiVersionsRequest, version, client_id, within).await;
            let answer = answer.map_err(|error| self.puzzled(error))?;
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
        self.renew_if_due(client_id, within).await?;
        self.ask(request, client_id, within).await
    }

    /// The answer's frame to a frame that somebody else wrote, both without their lengths.
    pub async fn forward(&mut self, frame: &[u8], client_id: &str, within: Duration) -> Result<Bytes, LinkError> {
        self.renew_if_due(client_id, within).await?;
        let whole = [&(frame.len() as u32).to_be_bytes(), frame].concat();
        let answer = timeout(within, self.send_and_receive(&whole)).await;
        let late = LinkError::Late { address: self.address.clone(), what: "a request", after_ms: within.as_millis() };
        let answer = answer.unwrap_or(Err(late)).map_err(|error| self.puzzled(error))?;
        self.is_welcome = true;
        Ok(answer)
    }

    /// As `call`, whatever the time.
    pub(super) async fn ask<R: Request>(
        &mut self,
        request: &R,
        client_id: &str,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        let version = self.versions.choose(request);
        let version = version.map_err(|source| LinkError::Version { address: self.address.clone(), source })?;
        let answer = self.exchange(request, version, client_id, within).await;
        let answer = answer.map_err(|error| self.puzzled(error))?;
        self.is_welcome = true;
        Ok(answer)
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
        send(&mut self.stream, frame).await.map_err(|source| LinkError::broken(&self.address, source))?;
        let most = if self.is_welcome { ANSWER_BYTES_MAX } else { FIRST_ANSWER_BYTES_MAX };
        read_frame(&mut self.stream, &self.address, most).await
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
        let (read, write) = self.stream.into_halves();
        Halves { read, write, versions: self.versions, renew_at: self.renew_at }
    }
}

async fn transport(address: &str, security: &Security, within: Duration) -> Result<Box<dyn Transport>, LinkError> {
    let until = Instant::now() + within;
    let failed = |source| LinkError::Connect { address: address.to_owned(), source: Arc::new(source) };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} ms", within.as_millis()));
    let connect = timeout(within, TcpStream::connect(address));
    let socket = connect.await.map_err(|error| failed(late(error)))?.map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    let Some(tls) = &security.tls else { return Ok(Box::new(socket)) };
    let agreed = timeout(until.saturating_duration_since(Instant::now()), tls.agree(address, socket)).await;
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
