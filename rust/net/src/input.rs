//! What a connection has received: whole frames, and the beginning of the next one.
//!
//! A frame's length is the peer's word. Room is given for what has really arrived times [`TRUST`], so that a lie costs
//! next to nothing; a peer that has just sent a large frame gets room for another at once, and the bytes of a large frame
//! are not moved. An idle connection holds no buffer.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::ReadBuf;

use super::buffers::{Buffers, SMALL_BYTES};
use super::memory::NoMemoryError;
use super::transport::Transport;

/// A frame gets a buffer of up to this many times the bytes that have arrived.
const TRUST: usize = 16;
/// A cut frame of fewer bytes is put into a buffer of its own, so that a slow sender does not hold a large one.
const COMPACT_BYTES: usize = 4 << 10;
/// As many unreceived bytes as hardly ever lie there: they wake nobody.
const UNHEARD_BYTES: usize = 8 << 20;
/// Of what a large frame lacks at most this many bytes are awaited at once, so that receiving keeps up with the sender.
const AWAITED_BYTES_MAX: usize = 256 << 10;

/// The length of a frame that no frame may have.
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
    /// Length of the last frame that was larger than a small buffer; 0 when the last one was not.
    large_frame: usize,
    /// How many bytes have to be there before the system wakes the connection; 0: it was never told, one is enough.
    wakes_at: usize,
}

impl Input {
    /// Bytes that are not processed.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next frame's content when all of it is here; [`Input::consume`] follows.
    pub fn frame(&mut self, len_max: i32) -> Result<Option<&mut [u8]>, FrameSizeError> {
        let Some(len) = self.frame_len(len_max)? else { return Ok(None) };
        let end = self.start + 4 + len;
        Ok((end <= self.end).then(|| &mut self.buffer[self.start + 4..end]))
    }

    /// Length of the next frame's content when its first four bytes are here.
    fn frame_len(&self, max: i32) -> Result<Option<usize>, FrameSizeError> {
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk() else { return Ok(None) };
        let len = i32::from_be_bytes(*prefix);
        match usize::try_from(len) {
            Ok(valid) if len <= max => Ok(Some(valid)),
            _ => Err(FrameSizeError { len, max }),
        }
    }

    /// The frame of `len` bytes of content is done with.
    pub fn consume(&mut self, len: usize) {
        self.start += 4 + len;
        self.large_frame = if len > SMALL_BYTES { len } else { 0 };
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives what is there into the room that was made; `Ready(Ok(0))` at the end of the stream.
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
            // Until there is nothing left: who works on a connection needs not be told that more has come, and who would
            // be told instead is another thread, which takes a processor from the sender for every segment.
            self.wake_at(transport, UNHEARD_BYTES);
        }
        ready!(received)?;
        self.end += len;
        Poll::Ready(Ok(len))
    }

    /// How many bytes are worth being woken for.
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
        // A frame that does not fit the rules is refused before anything is received again.
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
            buffers.give_back(std::mem::replace(&mut self.buffer, larger));
        }
        (self.start, self.end) = (0, self.end - self.start);
        Ok(true)
    }

    /// Gives back what is not needed while nothing arrives.
    pub fn rest(&mut self, buffers: &Buffers) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            buffers.give_back(std::mem::take(&mut self.buffer));
        } else if self.len() < COMPACT_BYTES && self.buffer.len() >= SMALL_BYTES {
            let own = self.buffer[self.start..self.end].into();
            buffers.give_back(std::mem::replace(&mut self.buffer, own));
            (self.start, self.end) = (0, self.buffer.len());
        }
    }

    /// Gives everything back: the connection ends.
    pub fn clear(&mut self, buffers: &Buffers) {
        (self.start, self.end) = (0, 0);
        buffers.give_back(std::mem::take(&mut self.buffer));
    }
}
