//! The messages of the fast path, and the table of APIs.
//!
//! A request is a view of its frame: it is parsed once to validate it, keeps no copies of names and arrays, and
//! parses them again during iteration ([`elements`]). Responses are written directly into the buffer that is sent.
//! Messages do not look up names; callers do. Each message is compared with Apache Kafka's own bytes at every version
//! (`golden/`).
pub mod alter_partition;
pub mod api;
pub mod api_versions;
pub mod describe_topic_partitions;
pub mod elements;
pub mod fetch;
pub mod frame;
#[cfg(test)]
mod golden_share_test;
#[cfg(test)]
mod golden_test;
pub mod group_record;
pub mod header;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_for_leader_epoch;
pub mod offset_record;
pub mod produce;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_request;
pub mod share_state;
pub mod topic;
pub mod versioned;
