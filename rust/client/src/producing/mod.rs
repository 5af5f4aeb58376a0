//! Produces: records to batches on the caller's thread, batches to brokers by a task of its own.

mod courier;
mod digest;
mod elsewhere;
mod lanes;
#[cfg(test)]
mod lanes_tests;
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
