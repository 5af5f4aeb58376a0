//! Columns of any field while they grow.

use klamm_base::primitives::{Reader, WireError};
use klamm_metadata::schema::{DefaultValue, FieldSchema, FieldType, StructSchema};

use super::fields;
use super::secrets::{HIDDEN, Hidden, read_hidden};
use crate::arrow::export::Column;
use crate::records::columns::{Elements, GrowingBytes, Validity};

const ELEMENT: &str = "element";

/// The values of one field. Whole numbers of at most 32 bits are int32; ids are text, as Kafka writes them.
pub struct Values {
    kind: Kind,
    validity: Validity,
    length: usize,
}

enum Kind {
    /// A bit a value, lowest first.
    Bool(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    /// By their bits.
    Float64(Vec<i64>),
    Text(GrowingBytes),
    List(Vec<i32>, Box<Values>),
    Rows(&'static StructSchema, Vec<Values>),
}

impl Values {
    pub fn new(field_type: &'static FieldType) -> Self {
        let kind = match field_type {
            FieldType::Bool => Kind::Bool(Vec::new()),
            FieldType::Int8 | FieldType::Int16 | FieldType::Uint16 | FieldType::Int32 => Kind::Int32(Vec::new()),
            FieldType::Int64 => Kind::Int64(Vec::new()),
            FieldType::Float64 => Kind::Float64(Vec::new()),
            FieldType::Uuid | FieldType::String | FieldType::Bytes => Kind::Text(GrowingBytes::new()),
            FieldType::Array(element) => Kind::List(vec![0], Box::new(Self::new(element))),
            FieldType::Struct(schema) => {
                Kind::Rows(schema, schema.fields.iter().map(|field| Self::new(&field.field_type)).collect())
            }
        };
        Self { kind, validity: Validity::default(), length: 0 }
    }

    /// The next value, read from the bytes.
    pub fn push(
        &mut self,
        reader: &mut Reader<'_>,
        field_type: &FieldType,
        nullable: bool,
        version: i16,
    ) -> Result<(), WireError> {
        let mut is_there = true;
        match (&mut self.kind, field_type) {
            (Kind::Bool(bits), _) => push_bit(bits, self.length, reader.bool()?),
            (Kind::Int32(numbers), FieldType::Int8) => numbers.push(i32::from(reader.i8()?)),
            (Kind::Int32(numbers), FieldType::Int16) => numbers.push(i32::from(reader.i16()?)),
            (Kind::Int32(numbers), FieldType::Uint16) => numbers.push(i32::from(reader.u16()?)),
            (Kind::Int32(numbers), _) => numbers.push(reader.i32()?),
            (Kind::Int64(numbers), _) => numbers.push(reader.i64()?),
            (Kind::Float64(bits), _) => bits.push(reader.f64()?.to_bits() as i64),
            (Kind::Text(texts), FieldType::Uuid) => texts.push(Some(reader.uuid()?.to_string().as_bytes())),
            (Kind::Text(texts), FieldType::Bytes) => {
                // Only secrets are plain bytes.
                reader.compact_bytes()?;
                texts.push(Some(HIDDEN.as_bytes()));
            }
            (Kind::Text(texts), _) if nullable => texts.push(reader.compact_nullable_string()?.map(str::as_bytes)),
            (Kind::Text(texts), _) => texts.push(Some(reader.compact_string()?.as_bytes())),
            (Kind::List(offsets, items), FieldType::Array(element)) => {
                let count = match nullable {
                    true => reader.compact_nullable_array_len(1)?,
                    false => Some(reader.compact_array_len(1)?),
                };
                for _ in 0..count.unwrap_or(0) {
                    items.push(reader, element, false, version)?;
                }
                offsets.push(items.length as i32);
                is_there = count.is_some();
            }
            (Kind::Rows(schema, columns), _) => fields::push(columns, schema, reader, version, Hidden::NOTHING)?,
            (Kind::List(..), _) => unreachable!("a list is made for an array alone"),
        }
        self.validity.push(self.length, is_there);
        self.length += 1;
        Ok(())
    }

    /// The next value, of a field that the bytes do not have.
    pub fn push_default(&mut self, field: &FieldSchema) {
        let is_there = field.default != DefaultValue::Null;
        let number = match field.default {
            DefaultValue::Int(number) => number,
            DefaultValue::Bool(is_true) => i64::from(is_true),
            DefaultValue::Natural | DefaultValue::Null => 0,
        };
        self.push_plain(number, is_there);
    }

    fn push_plain(&mut self, number: i64, is_there: bool) {
        match &mut self.kind {
            Kind::Bool(bits) => push_bit(bits, self.length, number != 0),
            Kind::Int32(numbers) => numbers.push(number as i32),
            Kind::Int64(numbers) => numbers.push(number),
            Kind::Float64(bits) => bits.push((number as f64).to_bits() as i64),
            Kind::Text(texts) => texts.push(is_there.then_some(b"".as_slice())),
            Kind::List(offsets, items) => offsets.push(items.length as i32),
            Kind::Rows(_, columns) => columns.iter_mut().for_each(|column| column.push_plain(0, false)),
        }
        self.validity.push(self.length, is_there);
        self.length += 1;
    }

    /// In place of the next value, that it is hidden.
    pub fn push_hidden(&mut self, reader: &mut Reader<'_>, field: &FieldSchema) -> Result<(), WireError> {
        let is_there = read_hidden(reader, field)?;
        let Kind::Text(texts) = &mut self.kind else { unreachable!("secrets are texts or bytes") };
        texts.push(is_there.then_some(HIDDEN.as_bytes()));
        self.length += 1;
        Ok(())
    }

    pub fn finish(self, name: &'static str) -> Column {
        let Self { kind, validity, length } = self;
        let (format, data, children) = match kind {
            Kind::Text(texts) => return Column::bytes(name, "u", true, texts),
            Kind::Bool(bits) => ("b", Some(Elements::Bytes(bits)), Vec::new()),
            Kind::Int32(numbers) => ("i", Some(Elements::Int32(numbers)), Vec::new()),
            Kind::Int64(numbers) => ("l", Some(Elements::Int64(numbers)), Vec::new()),
            Kind::Float64(bits) => ("g", Some(Elements::Int64(bits)), Vec::new()),
            Kind::List(offsets, items) => ("+l", Some(Elements::Int32(offsets)), vec![items.finish(ELEMENT)]),
            Kind::Rows(schema, columns) => {
                let columns = schema.fields.iter().zip(columns).map(|(field, values)| values.finish(field.name));
                ("+s", None, columns.collect())
            }
        };
        let null_count = validity.null_count;
        let mut buffers = vec![validity.buffer()];
        buffers.extend(data.map(Some));
        let (name, format) = (name.into(), format.into());
        Column { name, format, is_nullable: true, length, null_count, buffers, children }
    }
}

fn push_bit(bits: &mut Vec<u8>, place: usize, bit: bool) {
    if place.is_multiple_of(8) {
        bits.push(0);
    }
    bits[place / 8] |= u8::from(bit) << (place % 8);
}

/// Numbers that are all there.
pub fn int32(name: &'static str, numbers: Vec<i32>) -> Column {
    Column::numbers(name, "i", numbers.len(), Elements::Int32(numbers))
}

/// The same, of 64 bits.
pub fn int64(name: &'static str, numbers: Vec<i64>) -> Column {
    Column::numbers(name, "l", numbers.len(), Elements::Int64(numbers))
}

/// Times, given in ms and kept in us; one before 1970 is not known, and null.
pub fn times(name: &'static str, times_ms: Vec<i64>) -> Column {
    let mut validity = Validity::default();
    times_ms.iter().enumerate().for_each(|(place, &time)| validity.push(place, time >= 0));
    let (length, null_count) = (times_ms.len(), validity.null_count);
    let times = times_ms.into_iter().map(|time| time.saturating_mul(1000)).collect();
    let buffers = vec![validity.buffer(), Some(Elements::Int64(times))];
    let (name, format) = (name.into(), "tsu:UTC".into());
    Column { name, format, is_nullable: true, length, null_count, buffers, children: Vec::new() }
}

/// Numbers of which some are not there.
pub fn some_int32(name: &'static str, numbers: Vec<Option<i32>>) -> Column {
    let mut validity = Validity::default();
    numbers.iter().enumerate().for_each(|(place, number)| validity.push(place, number.is_some()));
    let (length, null_count) = (numbers.len(), validity.null_count);
    let numbers = numbers.into_iter().map(Option::unwrap_or_default).collect();
    let buffers = vec![validity.buffer(), Some(Elements::Int32(numbers))];
    let (name, format) = (name.into(), "i".into());
    Column { name, format, is_nullable: true, length, null_count, buffers, children: Vec::new() }
}

/// Truths that are all there.
pub fn bools(name: &'static str, bools: &[bool]) -> Column {
    let mut bits = Vec::new();
    bools.iter().enumerate().for_each(|(place, &bit)| push_bit(&mut bits, place, bit));
    Column::numbers(name, "b", bools.len(), Elements::Bytes(bits))
}
