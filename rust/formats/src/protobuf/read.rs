//! Reads a message into the columns of its fields.
//!
//! Fields come in any order and any number of times. Items of repeated fields go straight into their column. For all
//! others the last value counts, so each waits in a slot until the message ends. A message in several parts equals the
//! message of all their bytes. Map entries with equal keys are all kept, in the order in which they were written.

use std::sync::Arc;

use super::scalar::Scalar;
use super::wire::{Wire, field};
use crate::column::end_list;
use crate::cursor::Cursor;
use crate::{Bad, Column, Data, header};

/// How to read the values of one schema.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) message: Message,
    /// The message indexes that a Confluent header may have; empty: any. Clients count map entries differently.
    pub(super) indexes: Vec<Arc<[i64]>>,
}

/// A message: a column with children.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Ascending by number.
    pub fields: Vec<Field>,
    /// For each child column, the index of its field.
    pub by_place: Vec<usize>,
    /// For each child column, its value where the field is absent, as on the wire; None: null, or no items.
    pub absent: Vec<Option<Absent>>,
}

#[derive(Clone, Debug)]
pub(super) enum Absent {
    Number(u64),
    Bytes(Box<[u8]>),
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub number: u32,
    /// The index of its column.
    pub place: usize,
    pub is_repeated: bool,
    /// At most one of the fields with the same number here is present.
    pub oneof: Option<usize>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(Scalar),
    Message(Message),
}

/// The last value of a field that is not repeated.
#[derive(Clone, Debug)]
enum Slot<'a> {
    Absent,
    Wire(Wire<'a>),
    /// A message in several parts.
    Joined(Vec<u8>),
}

impl Program {
    /// Reads one value. After an error the column contains a part of it.
    pub fn read(&self, from: &mut Cursor<'_>, is_framed: bool, into: &mut Column) -> Result<(), Bad> {
        if is_framed {
            let found = header::message_indexes(from)?;
            if let Some(wanted) = self.indexes.first()
                && !self.indexes.iter().any(|wanted| **wanted == *found)
            {
                return Err(Bad::OtherMessage { found, wanted: wanted.clone() });
            }
        }
        let bytes = from.take(from.left())?;
        self.message.read(bytes, into, &mut Vec::new())
    }
}

impl Message {
    /// `slots` is a stack that nested messages share.
    fn read<'a>(&self, bytes: &'a [u8], into: &mut Column, slots: &mut Vec<Slot<'a>>) -> Result<(), Bad> {
        let Data::Struct(children) = &mut into.data else { unreachable!("a program was checked against its column") };
        let first = slots.len();
        slots.resize(first + self.absent.len(), Slot::Absent);
        let mut from = Cursor::new(bytes);
        let mut guess = 0;
        while let Some((number, wire)) = field(&mut from)? {
            let Some(at) = self.find(number, guess) else { continue };
            let found = &self.fields[at];
            guess = if found.is_repeated { at } else { at + 1 };
            if found.is_repeated {
                found.push_items(wire, &mut children[found.place], slots)?;
            } else if found.is_written_as(&wire) {
                self.keep(found, wire, &mut slots[first..]);
            }
        }
        for (place, child) in children.iter_mut().enumerate() {
            let slot = std::mem::replace(&mut slots[first + place], Slot::Absent);
            self.settle(place, slot, child, slots)?;
        }
        slots.truncate(first);
        into.grown();
        Ok(())
    }

    /// The field with this number. Fields mostly come in order, so `guess` is tried first.
    #[inline]
    fn find(&self, number: u32, guess: usize) -> Option<usize> {
        match self.fields.get(guess) {
            Some(field) if field.number == number => Some(guess),
            _ => self.fields.binary_search_by_key(&number, |field| field.number).ok(),
        }
    }

    /// Stores the last value of a field.
    #[inline]
    fn keep<'a>(&self, found: &Field, wire: Wire<'a>, slots: &mut [Slot<'a>]) {
        if let Some(oneof) = found.oneof {
            self.clear_others(oneof, found.place, slots);
        }
        let slot = &mut slots[found.place];
        match (&mut *slot, wire, &found.kind) {
            (Slot::Absent, ..) | (_, _, Kind::Scalar(Scalar::Counted)) => *slot = Slot::Wire(wire),
            (Slot::Joined(parts), Wire::Bytes(part), _) => parts.extend_from_slice(part),
            (Slot::Wire(Wire::Bytes(before)), Wire::Bytes(part), _) => *slot = Slot::Joined([*before, part].concat()),
            _ => *slot = Slot::Wire(wire),
        }
    }

    fn clear_others(&self, oneof: usize, place: usize, slots: &mut [Slot<'_>]) {
        for other in self.fields.iter().filter(|other| other.oneof == Some(oneof) && other.place != place) {
            slots[other.place] = Slot::Absent;
        }
    }

    /// Completes a child column at the end of a message.
    fn settle<'a>(
        &self,
        place: usize,
        slot: Slot<'a>,
        child: &mut Column,
        slots: &mut Vec<Slot<'a>>,
    ) -> Result<(), Bad> {
        if let Data::List { offsets, items } = &mut child.data {
            end_list(offsets, items)?;
            child.grown();
            return Ok(());
        }
        let field = &self.fields[self.by_place[place]];
        match (slot, &self.absent[place]) {
            (Slot::Wire(wire), _) => field.push_one(wire, child, slots),
            (Slot::Joined(parts), _) => field.push_one(Wire::Bytes(&parts), child, &mut Vec::new()),
            (Slot::Absent, None) => {
                child.push_null();
                Ok(())
            }
            (Slot::Absent, Some(absent)) => {
                let wire = match absent {
                    Absent::Bytes(bytes) => Wire::Bytes(bytes),
                    Absent::Number(number) => Wire::Varint(*number),
                };
                field.push_absent(wire, child)
            }
        }
    }
}

impl Field {
    #[inline]
    fn is_written_as(&self, wire: &Wire<'_>) -> bool {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.is_written_as(wire),
            Kind::Message(_) => matches!(wire, Wire::Bytes(_)),
        }
    }

    #[inline]
    fn push_one<'a>(&self, wire: Wire<'a>, into: &mut Column, slots: &mut Vec<Slot<'a>>) -> Result<(), Bad> {
        match (&self.kind, wire) {
            (Kind::Scalar(scalar), wire) => scalar.push(wire, into),
            (Kind::Message(message), Wire::Bytes(bytes)) => message.read(bytes, into, slots),
            (Kind::Message(_), _) => unreachable!("a slot of a message contains only messages"),
        }
    }

    /// Appends an item of a repeated field, or all items of a packed one.
    fn push_items<'a>(&self, wire: Wire<'a>, into: &mut Column, slots: &mut Vec<Slot<'a>>) -> Result<(), Bad> {
        let Data::List { items, .. } = &mut into.data else { unreachable!("a program was checked against its column") };
        match (&self.kind, wire) {
            (Kind::Scalar(scalar), Wire::Bytes(packed)) if scalar.is_packable() => {
                let mut from = Cursor::new(packed);
                while let Some(wire) = scalar.unpack(&mut from)? {
                    if scalar.is_written_as(&wire) {
                        scalar.push(wire, items)?;
                    }
                }
                Ok(())
            }
            _ if self.is_written_as(&wire) => self.push_one(wire, items, slots),
            _ => Ok(()),
        }
    }

    /// Appends the value of an absent field; numbers of any type are given as their bits.
    fn push_absent(&self, wire: Wire<'_>, into: &mut Column) -> Result<(), Bad> {
        let Kind::Scalar(scalar) = &self.kind else {
            return self.push_one(wire, into, &mut Vec::new());
        };
        let wire = match wire {
            Wire::Varint(bits) if scalar.is_written_as(&Wire::Bits64(0)) => Wire::Bits64(bits),
            Wire::Varint(bits) if scalar.is_written_as(&Wire::Bits32(0)) => Wire::Bits32(bits as u32),
            other => other,
        };
        scalar.push(wire, into)
    }
}
