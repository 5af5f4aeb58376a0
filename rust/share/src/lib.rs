//! The share partition of a leader (KIP-932): which records of a partition a share group has acquired, released and
//! finished.
//!
//! [`SharePartition`] is a core: time, limits and the answers of the share coordinator come in as values, writes of state
//! go out as values. It has no clock, lock, socket or file. Its states are those of `kafka.server.share.SharePartition`;
//! what differs is how they are held:
//!
//! * Every offset from the start offset (SPSO) to the end offset (SPEO) is in exactly one [`run`](runs::Runs) of offsets
//!   with equal state, so memory grows with the number of differences, not of records.
//! * Nothing below the start offset is held: an acknowledgement of such offsets has no effect in Kafka either.
//! * One write of a share partition is outstanding at a time. Changes that come meanwhile are in the next write, so
//!   that the coordinator receives them in order.

mod acknowledge;
mod acquire;
mod model;
mod partition;
mod runs;
#[cfg(test)]
mod tests;
mod timer_wheel;
mod writes;

pub use acknowledge::{AckBatch, AckError, AckType, Expired, check_acknowledgements};
pub use acquire::{Acquire, AcquireMode, Acquired, AcquiredRange, LogBatch};
pub use model::{Limits, Member, RecordState, StateBatch};
pub use partition::{LoadError, SharePartition};
pub use timer_wheel::TimerWheel;
pub use writes::{Write, WriteId};
