//! The network over real sockets, with a backend of files.

mod bad_input;
mod ends;
mod fetching;
mod limits;
mod metadata;
mod offsets;
mod order;
mod outside;
mod pipeline;
mod producing;
mod quiet_partitions;
mod replica_fetches;
mod role_changes;
mod sharing;
mod transactions;
mod transports;
