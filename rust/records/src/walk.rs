//! Reads the records of a batch one after the other, decompressing a window at a time.

use std::cell::RefCell;

use crate::batch::Batch;
use crate::codec::{Codec, Contexts, Decompressor};
use crate::error::{RecordFault, RecordsError};
use crate::layout::Layout;
use crate::record::{Fields, read_length};
use crate::repeat::{Place, Repeat};
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
    pub has_key: bool,
}

/// What a walk saw of all records.
pub(crate) struct Walked {
    /// Their size, decompressed.
    pub bytes: usize,
    /// Whether their offset deltas are 0, 1, 2 and so on.
    pub offsets_consecutive: bool,
}

/// Checks that the records of the batch are well-formed and that nothing follows the last one.
///
/// Calls `visit(index, shape)` for each of them, in order; but not for one whose shape is that of the record before,
/// when that call gave true.
#[inline]
pub(crate) fn walk(
    batch: Batch<'_>,
    decompressed_bytes_max: usize,
    mut visit: impl FnMut(i32, Shape) -> Result<bool, RecordsError>,
) -> Result<Walked, RecordsError> {
    let count = batch.header().record_count();
    match batch.codec()? {
        Codec::None => walk_bytes(batch.payload(), count, visit),
        codec => Scratch::with(|Scratch { window, contexts }| {
            window.clear();
            let decompressor = Decompressor::new(codec, batch.payload(), decompressed_bytes_max, contexts);
            walk_window(
                Window { decompressor, bytes: window, place: Place::START, passed: 0, more: true },
                count,
                &mut visit,
            )
        }),
    }
}

/// The records of a batch that is not compressed: `bytes` must hold them and nothing else.
#[inline]
fn walk_bytes(
    bytes: &[u8],
    count: i32,
    mut visit: impl FnMut(i32, Shape) -> Result<bool, RecordsError>,
) -> Result<Walked, RecordsError> {
    let (mut place, mut repeat) = (Place::START, Repeat::new());
    while place.index < count {
        let index = place.index;
        let bad = |fault| RecordsError::BadRecord { index, fault };
        let shape = pass_record(bytes, &mut place, &mut repeat).map_err(bad)?;
        visit(index, shape)?;
        repeat.run(bytes, &mut place, count, &mut visit)?;
    }
    match bytes.len() - place.at {
        0 => Ok(Walked { bytes: bytes.len(), offsets_consecutive: place.offsets_consecutive }),
        bytes => Err(RecordsError::BytesAfterRecords { bytes, count }),
    }
}

/// Moves past the record that begins at `place`; returns its shape.
#[inline(always)]
fn pass_record(bytes: &[u8], place: &mut Place, repeat: &mut Repeat) -> Result<Shape, RecordFault> {
    let at = place.at;
    // Not through `Fields`: creating slices that are never read would cost a quarter of the walk.
    let (timestamp_delta, offset_delta, has_key, end) = match Layout::of_usual(bytes, at) {
        Some(layout) => {
            repeat.note(bytes, at, &layout);
            (layout.timestamp_delta, layout.offset_delta, layout.key_len >= 0, layout.end)
        }
        None => {
            let (fields, end) = Fields::at_slowly(bytes, at)?;
            (fields.timestamp_delta, fields.offset_delta, fields.key.is_some(), end)
        }
    };
    place.offsets_consecutive &= offset_delta == place.index;
    place.index += 1;
    place.at = end;
    Ok(Shape { timestamp_delta, has_key })
}

/// The decompressed bytes that were not yet walked.
struct Window<'a, 'd> {
    decompressor: Decompressor<'d>,
    bytes: &'a mut Vec<u8>,
    /// The next record, and where it is in the window.
    place: Place,
    passed: usize,
    more: bool,
}

impl Window<'_, '_> {
    /// Makes room by dropping what was walked, then decompresses one more piece.
    fn refill(&mut self) -> Result<(), RecordsError> {
        self.bytes.drain(..self.place.at);
        self.passed += std::mem::take(&mut self.place.at);
        self.more = self.decompressor.step(self.bytes)?;
        Ok(())
    }

    /// The size of the next record with its length field, once all of it is in the window.
    fn next_size(&mut self) -> Result<Result<usize, RecordFault>, RecordsError> {
        loop {
            let mut reader = Reader::new(&self.bytes[self.place.at..]);
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
    visit: &mut impl FnMut(i32, Shape) -> Result<bool, RecordsError>,
) -> Result<Walked, RecordsError> {
    let mut repeat = Repeat::new();
    while window.place.index < count {
        let index = window.place.index;
        let bad = |fault| RecordsError::BadRecord { index, fault };
        let end = window.next_size()?.map_err(bad)? + window.place.at;
        let shape = pass_record(&window.bytes[..end], &mut window.place, &mut repeat).map_err(bad)?;
        visit(index, shape)?;
        repeat.run(window.bytes, &mut window.place, count, visit)?;
    }
    loop {
        let Place { at, offsets_consecutive, .. } = window.place;
        let bytes = window.bytes.len() - at;
        if bytes > 0 {
            return Err(RecordsError::BytesAfterRecords { bytes, count });
        }
        if !window.more {
            return Ok(Walked { bytes: window.passed + at, offsets_consecutive });
        }
        window.refill()?;
    }
}
