//! One connection that blocks, with frames on it: a length, and so many bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

/// The longest frame that is taken.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Room is made for so much at a time: what a length claims need not come.
const STEP: usize = 1 << 20;
/// What is kept of the buffer between two frames.
const KEPT: usize = 256 << 10;

/// A connection, to be used by one thread.
pub struct Link {
    stream: TcpStream,
    timeout: Duration,
    buffer: Vec<u8>,
}

/// A socket for an address; a shutdown by its clone ends `connect` and whatever waits on it later.
pub fn socket_for(address: &SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))
}

impl Link {
    pub fn connect(socket: Socket, address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        socket.connect_timeout(&(*address).into(), timeout)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream, timeout, buffer: Vec::new() })
    }

    /// Sends a frame whole.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.stream.write_all(frame).map_err(readable)
    }

    /// The frame that comes next, without its length.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let deadline = Instant::now() + self.timeout;
        let mut have = 0;
        self.buffer.truncate(KEPT);
        self.buffer.shrink_to(KEPT);
        self.read_to(&mut have, 4, deadline)?;
        let len = self.buffer.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= FRAME_BYTES_MAX) else {
            return Err(io::Error::other(format!("a frame of {len} bytes, where {FRAME_BYTES_MAX} are the most")));
        };
        let end = len + 4;
        self.read_to(&mut have, end, deadline)?;
        match have > end {
            // It was asked for one thing.
            true => Err(io::Error::other(format!("{} bytes behind the answer", have - end))),
            false => Ok(&self.buffer[4..end]),
        }
    }

    fn read_to(&mut self, have: &mut usize, end: usize, deadline: Instant) -> io::Result<()> {
        while *have < end {
            if self.buffer.len() == *have {
                let room = (end - *have).clamp(4096, STEP);
                self.buffer.resize(*have + room, 0);
            }
            match self.stream.read(&mut self.buffer[*have..]) {
                Ok(0) => return Err(io::Error::other("the connection was closed")),
                Ok(read) => *have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(readable(error)),
            }
            // Whoever sends byte by byte must not make it endless.
            if *have < end && Instant::now() >= deadline {
                return Err(readable(io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }
}

/// A time-out of a socket is called "would block".
fn readable(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::other("no answer in time"),
        _ => error,
    }
}
