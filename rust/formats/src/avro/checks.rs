//! Checks that a program fits the column that it fills. A program that passes cannot fail for any bytes.

use super::read::{Program, Read, Step};
use super::skip::Skip;
use crate::program::ProgramError;
use crate::{Column, Data};

impl Program {
    pub(super) fn check(&self, column: &Column) -> Result<(), ProgramError> {
        self.named.iter().try_for_each(|skip| self.check_skip(skip))?;
        self.check_read(&self.root, column)
    }

    fn check_read(&self, read: &Read, column: &Column) -> Result<(), ProgramError> {
        match (read, &column.data) {
            (Read::Null | Read::Refuse(_), _)
            | (Read::Boolean, Data::Bits(_))
            | (Read::Int, Data::Int32(_) | Data::Int64(_) | Data::Float32(_) | Data::Float64(_))
            | (Read::Long, Data::Int64(_) | Data::Float32(_) | Data::Float64(_))
            | (Read::Float, Data::Float32(_) | Data::Float64(_))
            | (Read::Double, Data::Float64(_))
            | (Read::Scaled { parts: 1.., .. }, Data::Int64(_))
            | (Read::Counted | Read::Fixed(_), Data::Bytes { .. })
            | (Read::Decimal { .. }, Data::Int128(_))
            | (Read::Uuid | Read::Enum(_), Data::Bytes { is_text: true, .. }) => Ok(()),
            (Read::Union(branches), _) => branches.iter().try_for_each(|read| self.check_read(read, column)),
            (Read::Array(item), Data::List { items, .. }) => self.check_read(item, items),
            (Read::Map(value), Data::List { items, .. }) => match &items.data {
                Data::Struct(pair) if pair.len() == 2 => {
                    self.check_read(&Read::Counted, &pair[0])?;
                    self.check_read(value, &pair[1])
                }
                _ => Err(misfit(read, items)),
            },
            (Read::Member(place, read), Data::Struct(children)) if *place < children.len() => {
                self.check_read(read, &children[*place])
            }
            (Read::Record { steps, defaults }, Data::Struct(children)) => self.check_record(steps, defaults, children),
            _ => Err(misfit(read, column)),
        }
    }

    /// Each child column gets exactly one value.
    fn check_record(
        &self,
        steps: &[Step],
        defaults: &[(usize, Box<[u8]>, Read)],
        children: &[Column],
    ) -> Result<(), ProgramError> {
        let mut filled = vec![0; children.len()];
        let mut fill = |place: usize, read: &Read| {
            let child = children.get(place).ok_or_else(|| ProgramError(format!("a record has no field {place}")))?;
            filled[place] += 1;
            self.check_read(read, child)
        };
        for step in steps {
            match step {
                Step::Into(place, read) => fill(*place, read)?,
                Step::Pass(skip) => self.check_skip(skip)?,
            }
        }
        defaults.iter().try_for_each(|(place, _, read)| fill(*place, read))?;
        match filled.iter().position(|times| *times != 1) {
            None => Ok(()),
            Some(place) => Err(ProgramError(format!("field {place} of a record is filled {} times", filled[place]))),
        }
    }

    fn check_skip(&self, skip: &Skip) -> Result<(), ProgramError> {
        match skip {
            Skip::Bytes(_) | Skip::Varint | Skip::Counted => Ok(()),
            Skip::Array(item) | Skip::Map(item) => self.check_skip(item),
            Skip::Record(skips) | Skip::Union(skips) => skips.iter().try_for_each(|skip| self.check_skip(skip)),
            Skip::Named(name) if *name < self.named.len() => Ok(()),
            Skip::Named(name) => Err(ProgramError(format!("there is no named type {name}"))),
        }
    }
}

fn misfit(read: &Read, column: &Column) -> ProgramError {
    ProgramError(format!("{read:?} cannot fill {:?}", column.data))
}
