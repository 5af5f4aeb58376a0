//! The protocol's primitive types, read from and written to plain bytes.
//!
//! What is read is hostile: a length or a count is compared with the bytes that are left before it is used, so that
//! nothing a peer claims makes the reader allocate. Strings and bytes come back as slices of the input; arrays as a count
//! whose elements the caller reads, knowing the smallest size of one.
//!
//! Two encodings of lengths: *plain* (fixed width, -1 is null, read as every negative one is) in old message versions,
//! *compact* (unsigned varint of length + 1, 0 is null) in flexible ones (KIP-482).

mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::{ErrorCounts, Writer};

/// The longest string of the protocol, in bytes: also in the compact encoding, where the format could say more.
pub const STRING_LEN_MAX: usize = i16::MAX as usize;

/// Bytes that do not hold what they should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("{needed} bytes expected where {left} are left")]
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
    #[error("{left} bytes are left behind the end")]
    TrailingBytes { left: usize },
}
