//! Listeners, connections and the produce/fetch fast path.
//!
//! `server` accepts connections; a `connection` takes frames (`input`), selects a handler (`dispatch`), takes each
//! request through the steps of the `pipeline`, keeps the order of responses (`pending`) and sends them (`output`)
//! over a `transport`. The engine's handlers are in `handlers`; all other requests leave as `events` and return as a
//! `link::Reply`. `backend` is the interface to partitions and cluster.

mod acks;
mod answer;
mod backend;
mod brokers;
mod buffers;
mod config;
mod connection;
mod core;
mod counters;
mod dispatch;
mod events;
mod fetch_context;
mod fetch_read;
mod handlers;
mod hosts;
mod input;
mod limits;
mod link;
mod listener;
mod memory;
mod os;
mod output;
mod pending;
mod pipeline;
mod produced;
mod sending;
mod server;
mod session;
mod sessions;
mod share;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod topic_name;
mod transport;
mod unconnected;

pub use core::SupportedFeatures;

pub use backend::{Backend, Partition};
pub use config::{ConnectionLimitsConfig, ListenerLimits, NetConfig};
pub use counters::Counters;
pub use events::{Asker, Event, EventQueue, LogLevel, Priority, Request, ShareStateCall, Verify};
pub use hosts::host_address;
pub use klamm_base::rate::Windows;
pub use link::{Note, Reply};
pub use os::block_broken_pipe_signal;
pub use pipeline::{Distribution, Pipeline, Principal, Quotas, RequestDistribution, RequestMetrics};
pub use server::{ListenerOptions, Server, bind};
pub use sessions::{DrawId, SessionOptions, SessionRule};
pub use share::{Bounded, ShareConfig};
pub use unconnected::{Looked, ShareGauges, Unconnected, UnconnectedRequests, WaitingRequest};
