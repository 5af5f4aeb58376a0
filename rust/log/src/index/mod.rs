//! The index files beside a segment (facts 3.2).
//!
//! An offset or time index is a file of entries of one size, sorted by both of their fields. Entries made since the last
//! write stay in memory; lookups see both. Files are as long as their entries: nothing is preallocated.

mod offset;
mod store;
mod time;
mod txn;

pub use offset::{OffsetIndex, OffsetPosition};
pub use time::{NO_TIMESTAMP, TimeIndex, TimestampOffset};
pub use txn::{AbortedTxn, TxnIndex};
