//! Produces: records to batches on the caller's thread, batches to brokers by a task of its own.

mod accumulator;
#[cfg(test)]
mod accumulator_tests;
mod broker_sender;
mod digest;
mod elsewhere;
mod open;
mod partitioner;
mod pipe;
mod producer;
mod sender;
mod transactions;

pub use digest::digest;
pub use open::{Row, Rows};
pub use partitioner::Partitioner;
pub(super) use producer::Producer;
