//! What a group coordinator computes over members and partitions: assignments (KIP-848, KIP-932, KIP-1071), the hash
//! that detects changed metadata, and topic patterns.
//!
//! Everything is a function of its arguments: no clock, randomness, file, lock or socket.
pub mod assignment;
#[cfg(test)]
mod assignment_tests;
pub mod metadata_hash;
pub mod pattern;
mod range;
mod simple;
pub mod sticky_tasks;
#[cfg(test)]
mod sticky_tasks_tests;
mod uniform;
mod uniform_heterogeneous;
