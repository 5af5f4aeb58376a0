//! Parses the programs from Python: JSON, in which each list begins with its kind.

use serde_json::Value;

/// An invalid program, which is a bug of klamm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid program: {0}")]
pub struct ProgramError(pub String);

impl ProgramError {
    pub fn of(what: &str, found: &Value) -> Self {
        Self(format!("{what} is {found}"))
    }
}

pub fn array(value: &Value) -> Result<&[Value], ProgramError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| ProgramError::of("a list", value))
}

pub fn text(value: &Value) -> Result<&str, ProgramError> {
    value.as_str().ok_or_else(|| ProgramError::of("a text", value))
}

pub fn whole(value: &Value) -> Result<i64, ProgramError> {
    value.as_i64().ok_or_else(|| ProgramError::of("a number", value))
}

/// An index, a count or a size.
pub fn place(value: &Value) -> Result<usize, ProgramError> {
    usize::try_from(whole(value)?).map_err(|_| ProgramError::of("a place", value))
}

/// Bytes, from hexadecimal digits.
pub fn bytes(value: &Value) -> Result<Vec<u8>, ProgramError> {
    let digits = text(value)?;
    let pair = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| ProgramError::of("hexadecimal bytes", value))
}

/// Converts each item of a list.
pub fn all<T>(value: &Value, read: impl Fn(&Value) -> Result<T, ProgramError>) -> Result<Vec<T>, ProgramError> {
    array(value)?.iter().map(read).collect()
}
