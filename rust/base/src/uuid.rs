//! 128-bit ids as in Kafka: sixteen bytes on the wire, 22 characters of base64url in text.

use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A topic, directory, incarnation or cluster id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero: "none"; as a directory id `DirectoryId.MIGRATING`.
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// Directory id of a replica without a directory yet (`DirectoryId.UNASSIGNED`, KIP-858).
    pub const UNASSIGNED: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    /// Directory id of a replica whose directory failed or was removed (`DirectoryId.LOST`, KIP-858).
    pub const LOST: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);

    /// The id in the first sixteen bytes; `None` when there are fewer.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self(*bytes))
    }

    /// Whether every byte is zero.
    #[inline]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (at, slot) in text.iter_mut().enumerate() {
            // 22 sextets are 132 bits: the last one holds two bits of the id and four zeroes.
            let sextet = if at < 21 { (value >> (122 - 6 * at)) & 63 } else { (value & 3) << 4 };
            *slot = ALPHABET[sextet as usize];
        }
        out.write_str(std::str::from_utf8(&text).expect("base64url is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Text that is no id.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not an id: expected 22 characters of base64url")]
pub struct ParseUuidError(String);

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let error = || ParseUuidError(text.to_owned());
        if text.len() != 22 {
            return Err(error());
        }
        let mut value: u128 = 0;
        for (at, byte) in text.bytes().enumerate() {
            let sextet = ALPHABET.iter().position(|&known| known == byte).ok_or_else(error)? as u128;
            value = if at < 21 { (value << 6) | sextet } else { (value << 2) | (sextet >> 4) };
        }
        Ok(Self(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_base64url_without_padding() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::UNASSIGNED.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = Uuid(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10");
        assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!(id.to_string().parse::<Uuid>().expect("own text"), id);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA!", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
