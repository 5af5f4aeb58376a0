//! Kafka record batches (magic 2) as views over bytes.
//!
//! Bytes come from a peer or the disk and are read in place: [`batches`] finds the batches, [`validate_produced`]
//! checks what a client sent, [`Batch::check`] what a leader or the disk returned, [`records`] iterates over the
//! records as views, and a [`BatchBuilder`] builds batches.

mod batch;
mod build;
pub mod codec;
pub mod control;
pub mod convert;
mod error;
pub mod header;
mod iterate;
mod latest;
mod layout;
mod record;
mod repeat;
mod validate;
pub mod varint;
mod walk;

pub use batch::{Batch, Batches, batches};
pub use build::{BatchBuilder, BatchFields};
pub use codec::{Codec, Compression};
pub use error::{RecordFault, RecordsError, Refusal, RefusedRecord, RefusedRecords};
pub use header::{HEADER_LEN, Header};
pub use iterate::{Records, records};
pub use latest::{Entry, Keyed, LatestRecord, LatestRecords};
pub use record::{Headers, Record, RecordHeader};
pub use validate::{NO_TIMESTAMP, Origin, ProduceRules, Produced, TimestampType, validate_produced};
