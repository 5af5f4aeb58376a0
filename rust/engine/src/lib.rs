//! A node's engine, assembled from the crates below it: its log directories, partitions and network ([`engine`]), the
//! first half of its start ([`boot`]), and the appends of its coordinators ([`appender`]). It contains no Python.
//!
//! The crates are layers. `klamm-base` and `klamm-records` are at the bottom; `klamm-log`, `klamm-metadata`,
//! `klamm-wire` and `klamm-config` do not depend on each other; `klamm-client` is above wire, `klamm-quorum` above
//! log, metadata and wire, `klamm-replica` above log, metadata and config; `klamm-net` answers requests from replicas
//! and the quorum's log.

pub mod appender;
pub mod boot;
pub mod engine;
pub mod isr;
mod moves;
