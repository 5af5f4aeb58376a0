//! The log of `__cluster_metadata-0` with its snapshots (KIP-595, KIP-630), driven by the quorum's core.
//!
//! [`QuorumLog`] is the log with its own flusher; [`LogReader`] reads one without locking or changing it. The core
//! decides who leads and what is committed: [`FetchStream`] runs a follower's fetches and [`Answering`] a leader's
//! answers while no decision is needed, and both pass everything else to the core.

mod answering;
mod batches;
mod buffered;
mod control;
#[cfg(test)]
mod crash_tests;
mod examination;
mod flusher;
mod log;
mod opening;
mod reader;
mod received;
mod recovery_point;
mod snapshots;
mod stream;

/// The only topic that a quorum has.
const METADATA_TOPIC_ID: klamm_base::Uuid = klamm_base::Uuid::UNASSIGNED;

pub use answering::{Answering, Lead, LeasedFetch, Looked, Taken, Waiting};
pub use control::ControlEntry;
pub use examination::{Damage, DamagedFile, Examination, Loss, Proof};
pub use flusher::OnFlushed;
pub use log::{BATCH_BYTES_MAX, QuorumLog, QuorumLogConfig, ReplayFailed};
pub use opening::{OnLoss, check_not_empty, refusal};
pub use reader::{LogReader, ReaderEnd};
pub use received::{ReceiveError, Received};
pub use recovery_point::LogEnd;
pub use snapshots::{SnapshotId, SnapshotInfo};
pub use stream::{End, FetchPlan, FetchStream, Position, StreamProgress};
