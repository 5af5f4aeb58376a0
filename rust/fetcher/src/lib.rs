//! Replica fetchers: they keep the partitions that this broker follows equal to their leaders'.
//!
//! [`core`] decides what to fetch next and what an answer means, without I/O: a session with one leader, and the position, the
//! delay and the leader epoch of each partition. [`followed`] combines it with the logs: it appends and truncates. [`source`] runs
//! that on a connection. [`Fetchers`] assigns each partition to a fetcher of its leader, and follows changes of roles.

mod assignments;
pub mod core;
#[cfg(test)]
mod core_tests;
mod fetchers;
mod followed;
#[cfg(test)]
mod followed_tests;
mod messages;
mod repairs;
#[cfg(test)]
mod repairs_tests;
mod source;

pub use assignments::{Assignments, FetcherId};
pub use fetchers::{FetcherOptions, Fetchers};
pub use followed::{Change, FollowedPartitions, Times};
pub use messages::{ReplicaFetch, ReplicaFetchAnswer};
