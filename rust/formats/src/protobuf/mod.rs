//! Protobuf's binary encoding, read as a program says, which is what a message's descriptor has.

mod parse;
mod read;
mod scalar;
#[cfg(test)]
mod tests;
mod wire;

pub use read::Program;
