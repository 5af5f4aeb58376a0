//! Arrays that a message has again and again: the configs of each of a thousand topics, of which none sets its own.
//!
//! Of each field that is an array of structures the last one is kept for as long as the message is read or written. Equal
//! bytes are read once, as the same tuple; the same tuple is written once, as equal bytes. What a message is carried by does
//! not change (frozen classes, tuples), so nobody can tell, but by the time and the memory.
use std::ops::Range;

use pyo3::prelude::*;

/// What was read: by the field's place, the bytes and the array.
#[derive(Default)]
pub struct Seen<'a, 'py>(Vec<(usize, &'a [u8], Bound<'py, PyAny>)>);

impl<'a, 'py> Seen<'a, 'py> {
    /// The array that `bytes` begins with, and how many of them are its, if it is the last one of the field.
    pub fn at_the_start_of(&self, bytes: &[u8], field: usize) -> Option<(Bound<'py, PyAny>, usize)> {
        let (_, known, array) = self.0.iter().find(|(place, ..)| *place == field)?;
        // An array ends where its own bytes say so, whatever follows them.
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

/// What was written: by the field's place, the array and where in the message it is.
#[derive(Default)]
pub struct Written<'py>(Vec<(usize, Bound<'py, PyAny>, Range<usize>)>);

impl<'py> Written<'py> {
    /// Where the array is already, if it is the last one of the field.
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
