//! Protobuf's binary encoding, read by a program that was compiled from a message's descriptor.

mod parse;
mod read;
mod scalar;
#[cfg(test)]
mod tests;
mod wire;

pub use read::Program;
