//! Reading a value into a column.

use std::sync::Arc;

use super::numbers::{decimal, uuid_text};
use super::skip::{Skip, block, branch};
use crate::column::{end_list, push_bytes};
use crate::cursor::Cursor;
use crate::{Bad, Column, Data};

/// What to do with the values of one writer's schema.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) root: Read,
    pub(super) named: Vec<Skip>,
}

/// How bytes become the next value of a column. The variant names what is written; the column says what it becomes.
#[derive(Clone, Debug)]
pub(super) enum Read {
    Null,
    Boolean,
    Int,
    Long,
    /// A number in another unit than the column's: it is multiplied by one and divided by the other.
    Scaled {
        times: i64,
        parts: i64,
    },
    Float,
    Double,
    /// Bytes or text, preceded by their length.
    Counted,
    Fixed(usize),
    /// Of a fixed size, or preceded by its length.
    Decimal {
        size: Option<usize>,
        precision: u8,
    },
    Uuid,
    /// The reader's symbol for each of the writer's; `None` where the reader has none.
    Enum(Vec<Option<Box<str>>>),
    Array(Box<Read>),
    Map(Box<Read>),
    Record {
        steps: Vec<Step>,
        /// The fields that the writer does not have: the place of the field, its value as Avro, and how to read it.
        defaults: Vec<(usize, Box<[u8]>, Read)>,
    },
    Union(Vec<Read>),
    /// One member of a union with several: the column has a child for each.
    Member(usize, Box<Read>),
    /// The writer's type cannot be read as the reader's.
    Refuse(Arc<str>),
}

/// A field that the writer wrote.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Into(usize, Read),
    Pass(Skip),
}

impl Read {
    /// The least number of bytes that it takes.
    fn bytes_min(&self, named: &[Skip]) -> usize {
        match self {
            Self::Null | Self::Refuse(_) => 0,
            Self::Fixed(size) | Self::Decimal { size: Some(size), .. } => *size,
            Self::Float => 4,
            Self::Double => 8,
            Self::Uuid => 16,
            Self::Record { steps, .. } => steps.iter().fold(0, |sum, step| match step {
                Step::Into(_, read) => sum.saturating_add(read.bytes_min(named)),
                Step::Pass(skip) => sum.saturating_add(skip.bytes_min(named)),
            }),
            Self::Member(_, read) => read.bytes_min(named),
            _ => 1,
        }
    }
}

impl Program {
    /// Reads one value, which must end where the bytes end. After an error the column contains a part of it.
    pub fn read(&self, from: &mut Cursor<'_>, into: &mut Column) -> Result<(), Bad> {
        self.fill(&self.root, from, into)?;
        from.finish()
    }

    fn fill(&self, read: &Read, from: &mut Cursor<'_>, into: &mut Column) -> Result<(), Bad> {
        match (read, &mut into.data) {
            (Read::Null, _) => {
                into.push_null();
                return Ok(());
            }
            (Read::Union(branches), _) => return self.fill(branch(branches, from)?, from, into),
            (Read::Record { steps, defaults }, Data::Struct(children)) => {
                self.fill_fields(steps, defaults, from, children)?;
            }
            (Read::Counted, Data::Bytes { offsets, bytes, is_text }) => {
                push_bytes(offsets, bytes, *is_text, from.avro_bytes()?)?;
            }
            (Read::Int, Data::Int32(numbers)) => numbers.push(from.zigzag32()?),
            (Read::Long, Data::Int64(numbers)) => numbers.push(from.zigzag()?),
            (Read::Double, Data::Float64(numbers)) => numbers.push(f64::from_le_bytes(from.array()?)),
            (Read::Float, Data::Float32(numbers)) => numbers.push(f32::from_le_bytes(from.array()?)),
            (Read::Boolean, Data::Bits(_)) => {
                match from.byte()? {
                    byte @ (0 | 1) => into.push_bit(byte == 1),
                    other => return Err(Bad::NoBoolean(other)),
                }
                return Ok(());
            }
            (Read::Array(item), Data::List { offsets, items }) => {
                self.fill_items(item, from, items)?;
                end_list(offsets, items)?;
            }
            (Read::Map(value), Data::List { offsets, items }) => {
                self.fill_pairs(value, from, items)?;
                end_list(offsets, items)?;
            }
            (Read::Member(place, read), Data::Struct(children)) => {
                for (at, child) in children.iter_mut().enumerate() {
                    if at == *place { self.fill(read, from, child)? } else { child.push_null() }
                }
            }
            (Read::Refuse(why), _) => return Err(Bad::Refused(why.clone())),
            (_, data) => fill_scalar(read, from, data)?,
        }
        into.grown();
        Ok(())
    }

    fn fill_fields(
        &self,
        steps: &[Step],
        defaults: &[(usize, Box<[u8]>, Read)],
        from: &mut Cursor<'_>,
        children: &mut [Column],
    ) -> Result<(), Bad> {
        for step in steps {
            match step {
                Step::Into(place, read) => self.fill(read, from, &mut children[*place])?,
                Step::Pass(skip) => skip.pass(from, &self.named)?,
            }
        }
        for (place, value, read) in defaults {
            self.fill(read, &mut Cursor::new(value), &mut children[*place])?;
        }
        Ok(())
    }

    fn fill_items(&self, item: &Read, from: &mut Cursor<'_>, items: &mut Column) -> Result<(), Bad> {
        let bytes_min = item.bytes_min(&self.named);
        while let Some((count, _)) = block(from)? {
            from.check_items(count, bytes_min)?;
            for _ in 0..count {
                self.fill(item, from, items)?;
            }
        }
        Ok(())
    }

    /// Pairs of a text and a value.
    fn fill_pairs(&self, value: &Read, from: &mut Cursor<'_>, pairs: &mut Column) -> Result<(), Bad> {
        while let Some((count, _)) = block(from)? {
            from.check_items(count, 1)?;
            for _ in 0..count {
                if let Data::Struct(children) = &mut pairs.data
                    && let [keys, values] = children.as_mut_slice()
                {
                    self.fill(&Read::Counted, from, keys)?;
                    self.fill(value, from, values)?;
                }
                pairs.grown();
            }
        }
        Ok(())
    }
}

/// The rarer scalars, and numbers that become wider.
fn fill_scalar(read: &Read, from: &mut Cursor<'_>, data: &mut Data) -> Result<(), Bad> {
    match (read, data) {
        (Read::Int, Data::Int64(numbers)) => numbers.push(i64::from(from.zigzag32()?)),
        (Read::Int, Data::Float32(numbers)) => numbers.push(from.zigzag32()? as f32),
        (Read::Int, Data::Float64(numbers)) => numbers.push(f64::from(from.zigzag32()?)),
        (Read::Long, Data::Float32(numbers)) => numbers.push(from.zigzag()? as f32),
        (Read::Long, Data::Float64(numbers)) => numbers.push(from.zigzag()? as f64),
        (Read::Float, Data::Float64(numbers)) => numbers.push(f64::from(f32::from_le_bytes(from.array()?))),
        (Read::Scaled { times, parts }, Data::Int64(numbers)) => {
            let scaled = from.zigzag()?.checked_mul(*times).ok_or(Bad::NoTime)?;
            numbers.push(scaled.div_euclid(*parts));
        }
        (Read::Fixed(size), Data::Bytes { offsets, bytes, is_text }) => {
            push_bytes(offsets, bytes, *is_text, from.take(*size)?)?;
        }
        (Read::Decimal { size, precision }, Data::Int128(numbers)) => {
            let bytes = match size {
                Some(size) => from.take(*size)?,
                None => from.avro_bytes()?,
            };
            numbers.push(decimal(bytes, *precision)?);
        }
        (Read::Uuid, Data::Bytes { offsets, bytes, .. }) => {
            push_bytes(offsets, bytes, false, &uuid_text(from.array()?))?;
        }
        (Read::Enum(symbols), Data::Bytes { offsets, bytes, .. }) => {
            push_bytes(offsets, bytes, false, symbol(symbols, from)?.as_bytes())?;
        }
        _ => unreachable!("a program is checked against its column when it is index"),
    }
    Ok(())
}

fn symbol<'p>(symbols: &'p [Option<Box<str>>], from: &mut Cursor<'_>) -> Result<&'p str, Bad> {
    let index = i64::from(from.zigzag32()?);
    match usize::try_from(index).ok().and_then(|at| symbols.get(at)) {
        Some(Some(symbol)) => Ok(symbol),
        Some(None) => Err(Bad::UnknownSymbol(index)),
        None => Err(Bad::NoSymbol { symbol: index, count: symbols.len() }),
    }
}
