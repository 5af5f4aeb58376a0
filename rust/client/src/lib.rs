//! klamm as a client of its own brokers and Apache Kafka's: reads ranges of partitions, finds offsets, and produces,
//! with transactions.
//!
//! The decisions need no socket and no clock: [`cluster`] tracks leaders, [`attempts`] decides whether and when to
//! retry, [`slice`] which records of a response are visible, `producing::accumulator` which batch is sent when.
//! [`connection`] and [`pool`] move bytes, and [`Client`] connects the two sides.

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
mod wire;

pub use channel::{Channel, ChannelEvent, ChannelPlan};
pub use channel_queue::ChannelQueue;
pub use client::Client;
pub use config::{ClientConfig, ClientConfigError};
pub use connection::Connection;
pub use error::ClientError;
pub use fetching::FetchRange;
pub use link_error::LinkError;
pub use producing::{Partitioner, Row, Rows, digest};
pub use slice::Slice;
pub use versions::Versions;
