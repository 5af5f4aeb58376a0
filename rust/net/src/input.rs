//! The received bytes of a connection: complete frames, and the start of the next one.
//!
//! A frame's length is claimed by the peer. The buffer is limited to the bytes that have arrived times [`TRUST`], so
//! that a false length costs almost nothing; a peer that has just sent a large frame gets a buffer for another
//! immediately, and the bytes of a large frame are not moved. An idle connection holds no buffer.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::ReadBuf;

use super::buffers::{Buffers, SMALL_BYTES};
use super::memory::NoMemoryError;
use super::transport::Transport;

/// A frame gets a buffer of at most this many times the bytes that have arrived.
const TRUST: usize = 16;
/// An incomplete frame of fewer bytes is moved to its own buffer, so that a slow sender does not hold a large one.
const COMPACT_BYTES: usize = 4 << 10;
/// More bytes than are normally ever unread in a socket: with this threshold the connection is not woken.
const NO_WAKE_UP_BYTES: usize = 8 << 20;
/// At most this many missing bytes of a large frame are awaited at once, so that receiving keeps up with the sender.
const AWAITED_BYTES_MAX: usize = 256 << 10;

/// An invalid frame length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {len} bytes where 0 to {max} are allowed")]
pub struct FrameSizeError {
    pub len: i32,
    pub max: i32,
}

/// Received bytes: `buffer[start..end]` is not processed yet.
#[derive(Default)]
pub struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Length of the last frame if it was larger than a small buffer, else 0.
    large_frame: usize,
    /// The number of bytes at which the system wakes the connection; 0: never set, one byte is enough.
    wakes_at: usize,
}

impl Input {
    /// The number of unprocessed bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next frame's content if it is complete; call [`Input::consume`] afterwards.
    pub fn frame(&mut self, len_max: i32) -> Result<Option<&mut [u8]>, FrameSizeError> {
        let Some(len) = self.frame_len(len_max)? else { return Ok(None) };
        let end = self.start + 4 + len;
        Ok((end <= self.end).then(|| &mut self.buffer[self.start + 4..end]))
    }

    /// Length of the next frame's content if its first four bytes have arrived.
    fn frame_len(&self, max: i32) -> Result<Option<usize>, FrameSizeError> {
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk() else { return Ok(None) };
        let len = i32::from_be_bytes(*prefix);
        match usize::try_from(len) {
            Ok(valid) if len <= max => Ok(Some(valid)),
            _ => Err(FrameSizeError { len, max }),
        }
    }

    /// Removes the frame with `len` bytes of content.
    pub fn consume(&mut self, len: usize) {
        self.start += 4 + len;
        self.large_frame = if len > SMALL_BYTES { len } else { 0 };
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives available bytes into the buffer; `Ready(Ok(0))` at the end of the stream.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut impl Transport,
        len_max: i32,
    ) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        let received = transport.poll_read(cx, &mut room);
        let len = room.filled().len();
        if received.is_pending() {
            self.wake_at(transport, self.awaited(len_max));
        } else if self.large_frame > 0 {
            // Until nothing is left: while a worker is processing the connection, notifications of more bytes are not
            // needed, and they would wake another thread, which takes a processor from the sender for every segment.
            self.wake_at(transport, NO_WAKE_UP_BYTES);
        }
        ready!(received)?;
        self.end += len;
        Poll::Ready(Ok(len))
    }

    /// The number of bytes that is worth a wake-up.
    fn awaited(&self, len_max: i32) -> usize {
        let Ok(Some(len)) = self.frame_len(len_max) else { return 1 };
        let missing = (len + 4).saturating_sub(self.len());
        if missing < SMALL_BYTES { 1 } else { missing.min(AWAITED_BYTES_MAX) }
    }

    fn wake_at(&mut self, transport: &mut impl Transport, bytes: usize) {
        if bytes != self.wakes_at.max(1) {
            self.wakes_at = bytes;
            transport.wake_at(bytes);
        }
    }

    /// Whether there is room to receive into; if not, `waker` is woken when there is.
    pub fn make_room(&mut self, buffers: &Buffers, waker: &Waker, len_max: i32) -> Result<bool, NoMemoryError> {
        // An invalid frame length is rejected before the next receive.
        let frame_len = self.frame_len(len_max).ok().flatten().unwrap_or(self.large_frame);
        let needed = match self.is_empty() {
            true if buffers.has_room() => (frame_len + 4).max(SMALL_BYTES),
            true => SMALL_BYTES,
            false => (frame_len + 4).min(self.len().saturating_mul(TRUST)).max(SMALL_BYTES),
        };
        if self.buffer.len() - self.start >= needed {
            return Ok(true);
        }
        if self.buffer.len() >= needed {
            self.buffer.copy_within(self.start..self.end, 0);
        } else {
            let begins = needed > SMALL_BYTES && self.buffer.len() <= SMALL_BYTES;
            if begins && !buffers.may_begin(waker) {
                return Ok(false);
            }
            let mut larger = buffers.take(needed)?;
            larger[..self.end - self.start].copy_from_slice(&self.buffer[self.start..self.end]);
            buffers.release(std::mem::replace(&mut self.buffer, larger));
        }
        (self.start, self.end) = (0, self.end - self.start);
        Ok(true)
    }

    /// Releases what is not needed while nothing arrives.
    pub fn rest(&mut self, buffers: &Buffers) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            buffers.release(std::mem::take(&mut self.buffer));
        } else if self.len() < COMPACT_BYTES && self.buffer.len() >= SMALL_BYTES {
            let own = self.buffer[self.start..self.end].into();
            buffers.release(std::mem::replace(&mut self.buffer, own));
            (self.start, self.end) = (0, self.buffer.len());
        }
    }

    /// Releases everything: the connection is closing.
    pub fn clear(&mut self, buffers: &Buffers) {
        (self.start, self.end) = (0, 0);
        buffers.release(std::mem::take(&mut self.buffer));
    }
}
