//! The unread bytes of a value; every length is checked against the bytes that are left.

use crate::Bad;

/// The most items without bytes in a value: otherwise a few bytes could claim any number of them.
const EMPTY_ITEMS_MAX: u64 = 1024;

/// A position in the bytes of one value.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    left: &'a [u8],
    empty_items_left: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, empty_items_left: EMPTY_ITEMS_MAX }
    }

    #[inline]
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// The bytes between `earlier`, a copy of this cursor before it moved, and the current position.
    pub fn since(&self, earlier: &Self) -> &'a [u8] {
        &earlier.left[..earlier.left.len() - self.left.len()]
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let Some((taken, left)) = self.left.split_at_checked(count) else {
            return Err(Bad::Truncated { wanted: count as u64, left: self.left.len() });
        };
        self.left = left;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let Some((taken, left)) = self.left.split_first_chunk::<N>() else {
            return Err(Bad::Truncated { wanted: N as u64, left: self.left.len() });
        };
        self.left = left;
        Ok(*taken)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of at most 64 bits in groups of seven bits, lowest first.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Bad> {
        match *self.left {
            [byte, ref left @ ..] if byte < 0x80 => {
                self.left = left;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Bad> {
        let mut number = 0_u64;
        for (at, byte) in self.left.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                if at == 9 && *byte > 1 {
                    return Err(Bad::Overlong);
                }
                self.left = &self.left[at + 1..];
                return Ok(number);
            }
        }
        let left = self.left.len();
        Err(if left < 10 { Bad::Truncated { wanted: left as u64 + 1, left } } else { Bad::Overlong })
    }

    /// Avro's long, and the numbers of a Confluent header.
    #[inline]
    pub fn zigzag(&mut self) -> Result<i64, Bad> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Avro's int.
    #[inline]
    pub fn zigzag32(&mut self) -> Result<i32, Bad> {
        i32::try_from(self.zigzag()?).map_err(|_| Bad::Overlong)
    }

    /// Bytes preceded by their length, in Avro's encoding.
    #[inline]
    pub fn avro_bytes(&mut self) -> Result<&'a [u8], Bad> {
        let count = self.zigzag()?;
        let left = self.left.len();
        if count < 0 {
            return Err(Bad::Negative(count));
        }
        let size = usize::try_from(count).map_err(|_| Bad::Truncated { wanted: count as u64, left })?;
        self.take(size)
    }

    /// Bytes preceded by their length, in Protobuf's encoding.
    #[inline]
    pub fn protobuf_bytes(&mut self) -> Result<&'a [u8], Bad> {
        let count = self.varint()?;
        let size = usize::try_from(count).map_err(|_| Bad::Truncated { wanted: count, left: self.left.len() })?;
        self.take(size)
    }

    /// Checks that the remaining bytes can contain `count` items of at least `bytes_min` each.
    pub fn check_items(&mut self, count: u64, bytes_min: usize) -> Result<(), Bad> {
        let room = match bytes_min {
            0 => self.empty_items_left,
            bytes => (self.left.len() / bytes) as u64,
        };
        if count > room {
            return Err(Bad::TooMany { count, left: self.left.len() });
        }
        if bytes_min == 0 {
            self.empty_items_left -= count;
        }
        Ok(())
    }

    /// Refuses bytes after the end of a value.
    pub fn finish(&self) -> Result<(), Bad> {
        if self.left.is_empty() { Ok(()) } else { Err(Bad::Trailing(self.left.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_has_ten_bytes_at_most() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&most).varint(), Ok(u64::MAX));
        assert_eq!(Cursor::new(&[0x80; 11]).varint(), Err(Bad::Overlong));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(),
            Err(Bad::Overlong)
        );
        assert_eq!(Cursor::new(&[0x80]).varint(), Err(Bad::Truncated { wanted: 2, left: 1 }));
        assert_eq!(Cursor::new(&[]).varint(), Err(Bad::Truncated { wanted: 1, left: 0 }));
    }

    #[test]
    fn zigzag_alternates() {
        for (bytes, number) in [(&[0_u8][..], 0), (&[1], -1), (&[2], 1), (&[0x7f], -64), (&[0x80, 1], 64)] {
            assert_eq!(Cursor::new(bytes).zigzag(), Ok(number));
        }
        let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Cursor::new(&least).zigzag(), Ok(i64::MIN));
        assert_eq!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x10]).zigzag32(), Err(Bad::Overlong));
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        assert_eq!(Cursor::new(&[1]).avro_bytes(), Err(Bad::Negative(-1)));
        assert_eq!(Cursor::new(&[6, 1]).avro_bytes(), Err(Bad::Truncated { wanted: 3, left: 1 }));
        assert!(Cursor::new(&[2; 8]).check_items(9, 1).is_err());
        let mut cursor = Cursor::new(&[]);
        assert_eq!(cursor.check_items(1000, 0), Ok(()));
        assert!(cursor.check_items(1000, 0).is_err(), "the bound is that of all items together");
    }
}
