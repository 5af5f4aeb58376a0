//! Reads columns of other libraries in place. By the interface, the exporter guarantees that they are well formed.

use std::ffi::CStr;
use std::ptr;
use std::slice;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use super::ffi::{ArrowArray, ArrowSchema};

/// An array that is released when it is dropped.
pub struct Imported {
    schema: ArrowSchema,
    array: ArrowArray,
}

// SAFETY: nothing writes to an exported array, and any thread may read or release it.
unsafe impl Sync for Imported {}

impl Imported {
    /// Takes over the result of an object's `__arrow_c_array__`. `what` names the object in messages.
    pub fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let Ok(export) = object.getattr("__arrow_c_array__") else {
            let found = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{what}: an Arrow array is wanted, not {found}")));
        };
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = export.call0()?.extract()?;
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ArrowSchema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<ArrowArray>();
        // SAFETY: the names promise what the capsules hold; a structure is moved by taking out its release callback.
        let taken = unsafe {
            let taken = Self { schema: ptr::read(schema.as_ptr()), array: ptr::read(array.as_ptr()) };
            (*schema.as_ptr()).release = None;
            (*array.as_ptr()).release = None;
            taken
        };
        if taken.schema.release.is_none() || taken.array.release.is_none() {
            return Err(PyValueError::new_err(format!("{what}: the Arrow array was released before")));
        }
        Ok(taken)
    }

    /// The column itself.
    pub fn view(&self) -> View<'_> {
        View { schema: &self.schema, array: &self.array }
    }
}

/// A column, or a child of one.
#[derive(Clone, Copy)]
pub struct View<'a> {
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
}

impl<'a> View<'a> {
    pub fn len(self) -> usize {
        usize::try_from(self.array.length).unwrap_or(0)
    }

    fn offset(self) -> usize {
        usize::try_from(self.array.offset).unwrap_or(0)
    }

    fn format(self) -> &'a str {
        // SAFETY: the interface requires text that ends with a zero byte and lives as long as the schema.
        unsafe { CStr::from_ptr(self.schema.format) }.to_str().unwrap_or("?")
    }

    fn child(self, at: usize) -> Option<View<'a>> {
        let there = usize::try_from(self.schema.n_children.min(self.array.n_children)).unwrap_or(0);
        // SAFETY: the index is below the number of children, and they live as long as their parent.
        (at < there)
            .then(|| unsafe { View { schema: &**self.schema.children.add(at), array: &**self.array.children.add(at) } })
    }

    fn buffer(self, at: usize) -> *const u8 {
        let there = usize::try_from(self.array.n_buffers).unwrap_or(0);
        // SAFETY: the index is below the number of buffers.
        if at < there { unsafe { (*self.array.buffers.add(at)).cast() } } else { ptr::null() }
    }

    fn validity(self) -> Validity<'a> {
        let bits = if self.array.null_count == 0 { ptr::null() } else { self.buffer(0) };
        let end = self.offset() + self.len();
        // SAFETY: a validity buffer has a bit for each value, also those before the offset.
        let bits = (!bits.is_null()).then(|| unsafe { slice::from_raw_parts(bits, end.div_ceil(8)) });
        Validity { bits, offset: self.offset() }
    }

    /// The values of a buffer from the column's offset on, with `more` values after the last.
    fn numbers<T>(self, at: usize, more: usize) -> &'a [T] {
        let buffer = self.buffer(at).cast::<T>();
        if buffer.is_null() || self.len() + more == 0 {
            return &[];
        }
        // SAFETY: the type comes from the format, and the interface aligns buffers for it.
        unsafe { slice::from_raw_parts(buffer.add(self.offset()), self.len() + more) }
    }

    fn refused(self, what: &str, wanted: &str) -> PyErr {
        PyTypeError::new_err(format!("{what}: {wanted} wanted, not Arrow's type '{}'", self.format()))
    }

    /// Offsets of byte strings or lists.
    fn offsets(self, is_large: bool) -> Offsets<'a> {
        match (self.len(), is_large) {
            (0, _) => Offsets::Int32(&[0]),
            (_, true) => Offsets::Int64(self.numbers(1, 1)),
            (_, false) => Offsets::Int32(self.numbers(1, 1)),
        }
    }

    /// Byte strings or texts; all null for a column of nulls.
    pub fn bytes(self, what: &str) -> PyResult<BytesView<'a>> {
        let is_large = match (self.format(), self.schema.dictionary.is_null()) {
            ("z" | "u", true) => false,
            ("Z" | "U", true) => true,
            ("n", true) => {
                return Ok(BytesView { validity: Validity::NOTHING, offsets: Offsets::Int32(&[0]), data: &[] });
            }
            _ => return Err(self.refused(what, "binary or string, plain or large,")),
        };
        let offsets = self.offsets(is_large);
        let (data, size) = (self.buffer(2), offsets.last());
        // SAFETY: the last offset is the end of the data.
        let data = if data.is_null() { &[] } else { unsafe { slice::from_raw_parts(data, size) } };
        Ok(BytesView { validity: self.validity(), offsets, data })
    }

    pub fn int32(self, what: &str) -> PyResult<NumbersView<'a, i32>> {
        match (self.format(), self.schema.dictionary.is_null()) {
            ("i", true) => {
                Ok(NumbersView { validity: self.validity(), numbers: self.numbers(1, 0), times: 1, parts: 1 })
            }
            ("n", true) => Ok(NumbersView { validity: Validity::NOTHING, numbers: &[], times: 1, parts: 1 }),
            _ => Err(self.refused(what, "int32")),
        }
    }

    /// Times in ms: int64 unchanged, timestamps of any unit converted.
    pub fn times_ms(self, what: &str) -> PyResult<NumbersView<'a, i64>> {
        let format = self.format();
        let (times, parts) = match (format.get(..4).unwrap_or(format), self.schema.dictionary.is_null()) {
            ("l" | "tsm:", true) => (1, 1),
            ("tss:", true) => (1000, 1),
            ("tsu:", true) => (1, 1000),
            ("tsn:", true) => (1, 1_000_000),
            ("n", true) => return Ok(NumbersView { validity: Validity::NOTHING, numbers: &[], times: 1, parts: 1 }),
            _ => return Err(self.refused(what, "int64 in ms or timestamp")),
        };
        Ok(NumbersView { validity: self.validity(), numbers: self.numbers(1, 0), times, parts })
    }

    /// Lists of structs of a key and a value.
    pub fn headers(self, what: &str) -> PyResult<HeadersView<'a>> {
        let nothing = || BytesView { validity: Validity::NOTHING, offsets: Offsets::Int32(&[0]), data: &[] };
        let is_large = match self.format() {
            "+l" => false,
            "+L" => true,
            "n" => {
                let offsets = Offsets::Int32(&[0]);
                return Ok(HeadersView {
                    validity: Validity::NOTHING,
                    offsets,
                    first: 0,
                    keys: nothing(),
                    values: nothing(),
                });
            }
            _ => return Err(self.refused(what, "list<struct<key, value>>")),
        };
        let pairs = self.child(0).filter(|pairs| pairs.format() == "+s" && pairs.schema.n_children == 2);
        let pairs = pairs.ok_or_else(|| self.refused(what, "list<struct<key, value>>"))?;
        let (Some(keys), Some(values)) = (pairs.child(0), pairs.child(1)) else {
            return Err(self.refused(what, "list<struct<key, value>>"));
        };
        Ok(HeadersView {
            validity: self.validity(),
            offsets: self.offsets(is_large),
            first: pairs.offset(),
            keys: keys.bytes(what)?,
            values: values.bytes(what)?,
        })
    }
}

/// The validity of values.
#[derive(Clone, Copy)]
struct Validity<'a> {
    /// None: all values are valid.
    bits: Option<&'a [u8]>,
    offset: usize,
}

impl Validity<'_> {
    /// All values are null.
    const NOTHING: Validity<'static> = Validity { bits: Some(&[]), offset: 0 };

    #[inline]
    fn has(self, at: usize) -> bool {
        let at = at + self.offset;
        self.bits.is_none_or(|bits| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1))
    }
}

#[derive(Clone, Copy)]
enum Offsets<'a> {
    Int32(&'a [i32]),
    Int64(&'a [i64]),
}

impl Offsets<'_> {
    #[inline]
    fn range(self, at: usize) -> (usize, usize) {
        match self {
            Self::Int32(offsets) => (offsets[at] as usize, offsets[at + 1] as usize),
            Self::Int64(offsets) => (offsets[at] as usize, offsets[at + 1] as usize),
        }
    }

    fn last(self) -> usize {
        match self {
            Self::Int32(offsets) => offsets.last().map_or(0, |offset| *offset as usize),
            Self::Int64(offsets) => offsets.last().map_or(0, |offset| *offset as usize),
        }
    }
}

/// A column of byte strings.
#[derive(Clone, Copy)]
pub struct BytesView<'a> {
    validity: Validity<'a>,
    offsets: Offsets<'a>,
    data: &'a [u8],
}

impl<'a> BytesView<'a> {
    #[inline]
    pub fn get(self, at: usize) -> Option<&'a [u8]> {
        if !self.validity.has(at) {
            return None;
        }
        let (start, end) = self.offsets.range(at);
        Some(&self.data[start..end])
    }
}

/// A column of numbers, read as `number * times / parts`.
#[derive(Clone, Copy)]
pub struct NumbersView<'a, T> {
    validity: Validity<'a>,
    numbers: &'a [T],
    times: i64,
    parts: i64,
}

impl<T: Copy + Into<i64>> NumbersView<'_, T> {
    #[inline]
    pub fn get(self, at: usize) -> Option<i64> {
        let number = || self.numbers[at].into();
        self.validity.has(at).then(|| number().saturating_mul(self.times).div_euclid(self.parts))
    }
}

/// A column of headers.
#[derive(Clone, Copy)]
pub struct HeadersView<'a> {
    validity: Validity<'a>,
    offsets: Offsets<'a>,
    /// The offset of the first pair in keys and values.
    first: usize,
    keys: BytesView<'a>,
    values: BytesView<'a>,
}

impl<'a> HeadersView<'a> {
    /// Key and value of each header of a row.
    pub fn get(self, at: usize) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let (start, end) = if self.validity.has(at) { self.offsets.range(at) } else { (0, 0) };
        (start..end).map(move |pair| {
            let pair = pair + self.first;
            (self.keys.get(pair).unwrap_or_default(), self.values.get(pair))
        })
    }
}
