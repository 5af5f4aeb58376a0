//! The protocol's primitive types: reading and writing them.
//!
//! Input is hostile: a length or a count is compared with the remaining bytes before it is used, so that no claim of a
//! peer makes the reader allocate. Strings and bytes are slices of the input. An array is a count; the caller, which
//! knows the smallest size of an element, reads the elements.
//!
//! Lengths have two encodings: *plain* (fixed width, -1 is null, and so is every negative length) in old message
//! versions, and *compact* (unsigned varint of length + 1, 0 is null) in flexible ones (KIP-482).

mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::{ErrorCounts, Writer};

/// The longest string of the protocol, in bytes. It also applies to the compact encoding, whose format would allow
/// more.
pub const STRING_LEN_MAX: usize = i16::MAX as usize;

/// Bytes that do not have the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{needed} bytes expected, {left} left")]
    Truncated { needed: usize, left: usize },
    #[error("an array of {count} elements does not fit into the {left} bytes that are left")]
    CountTooLarge { count: u64, left: usize },
    #[error("a length of {0} is not valid")]
    InvalidLength(i64),
    #[error("a varint is longer than its type")]
    VarintTooLong,
    #[error("null where the field is not nullable")]
    UnexpectedNull,
    #[error("a string is not UTF-8")]
    InvalidUtf8,
    #[error("{left} bytes follow the end")]
    TrailingBytes { left: usize },
}
