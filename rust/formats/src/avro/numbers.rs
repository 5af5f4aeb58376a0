//! Numbers of many bytes: decimals and UUIDs.

use crate::Bad;

/// A big-endian two's complement number of at most `precision` digits.
pub fn decimal(bytes: &[u8], precision: u8) -> Result<i128, Bad> {
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let fill = if is_negative { 0xff } else { 0 };
    let (more, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut wide = [fill; 16];
    wide[16 - low.len()..].copy_from_slice(low);
    let number = i128::from_be_bytes(wide);
    let is_whole = more.iter().all(|byte| *byte == fill) && (number < 0) == is_negative;
    let end = 10_i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
    if is_whole && -end < number && number < end { Ok(number) } else { Err(Bad::TooPrecise(precision)) }
}

/// The canonical text of a UUID.
pub fn uuid_text(uuid: [u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for byte in uuid {
        if matches!(at, 8 | 13 | 18 | 23) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_any_length() {
        assert_eq!(decimal(&[], 4), Ok(0));
        assert_eq!(decimal(&[0x30, 0x39], 5), Ok(12345));
        assert_eq!(decimal(&[0xff], 5), Ok(-1));
        assert_eq!(decimal(&[0xff; 40], 5), Ok(-1));
        assert_eq!(decimal(&[0x30, 0x39], 4), Err(Bad::TooPrecise(4)));
        assert!(decimal(&[0x7f; 17], 38).is_err());
        let mut beyond = [0xff; 17];
        beyond[1] = 0x7f;
        assert!(decimal(&beyond, 38).is_err(), "the sign is that of the first byte");
    }

    #[test]
    fn a_uuid_has_dashes() {
        let text = uuid_text(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes());
        assert_eq!(&text, b"01234567-89ab-cdef-0123-456789abcdef");
    }
}
