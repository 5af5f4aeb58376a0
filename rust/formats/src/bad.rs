//! What can be wrong with the bytes of a value.

use std::sync::Arc;

/// Why a value was refused; the message follows "the value is no avro: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("it is truncated: {wanted} bytes expected, {left} left")]
    Truncated { wanted: u64, left: usize },
    #[error("a number is longer than its type")]
    Overlong,
    #[error("a length or count is {0}")]
    Negative(i64),
    #[error("it claims {count} items, and {left} bytes are left")]
    TooMany { count: u64, left: usize },
    #[error("a text is not UTF-8")]
    NotUtf8,
    #[error("a boolean is {0}")]
    NoBoolean(u8),
    #[error("a union has no branch {branch}, it has {count}")]
    NoBranch { branch: i64, count: usize },
    #[error("an enum has no symbol {symbol}, it has {count}")]
    NoSymbol { symbol: i64, count: usize },
    #[error("the reader's schema has no counterpart for symbol {0} of an enum")]
    UnknownSymbol(i64),
    #[error("a decimal has more than the {0} digits of its schema")]
    TooPrecise(u8),
    #[error("a time is out of range")]
    NoTime,
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    #[error("it is nested more than {0} deep")]
    TooDeep(usize),
    #[error("{0} is not a field number")]
    NoFieldNumber(u64),
    #[error("field {field} has the wire type {wire_type}, which does not exist")]
    NoWireType { field: u32, wire_type: u8 },
    #[error("a group of field {0} has no end tag of its own")]
    OpenGroup(u32),
    #[error("it is {0} bytes long, and a Confluent header alone is 5")]
    NoHeader(usize),
    #[error("its first byte is {0}, and a Confluent header begins with 0")]
    NoMagic(u8),
    #[error("it is message {found:?} of its schema, expected {wanted:?}")]
    OtherMessage { found: Vec<i64>, wanted: Arc<[i64]> },
    #[error("schema {0} is not known")]
    UnknownSchema(u32),
    #[error("the values of the column exceed 2 GiB")]
    ColumnFull,
    /// The reason that the program gives for values like this one.
    #[error("{0}")]
    Refused(Arc<str>),
}
