//! What several layers share: ids and error codes, the protocol's primitive types, counters, and calls to the operating
//! system.
//!
//! A type belongs here when two crates that must not depend on each other both need it. Nothing here knows a log, a message
//! or a connection.

pub mod clock;
pub mod conditions;
pub mod counters;
mod error_code;
mod inbox;
mod log_error;
pub mod os;
pub mod panics;
pub mod primitives;
pub mod rate;
mod uuid;
mod wake_up;

pub use error_code::ErrorCode;
pub use inbox::{Content, Inbox};
pub use log_error::LogError;
pub use uuid::{ParseUuidError, Uuid};
pub use wake_up::WakeUp;
