//! The Arrow C data interface: columns that pyarrow and others take over without a copy, and columns of theirs.

pub mod export;
mod ffi;
pub mod import;
