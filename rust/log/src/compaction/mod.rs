//! Compaction: of each key only the newest record stays.
//!
//! A round takes one log. Under its partition's lock it is [planned](CleanPlan) and its segments are handed out as a
//! [`CleanJob`]; outside of the lock the keys of the dirty part are put into an [`OffsetMap`] and the segments are written
//! anew; under the lock again the new ones take the place of the old ones. Segments that take no appends do not change, so
//! nothing needs to be held in between: if the log was cut or expired meanwhile, the result is thrown away.

mod cleaner;
mod filter;
mod job;
mod offset_map;
mod pace;
mod plan;
mod replace;
mod transactions;

pub(crate) use cleaner::Cleaner;
pub use cleaner::CleanerConfig;
pub use job::{CleanError, CleanJob, Cleaned, Stats};
pub use offset_map::OffsetMap;
pub use plan::CleanPlan;

#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
