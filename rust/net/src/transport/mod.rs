//! The byte stream of a connection: TCP for now. A connection is compiled for its transport, so that produces and
//! fetches pay nothing for the abstraction.

mod tcp;

use std::fs::File;
use std::io;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

pub use tcp::TcpTransport;

/// How a peer closed its side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// It sends nothing more, but may still receive.
    Sent,
    /// It has reset the connection.
    Reset,
}

/// A stream of bytes to and from one peer.
pub trait Transport: Send + Unpin + 'static {
    /// Receives available bytes; `Ready` without a byte is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Sends the start of `bytes` and returns the number sent; `more` says that others follow immediately, so that a
    /// small piece may wait for them.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], more: bool) -> Poll<io::Result<usize>>;

    /// Whether [`Transport::poll_send_file`] may be called because the bytes need not pass through this process.
    /// Otherwise the sender reads the file and calls [`Transport::poll_send`].
    fn sends_files(&self) -> bool;

    /// Sends up to `len` bytes of `file` from `position` on, which are in the page cache; returns the number sent, 0
    /// at the file's end.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;

    /// Ready when the peer has closed its side. Reads nothing, so it works while receiving is not allowed.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<PeerEnd>;

    /// Wakes the connection for received bytes only if there are at least `bytes`, or at the end; a hint.
    fn wake_at(&mut self, bytes: usize);
}
