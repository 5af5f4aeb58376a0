//! Skips what a writer wrote and the reader does not read.

use crate::cursor::Cursor;
use crate::{Bad, DEPTH_MAX};

/// What is skipped.
#[derive(Clone, Debug)]
pub enum Skip {
    /// A fixed number of bytes.
    Bytes(usize),
    Varint,
    /// Bytes or text, preceded by their length.
    Counted,
    Array(Box<Skip>),
    Map(Box<Skip>),
    Record(Vec<Skip>),
    Union(Vec<Skip>),
    /// A named type of the program: the only way to express a recursive type.
    Named(usize),
}

impl Skip {
    /// The least number of bytes that it takes; a recursive type is examined once.
    pub fn bytes_min(&self, named: &[Skip]) -> usize {
        match self {
            Self::Bytes(size) => *size,
            Self::Record(fields) => fields.iter().fold(0, |sum, field| sum.saturating_add(field.bytes_min(named))),
            Self::Named(name) => named.get(*name).map_or(0, |skip| skip.bytes_min(&[])),
            _ => 1,
        }
    }

    pub fn pass(&self, from: &mut Cursor<'_>, named: &[Skip]) -> Result<(), Bad> {
        self.pass_at(from, named, DEPTH_MAX)
    }

    fn pass_at(&self, from: &mut Cursor<'_>, named: &[Skip], depth_left: usize) -> Result<(), Bad> {
        let Some(deeper) = depth_left.checked_sub(1) else { return Err(Bad::TooDeep(DEPTH_MAX)) };
        match self {
            Self::Bytes(size) => from.take(*size).map(drop),
            Self::Varint => from.varint().map(drop),
            Self::Counted => from.avro_bytes().map(drop),
            Self::Array(item) => pass_blocks(from, item.bytes_min(named), |from| item.pass_at(from, named, deeper)),
            Self::Map(value) => pass_blocks(from, 1, |from| {
                from.avro_bytes()?;
                value.pass_at(from, named, deeper)
            }),
            Self::Record(fields) => fields.iter().try_for_each(|field| field.pass_at(from, named, deeper)),
            Self::Union(branches) => branch(branches, from)?.pass_at(from, named, deeper),
            Self::Named(name) => named[*name].pass_at(from, named, deeper),
        }
    }
}

/// The branch of a union that was written.
#[inline]
pub fn branch<'p, T>(branches: &'p [T], from: &mut Cursor<'_>) -> Result<&'p T, Bad> {
    let index = from.zigzag()?;
    let found = usize::try_from(index).ok().and_then(|at| branches.get(at));
    found.ok_or(Bad::NoBranch { branch: index, count: branches.len() })
}

/// The number of items in the next block of an array or map, and its size in bytes if it is written; `None` at the end.
#[inline]
pub fn block(from: &mut Cursor<'_>) -> Result<Option<(u64, Option<usize>)>, Bad> {
    match from.zigzag()? {
        0 => Ok(None),
        count @ 1.. => Ok(Some((count as u64, None))),
        count => {
            let size = from.zigzag()?;
            let bytes = usize::try_from(size).map_err(|_| Bad::Negative(size))?;
            Ok(Some((count.unsigned_abs(), Some(bytes))))
        }
    }
}

fn pass_blocks<'a>(
    from: &mut Cursor<'a>,
    bytes_min: usize,
    mut pass: impl FnMut(&mut Cursor<'a>) -> Result<(), Bad>,
) -> Result<(), Bad> {
    while let Some((count, size)) = block(from)? {
        if let Some(size) = size {
            from.take(size)?;
            continue;
        }
        from.check_items(count, bytes_min)?;
        for _ in 0..count {
            pass(from)?;
        }
    }
    Ok(())
}
