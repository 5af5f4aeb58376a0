//! The log: segments, indexes, checkpoints, producers, recovery, retention, flushing. The files have Apache Kafka's
//! formats.
//!
//! A [`Log`] belongs to one partition and is used under that partition's mutex. All changes to files go through
//! [`files`]; the time is passed in as an argument.

mod aborted;
mod append;
mod boot;
pub mod check;
pub mod checkpoint;
pub mod clean_stop;
pub mod compaction;
mod config;
mod counters;
pub mod damage;
mod dirs;
mod epochs;
mod error;
mod extent;
mod file_slice;
pub mod files;
pub mod finding;
mod flush;
mod flusher;
mod found;
mod future;
pub mod index;
mod listing;
mod log_dir;
mod manager;
mod moves;
pub mod names;
mod owner;
mod partition_log;
mod prepare;
pub mod producers;
mod read;
mod recall;
pub mod recorder;
mod recovery;
mod repair;
mod replay;
mod retention;
mod scan;
mod segment;
mod size;
mod sole_writer;
mod stop;
mod stray_segment;
mod tasks;
mod timestamps;
mod trash;
mod truncate;
mod verify;
mod write_back;

#[cfg(any(test, feature = "testing"))]
pub mod crash;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod manager_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod power_cut_tests;
#[cfg(test)]
mod proven_end_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod seeds;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use append::Appended;
pub use boot::BOOT_ID;
pub use compaction::CleanerConfig;
pub use config::{LogConfig, TimestampType};
pub use counters::LogCounters;
pub use dirs::LockedDir;
pub use error::AppendError;
pub use file_slice::FileSlice;
pub use flush::{FlushEnd, FlushJob, MarkJob};
pub use flusher::{Flusher, OneFlush};
pub use found::{LogOnDisk, METADATA_TOPIC};
pub use future::FutureLog;
pub use index::TimestampOffset;
pub use log_dir::{Key, LogDir};
pub use manager::{Event, LogManager, ManagerConfig, OnEvent};
pub use moves::{Promoted, PromotionError};
pub use owner::{FlushState, LogOwner, with_log};
pub use partition_log::{Log, LogContext, Moving};
pub use producers::{Claim, Guard, Origin};
pub use read::Slice;
pub use recovery::{OpenAt, Recovery};
pub use repair::DamagedRange;
pub use retention::Expired;
pub use sole_writer::SOLE_WRITER;
pub use tasks::Intervals;
pub use trash::Trash;
pub use verify::{Unverified, Verified};
