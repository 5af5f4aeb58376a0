//! Metadata records, image, delta, snapshot files, bulk leader election.
//!
//! [`records`] describes every record once, for reading, writing and printing. A [`MetadataImage`] is the immutable
//! state after the records up to an offset; applying more creates a new image that shares the unchanged parts, and
//! comparing two images takes time proportional to their difference. [`elections`] and [`placement`] compute a
//! controller's decisions for many partitions at once, as records. Nothing here writes a log; only [`checkpoint`]
//! uses files.

pub mod bootstrap;
mod change_run;
pub mod checkpoint;
pub mod cluster;
mod configs;
mod counts;
pub mod creation;
pub mod delta;
mod directories;
pub mod election;
pub mod elections;
pub mod field;
pub mod frame;
#[cfg(test)]
mod golden_tests;
pub mod hash;
mod hash_index;
mod id_list;
pub mod image;
pub mod image_records;
#[cfg(test)]
mod image_tests;
pub mod log_batches;
pub mod partition;
pub mod placement;
mod prefetch;
mod record_macro;
pub mod records;
mod replay_error;
pub mod schema;
pub mod security;
mod slots;
#[cfg(test)]
mod testing;
pub mod topic;
pub mod topics;
mod usual_change;
mod usual_partition;
pub mod version;

pub use image::MetadataImage;
