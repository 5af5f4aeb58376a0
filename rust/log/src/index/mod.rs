//! The index files of a segment, in the formats of Apache Kafka's `OffsetIndex`, `TimeIndex` and `TransactionIndex`.
//!
//! An offset or time index is a file of fixed-size entries, sorted by both fields. Entries that were added since the
//! last write are in memory; lookups use both. Files are as long as their entries: nothing is preallocated.

mod offset;
mod store;
mod time;
mod txn;

pub use offset::{OffsetIndex, OffsetPosition};
pub use time::{NO_TIMESTAMP, TimeIndex, TimestampOffset};
pub use txn::{AbortedTxn, TxnIndex};
