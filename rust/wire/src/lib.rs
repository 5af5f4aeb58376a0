//! The messages of the fast path, and the table of APIs.
//!
//! A request is a view over its frame: it is read through once to check it, keeps no copies of names and arrays, and reads
//! them again where they are walked ([`elements`]). Answers are written straight into the buffer that is sent. What a name
//! means is for the callers: no message looks anything up. Each message is compared with Apache Kafka's own bytes at every
//! version (`golden/`).
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
