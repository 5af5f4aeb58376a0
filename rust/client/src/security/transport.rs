//! The byte stream of a connection: a socket, or TLS over one.

use std::fmt::Debug;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

pub trait Transport: AsyncRead + AsyncWrite + Debug + Send + Unpin {
    /// Both directions, for separate tasks.
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf);
}

impl Transport for TcpStream {
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        let (read, write) = self.into_split();
        (Box::new(read), Box::new(write))
    }
}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin + 'static> Transport for TlsStream<S> {
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        let (read, write) = tokio::io::split(*self);
        (Box::new(read), Box::new(write))
    }
}
