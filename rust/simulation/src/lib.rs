//! A broker of the simulator: the replicas, logs and fetchers of the product, composed without threads, sockets and clock.
//!
//! Every step is a call of [`SimulatedBroker`], and the caller decides the order of all steps and the time of each. Its log directory
//! is a [`SimulatedDisk`], which loses what was not synced when the power is cut. Nothing depends on a random hash, so that the same
//! calls always have the same results.

mod broker;
mod cleaning;
mod clock;
mod directories;
mod disk;
mod fetching;
mod guard;
mod lacking;
mod serving;
mod sharing;

pub use broker::{
    BrokerOptions, ChangedReplica, Due, Gauges, LedLog, Produced, SimulatedBroker, SimulationError, TransactionMarker,
};
pub use directories::Damage;
pub use fetching::{InSession, Lookup};
pub use guard::Guard;
pub use serving::{AnsweredFetch, Consumed};
