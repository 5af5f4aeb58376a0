//! Produces: the caller's thread adds records to batches, and a separate task sends batches to brokers.

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
