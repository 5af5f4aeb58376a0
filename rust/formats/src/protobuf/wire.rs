//! Fields on the wire: a number and a wire type, then the value.

use crate::cursor::Cursor;
use crate::{Bad, DEPTH_MAX};

/// The value after a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire<'a> {
    Varint(u64),
    Bits64(u64),
    Bits32(u32),
    /// Bytes preceded by their length, or what is between the tags of a group.
    Bytes(&'a [u8]),
}

const GROUP: u8 = 3;
const GROUP_END: u8 = 4;

/// The next field, with its number; `None` at the end.
#[inline]
pub fn field<'a>(from: &mut Cursor<'a>) -> Result<Option<(u32, Wire<'a>)>, Bad> {
    if from.left() == 0 {
        return Ok(None);
    }
    let (number, wire_type) = tag(from)?;
    let wire = match wire_type {
        0 => Wire::Varint(from.varint()?),
        1 => Wire::Bits64(u64::from_le_bytes(from.array()?)),
        2 => Wire::Bytes(from.protobuf_bytes()?),
        5 => Wire::Bits32(u32::from_le_bytes(from.array()?)),
        GROUP => Wire::Bytes(group(from, number)?),
        GROUP_END => return Err(Bad::OpenGroup(number)),
        wire_type => return Err(Bad::NoWireType { field: number, wire_type }),
    };
    Ok(Some((number, wire)))
}

#[inline]
fn tag(from: &mut Cursor<'_>) -> Result<(u32, u8), Bad> {
    let tag = from.varint()?;
    match u32::try_from(tag >> 3) {
        Ok(number @ 1..=0x1fff_ffff) => Ok((number, (tag & 7) as u8)),
        _ => Err(Bad::NoFieldNumber(tag >> 3)),
    }
}

/// The bytes between the start tag and the end tag of a group. Nested groups use a stack instead of recursion.
fn group<'a>(from: &mut Cursor<'a>, number: u32) -> Result<&'a [u8], Bad> {
    let begin = from.clone();
    let mut open = vec![number];
    loop {
        let before_tag = from.clone();
        let (number, wire_type) = tag(from)?;
        match wire_type {
            0 => drop(from.varint()?),
            1 => drop(from.take(8)?),
            2 => drop(from.protobuf_bytes()?),
            5 => drop(from.take(4)?),
            GROUP if open.len() == DEPTH_MAX => return Err(Bad::TooDeep(DEPTH_MAX)),
            GROUP => open.push(number),
            GROUP_END if open.last() == Some(&number) => {
                open.pop();
                if open.is_empty() {
                    return Ok(before_tag.since(&begin));
                }
            }
            GROUP_END => return Err(Bad::OpenGroup(number)),
            wire_type => return Err(Bad::NoWireType { field: number, wire_type }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_end_at_their_tags() {
        // Group 1 with field 2 = 5 and an empty group 3, then field 4 = 1.
        let bytes = [0x0b, 0x10, 5, 0x1b, 0x1c, 0x0c, 0x20, 1];
        let mut from = Cursor::new(&bytes);
        assert_eq!(field(&mut from), Ok(Some((1, Wire::Bytes(&[0x10, 5, 0x1b, 0x1c])))));
        assert_eq!(field(&mut from), Ok(Some((4, Wire::Varint(1)))));
        assert_eq!(field(&mut from), Ok(None));
    }

    #[test]
    fn invalid_fields_are_rejected() {
        assert_eq!(field(&mut Cursor::new(&[0x0c])), Err(Bad::OpenGroup(1)));
        assert_eq!(field(&mut Cursor::new(&[0x0b, 0x14])), Err(Bad::OpenGroup(2)));
        assert!(matches!(field(&mut Cursor::new(&[0x0b])), Err(Bad::Truncated { .. })));
        assert_eq!(field(&mut Cursor::new(&[0x00, 1])), Err(Bad::NoFieldNumber(0)));
        assert_eq!(field(&mut Cursor::new(&[0x0e])), Err(Bad::NoWireType { field: 1, wire_type: 6 }));
        assert_eq!(field(&mut Cursor::new(&[0x0b; 80])), Err(Bad::TooDeep(DEPTH_MAX)));
        assert!(matches!(field(&mut Cursor::new(&[0x0a, 0xff, 0x7f])), Err(Bad::Truncated { .. })));
    }
}
