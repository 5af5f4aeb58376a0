//! Replica fetchers: they keep the partitions that this broker follows equal to their leaders'.
//!
//! [`core`] decides what to fetch next and what an answer means, without I/O: a session with one leader, and the position, the
//! delay and the leader epoch of each partition. [`source`] runs it on a connection, appends and truncates. [`Fetchers`] assigns
//! each partition to a fetcher of its leader, and follows changes of roles.

pub mod core;
#[cfg(test)]
mod core_tests;
mod fetchers;
mod messages;
mod source;

pub use fetchers::{FetcherOptions, Fetchers};
