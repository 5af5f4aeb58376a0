//! A response while it is written: bytes, and slices of files between them.

use klamm_base::primitives::Writer;
use klamm_log::FileSlice;
use klamm_wire::header::{FrameTooLong, ResponseHeader, patch_length};

pub struct Answer {
    pub writer: Writer,
    /// The position of the frame in the writer.
    start: usize,
    /// Slices in ascending order; each belongs before the byte at its position in the writer.
    slices: Vec<(usize, FileSlice)>,
    /// The throttle time that the response names: how long its connection takes no further request.
    pub throttle_ms: i32,
    /// Whether the time of the request counts for no quota, although its API does: a follower's fetch.
    pub is_exempt: bool,
}

impl Answer {
    /// Starts a frame after `bytes`.
    pub fn after(bytes: Vec<u8>) -> Self {
        let start = bytes.len();
        Self { writer: Writer::append_to(bytes), start, slices: Vec::new(), throttle_ms: 0, is_exempt: false }
    }

    /// Starts with the frame's length and header.
    pub fn begin(&mut self, header: ResponseHeader) {
        header.begin_frame(&mut self.writer);
    }

    /// The position of the frame in the writer.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Adds a slice before the byte at `position` of the writer; positions must ascend.
    pub fn add_slice(&mut self, position: usize, slice: FileSlice) {
        self.slices.push((position, slice));
    }

    /// Throttles the connection for at least `ms`.
    pub fn throttle(&mut self, ms: i32) {
        if ms > self.throttle_ms {
            self.throttle_ms = ms;
            self.writer.set_throttle_time(ms);
        }
    }

    /// Sets the frame's length.
    pub fn finish(&mut self) -> Result<(), FrameTooLong> {
        let elsewhere = self.slices.iter().map(|(_, slice)| slice.len as u64).sum();
        patch_length(&mut self.writer, self.start, elsewhere)
    }

    /// All bytes, including those before the frame, and the slices by position.
    pub fn into_parts(self) -> (Vec<u8>, Vec<(usize, FileSlice)>) {
        (self.writer.into_bytes(), self.slices)
    }

    /// The bytes before the frame, and the frame alone with positions relative to its start.
    pub fn split(self) -> (Vec<u8>, Frame) {
        let mut before = self.writer.into_bytes();
        let bytes = before.split_off(self.start);
        let slices = self.slices.into_iter().map(|(position, slice)| (position - self.start, slice)).collect();
        (before, Frame { bytes, slices, throttle_ms: self.throttle_ms })
    }
}

/// A frame that waits until the responses before it are sent.
#[derive(Debug, Default)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub slices: Vec<(usize, FileSlice)>,
    /// The throttle time that it names.
    pub throttle_ms: i32,
}
