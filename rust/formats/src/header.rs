//! The header that Confluent's clients write before a value: a zero, the id of its schema, and for Protobuf the
//! message's indexes.

use crate::Bad;
use crate::cursor::Cursor;

/// The deepest nesting of message declarations that is accepted.
const INDEXES_MAX: i64 = 32;

/// The schema's id; leaves the cursor after it.
pub fn schema_id(from: &mut Cursor<'_>) -> Result<u32, Bad> {
    let size = from.left();
    if size < 5 {
        return Err(Bad::NoHeader(size));
    }
    match from.byte()? {
        0 => Ok(u32::from_be_bytes(from.array()?)),
        other => Err(Bad::NoMagic(other)),
    }
}

/// The path of the message in its `.proto`: its index in the file, then within that message, and so on. A single zero
/// stands for the first message.
pub fn message_indexes(from: &mut Cursor<'_>) -> Result<Vec<i64>, Bad> {
    match from.zigzag()? {
        0 => Ok(vec![0]),
        count @ 1..=INDEXES_MAX => (0..count).map(|_| from.zigzag()).collect(),
        count if count < 0 => Err(Bad::Negative(count)),
        count => Err(Bad::TooMany { count: count as u64, left: from.left() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_a_zero() {
        assert_eq!(schema_id(&mut Cursor::new(&[0, 0, 0, 1, 2])), Ok(258));
        assert_eq!(schema_id(&mut Cursor::new(&[0, 0, 0, 1])), Err(Bad::NoHeader(4)));
        assert_eq!(schema_id(&mut Cursor::new(b"{\"a\": 1}")), Err(Bad::NoMagic(b'{')));
    }

    #[test]
    fn indexes_are_a_short_list() {
        assert_eq!(message_indexes(&mut Cursor::new(&[0, 9])), Ok(vec![0]));
        assert_eq!(message_indexes(&mut Cursor::new(&[4, 2, 0])), Ok(vec![1, 0]));
        assert!(message_indexes(&mut Cursor::new(&[4, 2])).is_err());
        assert_eq!(message_indexes(&mut Cursor::new(&[1])), Err(Bad::Negative(-1)));
        assert!(message_indexes(&mut Cursor::new(&[0xfe, 0xff, 3])).is_err());
    }
}
