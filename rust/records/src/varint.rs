//! The zig-zag varints of record fields, read and written.
//!
//! A varint of 32 bits takes 1 to 5 bytes, one of 64 bits 1 to 10. Padded encodings (`80 00` for 0) are
//! read, as Apache Kafka reads them; one that is longer than that, or whose last byte holds bits that do not
//! fit, is refused.

/// Why no varint could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintFault {
    /// The bytes end before the varint does.
    Cut,
    /// It does not fit its type.
    TooLong,
}

/// Bytes with a read position; every read checks what is left.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A reader of nothing.
    pub(crate) const EMPTY: Reader<'static> = Reader { bytes: &[], at: 0 };

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What is not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `len` bytes, if they are there.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    /// The next byte, if it is there.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A zig-zag varint of 32 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<i32, VarintFault> {
        let raw = self.unsigned_varint()?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// A zig-zag varint of 64 bits.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, VarintFault> {
        let raw = self.unsigned_varlong()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A plain varint of 32 bits, as flexible messages use.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, VarintFault> {
        let first = self.byte().ok_or(VarintFault::Cut)?;
        if first < 0x80 {
            return Ok(u32::from(first));
        }
        self.long_varint(first)
    }

    /// A plain varint of 64 bits.
    #[inline]
    pub fn unsigned_varlong(&mut self) -> Result<u64, VarintFault> {
        let first = self.byte().ok_or(VarintFault::Cut)?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        self.long_varlong(first)
    }

    #[inline]
    fn long_varint(&mut self, first: u8) -> Result<u32, VarintFault> {
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21] {
            let byte = self.byte().ok_or(VarintFault::Cut)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        match self.byte() {
            Some(last @ 0..=0x0f) => Ok(value | u32::from(last) << 28),
            Some(_) => Err(VarintFault::TooLong),
            None => Err(VarintFault::Cut),
        }
    }

    fn long_varlong(&mut self, first: u8) -> Result<u64, VarintFault> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..63).step_by(7) {
            let byte = self.byte().ok_or(VarintFault::Cut)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        match self.byte() {
            Some(last @ 0..=1) => Ok(value | u64::from(last) << 63),
            Some(_) => Err(VarintFault::TooLong),
            None => Err(VarintFault::Cut),
        }
    }
}

/// Writes a zig-zag varint of 32 bits.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_unsigned_varint(out, zigzag(value));
}

/// Writes a zig-zag varint of 64 bits.
#[inline]
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Writes a plain varint of 32 bits.
#[inline]
pub fn put_unsigned_varint(out: &mut Vec<u8>, value: u32) {
    let mut raw = value;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Bytes that [`put_varint`] writes.
#[inline]
pub fn varint_len(value: i32) -> usize {
    groups(u64::from(zigzag(value)))
}

/// Bytes that [`put_varlong`] writes.
#[inline]
pub fn varlong_len(value: i64) -> usize {
    groups(((value << 1) ^ (value >> 63)) as u64)
}

#[inline]
fn zigzag(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline]
fn groups(raw: u64) -> usize {
    // Seven bits a byte, and at least one byte.
    (70 - (raw | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_varint_round_trips(value: i32) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn a_varlong_round_trips(value: i64) {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            prop_assert_eq!(out.len(), varlong_len(value));
            prop_assert_eq!(Reader::new(&out).varlong(), Ok(value));
        }

        #[test]
        fn a_cut_varint_is_refused(value: i64) {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            for cut in 0..out.len() {
                prop_assert_eq!(Reader::new(&out[..cut]).varlong(), Err(VarintFault::Cut));
            }
        }
    }

    #[test]
    fn extremes_take_the_full_length() {
        assert_eq!((varint_len(i32::MIN), varint_len(-1), varint_len(63), varint_len(64)), (5, 1, 1, 2));
        assert_eq!((varlong_len(i64::MIN), varlong_len(i64::MAX), varlong_len(0)), (10, 10, 1));
    }

    #[test]
    fn padding_is_read_and_overlength_is_refused() {
        assert_eq!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x00]).varint(), Ok(0));
        assert_eq!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x10]).varint(), Err(VarintFault::TooLong));
        assert_eq!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).varint(), Err(VarintFault::TooLong));
        assert_eq!(Reader::new(&[0xff; 9].iter().copied().chain([1]).collect::<Vec<_>>()).varlong(), Ok(i64::MIN));
        assert_eq!(
            Reader::new(&[0xff; 9].iter().copied().chain([2]).collect::<Vec<_>>()).varlong(),
            Err(VarintFault::TooLong)
        );
    }
}
