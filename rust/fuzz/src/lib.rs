//! The fuzz targets of klamm as plain functions, so that they run with and without libFuzzer.

mod answers;
mod assignors;
mod batch;
mod coordinator_records;
mod folder;
mod frame;
pub mod heap;
mod input;
mod log_files;
mod log_open;
mod metadata;
mod metadata_log;
mod metadata_snapshot;
mod patterns;
mod replica_answers;
mod share_partition;
mod share_requests;
mod share_state;
mod values;

pub use answers::answers;
pub use assignors::assignors;
pub use batch::batch;
pub use coordinator_records::coordinator_records;
pub use frame::frame;
pub use log_files::log_files;
pub use log_open::log_open;
pub use metadata::metadata;
pub use metadata_log::metadata_log;
pub use metadata_snapshot::metadata_snapshot;
pub use patterns::patterns;
pub use replica_answers::replica_answers;
pub use share_partition::share_partition;
pub use share_requests::share_requests;
pub use share_state::share_state;
pub use values::values;

/// A target, with the name of its bin.
pub struct Target {
    pub name: &'static str,
    /// Panics if these bytes violate the target's invariant.
    pub run: fn(&[u8]),
    /// Folders of seeds, relative to the root of the repository.
    pub seeds: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "batch", run: batch, seeds: &["tests/golden/records", "tests/golden/records/clients"] },
    Target { name: "metadata", run: metadata, seeds: &["tests/golden/metadata"] },
    Target { name: "frame", run: frame, seeds: &["rust/wire/src/golden/seeds"] },
    Target { name: "answers", run: answers, seeds: &["tests/golden/records", "rust/wire/src/golden/seeds"] },
    Target { name: "log_files", run: log_files, seeds: &["rust/log/src/golden/files"] },
    Target { name: "log_open", run: log_open, seeds: &["rust/log/src/golden/open"] },
    Target { name: "metadata_log", run: metadata_log, seeds: &["rust/quorum/src/golden/logs"] },
    Target { name: "metadata_snapshot", run: metadata_snapshot, seeds: &["rust/quorum/src/golden/snapshots"] },
    Target { name: "replica_answers", run: replica_answers, seeds: &["tests/golden/records"] },
    Target { name: "patterns", run: patterns, seeds: &["rust/groups/src/golden/patterns"] },
    Target { name: "assignors", run: assignors, seeds: &["rust/groups/src/golden/groups"] },
    Target { name: "share_partition", run: share_partition, seeds: &["rust/share/src/golden/lives"] },
    Target { name: "share_requests", run: share_requests, seeds: &["rust/net/src/golden/share_requests"] },
    Target { name: "coordinator_records", run: coordinator_records, seeds: &["rust/wire/src/golden/offset_records"] },
    Target { name: "share_state", run: share_state, seeds: &["rust/wire/src/golden/seeds"] },
    Target { name: "values", run: values, seeds: &["tests/golden/formats/seeds"] },
];
