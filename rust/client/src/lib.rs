//! klamm as a client of brokers, its own and Apache Kafka's: reads ranges of partitions, finds offsets,
//! produces, with transactions.
//!
//! What decides has no socket and no clock: [`cluster`] knows who leads what, [`attempts`] whether and when to try
//! again, [`slice`] which records of an answer a reader may see,
//! `producing::accumulator` which batch is sent when. [`connection`] and [`pool`] move bytes, and [`Client`]
//! runs the one with the other.

pub mod attempts;
#[cfg(test)]
mod attempts_tests;
mod authentication;
pub mod blocking;
mod channel;
mod channel_queue;
#[cfg(test)]
mod channel_tests;
mod client;
pub mod cluster;
#[cfg(test)]
mod cluster_tests;
pub mod config;
mod connection;
mod error;
mod fetching;
mod keys;
mod link_error;
mod listing;
pub mod messages;
mod pool;
mod producing;
pub mod security;
pub mod slice;
#[cfg(test)]
mod slice_tests;
mod versions;

pub use channel::{Channel, ChannelEvent, ChannelPlan};
pub use channel_queue::ChannelQueue;
pub use client::Client;
pub use config::{ClientConfig, ClientConfigError};
pub use error::ClientError;
pub use fetching::FetchRange;
pub use link_error::LinkError;
pub use producing::{Partitioner, Row, Rows, digest};
pub use slice::Slice;
pub use versions::Versions;
