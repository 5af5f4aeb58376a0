//! Arrays that occur many times in a message, such as the configs of a thousand topics that set none of their own.
//!
//! For each field that is an array of structures, the last array is kept while the message is read or written. Equal
//! bytes are decoded once, to the same tuple, and the same tuple is encoded once. The objects of a message are immutable
//! (frozen classes, tuples), so this saves time and memory and changes nothing else.
use std::ops::Range;

use pyo3::prelude::*;

/// Decoded arrays: by the field's place, the bytes and the array.
#[derive(Default)]
pub struct Seen<'a, 'py>(Vec<(usize, &'a [u8], Bound<'py, PyAny>)>);

impl<'a, 'py> Seen<'a, 'py> {
    /// The array at the start of `bytes` and its length in bytes, if it equals the last array of the field.
    pub fn at_the_start_of(&self, bytes: &[u8], field: usize) -> Option<(Bound<'py, PyAny>, usize)> {
        let (_, known, array) = self.0.iter().find(|(place, ..)| *place == field)?;
        // The end of an array depends only on its own bytes.
        bytes.starts_with(known).then(|| (array.clone(), known.len()))
    }

    /// The last array of the field.
    pub fn put(&mut self, field: usize, bytes: &'a [u8], array: &Bound<'py, PyAny>) {
        match self.0.iter_mut().find(|(place, ..)| *place == field) {
            Some(known) => (known.1, known.2) = (bytes, array.clone()),
            None => self.0.push((field, bytes, array.clone())),
        }
    }
}

/// Encoded arrays: by the field's place, the array and its position in the message.
#[derive(Default)]
pub struct Written<'py>(Vec<(usize, Bound<'py, PyAny>, Range<usize>)>);

impl<'py> Written<'py> {
    /// The position of the array in the message, if it is the last array of the field.
    pub fn bytes_of(&self, array: &Bound<'py, PyAny>, field: usize) -> Option<Range<usize>> {
        let (_, known, range) = self.0.iter().find(|(place, ..)| *place == field)?;
        known.is(array).then(|| range.clone())
    }

    /// The last array of the field, a tuple.
    pub fn put(&mut self, field: usize, array: &Bound<'py, PyAny>, range: Range<usize>) {
        match self.0.iter_mut().find(|(place, ..)| *place == field) {
            Some(known) => (known.1, known.2) = (array.clone(), range),
            None => self.0.push((field, array.clone(), range)),
        }
    }
}
