//! gzip (RFC 1952): consecutive members, each with its CRC-32 and size checked.

use flate2::{Compress, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Progress, STEP_BYTES, Step, StepError, extend, step_bytes};
use crate::error::RecordsError;

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const FLAG_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0xe0;

/// An inflater, kept between batches because it holds 40 KiB of window and tables.
pub struct Context {
    inflate: Decompress,
}

impl Default for Context {
    fn default() -> Self {
        Self { inflate: Decompress::new(false) }
    }
}

pub struct Decoder<'a> {
    input: &'a [u8],
    inflate: &'a mut Decompress,
    crc: Crc,
    in_member: bool,
}

impl<'a> Decoder<'a> {
    pub fn new(input: &'a [u8], context: &'a mut Context) -> Self {
        Self { input, inflate: &mut context.inflate, crc: Crc::new(), in_member: false }
    }

    pub fn step(&mut self, out: &mut Vec<u8>, room: usize) -> Step {
        if !self.in_member {
            self.begin_member()?;
        }
        let start = out.len();
        extend(out, step_bytes(room), room)?;
        let (read_before, made_before) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(self.input, &mut out[start..], FlushDecompress::None);
        let read = (self.inflate.total_in() - read_before) as usize;
        out.truncate(start + (self.inflate.total_out() - made_before) as usize);
        self.input = &self.input[read..];
        self.crc.update(&out[start..]);
        match status {
            Ok(Status::StreamEnd) => self.end_member(),
            Ok(_) if read == 0 && out.len() == start => Err(StepError::Corrupt("the stream ends early")),
            Ok(_) => Ok(Progress::More),
            Err(_) => Err(StepError::Corrupt("the deflate data is invalid")),
        }
    }

    fn begin_member(&mut self) -> Result<(), StepError> {
        self.input = header_rest(self.input).ok_or(StepError::Corrupt("no gzip header"))?;
        self.inflate.reset(false);
        self.crc.reset();
        self.in_member = true;
        Ok(())
    }

    fn end_member(&mut self) -> Step {
        let Some((trailer, rest)) = self.input.split_first_chunk::<8>() else {
            return Err(StepError::Corrupt("the trailer is cut"));
        };
        let stored = u64::from_le_bytes(*trailer);
        let computed = u64::from(self.crc.sum()) | u64::from(self.crc.amount()) << 32;
        if stored != computed {
            return Err(StepError::Corrupt("the trailer's CRC-32 or size is wrong"));
        }
        self.input = rest;
        self.in_member = false;
        Ok(if rest.is_empty() { Progress::Ended } else { Progress::More })
    }
}

// Skips the header of a member; `None` when it is invalid or truncated.
fn header_rest(input: &[u8]) -> Option<&[u8]> {
    let (fixed, mut rest) = input.split_first_chunk::<10>()?;
    let flags = fixed[3];
    if !fixed.starts_with(&MAGIC) || flags & FLAGS_RESERVED != 0 {
        return None;
    }
    if flags & FLAG_EXTRA != 0 {
        let (len, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [FLAG_NAME, FLAG_COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & FLAG_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

pub fn compress(raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), RecordsError> {
    let level = u32::try_from(level).map_or_else(|_| flate2::Compression::default(), flate2::Compression::new);
    // Operating system 255 is "unknown"; the time stays 0, so equal records give equal bytes.
    out.extend_from_slice(&[MAGIC[0], MAGIC[1], MAGIC[2], 0, 0, 0, 0, 0, 0, 255]);
    let mut deflate = Compress::new(level, false);
    loop {
        out.reserve(STEP_BYTES.min(raw.len() / 2 + 64));
        let rest = &raw[deflate.total_in() as usize..];
        match deflate.compress_vec(rest, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => break,
            Ok(_) => {}
            Err(_) => unreachable!("deflate without a dictionary takes any input"),
        }
    }
    let mut crc = Crc::new();
    crc.update(raw);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
    Ok(())
}
