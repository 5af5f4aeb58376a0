//! LZ4 frames with independent blocks: Apache Kafka's clients read no others, so no others are accepted.
//!
//! A frame is the magic, a descriptor (flags, block size, optionally the content size, a checksum byte), blocks
//! (length, data, optionally XXH32), an end mark, optionally XXH32 of the content.

use std::hash::Hasher;

use lz4::block::CompressionMode;
use twox_hash::XxHash32;

use super::{Progress, Step, StepError, extend};
use crate::error::RecordsError;

const FRAME_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
const VERSION_MASK: u8 = 0xc0;
const VERSION_1: u8 = 0x40;
const FLAG_INDEPENDENT: u8 = 0x20;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAGS_RESERVED: u8 = 0x03;
const STORED_BIT: u32 = 0x8000_0000;
const WRITTEN_BLOCK_BYTES: usize = 64 * 1024;
const WRITTEN_BLOCK_ID: u8 = 4 << 4;
// A byte of a match length stands for 255 bytes, the best ratio of a block.
const EXPANSION_MAX: usize = 255;

pub struct Decoder<'a> {
    input: &'a [u8],
    frame: Option<Frame>,
}

struct Frame {
    block_bytes_max: usize,
    block_checksum: bool,
    content: Option<XxHash32>,
}

impl<'a> Decoder<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, frame: None }
    }

    pub fn step(&mut self, out: &mut Vec<u8>, room: usize) -> Step {
        if self.frame.is_none() {
            self.frame = Some(self.descriptor()?);
        }
        let word = self.word()?;
        if word == 0 { self.end_frame() } else { self.block(word, out, room) }
    }

    fn descriptor(&mut self) -> Result<Frame, StepError> {
        if self.take(4)? != FRAME_MAGIC {
            return Err(StepError::Corrupt("no LZ4 frame"));
        }
        let descriptor = self.input;
        let flags = self.take(1)?[0];
        let block_id = self.take(1)?[0];
        if flags & VERSION_MASK != VERSION_1 || flags & FLAGS_RESERVED != 0 || flags & FLAG_INDEPENDENT == 0 {
            return Err(StepError::Corrupt("the frame is not of version 1 with independent blocks"));
        }
        if !matches!(block_id, 0x40 | 0x50 | 0x60 | 0x70) {
            return Err(StepError::Corrupt("the block size of the frame is not assigned"));
        }
        if flags & FLAG_CONTENT_SIZE != 0 {
            self.take(8)?;
        }
        let descriptor = &descriptor[..descriptor.len() - self.input.len()];
        // Magic 2 uses the checksum of the specification; magic 0 used the wrong one of Kafka 0.8.
        if self.take(1)?[0] != (XxHash32::oneshot(0, descriptor) >> 8) as u8 {
            return Err(StepError::Corrupt("the checksum of the frame descriptor is wrong"));
        }
        Ok(Frame {
            block_bytes_max: 1 << (8 + 2 * (block_id >> 4)),
            block_checksum: flags & FLAG_BLOCK_CHECKSUM != 0,
            content: (flags & FLAG_CONTENT_CHECKSUM != 0).then(|| XxHash32::with_seed(0)),
        })
    }

    fn block(&mut self, word: u32, out: &mut Vec<u8>, room: usize) -> Step {
        let len = (word & !STORED_BIT) as usize;
        let data = self.take(len)?;
        let start = out.len();
        let frame = self.frame.as_mut().expect("a block follows its descriptor");
        if len > frame.block_bytes_max {
            return Err(StepError::Corrupt("a block is larger than its frame allows"));
        }
        if word & STORED_BIT != 0 {
            if len > room {
                return Err(StepError::Full);
            }
            out.extend_from_slice(data);
        } else {
            decompress_block(data, out, frame.block_bytes_max, room)?;
        }
        if let Some(content) = &mut frame.content {
            content.write(&out[start..]);
        }
        if frame.block_checksum && self.word()? != XxHash32::oneshot(0, data) {
            return Err(StepError::Corrupt("the checksum of a block is wrong"));
        }
        Ok(Progress::More)
    }

    fn end_frame(&mut self) -> Step {
        let frame = self.frame.take().expect("an end mark follows its descriptor");
        if let Some(content) = frame.content
            && self.word()? != content.finish_32()
        {
            return Err(StepError::Corrupt("the checksum of the content is wrong"));
        }
        Ok(if self.input.is_empty() { Progress::Ended } else { Progress::More })
    }

    fn word(&mut self) -> Result<u32, StepError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], StepError> {
        let (taken, rest) = self.input.split_at_checked(len).ok_or(StepError::Corrupt("the frame ends early"))?;
        self.input = rest;
        Ok(taken)
    }
}

fn decompress_block(data: &[u8], out: &mut Vec<u8>, block_bytes_max: usize, room: usize) -> Result<(), StepError> {
    let start = out.len();
    let most = block_bytes_max.min(data.len().saturating_mul(EXPANSION_MAX));
    extend(out, most.min(room), room)?;
    let made = lz4_flex::block::decompress_into(data, &mut out[start..]);
    out.truncate(start + made.as_ref().copied().unwrap_or(0));
    match made {
        Ok(_) => Ok(()),
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < most => Err(StepError::Full),
        Err(_) => Err(StepError::Corrupt("a block is invalid")),
    }
}

/// Bytes of the compressed block at the start of `out`, which has room for the largest.
fn compress_block(block: &[u8], level: Option<i32>, out: &mut [u8]) -> usize {
    const ROOM: &str = "the buffer has the most needed";
    match level {
        None => lz4_flex::block::compress_into(block, out).expect(ROOM),
        Some(level) => {
            let mode = CompressionMode::HIGHCOMPRESSION(level);
            lz4::block::compress_to_buffer(block, Some(mode), false, out).expect(ROOM)
        }
    }
}

/// Appends a frame of `raw`. `level` is that of the slow compressor: a higher one searches for longer matches.
pub fn compress(raw: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> Result<(), RecordsError> {
    let descriptor = [VERSION_1 | FLAG_INDEPENDENT, WRITTEN_BLOCK_ID];
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&descriptor);
    out.push((XxHash32::oneshot(0, &descriptor) >> 8) as u8);
    for block in raw.chunks(WRITTEN_BLOCK_BYTES) {
        let start = out.len();
        out.resize(start + 4 + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        let len = compress_block(block, level, &mut out[start + 4..]);
        let word = if len < block.len() { len as u32 } else { block.len() as u32 | STORED_BIT };
        out.truncate(start + 4 + len);
        if word & STORED_BIT != 0 {
            out.truncate(start + 4);
            out.extend_from_slice(block);
        }
        out[start..start + 4].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}
