//! zstd: consecutive frames, decompressed with a window of at most 128 MiB, as Apache Kafka's clients do.

use std::cell::RefCell;
use std::io::Cursor;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

use super::{Codec, Progress, Step, StepError, extend, step_bytes};
use crate::error::RecordsError;

// A context that grew beyond this is not kept: the default level takes 1 to 2 MiB, the highest levels take 8 and more.
const KEPT_CONTEXT_BYTES: usize = 6 * 1024 * 1024;

/// A decompression context, kept because creating one costs more than a small batch.
pub struct Context {
    dctx: DCtx<'static>,
}

impl Default for Context {
    fn default() -> Self {
        Self { dctx: DCtx::create() }
    }
}

pub struct Decoder<'a> {
    input: &'a [u8],
    context: &'a mut Context,
    begun: bool,
}

impl<'a> Decoder<'a> {
    pub fn new(input: &'a [u8], context: &'a mut Context) -> Self {
        Self { input, context, begun: false }
    }

    pub fn step(&mut self, out: &mut Vec<u8>, room: usize) -> Step {
        if !self.begun {
            let reset = self.context.dctx.reset(ResetDirective::SessionOnly);
            reset.map_err(|_| StepError::Corrupt("no frame can begin"))?;
            self.begun = true;
        }
        let start = out.len();
        extend(out, step_bytes(room), room)?;
        let mut input = InBuffer::around(self.input);
        let mut output = OutBuffer::around(&mut out[start..]);
        let hint = self.context.dctx.decompress_stream(&mut output, &mut input);
        let made = output.pos();
        out.truncate(start + made);
        let read = input.pos();
        self.input = &self.input[read..];
        match hint {
            Err(_) => Err(StepError::Corrupt("a frame is invalid")),
            Ok(0) if self.input.is_empty() => Ok(Progress::Ended),
            Ok(hint) if hint > 0 && read == 0 && out.len() == start => Err(StepError::Corrupt("the stream ends early")),
            Ok(_) => Ok(Progress::More),
        }
    }
}

impl Drop for Decoder<'_> {
    fn drop(&mut self) {
        if self.context.dctx.sizeof() > KEPT_CONTEXT_BYTES {
            *self.context = Context::default();
        }
    }
}

thread_local! {
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}

pub fn compress(raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), RecordsError> {
    let start = out.len();
    out.reserve(zstd_safe::compress_bound(raw.len()));
    let mut output = Cursor::new(out);
    output.set_position(start as u64);
    COMPRESSOR
        .with_borrow_mut(|cctx| {
            let set = cctx.set_parameter(CParameter::CompressionLevel(level));
            let compressed = set.and_then(|_| cctx.compress2(&mut output, raw));
            if cctx.sizeof() > KEPT_CONTEXT_BYTES {
                *cctx = CCtx::create();
            }
            compressed
        })
        .map(|_| ())
        .map_err(|_| RecordsError::BadCompression { codec: Codec::Zstd, what: "the compressor failed" })
}
