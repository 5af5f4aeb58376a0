//! A node's engine, assembled from the crates below it: its log directories, partitions and network ([`engine`]), the first
//! half of its start ([`boot`]), and the appends of its coordinators ([`appender`]). No Python in here.
//!
//! The crates are layers. `klamm-base` and `klamm-records` are at the bottom; `klamm-log`, `klamm-metadata`, `klamm-wire` and
//! `klamm-config` do not know each other; `klamm-client` is above wire, `klamm-quorum` above log, metadata and wire,
//! `klamm-replica` above log, metadata and config; `klamm-net` answers from replicas and the quorum's log.

pub mod appender;
pub mod boot;
pub mod engine;
