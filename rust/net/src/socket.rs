//! A connection's socket, whose end is noticed while bytes that were received are left unread.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// How a peer ended its side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// It sends nothing more, and may still read what it is sent.
    Sent,
    /// It is gone.
    Reset,
}

type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct Socket {
    reader: OwnedReadHalf,
    writer: Arc<OwnedWriteHalf>,
    /// Waits for the peer's end. Made when it is first waited for: most connections receive all the time.
    watch: Option<Watch>,
}

impl Socket {
    pub fn new(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader, writer: Arc::new(writer), watch: None }
    }

    /// What bytes are sent to.
    pub fn stream(&self) -> &TcpStream {
        self.reader.as_ref()
    }

    pub fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.watch = None;
        Pin::new(&mut self.reader).poll_read(cx, room)
    }

    /// Ready when the peer has ended its side. Reads nothing, so it works while nothing may be received.
    ///
    /// An end that stands after more bytes than the system's buffer holds is not known to the system either.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd> {
        let watch = self.watch.get_or_insert_with(|| watch(self.writer.clone()));
        if watch.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.watch = None;
        let error = socket2::SockRef::from(self.stream()).take_error();
        Poll::Ready(if matches!(error, Ok(None)) { PeerEnd::Sent } else { PeerEnd::Reset })
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.stream().as_raw_fd()
    }
}

/// Bytes to read do not end a wait for urgent data, which Kafka's protocol does not have; the end of the stream does.
#[cfg(target_os = "linux")]
fn watch(writer: Arc<OwnedWriteHalf>) -> Watch {
    Box::pin(async move {
        // An error means that the runtime ends, and the connection with it.
        let _ = writer.ready(tokio::io::Interest::PRIORITY).await;
    })
}

/// Other systems do not report it: `connections.max.idle.ms` ends such a connection.
#[cfg(not(target_os = "linux"))]
fn watch(_writer: Arc<OwnedWriteHalf>) -> Watch {
    Box::pin(std::future::pending())
}
