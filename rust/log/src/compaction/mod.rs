//! Compaction: retains only the newest record of each key.
//!
//! A round cleans one log. Under the partition's lock it is [planned](CleanPlan) and its segments are handed out as a
//! [`CleanJob`]. Without the lock, the keys of the dirty section are collected in an [`OffsetMap`] and the segments
//! are rewritten. Under the lock again, the new segments replace the old ones. Inactive segments do not change, so no
//! lock is needed in between: if the log was truncated or segments expired meanwhile, the result is discarded.

mod cleaner;
mod filter;
mod job;
mod offset_map;
mod plan;
mod replace;
mod throttler;
mod transactions;

pub(crate) use cleaner::Cleaner;
pub use cleaner::CleanerConfig;
pub use job::{CleanError, CleanJob, Cleaned, Stats};
pub use offset_map::OffsetMap;
pub use plan::CleanPlan;

#[cfg(test)]
mod hole_tests;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
