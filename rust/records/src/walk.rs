//! Reads the records of a batch one after the other, decompressing a window at a time.

use std::cell::RefCell;

use crate::batch::Batch;
use crate::codec::{Codec, Contexts, Decompressor};
use crate::error::{RecordFault, RecordsError};
use crate::layout::Layout;
use crate::record::{Fields, read_length};
use crate::varint::Reader;

/// Buffers and decompressor states that one walk leaves for the next.
#[derive(Default)]
pub(crate) struct Scratch {
    window: Vec<u8>,
    contexts: Contexts,
}

// A window that a huge record needed is not kept.
const KEPT_WINDOW_BYTES: usize = 4 * 1024 * 1024;

impl Scratch {
    const fn new() -> Self {
        Self { window: Vec::new(), contexts: Contexts::new() }
    }

    /// Runs `work` with this thread's scratch.
    pub fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
        thread_local! {
            static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let result = work(scratch);
            scratch.window.clear();
            scratch.window.shrink_to(KEPT_WINDOW_BYTES);
            result
        })
    }

    /// The decompressor states.
    pub fn contexts(&mut self) -> &mut Contexts {
        &mut self.contexts
    }
}

/// What the rules for a record look at.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

/// Calls `visit(index, shape)` for each record of the batch. Checks that the records are well-formed and that
/// nothing follows the last one.
///
/// Returns the size of all records, decompressed.
#[inline]
pub(crate) fn walk(
    batch: Batch<'_>,
    decompressed_bytes_max: usize,
    scratch: &mut Scratch,
    mut visit: impl FnMut(i32, Shape) -> Result<(), RecordsError>,
) -> Result<usize, RecordsError> {
    let count = batch.header().record_count();
    match batch.codec()? {
        Codec::None => {
            walk_bytes(batch.payload(), count, visit)?;
            Ok(batch.payload().len())
        }
        codec => {
            let Scratch { window, contexts } = scratch;
            window.clear();
            let decompressor = Decompressor::new(codec, batch.payload(), decompressed_bytes_max, contexts);
            walk_window(Window { decompressor, bytes: window, at: 0, passed: 0, more: true }, count, &mut visit)
        }
    }
}

/// The records of a batch that is not compressed: `bytes` must hold them and nothing else.
#[inline]
fn walk_bytes(
    bytes: &[u8],
    count: i32,
    mut visit: impl FnMut(i32, Shape) -> Result<(), RecordsError>,
) -> Result<(), RecordsError> {
    let mut at = 0;
    for index in 0..count {
        let (shape, end) = shape_at(bytes, at).map_err(|fault| RecordsError::BadRecord { index, fault })?;
        visit(index, shape)?;
        at = end;
    }
    match bytes.len() - at {
        0 => Ok(()),
        bytes => Err(RecordsError::BytesAfterRecords { bytes, count }),
    }
}

/// The shape of the record at `at`, and where the next one begins.
#[inline(always)]
fn shape_at(bytes: &[u8], at: usize) -> Result<(Shape, usize), RecordFault> {
    // Not by way of `Fields`: making slices that nobody looks at costs a quarter of the walk.
    if let Some(Layout { timestamp_delta, offset_delta, key_len, end, .. }) = Layout::of_usual(bytes, at) {
        return Ok((Shape { timestamp_delta, offset_delta, has_key: key_len >= 0 }, end));
    }
    let (Fields { timestamp_delta, offset_delta, key, .. }, end) = Fields::at_slowly(bytes, at)?;
    Ok((Shape { timestamp_delta, offset_delta, has_key: key.is_some() }, end))
}

/// The decompressed bytes that were not yet walked.
struct Window<'a, 'd> {
    decompressor: Decompressor<'d>,
    bytes: &'a mut Vec<u8>,
    at: usize,
    passed: usize,
    more: bool,
}

impl Window<'_, '_> {
    /// Makes room by dropping what was walked, then decompresses one more piece.
    fn refill(&mut self) -> Result<(), RecordsError> {
        self.bytes.drain(..self.at);
        self.passed += self.at;
        self.at = 0;
        self.more = self.decompressor.step(self.bytes)?;
        Ok(())
    }

    /// The size of the next record with its length field, once all of it is in the window.
    fn next_size(&mut self) -> Result<Result<usize, RecordFault>, RecordsError> {
        loop {
            let mut reader = Reader::new(&self.bytes[self.at..]);
            match read_length(&mut reader) {
                Err(fault) => return Ok(Err(fault)),
                Ok(Some(length)) if length <= reader.remaining() => return Ok(Ok(reader.position() + length)),
                Ok(_) if !self.more => return Ok(Err(RecordFault::Cut)),
                Ok(_) => self.refill()?,
            }
        }
    }
}

fn walk_window(
    mut window: Window<'_, '_>,
    count: i32,
    visit: &mut impl FnMut(i32, Shape) -> Result<(), RecordsError>,
) -> Result<usize, RecordsError> {
    for index in 0..count {
        let bad = |fault| RecordsError::BadRecord { index, fault };
        let size = window.next_size()?.map_err(bad)?;
        let (shape, end) = shape_at(&window.bytes[..window.at + size], window.at).map_err(bad)?;
        visit(index, shape)?;
        window.at = end;
    }
    loop {
        let bytes = window.bytes.len() - window.at;
        if bytes > 0 {
            return Err(RecordsError::BytesAfterRecords { bytes, count });
        }
        if !window.more {
            return Ok(window.passed + window.at);
        }
        window.refill()?;
    }
}
