//! The socket of a connection, under the conditions of its node if it has some.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use klamm_base::conditions::{Conditions, Way};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::link_error::LinkError;
use super::security::{ReadHalf, Transport, WriteHalf};

/// A connected socket.
pub(super) enum Wire {
    Plain(TcpStream),
    Conditional(ConditionalStream),
}

impl Wire {
    /// Connects to the first of a host's addresses that accepts; the error is a refusal only if all of them refuse.
    pub async fn connect(address: &str, conditions: Option<&Arc<Conditions>>) -> Result<Self, LinkError> {
        let failed = |source| LinkError::connect(address, source);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let mut other = None;
        for found in lookup_host(address).await.map_err(failed)? {
            match Self::connect_to(found, conditions).await {
                Ok(wire) => return Ok(wire),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => last = error,
                Err(error) => other = other.or(Some(error)),
            }
        }
        Err(failed(other.unwrap_or(last)))
    }

    async fn connect_to(address: SocketAddr, conditions: Option<&Arc<Conditions>>) -> io::Result<Self> {
        let Some(conditions) = conditions else { return Ok(Self::Plain(connect(address).await?)) };
        let port = address.port();
        std::future::poll_fn(|cx| conditions.poll_way(port, Way::Both, cx)).await;
        let socket = connect(address).await?;
        Ok(Self::Conditional(ConditionalStream { socket: Some(socket), port, conditions: conditions.clone() }))
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.peer_addr(),
            Self::Conditional(ConditionalStream { socket, .. }) => socket.as_ref().ok_or_else(closed)?.peer_addr(),
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// A socket whose bytes wait while its port is cut, as TCP repeats them until they arrive.
#[derive(Debug)]
pub(super) struct ConditionalStream {
    /// Present until the drop.
    socket: Option<TcpStream>,
    port: u16,
    conditions: Arc<Conditions>,
}

impl ConditionalStream {
    fn poll_socket(&mut self, way: Way, cx: &Context<'_>) -> Poll<io::Result<Pin<&mut TcpStream>>> {
        ready!(self.conditions.poll_way(self.port, way, cx));
        Poll::Ready(self.socket.as_mut().map(Pin::new).ok_or_else(closed))
    }
}

impl AsyncRead for ConditionalStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_socket(Way::Receive, cx))?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for ConditionalStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_socket(Way::Send, cx))?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_socket(Way::Send, cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_socket(Way::Send, cx))?.poll_shutdown(cx)
    }
}

impl Transport for ConditionalStream {
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        // The socket's own halves would shut it down when they are dropped.
        let (read, write) = tokio::io::split(*self);
        (Box::new(read), Box::new(write))
    }
}

impl Drop for ConditionalStream {
    fn drop(&mut self) {
        if self.conditions.is_cut(self.port)
            && let Some(Ok(socket)) = self.socket.take().map(TcpStream::into_std)
        {
            self.conditions.on_closed(self.port, socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use klamm_base::conditions::Cut;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    /// Far less than the bytes need if they are forwarded.
    const A_WHILE: Duration = Duration::from_millis(50);
    const BOTH: Cut = Cut { sends: true, receives: true };

    struct Ends {
        near: ConditionalStream,
        far: TcpStream,
        conditions: Arc<Conditions>,
        listener: TcpListener,
    }

    impl Ends {
        async fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            let address = listener.local_addr().expect("bound").to_string();
            let conditions = Arc::new(Conditions::default());
            let Ok(Wire::Conditional(near)) = Wire::connect(&address, Some(&conditions)).await else {
                panic!("it listens")
            };
            let far = listener.accept().expect("connected").0;
            far.set_nonblocking(true).expect("a socket");
            Self { near, far: TcpStream::from_std(far).expect("a socket"), conditions, listener }
        }

        fn port(&self) -> u16 {
            self.listener.local_addr().expect("bound").port()
        }

        fn cut(&self, cut: Cut) {
            self.conditions.cut(self.port(), cut);
        }
    }

    #[tokio::test]
    async fn bytes_of_a_cut_direction_arrive_after_it() {
        let mut ends = Ends::new().await;
        let mut byte = [0];
        ends.cut(Cut { sends: true, receives: false });
        assert!(timeout(A_WHILE, ends.near.write_all(b"a")).await.is_err());
        ends.far.write_all(b"b").await.expect("not cut");
        ends.near.read_exact(&mut byte).await.expect("not cut");
        assert_eq!(&byte, b"b");
        ends.cut(Cut { sends: false, receives: true });
        ends.far.write_all(b"c").await.expect("not cut");
        assert!(timeout(A_WHILE, ends.near.read_exact(&mut byte)).await.is_err());
        ends.cut(Cut::default());
        ends.near.read_exact(&mut byte).await.expect("healed");
        assert_eq!(&byte, b"c");
    }

    #[tokio::test]
    async fn a_connection_is_made_after_the_cut() {
        let ends = Ends::new().await;
        ends.cut(Cut { sends: false, receives: true });
        let address = ends.listener.local_addr().expect("bound").to_string();
        let connecting = Wire::connect(&address, Some(&ends.conditions));
        let mut connecting = std::pin::pin!(connecting);
        assert!(timeout(A_WHILE, connecting.as_mut()).await.is_err());
        ends.cut(Cut::default());
        assert!(connecting.await.is_ok());
    }

    #[tokio::test]
    async fn a_close_during_the_cut_is_not_noticed() {
        let mut ends = Ends::new().await;
        ends.cut(BOTH);
        let (near, conditions, port) = (ends.near, ends.conditions, ends.listener.local_addr().expect("bound").port());
        drop(Box::new(near).into_halves());
        assert!(timeout(A_WHILE, ends.far.read_u8()).await.is_err());
        conditions.cut(port, Cut::default());
        assert_eq!(ends.far.read_u8().await.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
    }
}
