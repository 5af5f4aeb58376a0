//! The partitions of a broker: role, ISR, high watermark, leader epochs, waiting produces and fetches.
//!
//! A [`Partition`] combines a log with its [`core::PartitionCore`], which decides. [`Replicas`] opens partitions when they are used and follows
//! the metadata image. The request and result types of a partition are in `results`; a produce waits with a callback,
//! a fetch with a [`FetchWaiter`], and both are notified without the partition's lock. Connections and messages are
//! not known here.

mod assignments;
mod changes;
mod config;
pub mod core;
mod fetch_waiter;
mod following;
#[cfg(test)]
mod following_tests;
mod image_brokers;
mod isr_changes;
#[cfg(test)]
mod isr_changes_tests;
mod metrics;
mod moves;
#[cfg(test)]
mod moves_power_cut_tests;
#[cfg(test)]
mod moves_tests;
mod moving;
mod partition;
mod planned;
mod reading;
mod replicas;
#[cfg(test)]
mod replicas_tests;
mod results;
mod series;
mod session_news;
mod sizes;
mod throttles;
#[cfg(test)]
mod transactions_tests;

pub use assignments::Unassigned;
pub use changes::{Changed, ChangedPartitions, Changes};
pub use config::PartitionConfig;
pub use core::{Awaits, Rule};
pub use fetch_waiter::FetchWaiter;
pub use following::{Diverging, FetchedBatches, Following, Position, truncate_diverging};
pub use isr_changes::{AnsweredIsr, IsrChanges};
pub use klamm_log::DamagedRange;
pub use metrics::{Gauges, ReplicaCounters};
pub use moves::MoveStep;
pub use partition::{Durability, Fetching, LogGauges, OnAck, Partition, PartitionId};
pub use reading::{
    EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST, LATEST_TIERED, MAX_TIMESTAMP, UP_TO_HIGH_WATERMARK,
};
pub use replicas::{Published, Replicas, ReplicasOptions};
pub use results::{
    Appended, CONSUMER, DEBUGGING, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Quiet, Refused, Standing,
};
pub use series::{EndedSeries, Series};
pub use session_news::{Change, SessionEntry, SessionNews};
pub use sizes::Size;
