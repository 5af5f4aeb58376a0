//! Records as columns: a few contiguous buffers in Arrow's layout, for any number of records.

use std::ffi::c_void;

use klamm_records::{Batch, Headers, RecordsError, records};
use pyo3::ffi;
use pyo3::prelude::*;

use super::batch::whole_batches;
use super::spares::{self, Element};
use super::{DecodeOptions, damaged};

/// The elements of a buffer. Their type guarantees the alignment that readers of columns expect.
pub enum Elements {
    Bytes(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int128(Vec<i128>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

impl Elements {
    pub fn address_and_size(&self) -> (*const c_void, usize) {
        match self {
            Self::Bytes(bytes) => (bytes.as_ptr().cast(), size_of_val(bytes.as_slice())),
            Self::Int32(numbers) => (numbers.as_ptr().cast(), size_of_val(numbers.as_slice())),
            Self::Int64(numbers) => (numbers.as_ptr().cast(), size_of_val(numbers.as_slice())),
            Self::Int128(numbers) => (numbers.as_ptr().cast(), size_of_val(numbers.as_slice())),
            Self::Float32(numbers) => (numbers.as_ptr().cast(), size_of_val(numbers.as_slice())),
            Self::Float64(numbers) => (numbers.as_ptr().cast(), size_of_val(numbers.as_slice())),
        }
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        match self {
            Self::Bytes(bytes) => spares::give(std::mem::take(bytes)),
            Self::Int32(numbers) => spares::give(std::mem::take(numbers)),
            Self::Int64(numbers) => spares::give(std::mem::take(numbers)),
            Self::Int128(_) | Self::Float32(_) | Self::Float64(_) => {}
        }
    }
}

/// See `records.pyi`.
#[pyclass(frozen, module = "klamm._engine.records")]
pub struct Buffer {
    elements: Elements,
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.elements.address_and_size().1
    }

    /// # Safety
    ///
    /// `view` is one that Python made for this call.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: i32) -> PyResult<()> {
        let (address, size) = slf.get().elements.address_and_size();
        let size = ffi::Py_ssize_t::try_from(size).expect("a vector is no larger");
        // SAFETY: the class is frozen, so the elements neither move nor change while the view, which holds a
        // reference to the object, is there; Python writes to no read-only view.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast_mut(), size, 1, flags) } != 0;
        if failed { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

/// See `records.pyi`.
#[pyclass(frozen, module = "klamm._engine.records", get_all)]
pub struct BytesColumn {
    offsets: Py<Buffer>,
    data: Py<Buffer>,
    validity: Option<Py<Buffer>>,
    null_count: usize,
}

/// See `records.pyi`.
#[pyclass(frozen, module = "klamm._engine.records", get_all)]
pub struct RecordColumns {
    count: usize,
    offsets: Py<Buffer>,
    timestamps: Py<Buffer>,
    keys: Py<BytesColumn>,
    values: Py<BytesColumn>,
    header_offsets: Py<Buffer>,
    header_keys: Py<BytesColumn>,
    header_values: Py<BytesColumn>,
}

#[pymethods]
impl BytesColumn {
    fn __len__(&self) -> usize {
        self.offsets.get().elements.address_and_size().1 / size_of::<i32>() - 1
    }
}

#[pymethods]
impl RecordColumns {
    fn __len__(&self) -> usize {
        self.count
    }
}

/// The validity bitmap of a column under construction.
#[derive(Default)]
pub struct Validity {
    /// One bit per value, lowest first; empty while no value is null.
    pub bits: Vec<u8>,
    pub null_count: usize,
}

impl Validity {
    /// Adds the next value, at `place`.
    #[inline(always)]
    pub fn push(&mut self, place: usize, valid: bool) {
        if !valid || self.null_count > 0 {
            self.mark(place, valid);
        }
    }

    fn mark(&mut self, place: usize, valid: bool) {
        if self.null_count == 0 {
            self.bits = vec![0xff; place / 8];
            self.bits.push(!(0xff << (place % 8)));
        } else if place / 8 == self.bits.len() {
            self.bits.push(0);
        }
        self.null_count += usize::from(!valid);
        self.bits[place / 8] |= u8::from(valid) << (place % 8);
    }

    /// The bitmap, if any value is null.
    pub fn buffer(self) -> Option<Elements> {
        (self.null_count > 0).then_some(Elements::Bytes(self.bits))
    }
}

/// A column of byte strings or nulls under construction.
pub struct GrowingBytes {
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
    pub validity: Validity,
}

impl GrowingBytes {
    pub fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new(), validity: Validity::default() }
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Reserves room for this number of further values with this total size in bytes.
    pub fn reserve(&mut self, values: usize, bytes: usize) {
        reserve(&mut self.offsets, values);
        reserve(&mut self.data, bytes);
    }

    /// The same for the values of this batch and those that are likely to follow.
    pub fn reserve_ahead(&mut self, values: Room, bytes: Room) {
        reserve_ahead(&mut self.offsets, values);
        reserve_ahead(&mut self.data, bytes);
    }

    #[inline(always)]
    pub fn push(&mut self, value: Option<&[u8]>) {
        if let Some(bytes) = value {
            self.data.extend_from_slice(bytes);
        }
        self.validity.push(self.len(), value.is_some());
        self.offsets.push(self.data.len() as i32);
    }

    fn finish(self, py: Python<'_>) -> PyResult<Py<BytesColumn>> {
        let null_count = self.validity.null_count;
        let validity = self.validity.buffer().map(|bits| buffer(py, bits)).transpose()?;
        let offsets = buffer(py, Elements::Int32(self.offsets))?;
        let data = buffer(py, Elements::Bytes(self.data))?;
        Py::new(py, BytesColumn { offsets, data, validity, null_count })
    }
}

/// How many elements a column will receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub now: usize,
    /// Including later ones, if they resemble these.
    pub likely: usize,
}

impl Room {
    /// `now` elements at once, and probably `times` as many in total; with a reserve, since batches differ, and at
    /// most `max`.
    pub fn new(now: usize, times: usize, max: usize) -> Self {
        let likely = now.saturating_mul(times);
        Self { now, likely: likely.saturating_add(likely / 16).min(max).max(now) }
    }
}

/// Reserves room for the likely number of elements if there is not enough room for those of this batch.
pub fn reserve_ahead<T: Element + Copy>(column: &mut Vec<T>, room: Room) {
    if column.len() + room.now > column.capacity() {
        reserve(column, room.likely);
    }
}

/// Reserves room for this number of further elements, in recycled memory if there is some.
pub fn reserve<T: Element + Copy>(column: &mut Vec<T>, count: usize) {
    let room = column.len() + count;
    if room > column.capacity() {
        // At least twice the old capacity: otherwise each of many batches would copy all earlier elements.
        let mut wider = spares::take(room.max(2 * column.capacity()));
        wider.extend_from_slice(column);
        spares::give(std::mem::replace(column, wider));
    }
}

fn buffer(py: Python<'_>, elements: Elements) -> PyResult<Py<Buffer>> {
    Py::new(py, Buffer { elements })
}

/// Bytes reserved for a key in advance: most keys are ids.
const KEY_BYTES_GUESS: usize = 12;

/// All columns under construction.
struct GrowingColumns {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: GrowingBytes,
    values: GrowingBytes,
    /// Empty while no record has headers.
    header_offsets: Vec<i32>,
    header_keys: GrowingBytes,
    header_values: GrowingBytes,
}

impl GrowingColumns {
    fn new() -> Self {
        Self {
            offsets: Vec::new(),
            timestamps: Vec::new(),
            keys: GrowingBytes::new(),
            values: GrowingBytes::new(),
            header_offsets: Vec::new(),
            header_keys: GrowingBytes::new(),
            header_values: GrowingBytes::new(),
        }
    }

    /// Reserves room for a batch with at most this number of records and bytes. No column may exceed int32 offsets.
    fn reserve(&mut self, records: usize, bytes: usize) -> Result<(), RecordsError> {
        for column in [&self.keys, &self.values, &self.header_keys, &self.header_values] {
            let size = column.data.len() + bytes;
            if size > i32::MAX as usize {
                return Err(RecordsError::TooLargeToBuild { what: "a column", size });
            }
        }
        reserve(&mut self.offsets, records);
        reserve(&mut self.timestamps, records);
        self.keys.reserve(records, bytes.min(records * KEY_BYTES_GUESS));
        self.values.reserve(records, bytes);
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, record: &klamm_records::Record<'_>) {
        if record.headers.len() > 0 || !self.header_offsets.is_empty() {
            self.push_headers(record.headers);
        }
        self.offsets.push(record.offset);
        self.timestamps.push(record.timestamp);
        self.keys.push(record.key);
        self.values.push(record.value);
    }

    #[inline(never)]
    fn push_headers(&mut self, headers: Headers<'_>) {
        if self.header_offsets.is_empty() {
            self.header_offsets = vec![0; self.offsets.len() + 1];
        }
        for header in headers {
            self.header_keys.push(Some(header.key));
            self.header_values.push(header.value);
        }
        self.header_offsets.push(self.header_keys.len() as i32);
    }

    fn finish(mut self, py: Python<'_>) -> PyResult<RecordColumns> {
        let count = self.offsets.len();
        if self.header_offsets.is_empty() {
            reserve(&mut self.header_offsets, count + 1);
            self.header_offsets.resize(count + 1, 0);
        }
        Ok(RecordColumns {
            count,
            offsets: buffer(py, Elements::Int64(self.offsets))?,
            timestamps: buffer(py, Elements::Int64(self.timestamps))?,
            keys: self.keys.finish(py)?,
            values: self.values.finish(py)?,
            header_offsets: buffer(py, Elements::Int32(self.header_offsets))?,
            header_keys: self.header_keys.finish(py)?,
            header_values: self.header_values.finish(py)?,
        })
    }
}

fn grow<'a>(
    batches: impl Iterator<Item = Result<Batch<'a>, RecordsError>>,
    options: DecodeOptions,
) -> Result<GrowingColumns, RecordsError> {
    let mut columns = GrowingColumns::new();
    let mut window = Vec::new();
    for batch in batches {
        let batch = batch?;
        if options.check_crc {
            batch.check()?;
        }
        let records = records(batch, &mut window, options.decompressed_bytes_max)?;
        columns.reserve(records.size_hint().1.unwrap_or(0), records.remaining_bytes())?;
        for record in records {
            let record = record?;
            if record.offset >= options.first_offset {
                columns.push(&record);
            }
        }
    }
    Ok(columns)
}

/// Decodes batches to columns without the GIL.
pub(super) fn columns_of<'a, B: Iterator<Item = Result<Batch<'a>, RecordsError>>>(
    py: Python<'_>,
    batches: impl FnOnce() -> B + Send,
    options: DecodeOptions,
) -> PyResult<RecordColumns> {
    let columns = py.detach(|| grow(batches(), options));
    columns.map_err(|error| damaged(py, &error))?.finish(py)
}

#[pyfunction]
#[pyo3(signature = (data, *, first_offset = i64::MIN, check_crc = true, decompressed_bytes_max))]
pub fn decode_columns(
    py: Python<'_>,
    data: &[u8],
    first_offset: i64,
    check_crc: bool,
    decompressed_bytes_max: usize,
) -> PyResult<RecordColumns> {
    let is_data = |batch: &Result<Batch<'_>, _>| batch.as_ref().map_or(true, |batch| !batch.header().is_control());
    let options = DecodeOptions { first_offset, check_crc, decompressed_bytes_max };
    columns_of(py, || whole_batches(data).filter(is_data), options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_copied_once_for_many_equal_batches() {
        let mut column: Vec<i64> = Vec::new();
        let mut moves = 0;
        for batch in 0..100 {
            let before = column.capacity();
            reserve_ahead(&mut column, Room::new(1000, 100 - batch, 1_000_000));
            moves += usize::from(column.capacity() != before);
            column.resize(column.len() + 1000, 7);
        }
        assert_eq!((column.len(), moves), (100_000, 1));
    }

    #[test]
    fn estimated_capacity_is_bounded() {
        assert_eq!(Room::new(100, 4, 1000), Room { now: 100, likely: 425 });
        assert_eq!(Room::new(100, usize::MAX, 1000), Room { now: 100, likely: 1000 });
        assert_eq!(Room::new(5000, 1, 1000), Room { now: 5000, likely: 5000 });
    }
}
