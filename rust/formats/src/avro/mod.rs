//! Avro's binary encoding, read by a program: a writer's schema resolved against the reader's.

mod checks;
mod numbers;
mod parse;
mod read;
mod skip;
#[cfg(test)]
mod tests;

pub use read::Program;
