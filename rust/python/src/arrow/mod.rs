//! The Arrow C data interface: columns that pyarrow and others take over without a copy.

pub mod export;
mod ffi;
