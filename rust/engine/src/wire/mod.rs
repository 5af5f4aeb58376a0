//! The messages of the fast path, and the table of APIs.
pub mod api;
pub mod api_versions;
pub mod describe_topic_partitions;
pub mod elements;
pub mod fetch;
pub mod frame;
#[cfg(test)]
mod golden_test;
pub mod header;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_for_leader_epoch;
pub mod offset_record;
pub mod produce;
pub mod topic;
pub mod versioned;
