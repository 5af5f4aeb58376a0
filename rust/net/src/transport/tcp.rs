//! A plain TCP socket that notices the peer's end while received bytes are not read.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::{PeerEnd, Transport};
use crate::os;

type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct TcpTransport {
    reader: OwnedReadHalf,
    writer: Arc<OwnedWriteHalf>,
    /// Waits for the peer's end. Created on first use: most connections receive all the time.
    watch: Option<Watch>,
}

impl TcpTransport {
    pub fn new(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader, writer: Arc::new(writer), watch: None }
    }

    fn stream(&self) -> &TcpStream {
        self.reader.as_ref()
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream().poll_write_ready(cx))?;
            match self.stream().try_io(Interest::WRITABLE, &mut write) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl Transport for TcpTransport {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.watch = None;
        Pin::new(&mut self.reader).poll_read(cx, room)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        self.poll_write(cx, || os::send(self.stream().as_raw_fd(), bytes, more))
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, || os::send_file(self.stream().as_raw_fd(), file, position, len))
    }

    /// If more bytes precede the end than the system's buffer holds, the system does not know of the end either.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd> {
        let watch = self.watch.get_or_insert_with(|| watch(self.writer.clone()));
        if watch.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.watch = None;
        let error = socket2::SockRef::from(self.stream()).take_error();
        Poll::Ready(if matches!(error, Ok(None)) { PeerEnd::Sent } else { PeerEnd::Reset })
    }

    fn wake_at(&mut self, bytes: usize) {
        os::wake_at(self.stream().as_raw_fd(), bytes);
    }
}

/// Waiting for urgent data, which Kafka's protocol does not use, is not ended by readable bytes, but by the end of
/// the stream.
#[cfg(target_os = "linux")]
fn watch(writer: Arc<OwnedWriteHalf>) -> Watch {
    Box::pin(async move {
        // An error means that the runtime is ending, and the connection with it.
        let _ = writer.ready(tokio::io::Interest::PRIORITY).await;
    })
}

/// Other systems do not report it: `connections.max.idle.ms` closes such a connection.
#[cfg(not(target_os = "linux"))]
fn watch(_writer: Arc<OwnedWriteHalf>) -> Watch {
    Box::pin(std::future::pending())
}
