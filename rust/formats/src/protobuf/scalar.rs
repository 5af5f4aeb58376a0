//! Scalars: their wire types and their columns.

use super::wire::Wire;
use crate::column::push_bytes;
use crate::cursor::Cursor;
use crate::{Bad, Column, Data};

/// The type of a field that is not a message; well-known times are messages on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    /// Bytes or text, preceded by their length.
    Counted,
    Enum(Enum),
    /// google.protobuf.Timestamp in microseconds.
    Timestamp,
    /// google.protobuf.Duration in microseconds.
    Duration,
}

/// The names of enum numbers, ascending by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Enum {
    pub is_closed: bool,
    pub names: Vec<(i32, Box<str>)>,
}

impl Enum {
    fn name(&self, number: i32) -> Option<&str> {
        let at = self.names.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.names[at].1)
    }
}

impl Scalar {
    pub(super) fn fits(&self, column: &Column) -> bool {
        matches!(
            (self, &column.data),
            (Self::Bool, Data::Bits(_))
                | (Self::Int32 | Self::Sint32 | Self::Sfixed32, Data::Int32(_))
                | (Self::Int64 | Self::Sint64 | Self::Sfixed64 | Self::Uint32 | Self::Fixed32, Data::Int64(_))
                | (Self::Uint64 | Self::Fixed64, Data::Int128(_))
                | (Self::Float, Data::Float32(_))
                | (Self::Double, Data::Float64(_))
                | (Self::Counted, Data::Bytes { .. })
                | (Self::Enum(_), Data::Bytes { is_text: true, .. })
                | (Self::Timestamp | Self::Duration, Data::Int64(_))
        )
    }

    /// Whether the value has the wire type of this scalar; a field with another wire type counts as unknown.
    #[inline]
    pub(super) fn is_written_as(&self, wire: &Wire<'_>) -> bool {
        match wire {
            Wire::Varint(number) => match self {
                Self::Enum(symbols) => !symbols.is_closed || symbols.name(*number as i32).is_some(),
                _ => self.is_varint(),
            },
            Wire::Bits64(_) => matches!(self, Self::Fixed64 | Self::Sfixed64 | Self::Double),
            Wire::Bits32(_) => matches!(self, Self::Fixed32 | Self::Sfixed32 | Self::Float),
            Wire::Bytes(_) => matches!(self, Self::Counted | Self::Timestamp | Self::Duration),
        }
    }

    fn is_varint(&self) -> bool {
        use Scalar::{Bool, Enum, Int32, Int64, Sint32, Sint64, Uint32, Uint64};
        matches!(self, Bool | Int32 | Int64 | Uint32 | Uint64 | Sint32 | Sint64 | Enum(_))
    }

    /// The consecutive values of a packed field.
    pub(super) fn unpack<'a>(&self, from: &mut Cursor<'a>) -> Result<Option<Wire<'a>>, Bad> {
        if from.left() == 0 {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Fixed64 | Self::Sfixed64 | Self::Double => Wire::Bits64(u64::from_le_bytes(from.array()?)),
            Self::Fixed32 | Self::Sfixed32 | Self::Float => Wire::Bits32(u32::from_le_bytes(from.array()?)),
            _ => Wire::Varint(from.varint()?),
        }))
    }

    pub(super) fn is_packable(&self) -> bool {
        !matches!(self, Self::Counted | Self::Timestamp | Self::Duration)
    }

    /// Appends a value that [`Self::is_written_as`] accepted.
    pub(super) fn push(&self, wire: Wire<'_>, into: &mut Column) -> Result<(), Bad> {
        match (wire, &mut into.data) {
            (Wire::Varint(number), data) => self.push_varint(number, data, into.len)?,
            (Wire::Bits64(bits), Data::Float64(numbers)) => numbers.push(f64::from_bits(bits)),
            (Wire::Bits64(bits), Data::Int64(numbers)) => numbers.push(bits as i64),
            (Wire::Bits64(bits), Data::Int128(numbers)) => numbers.push(i128::from(bits)),
            (Wire::Bits32(bits), Data::Float32(numbers)) => numbers.push(f32::from_bits(bits)),
            (Wire::Bits32(bits), Data::Int32(numbers)) => numbers.push(bits as i32),
            (Wire::Bits32(bits), Data::Int64(numbers)) => numbers.push(i64::from(bits)),
            (Wire::Bytes(value), Data::Bytes { offsets, bytes, is_text }) => {
                push_bytes(offsets, bytes, *is_text, value)?;
            }
            (Wire::Bytes(value), Data::Int64(numbers)) => numbers.push(micros(value, *self == Self::Timestamp)?),
            _ => unreachable!("a program was checked against its column"),
        }
        into.grown();
        Ok(())
    }

    #[inline]
    fn push_varint(&self, number: u64, data: &mut Data, place: usize) -> Result<(), Bad> {
        match (self, data) {
            (Self::Bool, Data::Bits(bits)) => crate::validity::set_bit(bits, place, number != 0),
            (Self::Int32, Data::Int32(numbers)) => numbers.push(number as i32),
            (Self::Sint32, Data::Int32(numbers)) => numbers.push(unzigzag(u64::from(number as u32)) as i32),
            (Self::Int64, Data::Int64(numbers)) => numbers.push(number as i64),
            (Self::Sint64, Data::Int64(numbers)) => numbers.push(unzigzag(number)),
            (Self::Uint32, Data::Int64(numbers)) => numbers.push(i64::from(number as u32)),
            (Self::Uint64, Data::Int128(numbers)) => numbers.push(i128::from(number)),
            (Self::Enum(symbols), Data::Bytes { offsets, bytes, .. }) => match symbols.name(number as i32) {
                Some(name) => push_bytes(offsets, bytes, false, name.as_bytes())?,
                // As in Protobuf's JSON, a number without a symbol in the schema is written as the number.
                None => push_bytes(offsets, bytes, false, (number as i32).to_string().as_bytes())?,
            },
            _ => unreachable!("a program was checked against its column"),
        }
        Ok(())
    }
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The value from seconds and nanoseconds, fields 1 and 2 of both well-known times.
fn micros(message: &[u8], is_timestamp: bool) -> Result<i64, Bad> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut from = Cursor::new(message);
    while let Some(field) = super::wire::field(&mut from)? {
        match field {
            (1, Wire::Varint(number)) => seconds = number as i64,
            (2, Wire::Varint(number)) => nanos = number as i32,
            _ => {}
        }
    }
    let is_right = if is_timestamp {
        (0..1_000_000_000).contains(&nanos)
    } else {
        nanos.abs_diff(0) < 1_000_000_000 && (i64::from(nanos) >= 0 || seconds <= 0) && (nanos <= 0 || seconds >= 0)
    };
    let whole = seconds.checked_mul(1_000_000).filter(|_| is_right);
    whole.and_then(|whole| whole.checked_add(i64::from(nanos) / 1000)).ok_or(Bad::NoTime)
}
