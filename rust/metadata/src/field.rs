//! Reading and writing of fields of each type, and arrays as views of bytes.
//!
//! Reading allocates nothing: an array is validated once and stays in place, and its elements are parsed again during
//! iteration. So a malicious record uses no more memory than its bytes.
use klamm_base::Uuid;
use klamm_base::primitives::{Reader, WireError, Writer};

use crate::schema::{FieldType, StructSchema};

/// A type of field in a record.
pub trait Field<'a>: Sized + Copy {
    const TYPE: FieldType;
    const NULLABLE: bool = false;
    /// The encoded size of the smallest value in bytes.
    const SIZE_MIN: usize;

    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError>;

    /// Skips this many values, validating them.
    #[inline]
    fn skip(reader: &mut Reader<'a>, count: usize, version: i16) -> Result<(), WireError> {
        (0..count).try_for_each(|_| Self::read(reader, version).map(|_| ()))
    }

    fn write(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError>;
}

/// A value that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("{record} version {version} has no field {field}, whose value is not the default")]
    NotInVersion { record: &'static str, field: &'static str, version: i16 },
    #[error("a string of {0} bytes is too long: 32767 is the most")]
    StringTooLong(usize),
}

macro_rules! number_field {
    ($($ty:ident: $method:ident, $field_type:ident;)*) => {$(
        impl<'a> Field<'a> for $ty {
            const TYPE: FieldType = FieldType::$field_type;
            const SIZE_MIN: usize = size_of::<$ty>();

            #[inline]
            fn read(reader: &mut Reader<'a>, _version: i16) -> Result<Self, WireError> {
                reader.$method()
            }

            #[inline]
            fn skip(reader: &mut Reader<'a>, count: usize, _version: i16) -> Result<(), WireError> {
                // The count was compared with the remaining bytes, so the product fits.
                reader.slice(count * size_of::<$ty>()).map(|_| ())
            }

            #[inline]
            fn write(&self, writer: &mut Writer, _version: i16) -> Result<(), FieldError> {
                writer.$method(*self);
                Ok(())
            }
        }
    )*};
}

number_field! {
    bool: bool, Bool;
    i8: i8, Int8;
    i16: i16, Int16;
    u16: u16, Uint16;
    i32: i32, Int32;
    i64: i64, Int64;
    f64: f64, Float64;
    Uuid: uuid, Uuid;
}

impl<'a> Field<'a> for &'a str {
    const TYPE: FieldType = FieldType::String;
    const SIZE_MIN: usize = 1;

    #[inline]
    fn read(reader: &mut Reader<'a>, _version: i16) -> Result<Self, WireError> {
        reader.compact_string()
    }

    #[inline]
    fn write(&self, writer: &mut Writer, _version: i16) -> Result<(), FieldError> {
        if self.len() > klamm_base::primitives::STRING_LEN_MAX {
            return Err(FieldError::StringTooLong(self.len()));
        }
        writer.compact_string(self);
        Ok(())
    }
}

impl<'a> Field<'a> for Option<&'a str> {
    const TYPE: FieldType = FieldType::String;
    const NULLABLE: bool = true;
    const SIZE_MIN: usize = 1;

    #[inline]
    fn read(reader: &mut Reader<'a>, _version: i16) -> Result<Self, WireError> {
        reader.compact_nullable_string()
    }

    #[inline]
    fn write(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError> {
        match self {
            Some(text) => text.write(writer, version),
            None => {
                writer.compact_nullable_string(None);
                Ok(())
            }
        }
    }
}

impl<'a> Field<'a> for &'a [u8] {
    const TYPE: FieldType = FieldType::Bytes;
    const SIZE_MIN: usize = 1;

    #[inline]
    fn read(reader: &mut Reader<'a>, _version: i16) -> Result<Self, WireError> {
        reader.compact_bytes()
    }

    #[inline]
    fn write(&self, writer: &mut Writer, _version: i16) -> Result<(), FieldError> {
        writer.compact_bytes(self);
        Ok(())
    }
}

/// An array: encoded elements that were validated, or our own elements.
#[derive(Clone, Copy, Debug)]
pub enum Array<'a, T> {
    Wire { bytes: &'a [u8], count: usize, version: i16 },
    Own(&'a [T]),
}

impl<'a, T: Field<'a>> Array<'a, T> {
    /// No elements.
    pub const EMPTY: Self = Array::Own(&[]);

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Array::Wire { count, .. } => *count,
            Array::Own(elements) => elements.len(),
        }
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in order.
    #[inline]
    pub fn iter(&self) -> ArrayIter<'a, T> {
        let reader = match self {
            Array::Wire { bytes, .. } => Reader::new(bytes),
            Array::Own(_) => Reader::new(&[]),
        };
        ArrayIter { array: *self, reader, next: 0 }
    }

    /// The elements as a vector.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }

    fn read_count(reader: &mut Reader<'a>, count: usize, version: i16) -> Result<Self, WireError> {
        let start = reader.remaining();
        T::skip(reader, count, version)?;
        let bytes = &start[..start.len() - reader.remaining().len()];
        Ok(Array::Wire { bytes, count, version })
    }
}

impl<'a, T: Field<'a>> IntoIterator for Array<'a, T> {
    type Item = T;
    type IntoIter = ArrayIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Field<'a> + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        Array::Own(elements)
    }
}

impl<'a, T> From<&'a Vec<T>> for Array<'a, T> {
    fn from(elements: &'a Vec<T>) -> Self {
        Array::Own(elements)
    }
}

/// The elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct ArrayIter<'a, T> {
    array: Array<'a, T>,
    reader: Reader<'a>,
    next: usize,
}

impl<'a, T: Field<'a>> Iterator for ArrayIter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.array.len() {
            return None;
        }
        let at = self.next;
        self.next += 1;
        match &self.array {
            Array::Wire { version, .. } => {
                Some(T::read(&mut self.reader, *version).expect("every element was read once already"))
            }
            Array::Own(elements) => Some(elements[at]),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.array.len() - self.next;
        (left, Some(left))
    }
}

impl<'a, T: Field<'a>> ExactSizeIterator for ArrayIter<'a, T> {}

impl<'a, T: Field<'a> + 'a> Field<'a> for Array<'a, T> {
    const TYPE: FieldType = FieldType::Array(&T::TYPE);
    const SIZE_MIN: usize = 1;

    #[inline]
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError> {
        let count = reader.compact_array_len(T::SIZE_MIN)?;
        Self::read_count(reader, count, version)
    }

    #[inline]
    fn write(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError> {
        writer.compact_array_len(self.len());
        self.iter().try_for_each(|element| element.write(writer, version))
    }
}

impl<'a, T: Field<'a> + 'a> Field<'a> for Option<Array<'a, T>> {
    const TYPE: FieldType = FieldType::Array(&T::TYPE);
    const NULLABLE: bool = true;
    const SIZE_MIN: usize = 1;

    #[inline]
    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self, WireError> {
        let count = reader.compact_nullable_array_len(T::SIZE_MIN)?;
        count.map(|count| Array::read_count(reader, count, version)).transpose()
    }

    #[inline]
    fn write(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError> {
        match self {
            Some(array) => array.write(writer, version),
            None => {
                writer.compact_nullable_array_len(None);
                Ok(())
            }
        }
    }
}

/// A structure with a description.
pub trait Described {
    const SCHEMA: StructSchema;
}
