//! klamm's engine: what grows with bytes, records or partitions. No Python in here.

pub mod appender;
pub mod boot;
pub mod check;
pub mod client;
pub mod config;
pub mod counters;
pub mod engine;
pub mod error_code;
pub mod log;
pub mod metadata;
pub mod net;
pub mod os;
pub mod quorum;
pub mod replica;
pub mod settings;
pub mod uuid;
pub mod wire;

pub use error_code::ErrorCode;
pub use uuid::Uuid;
