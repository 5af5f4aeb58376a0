//! The unsent output of a connection: bytes, with slices of files in between.
//!
//! Slices are sent with `sendfile` if the transport supports it, so records are not copied through this process. For
//! data that is not in the page cache, `sendfile` would block a worker that serves thousands of connections; such a
//! chunk is first read by the blocking pool, while the worker continues with others.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use klamm_base::os::read_if_cached;
use klamm_log::FileSlice;
use tokio::task::JoinHandle;

use super::os;
use super::transport::Transport;

/// How much of a file is checked in the page cache at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Distance of the probed bytes in a chunk: within the reach of the kernel's read-ahead.
const PROBE_BYTES: usize = 64 << 10;
/// The bytes before a slice of at least this size are sent immediately: the reader wakes up while the slice is being
/// sent. A smaller slice shares the first packet, which costs less than an additional one.
const EARLY_BYTES: usize = 64 << 10;
/// How much of a file is read at a time for a transport that cannot send files.
const COPIED_BYTES: usize = 64 << 10;
/// A buffer larger than this is released when it is empty.
const KEPT_CAPACITY: usize = 16 << 10;

/// Bytes and slices in the order in which they are sent.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// The number of bytes of `bytes` that were sent.
    sent: usize,
    /// Slices in ascending order, each with the position in `bytes` before which it belongs.
    slices: VecDeque<(usize, SliceSend)>,
    /// The number of unsent bytes in slices.
    slice_bytes: usize,
}

struct SliceSend {
    slice: FileSlice,
    /// The file was found in the page cache up to here.
    cached_until: u64,
    reading: Option<JoinHandle<io::Result<()>>>,
    /// Data for a transport that cannot send files, from `slice.position` on.
    copied: Vec<u8>,
}

impl Output {
    /// The number of unsent bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.slice_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the bytes, so that a response can be appended to them; call [`Output::restore`] afterwards.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the bytes, longer than before.
    pub fn restore(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Adds a slice before the byte at `position` of the bytes from [`Output::take_bytes`].
    pub fn insert_slice(&mut self, position: usize, slice: FileSlice) {
        debug_assert!(self.slices.back().is_none_or(|(before, _)| *before <= position));
        self.slice_bytes += slice.len;
        let cached_until = slice.position;
        self.slices.push_back((position, SliceSend { slice, cached_until, reading: None, copied: Vec::new() }));
    }

    /// Adds bytes with slices at relative positions.
    pub fn push(&mut self, bytes: &[u8], slices: Vec<(usize, FileSlice)>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        for (position, slice) in slices {
            self.insert_slice(start + position, slice);
        }
    }

    /// Sends as much as the transport accepts. Ready when everything is sent, or the connection is not usable any
    /// more.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, transport: &mut impl Transport) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            match self.slices.front_mut() {
                Some((position, send)) if *position == self.sent => {
                    ready!(send.poll_cached(cx))?;
                    self.slice_bytes -= ready!(send.poll_send(cx, transport))?;
                }
                front => {
                    let small = |slice: &FileSlice| slice.len < EARLY_BYTES;
                    let (end, more) =
                        front.map_or((self.bytes.len(), false), |(position, send)| (*position, small(&send.slice)));
                    let bytes = &self.bytes[self.sent..end];
                    self.sent += ready!(transport.poll_send(cx, bytes, more))?;
                }
            }
            self.drop_sent_slice();
        }
        self.reset();
        Poll::Ready(Ok(()))
    }

    fn drop_sent_slice(&mut self) {
        while self.slices.front().is_some_and(|(position, send)| *position == self.sent && send.slice.len == 0) {
            self.slices.pop_front();
        }
    }

    fn reset(&mut self) {
        self.sent = 0;
        self.slices = VecDeque::new();
        match self.bytes.capacity() > KEPT_CAPACITY {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }

    /// Releases what an idle connection does not need.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

impl SliceSend {
    /// Ready when the next bytes are in the page cache.
    fn poll_cached(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(cx));
                self.reading = None;
                read.map_err(io::Error::other)??;
                self.cached_until = self.slice.position + self.chunk_len() as u64;
            }
            if self.slice.position < self.cached_until || self.slice.len == 0 {
                return Poll::Ready(Ok(()));
            }
            if is_cached(&self.slice, self.chunk_len())? {
                self.cached_until = self.slice.position + self.chunk_len() as u64;
                return Poll::Ready(Ok(()));
            }
            let chunk = FileSlice { len: self.chunk_len(), ..self.slice.clone() };
            self.reading = Some(tokio::task::spawn_blocking(move || read_through(&chunk)));
        }
    }

    fn chunk_len(&self) -> usize {
        self.slice.len.min(CHUNK_BYTES)
    }

    /// Sends the start of the cached bytes; returns the number sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, transport: &mut impl Transport) -> Poll<io::Result<usize>> {
        let len = self.slice.len.min((self.cached_until - self.slice.position) as usize);
        let sent = match transport.sends_files() {
            true => ready!(transport.poll_send_file(cx, self.slice.file.file(), self.slice.position, len))?,
            false => ready!(self.poll_send_copied(cx, transport, len))?,
        };
        if sent == 0 {
            return Poll::Ready(Err(shorter_than_promised()));
        }
        self.slice.position += sent as u64;
        self.slice.len -= sent;
        Poll::Ready(Ok(sent))
    }

    fn poll_send_copied(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut impl Transport,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        if self.copied.is_empty() {
            self.copied.resize(len.min(COPIED_BYTES), 0);
            let read = self.slice.file.read_up_to(&mut self.copied, self.slice.position).map_err(io::Error::other)?;
            self.copied.truncate(read);
        }
        let more = self.copied.len() < self.slice.len;
        let sent = ready!(transport.poll_send(cx, &self.copied, more))?;
        self.copied.drain(..sent);
        Poll::Ready(Ok(sent))
    }
}

fn shorter_than_promised() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a log file ended inside a slice that is being sent")
}

/// Whether the first `len` bytes of a slice are in the page cache.
fn is_cached(slice: &FileSlice, len: usize) -> io::Result<bool> {
    match os::is_cached(slice.file.file(), slice.position, len) {
        Some(cached) => Ok(cached),
        None => is_cached_by_probes(slice, len),
    }
}

/// The same on systems without `cachestat`: tests one byte of every stretch.
fn is_cached_by_probes(slice: &FileSlice, len: usize) -> io::Result<bool> {
    let last = len.saturating_sub(1);
    for at in (0..last).step_by(PROBE_BYTES).chain([last]) {
        match read_if_cached(slice.file.file(), &mut [0], slice.position + at as u64)? {
            Some(0) => return Err(shorter_than_promised()),
            Some(_) => {}
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Loads a slice into the page cache, blocking on the disk.
fn read_through(slice: &FileSlice) -> io::Result<()> {
    match os::load(slice.file.file(), slice.position, slice.len) {
        Ok(loaded) if loaded == slice.len => Ok(()),
        Ok(_) => Err(shorter_than_promised()),
        // If loading without a copy fails for any reason, reading reports a disk error with the file's name.
        Err(_) => copy_through(slice),
    }
}

/// The same by reading all of it.
fn copy_through(slice: &FileSlice) -> io::Result<()> {
    let mut buffer = vec![0; slice.len.min(PROBE_BYTES)];
    let mut at = 0;
    while at < slice.len {
        let len = buffer.len().min(slice.len - at);
        let read = slice.file.read_up_to(&mut buffer[..len], slice.position + at as u64);
        match read.map_err(io::Error::other)? {
            0 => return Err(shorter_than_promised()),
            read => at += read,
        }
    }
    Ok(())
}
