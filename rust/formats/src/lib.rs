//! Values of records, Avro or Protobuf, decoded to columns in Arrow's layout.
//!
//! Python reads the schemas, resolves what was written against what is read, and says in a *program* what to do with the
//! bytes; the code here obeys it, record by record, into one [`Column`] that may have others within. So nothing here
//! knows a schema's text, and a program is told once for each schema that was written with.
//!
//! Whatever the bytes are, nothing panics, recursion is as deep as the program (what is passed over: [`DEPTH_MAX`]), and
//! what is allocated is bounded by the bytes times what the program makes of one of them.

pub mod avro;
mod bad;
mod column;
mod cursor;
mod decoder;
mod header;
mod program;
pub mod protobuf;
mod shape;
mod validity;

pub use bad::Bad;
pub use column::{Column, Data};
pub use decoder::{Decoded, Decoder};
pub use program::ProgramError;
pub use shape::Shape;
pub use validity::Validity;

/// How deep what is passed over may be nested: a recursive schema lets bytes be nested without end.
pub const DEPTH_MAX: usize = 64;
