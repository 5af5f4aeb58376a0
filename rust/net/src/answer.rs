//! An answer while it is written: bytes, and slices of files that belong between them.

use klamm_base::primitives::Writer;
use klamm_log::FileSlice;
use klamm_wire::header::{FrameTooLong, ResponseHeader, patch_length};

pub struct Answer {
    pub writer: Writer,
    /// Where the frame begins in the writer.
    start: usize,
    /// Slices, each in front of the byte at its position in the writer, ascending.
    slices: Vec<(usize, FileSlice)>,
}

impl Answer {
    /// Begins a frame behind `bytes`.
    pub fn behind(bytes: Vec<u8>) -> Self {
        let start = bytes.len();
        Self { writer: Writer::append_to(bytes), start, slices: Vec::new() }
    }

    /// Begins with the frame's length and header.
    pub fn begin(&mut self, header: ResponseHeader) {
        header.begin_frame(&mut self.writer);
    }

    /// Where the frame begins in the writer.
    pub fn start(&self) -> usize {
        self.start
    }

    /// A slice that belongs in front of the byte at `position` of the writer; behind those before.
    pub fn add_slice(&mut self, position: usize, slice: FileSlice) {
        self.slices.push((position, slice));
    }

    /// Sets the frame's length.
    pub fn finish(&mut self) -> Result<(), FrameTooLong> {
        let elsewhere = self.slices.iter().map(|(_, slice)| slice.len as u64).sum();
        patch_length(&mut self.writer, self.start, elsewhere)
    }

    /// Everything: the bytes it began behind, the frame's, and the slices by position.
    pub fn into_parts(self) -> (Vec<u8>, Vec<(usize, FileSlice)>) {
        (self.writer.into_bytes(), self.slices)
    }

    /// The bytes it began behind, and the frame alone, positions counted from its start.
    pub fn split(self) -> (Vec<u8>, Frame) {
        let mut before = self.writer.into_bytes();
        let bytes = before.split_off(self.start);
        let slices = self.slices.into_iter().map(|(position, slice)| (position - self.start, slice)).collect();
        (before, Frame { bytes, slices })
    }
}

/// A frame that waits for its turn.
#[derive(Debug, Default)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub slices: Vec<(usize, FileSlice)>,
}
