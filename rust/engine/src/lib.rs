//! klamm's engine: what grows with bytes, records or partitions. No Python in here.

pub mod appender;
pub mod boot;
pub mod check;
pub mod client;
pub mod clock;
pub mod config;
pub mod counters;
pub mod engine;
pub mod error_code;
pub mod log;
pub mod log_error;
pub mod metadata;
pub mod net;
pub mod os;
pub mod primitives;
pub mod quorum;
pub mod replica;
pub mod uuid;
pub mod wake_up;
pub mod wire;

pub use error_code::ErrorCode;
pub use log_error::LogError;
pub use uuid::Uuid;
