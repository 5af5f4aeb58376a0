//! snappy in both forms that Kafka's clients write: one raw block (librdkafka), or the chunked stream of snappy-java
//! (Java, kafka-python). klamm writes the chunked stream.
//!
//! The chunked stream is `82 "SNAPPY" 00`, two int32 versions, then chunks of an int32 length and a raw block.
//! Several such streams may follow each other.

use super::{Progress, Step, StepError, extend};
use crate::error::RecordsError;

const STREAM_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const STREAM_HEADER_LEN: usize = 16;
const STREAM_VERSION: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const CHUNK_BYTES: usize = 32 * 1024;
// A copy of 64 bytes takes 3, the best ratio of a block: a block that claims more is invalid.
const EXPANSION_MAX: usize = 22;

pub struct Decoder<'a> {
    input: &'a [u8],
    chunked: bool,
}

impl<'a> Decoder<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, chunked: input.starts_with(&STREAM_MAGIC) }
    }

    pub fn step(&mut self, out: &mut Vec<u8>, room: usize) -> Step {
        if !self.chunked {
            raw_block(std::mem::take(&mut self.input), out, room)?;
            return Ok(Progress::Ended);
        }
        // The first bytes of the magic cannot be the length of a chunk.
        if self.input.starts_with(&STREAM_MAGIC) {
            self.input = self.input.get(STREAM_HEADER_LEN..).ok_or(StepError::Corrupt("the stream header is cut"))?;
        }
        if self.input.is_empty() {
            return Ok(Progress::Ended);
        }
        raw_block(self.chunk()?, out, room)?;
        Ok(if self.input.is_empty() { Progress::Ended } else { Progress::More })
    }

    fn chunk(&mut self) -> Result<&'a [u8], StepError> {
        let cut = StepError::Corrupt("a chunk is cut");
        let Some((len, rest)) = self.input.split_first_chunk::<4>() else { return Err(cut) };
        let len = u32::from_be_bytes(*len) as usize;
        let Some((chunk, rest)) = rest.split_at_checked(len) else { return Err(cut) };
        self.input = rest;
        Ok(chunk)
    }
}

fn raw_block(block: &[u8], out: &mut Vec<u8>, room: usize) -> Result<(), StepError> {
    let invalid = |_| StepError::Corrupt("a block is invalid");
    if block.is_empty() {
        return Err(StepError::Corrupt("a block is empty"));
    }
    let len = snap::raw::decompress_len(block).map_err(invalid)?;
    if len / EXPANSION_MAX > block.len() {
        return Err(StepError::Corrupt("a block claims more than it can hold"));
    }
    if len > room {
        return Err(StepError::Full);
    }
    let start = out.len();
    extend(out, len, room)?;
    let decompressed = snap::raw::Decoder::new().decompress(block, &mut out[start..]).map_err(invalid);
    if decompressed.is_err() {
        out.truncate(start);
    }
    decompressed.map(|_| ())
}

pub fn compress(raw: &[u8], out: &mut Vec<u8>) -> Result<(), RecordsError> {
    out.extend_from_slice(&STREAM_MAGIC);
    out.extend_from_slice(&STREAM_VERSION);
    let mut encoder = snap::raw::Encoder::new();
    for chunk in raw.chunks(CHUNK_BYTES) {
        let start = out.len();
        out.resize(start + 4 + snap::raw::max_compress_len(chunk.len()), 0);
        let len = encoder.compress(chunk, &mut out[start + 4..]).expect("the buffer has the requested length");
        out[start..start + 4].copy_from_slice(&(len as u32).to_be_bytes());
        out.truncate(start + 4 + len);
    }
    Ok(())
}
