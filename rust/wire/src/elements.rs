//! Arrays of a request, parsed during iteration.
//!
//! An element takes more room in memory than on the wire, up to twenty times more for an empty name. Therefore a
//! request is parsed once to validate it, without keeping anything; iterating over an array parses it again.

use klamm_base::primitives::WireError;

use super::versioned::VersionedReader;

type ReadElement<'a, T> = fn(&mut VersionedReader<'a>, i16) -> Result<T, WireError>;

/// The remaining elements of an array.
pub struct Elements<'a, T> {
    reader: VersionedReader<'a>,
    left: usize,
    version: i16,
    read: ReadElement<'a, T>,
}

impl<'a, T> Elements<'a, T> {
    /// Parses `count` elements; afterwards `reader` is after them.
    pub fn check(
        reader: &mut VersionedReader<'a>,
        version: i16,
        count: usize,
        read: ReadElement<'a, T>,
    ) -> Result<Self, WireError> {
        let first = reader.clone();
        for _ in 0..count {
            read(reader, version)?;
        }
        Ok(Self { reader: first, left: count, version, read })
    }
}

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), ..*self }
    }
}

impl<T> Iterator for Elements<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        Some((self.read)(&mut self.reader, self.version).expect("checked when the request was read"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Elements<'_, T> {}
