//! Decodes values of records, Avro or Protobuf, to columns in Arrow's layout.
//!
//! Python reads the schemas, resolves the writer's schema against the reader's, and compiles the result into a
//! *program*. The code here executes it for each record and fills one [`Column`], which may have children. So nothing
//! here knows the text of a schema, and each writer's schema needs one program.
//!
//! No bytes can cause a panic. Recursion is as deep as the program (for skipped values [`DEPTH_MAX`]), and allocations
//! are bounded by the size of the bytes times what the program produces from one of them.

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

/// The deepest nesting of skipped values: with a recursive schema, bytes can be nested without end.
pub const DEPTH_MAX: usize = 64;
