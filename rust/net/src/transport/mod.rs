//! What a connection receives and sends by: TCP now. A connection is compiled for its transport, so that nothing of the
//! choice is left on the way of a produce or a fetch.

mod tcp;

use std::fs::File;
use std::io;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

pub use tcp::TcpTransport;

/// How a peer ended its side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// It sends nothing more, and may still read what it is sent.
    Sent,
    /// It is gone.
    Reset,
}

/// A stream of bytes to and from one peer.
pub trait Transport: Send + Unpin + 'static {
    /// Receives what is there; `Ready` without a byte is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Sends the beginning of `bytes` and returns how many; `more` says that others follow at once, so that a small piece
    /// may wait for them.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], more: bool) -> Poll<io::Result<usize>>;

    /// Whether [`Transport::poll_send_file`] may be called: whether what is sent need not pass through this process. Where
    /// it is not so, whoever sends reads the file and calls [`Transport::poll_send`].
    fn sends_files(&self) -> bool;

    /// Sends up to `len` bytes of `file` from `position` on, which are in the page cache; returns how many, 0 at its end.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;

    /// Ready when the peer has ended its side. Reads nothing, so it works while nothing may be received.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd>;

    /// Wakes the connection for received bytes only when there are at least `bytes`, or the end; a hint.
    fn wake_at(&mut self, bytes: usize);
}
