//! The partitions of a broker: role, ISR, high watermark, leader epochs, waiting produces and fetches.
//!
//! A [`Partition`] joins a log with its leadership. [`Replicas`] opens partitions when they are used and follows the metadata
//! image. What a partition is asked and answers are the types of `results`; a produce waits with a callback, a fetch with a
//! [`FetchWaiter`], and both are notified outside of the partition's lock. No connection and no message is known here.

mod acks;
mod assignments;
mod config;
mod fetch_waiter;
mod partition;
mod planned;
mod reading;
mod replicas;
#[cfg(test)]
mod replicas_tests;
mod results;
mod sizes;
mod watchers;
mod watermark;

pub use acks::OnAck;
pub use assignments::Unassigned;
pub use config::PartitionConfig;
pub use fetch_waiter::FetchWaiter;
pub use partition::{Durability, Leadership, Partition, PartitionId};
pub use reading::{
    EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST, LATEST_TIERED, MAX_TIMESTAMP, UP_TO_HIGH_WATERMARK,
};
pub use replicas::{Published, Replicas, ReplicasOptions};
pub use results::{Appended, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Refused};
pub use watermark::Watermark;
